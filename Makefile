# Every verb of the project. `make help` lists them; each sets up what it needs.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CODE := parallax replicator offsetsvc syncjob console lab
# Who works where is told by tests/conftest.py. A third worker with a stack would need a third set of brokers, and what is heavy
# takes twice as long beside it. A worker that dies ends the run: its tests would be given to one that may wait for ever.
TWO_WORKERS := --numprocesses 2 --max-worker-restart 0 --dist loadgroup --no-loadscope-reorder
# Tests without a stack wait for half of their time: the worlds of tests/properties take what they leave, and may have to wait for
# it longer than a test may take that has the machine.
# Linux shares time between sessions first (autogroup), where it is told to: nice counts within one only.
IN_THE_TIME_LEFT := --timeout 1200 --override-ini faulthandler_timeout=1180
BESIDE := setsid env --default-signal=INT bash -c '{ echo 19 >/proc/self/autogroup; } 2>/dev/null; exec nice -n 19 "$$0" "$$@"'
STOPPED_BY_HAND := env --default-signal=INT # a shell lets what it runs beside ignore Ctrl-C

.DEFAULT_GOAL := help
.PHONY: help setup demo prove storm soak simulate worlds bench bench-full mechanisms modes pictures test test-fast test-one test-wide test-rules test-console screenshots docs lint types format formats proto check licences sbom lock clean

help: ## List the verbs
	@grep -hE '^[a-z-]+:.*?## ' $(MAKEFILE_LIST) | awk 'BEGIN {FS = ":.*?## "}; {printf "  make %-12s %s\n", $$1, $$2}'

