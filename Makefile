# `make retrain` and `make test` each do the whole set-up on a fresh machine; `make check` is what .ci/run runs.
VENV    := .venv
BIN     := $(VENV)/bin
PYTHON  ?= python3
STORE   ?= .firth

.PHONY: retrain test test-long check format lint types install clean

retrain: install
	$(BIN)/firth retrain quick-thoughts-bag --corpus pydoc: --register docs --store $(STORE)
	$(BIN)/firth search docs "sort the rows of a table by several columns" --corpus pydoc: --store $(STORE)
	$(BIN)/firth search docs "wait until a child process has ended" --corpus pydoc: --store $(STORE)

test: install
	$(BIN)/pytest

test-long: install
	$(BIN)/pytest -m long

check: install format lint types test

format: install
	$(BIN)/ruff format --check .

lint: install
	$(BIN)/ruff check .

types: install
	$(BIN)/mypy

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
