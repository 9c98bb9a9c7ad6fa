# `make demo` and `make test` need Python >= 3.11 and nothing else; they set up .venv themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
QUICKSTART := notebooks/00-quickstart.ipynb

.PHONY: help demo test lab lint format bench clean

help:
	@echo "make demo    run the quick start, print its findings, write demo.html"
	@echo "make test    lint, type-check and test"
	@echo "make lab     open the quick start in JupyterLab"
	@echo "make bench   measure the figures of the README"
	@echo "make clean   remove what the others made"

# The stamp is renewed whenever what is to be installed changes.
$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ddt-notebook needs Python 3.11 or later, but $(PYTHON) is older: make PYTHON=python3.12 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[lab,test]'
	@touch $@

$(VENV)/.installed-bench: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench]'
	@touch $@

demo: $(VENV)/.installed
	$(BIN)/ddt-notebook demo

test: lint
	$(BIN)/python -m pytest

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lab: $(VENV)/.installed
	$(BIN)/jupyter lab $(QUICKSTART)

bench: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache build dist demo.html
	find ddt_notebook tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
