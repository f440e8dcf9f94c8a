# Every target makes what it needs first; `make clean` takes it all away again.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: help demo test browser lint fuzz audit lock
.PHONY: bench bench-small bench-csv bench-transport bench-fit bench-ray
.PHONY: coverage test-slow monitor postgres prometheus pages docs dist clean

help:
	@echo "make demo            accuracy on real digits under shifts without labels, beside the truth"
	@echo "make test            lint, types, import rules and all tests"
	@echo "make lint            the same without the tests"
	@echo "make browser         Chromium (Debian package), in which tests open the report; part of make test"
	@echo "make fuzz            hostile arrays, options and files against the public API (4 minutes; SECONDS=20 SEED=0)"
	@echo "make audit           known vulnerabilities of the locked packages; fails where they cannot be looked up"
	@echo "make lock            constraints.txt anew, from a fresh environment"
	@echo "make bench           speed against the bare matrix product (minutes)"
	@echo "make bench-small     the paper's tables, ablations and figures in small: digits, five corruptions (2 minutes)"
	@echo "make bench-csv       estimates of 5,000,000 rows of CSV beside Parquet: rows/s and memory (2 GB of disk)"
	@echo "make bench-fit       fitting against the bare forward passes, estimating against reading (2 minutes; DEVICE=cuda on a GPU)"
	@echo "make bench-transport transport solver against POT"
	@echo "make coverage        the tests with coverage of lines, at least 90 % (ten minutes)"
	@echo "make test-slow       tests of faults in a Ray cluster (minutes)"
	@echo "make bench-ray       estimates of 100,000,000 rows on 1 and 2 Ray workers (7 minutes, 1.1 GB of disk; ROWS=2000000 for less)"
	@echo "make pages           measured numbers of README and docs anew, from benchmarks/results"
	@echo "make monitor         the monitor on sixty days of digits, at http://127.0.0.1:8600"
	@echo "make postgres        tests of the monitor on PostgreSQL too: installs it if need be, starts it in a temporary folder"
	@echo "make prometheus      tests of the monitor with a real Prometheus: installs it if need be (Debian package)"
	@echo "make docs            HTML documentation in site/; runs the tutorials (1 minute)"
	@echo "make dist            source archive and wheel in dist/; README with the wheel in a fresh environment"

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

test: lint browser
	$(BIN)/pytest -n 2 --dist loadfile

coverage: $(VENV)/.dev browser
	$(BIN)/pytest -n 2 --dist loadfile --cov

# Tests open the report in Chromium and are skipped without it, so a machine that cannot have it is no failure.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	  { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; } || \
	  echo "Chromium could not be installed: the tests that need a browser are skipped"

SECONDS ?= 20
SEED ?= 0
fuzz: $(VENV)/.dev
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) --seed $(SEED)

# Versions are looked up as they are in constraints.txt: those of the environment may be builds that no index knows.
audit: $(VENV)/.dev
	@log=$$(mktemp) && trap 'rm -f '$$log EXIT && \
	if $(BIN)/pip-audit --strict --no-deps --disable-pip --progress-spinner off --requirement constraints.txt 2>$$log; \
	then echo "audit: no known vulnerabilities in $$(grep -c == constraints.txt) packages"; \
	elif grep -q '^ERROR' $$log; then grep '^ERROR' $$log >&2; \
	echo "audit: FAILED, as the advisories of at least one package could not be reached: nothing is known" >&2; exit 1; \
	else cat $$log >&2; echo "audit: FAILED, as the packages above have known vulnerabilities" >&2; exit 1; fi

lock:
	rm -rf .venv-lock
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/pip install --quiet torch==2.13.0 --editable ".[dev]"
	{ grep '^#' constraints.txt; .venv-lock/bin/pip freeze --exclude-editable | sed 's/+cpu$$//'; } > .venv-lock/constraints.txt
	mv .venv-lock/constraints.txt constraints.txt
	rm -rf .venv-lock

test-slow: $(VENV)/.dev
	$(BIN)/pytest -m slow

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks.speed.scores

bench-small: $(VENV)/.dev
	$(BIN)/python -m benchmarks.paper.small

bench-csv: $(VENV)/.dev
	$(BIN)/python -m benchmarks.speed.csv_reading

bench-transport: $(VENV)/.dev
	$(BIN)/python -m benchmarks.speed.transport

DEVICE ?= cpu
bench-fit: $(VENV)/.dev
	$(BIN)/python -m benchmarks.speed.fit --device $(DEVICE)
	$(BIN)/python -m benchmarks.speed.estimate

ROWS ?= 100000000
bench-ray: $(VENV)/.dev
	$(BIN)/python -m benchmarks.speed.ray_scale --rows $(ROWS)

pages: $(VENV)/.dev
	$(BIN)/python -m benchmarks.pages

$(VENV)/.monitor: $(VENV)/.user
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[monitor]"
	touch $@

monitor: $(VENV)/.monitor
	mkdir -p out
	$(BIN)/gdscore monitor demo --file out/monitor-demo.db

postgres: $(VENV)/.dev
	@started=$$(deploy/postgres.sh start) && url=$${started% *} && folder=$${started##* } && \
	trap "deploy/postgres.sh stop $$folder" EXIT && GDSCORE_TEST_POSTGRES="$$url" $(BIN)/pytest tests/monitor

prometheus: $(VENV)/.dev
	@command -v prometheus >/dev/null || { sudo=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	  $$sudo apt-get update -qq && $$sudo apt-get install -y -qq --no-install-recommends prometheus >/dev/null; }
	$(BIN)/pytest tests/monitor/test_prometheus.py tests/monitor/test_deploy.py

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

dist: $(VENV)/.dev
	rm -rf dist .venv-dist
	$(BIN)/python -m build --outdir dist .
	$(PYTHON) -m tarfile --list dist/*.tar.gz
	$(PYTHON) -m zipfile --list dist/*.whl
	$(PYTHON) -m venv .venv-dist
	.venv-dist/bin/pip install --quiet --constraint constraints.txt dist/*.whl
	.venv-dist/bin/gdscore --help > .venv-dist/help.txt
	.venv-dist/bin/pip install --quiet --constraint constraints.txt torch pandas
	cd .venv-dist && PYTHONPATH=.. bin/python -m tests.readme
	rm -rf .venv-dist
	@ls -l dist

clean:
	rm -rf $(VENV) site dist .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
