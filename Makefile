# Everything runs in .venv, made on first use. Only Python >= 3.11 and make are needed beforehand.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test lint format bench reproduce clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

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

$(VENV)/.installed-bench: $(VENV)/.installed
	@echo "installing the benchmark peers ..."
	$(PIP) -e '.[bench]'
	@touch $@

demo: $(VENV)/.installed  ## train two models on the sprite world, examine both, write a report
	$(BIN)/polariscope demo

test: $(VENV)/.installed-test  ## the whole test suite, with lint and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 --dist loadgroup

lint: $(VENV)/.installed-test  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed-test  ## let ruff rewrite the files
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed-bench  ## speed, as ratios against peers in the same run
	$(BIN)/python -m benchmarks

reproduce: $(VENV)/.installed  ## every study at laptop scale (hours), into results/
	$(BIN)/polariscope reproduce all --scale laptop

clean:  ## remove the environment and caches; runs/ and results/ are yours and stay
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf src/*.egg-info
