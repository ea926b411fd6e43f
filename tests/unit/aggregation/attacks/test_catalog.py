import pytest
import torch

from pliska.aggregation import (
    AttackName,
    ParameterError,
    UnknownNameError,
    attack_named,
    attack_names,
)


def honest_rows(h: int = 6, d: int = 300) -> torch.Tensor:
    return 1 + torch.randn(h, d, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", attack_names())
@pytest.mark.parametrize("h", [1, 6])
def test_attack_forges_rows_like_the_honest_ones_and_changes_none(name: str, h: int) -> None:
    honest = honest_rows(h).reshape(h, 30, 10).double()
    before = honest.clone()
    forged = attack_named(name)(honest, 2, torch.Generator().manual_seed(2))
    assert forged.shape == (2, 30, 10)
    assert forged.dtype == honest.dtype
    assert torch.equal(honest, before)


@pytest.mark.parametrize("name", attack_names())
def test_no_attack_sends_what_an_honest_worker_would(name: str) -> None:
    # Garfield's attack by dropped values changes a copy and sends the original.
    honest = honest_rows()
    parameters = {"alie": {"z": 1.5}, "delayed": {"past": honest[:1]}}.get(name, {})
    forged = attack_named(name, **parameters)(honest, 2, torch.Generator().manual_seed(2))
    if name == "mimic":  # copies an honest row, which is the lie
        assert any(torch.equal(forged[0], row) for row in honest)
    else:
        assert not torch.allclose(forged[0], honest.mean(dim=0), equal_nan=True)


@pytest.mark.parametrize("name", attack_names())
def test_attack_is_a_function_of_its_arguments_alone(name: str) -> None:
    state = torch.get_rng_state()
    forged = [
        attack_named(name)(honest_rows(), 2, torch.Generator().manual_seed(3)) for _ in range(2)
    ]
    assert torch.equal(*(row.nan_to_num(nan=-1) for row in forged))
    assert torch.equal(torch.get_rng_state(), state)


def test_unknown_attack_and_parameter_suggest_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="'signflip'; did you mean 'sign-flip'"):
        attack_named("signflip")
    with pytest.raises(ParameterError, match="no parameter 'epsilom'; did you mean 'epsilon'"):
        attack_named("ipm", epsilom=1)
    with pytest.raises(ParameterError, match="no parameter 'scale'; it takes none"):
        attack_named("nan", scale=1)


def test_every_name_has_its_function_but_the_one_on_labels() -> None:
    assert set(attack_names()) == set(AttackName) - {AttackName.LABEL_FLIP}
