# The developer's manual: each target makes what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test sim check bench format clean

# pip takes torch's CPU build where one is offered beside the ordinary one
# (see "Installing torch" in the README).
$(VENV)/demo.stamp: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Pliska needs Python 3.11 or newer; name one with: make PYTHON=python3.12")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) -e '.[demo]'
	touch $@

$(VENV)/test.stamp: $(VENV)/demo.stamp
	$(INSTALL) -e '.[test]'
	touch $@

demo: $(VENV)/demo.stamp
	$(BIN)/pliska demo $(ARGS)

# Three processes, since many tests wait for servers and leases rather than compute; the
# tests of a file stay together, because they share servers. Long ones first, which is the order
# of the names, rather than the files with the most tests: so nobody waits for the last one.
test: $(VENV)/test.stamp
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(ARGS)

# Locks among faults, drawn from seeds: SEEDS=1000 for long, SEED=17 to play one plan again,
# ARGS="-k embedded" for one store. Then promotions and rollbacks among kill -9, for CHAOS_S
# seconds on each store, and their protocol explored in the larger models. Then a job of a
# hundred rounds on each store, its leader killed every four rounds.
SEEDS ?= $(if $(SEED),$(SEED)-$(SEED),200)
CHAOS_S ?= 180
chaos: $(VENV)/test.stamp
	PLISKA_CHAOS_SEEDS=$(SEEDS) PLISKA_REGISTRY_CHAOS_S=$(CHAOS_S) PLISKA_REGISTRY_MODEL=large \
		$(BIN)/python -m pytest tests/chaos/test_chaos.py tests/registry_chaos \
		tests/registry_model $(ARGS)
	PLISKA_KILL_ROUNDS=100 $(BIN)/python -m pytest tests/integration/test_leader_kills.py $(ARGS)

# Coordinators and workers in a simulated world: SEEDS=10000 for long, SEED=17 to play one again.
sim: $(VENV)/test.stamp
	PYTHONHASHSEED=0 PLISKA_SIMULATION_SEEDS=$(SEEDS) $(BIN)/python -m pytest -q -n 2 tests/simulation/test_simulation.py $(ARGS)

check: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# One benchmark of benchmarks/: make bench BENCH=coordination. OPENBLAS_CORETYPE, where
# it is set, would slow NumPy's own kernels; a benchmark runs without it.
bench: $(VENV)/test.stamp
	env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE PYTHONPATH=tests:benchmarks \
		$(BIN)/python benchmarks/$(BENCH).py $(ARGS)

format: $(VENV)/test.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
