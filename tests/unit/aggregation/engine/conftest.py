import pytest

from pliska.aggregation.engine.compiler import Host, host


@pytest.fixture(scope="session")
def target() -> Host:
    found = host()
    if found is None:
        pytest.skip("no llvmlite here, or no kernels for this CPU")
    return found