setup: $(STAMP) ## Create .venv from the locked dependencies
$(STAMP): requirements/dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; choose one with PYTHON=...")'
	@test -x $(BIN)/uv || { $(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install --quiet --disable-pip-version-check uv; }
	@$(BIN)/uv pip sync --quiet --compile-bytecode --python $(BIN)/python requirements/dev.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable .
	@$(BIN)/python -m compileall -q $(CODE)
	@touch $@

lock: ## Resolve the dependencies anew into requirements/*.lock
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --extra dev -o requirements/dev.lock pyproject.toml
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --extra server --extra replicator --extra console -o requirements/services.lock pyproject.toml

lint: setup ## Ruff, formatting included
	@$(BIN)/ruff check $(CODE) tests proto requirements
	@$(BIN)/ruff format --check $(CODE) tests proto requirements

types: setup ## Strict mypy
	@$(BIN)/mypy

format: setup ## Apply ruff's fixes and formatting
	@$(BIN)/ruff check --fix $(CODE) tests proto requirements
	@$(BIN)/ruff format $(CODE) tests proto requirements

formats: setup ## Keep what is stored now under tests/golden/formats, if it has changed
	@$(BIN)/python -m tests.golden.stored_formats

proto: setup ## Generate the protobuf code under parallax/v1
	@$(BIN)/python proto/generate.py

check: lint types sbom ## Lint, types, drift of what is generated, and the bill of materials
	@$(BIN)/python proto/generate.py --check
	@$(BIN)/python -m requirements.licences --check
	@$(BIN)/python -m lab.dashboards --check

pictures: setup ## Draw the pictures of the pages anew (docs/pictures)
	@$(BIN)/python -m tests.worlds.pictured

docs: setup ## The documentation as a site to read offline (build/site), with the reference of both APIs
	@$(BIN)/python -m mkdocs build --strict --quiet && echo build/site/index.html

licences: setup ## Write the table of dependencies and their licences into docs/licences.md
	@$(BIN)/python -m requirements.licences

sbom: setup ## Bill of materials of what the services install (build/sbom.json, CycloneDX)
	@$(BIN)/python -m requirements.sbom

test: setup ## The tests, on the real stack (test-wide, test-rules, test-console and modes play what takes more)
	@mkdir -p build; failed=0; \
	$(BESIDE) $(BIN)/pytest $(TWO_WORKERS) $(IN_THE_TIME_LEFT) tests/properties >build/test-properties.log 2>&1 & worlds=$$!; \
	trap 'kill -INT $$worlds; wait; exit 130' INT; trap 'kill -INT $$worlds $$others; wait; exit 143' TERM; \
	$(STOPPED_BY_HAND) $(BIN)/pytest $(TWO_WORKERS) -m "not stack" --ignore tests/properties & others=$$!; wait $$others || failed=$$?; \
	$(STOPPED_BY_HAND) $(BIN)/pytest $(TWO_WORKERS) -m stack tests/contract tests/integration tests/e2e & others=$$!; wait $$others || failed=$$?; \
	wait $$worlds || failed=$$?; cat build/test-properties.log; exit $$failed

test-fast: setup ## The tests that need no stack
	@$(BIN)/pytest $(TWO_WORKERS) -m "not stack"

test-one: setup ## One test, file or folder, or by words of names: T=tests/unit/... or T="words"; STACK=folder of a running stack
	@test -n "$(T)" || { echo 'make test-one T=tests/unit/parallax/domain/test_primary.py (or T="a test_name or other")'; exit 2; }
	@$(if $(STACK),PARALLAX_TEST_INFRASTRUCTURE=$(STACK) PARALLAX_TEST_STACK=$(STACK)) $(BIN)/pytest --tb=short -v $(if $(findstring tests/,$(T)),$(T),-k "$(T)")

test-wide: setup ## What takes several brokers a cluster, Spark workers or datacenters, three regions, or each mechanism of SASL
	@$(BIN)/pytest tests/wide

test-rules: setup ## Rules, alerts and dashboards on Debian's prometheus and prometheus-alertmanager, which have to be installed
	@for tool in promtool prometheus amtool; do command -v $$tool >/dev/null || { echo "$$tool is missing: apt-get install prometheus prometheus-alertmanager"; exit 2; }; done
	@cd deploy/prometheus && promtool check config prometheus.yaml && promtool test rules rules-test.yaml && amtool check-config alertmanager.yaml
	@$(BIN)/python -m tests.worlds.scrapes | promtool check metrics
	@$(BIN)/python -m tests.worlds.watched

test-console: setup ## Every page of the console in Debian's chromium, and alerts in its prometheus, which have to be installed, on a real stack
	@for tool in chromium prometheus; do command -v $$tool >/dev/null || { echo "$$tool is missing: apt-get install $$tool"; exit 2; }; done
	@$(BIN)/pytest tests/browser

screenshots: setup ## Take the pictures of the console's pages anew (docs/pictures), on a real stack with Debian's chromium
	@PARALLAX_SCREENSHOTS=docs/pictures $(BIN)/pytest tests/browser/test_console_pages.py -k pictures

mechanisms: setup ## Copy, publish, fail over and drill by every mechanism of SASL and by mutual TLS (a part of test-wide)
	@$(BIN)/pytest tests/wide/test_secure_mechanisms.py

modes: setup ## Lose replicators and regions in every shape of routes, and play it beside MirrorMaker 2 (test plays the shapes, and fewer kills)
	@PARALLAX_TEST_MODES=all $(BIN)/pytest tests/integration/test_modes.py tests/modes

demo: setup ## Lose a region under load, fail over and back (KEEP=1: leave the stack up; REPLICATOR_DIES=1: kill that too; SECURE=1: TLS and least rights; MODE=two-way|active-standby: one cluster a region)
	@$(BIN)/python -m lab.demo $(if $(filter-out 0,$(KEEP)),--keep) $(if $(filter-out 0,$(REPLICATOR_DIES)),--replicator-dies) $(if $(filter-out 0,$(SECURE)),--secure) $(if $(MODE),--mode $(MODE))

prove: setup ## Hold every record and the answer for every offset against the truth, after a kill -9 (STORE_LOST=1: and the loss of Cassandra)
	@$(BIN)/python -m lab.prove $(if $(filter-out 0,$(KEEP)),--keep) $(if $(filter-out 0,$(STORE_LOST)),--store-lost)

storm: setup ## Play random faults over groups that move, and count every record: SEED=n (SCHEDULE_ONLY=1: only print them)
	@$(BIN)/python -m lab.storm --seed $(or $(SEED),1) $(if $(filter-out 0,$(SCHEDULE_ONLY)),--dry-run) $(if $(filter-out 0,$(KEEP)),--keep)

soak: setup ## Steady load for MINUTES=60 with a kill a minute: nothing lost, nothing twice, nothing grows (build/soak/picture.svg)
	@$(BIN)/python -m lab.soak --minutes $(or $(MINUTES),60) $(if $(filter-out 0,$(KEEP)),--keep)

simulate: setup ## Play simulated lives of routes and judge them: SEEDS=n or FROM:TO (SEED=n: play one and print what happens)
	@$(BIN)/python -m tests.worlds.sim.run $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),2000))

worlds: setup ## Play long random worlds of the resume rule: SEEDS=n or FROM:TO (SEED=n: play one again)
	@$(BIN)/python -m tests.worlds.run $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),3000))

bench: setup ## Measure against MirrorMaker 2 on this machine: the main set (SMOKE=1: tiny, only to try it)
	@$(BIN)/python -m lab.bench $(if $(filter-out 0,$(SMOKE)),--smoke)

bench-full: setup ## Measure one row of the full set: ROW=name, gone on with where it stopped (without ROW: list them)
	@$(BIN)/python -m lab.bench $(if $(ROW),--row $(ROW),--list) $(if $(filter-out 0,$(SMOKE)),--smoke)

clean: ## Remove build output and caches (not the artifact cache)
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
