# Every target makes what it needs first; `make clean` takes it all away again.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: help demo test lint bench bench-small bench-memory bench-transport docs clean

help:
	@echo "make demo            accuracy on real digits under shifts without labels, beside the truth"
	@echo "make test            lint, types, room rules and all tests with coverage"
	@echo "make lint            the same without the tests"
	@echo "make bench           speed against the bare matrix product (minutes)"
	@echo "make bench-small     the paper's tables, ablations and figures in small: digits, five corruptions (3 minutes)"
	@echo "make bench-memory    memory and rows/s on 100,000 and 1,000,000 rows of Parquet (2 GB of disk)"
	@echo "make bench-transport exact transport solver against POT"
	@echo "make docs            HTML documentation in site/"

$(VENV)/.user: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.user
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

demo: $(VENV)/.user
	$(BIN)/gdscore demo --output out/demo

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/pytest -n 2 --cov

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/speed.py

bench-small: $(VENV)/.dev
	$(BIN)/python benchmarks/small.py

bench-memory: $(VENV)/.dev
	$(BIN)/python benchmarks/memory.py

bench-transport: $(VENV)/.dev
	$(BIN)/python benchmarks/transport.py

docs: $(VENV)/.dev
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) site .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
