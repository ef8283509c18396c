# Everything runs in .venv, made on first use. Only Python >= 3.11 and make are needed beforehand.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test test-deep test-other-machine test-libraries lint format bench docs reproduce reference-models clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# A stamp per set of extras: reinstalled when the project's own files say so, never otherwise.
$(VENV)/.installed: $(BIN)/python pyproject.toml constraints.txt
	@echo "installing polariscope into $(VENV) ..."
	$(PIP) -e .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	@echo "installing the test extras ..."
	$(PIP) -e '.[test]'
	@touch $@

$(VENV)/.installed-cluster: $(VENV)/.installed-test
	@echo "installing Ray ..."
	$(PIP) -e '.[cluster]'
	@touch $@

$(VENV)/.installed-bench: $(VENV)/.installed
	@echo "installing the benchmark peers ..."
	$(PIP) -e '.[bench]'
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	@echo "installing the documentation extras ..."
	$(PIP) -e '.[docs]'
	@touch $@

demo: $(VENV)/.installed  ## examine trained models, train two more on the sprite world, write reports
	$(BIN)/polariscope demo

test: $(VENV)/.installed-test  ## the whole test suite, with lint and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 --dist loadgroup

# Examples that are new on every run, and many of them; every kill and every damage, of which make test tries a few;
# clusters of Ray. ROOM=tests/theory explores one room.
ROOM ?= tests
test-deep: $(VENV)/.installed-cluster  ## the property tests, at random and for long, and a kill at every write
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "hypothesis or deep" --hypothesis-profile deep $(ROOM)

# Each makes one library round as an older processor would; tests/test_other_machine.py sees that they do.
OTHER_MACHINE := MKL_CBWR=COMPATIBLE ONEDNN_MAX_CPU_ISA=SSE41 OPENBLAS_CORETYPE=Nehalem
NUMERICAL := theory kernels measures nets objectives
test-other-machine: $(VENV)/.installed-test  ## the numerical rooms as another processor would compute them
	env $(OTHER_MACHINE) $(BIN)/python -m pytest -n 2 --dist loadgroup \
		$(addprefix tests/,$(NUMERICAL)) $(addprefix src/polariscope/,$(NUMERICAL))

test-libraries: $(VENV)/.installed-test $(VENV)/.installed-bench  ## models of Lightning, pythae and transformers, made by those libraries
	$(BIN)/python -m pytest tests/subjects/test_libraries.py

lint: $(VENV)/.installed-test  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed-test  ## let ruff rewrite the files
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed-bench  ## speed, as ratios against peers in the same run
	$(BIN)/python -m benchmarks

docs: $(VENV)/.installed-docs  ## the documentation as a site, into site/
	$(BIN)/mkdocs build --strict

reproduce: $(VENV)/.installed  ## every study at laptop scale (hours), into results/
	$(BIN)/polariscope reproduce all --scale laptop

reference-models: $(VENV)/.installed  ## train the models that come with the package (hours), into src/
	$(BIN)/python scripts/make_reference_models.py

clean:  ## remove the environment and caches; runs/ and results/ are yours and stay
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf src/*.egg-info
