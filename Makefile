# Everything a developer types. `make` alone prints the targets; each sets up what it needs inside this folder.
#
# Needs Python 3.11 or newer, Java 17 or newer (for Spark) and the package registries; `compat` also Maven.
# Variables: PYTHON (the interpreter to build .venv from), JOBS (test processes), ARGS (passed on to the tool),
# TIDELOG_CACHE (where downloads are kept).

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

JOBS ?= 2
ARGS ?=
TIDELOG_CACHE ?= .cache
export TIDELOG_CACHE

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

KAFKA_POM := tests/compat/kafka/pom.xml
KAFKA_VERSION := $(shell sed -n 's:.*<kafka.version>\(.*\)</kafka.version>.*:\1:p' $(KAFKA_POM))
KAFKA_JARS := $(TIDELOG_CACHE)/kafka-$(KAFKA_VERSION)

# Spark's own Kafka source, to compare ours with.
CONNECTOR_POM := tests/compat/spark/pom.xml
CONNECTOR_VERSION := $(shell sed -n 's:.*<connector.version>\(.*\)</connector.version>.*:\1:p' $(CONNECTOR_POM))
CONNECTOR_JARS := $(TIDELOG_CACHE)/connector-$(CONNECTOR_VERSION)

.PHONY: help demo test lint fmt compat campaign bench docs clean browser

help:
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

demo: $(READY) ## make a log directory, run Spark over it, print what was found (needs Java 17)
	$(BIN)/python examples/demo.py $(ARGS)

test: $(READY) ## run every test that needs no Kafka (those of Spark need Java 17)
	TIDELOG_REQUIRE_SPARK=1 $(BIN)/pytest -n $(JOBS) --dist worksteal $(ARGS)

lint: $(READY) ## check style, types and the arrows between packages
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

fmt: $(READY) ## format the code and mend what the linter can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

compat: $(READY) $(KAFKA_JARS)/.complete $(CONNECTOR_JARS)/.complete browser ## run the tests against Apache Kafka and Spark's source (needs Java 17 and Maven)
	TIDELOG_REQUIRE_KAFKA=1 $(BIN)/pytest -n $(JOBS) --dist worksteal tests/compat $(ARGS)
	PYTHONPATH="$(CURDIR)" TIDELOG_REQUIRE_SPARK=1 TIDELOG_SPARK_MASTER='local-cluster[2,1,1024]' $(BIN)/pytest tests/spark $(ARGS)

campaign: $(READY) ## run fuzz, crash and damage tests at full size
	$(BIN)/python -m tests.campaign $(ARGS)

bench: $(READY) ## measure, print the ratios, write bench/results.json
	$(BIN)/python -m bench $(ARGS)

docs: $(READY) ## print the ledger of behaviours, write docs/behaviours.md and docs/cli.md
	$(BIN)/python -m tests.ledger
	$(BIN)/python -m tests.cli_page
	$(BIN)/python -m tests.spark_page

clean: ## remove .venv, downloads and caches
	rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A browser for the report of `tidelog spark profile`. Without the right to install one its tests skip and say so.
browser:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && echo "installing Chromium" && apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium >/dev/null; } \
	  || echo "no Chromium, and no right to install it: the report is not looked at"

# The environment. PYTHON, else the first interpreter on the path that is new enough. pip of Python 3.11 knows no
# dependency groups, so pip comes first. The stamp is written last: an interrupted set-up is taken up again.
$(READY): pyproject.toml
	@if ! $(BIN)/python -c '' 2>/dev/null; then \
	  for candidate in $(or $(PYTHON),python3.11 python3 python3.12 python3.13); do \
	    if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$candidate; break; fi; \
	  done; \
	  if [ -z "$${found:-}" ]; then \
	    echo "tidelog needs Python 3.11 or newer: none found as $(or $(PYTHON),python3.11 or python3); try make PYTHON=/path/to/python" >&2; exit 1; \
	  fi; \
	  echo "setting up $(VENV) with $$("$$found" --version)"; \
	  "$$found" -m venv --clear $(VENV) || { echo "no virtual environment: on Debian, install python3-venv" >&2; exit 1; }; \
	fi
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@echo "installing tidelog and what its developers need"
	@$(BIN)/python -m pip install --quiet --editable . --group dev
	@touch $@

# Jars. They are copied to one side and renamed when complete, so a torn download never looks finished; a registry that
# stumbles gets a second chance.
$(KAFKA_JARS)/.complete: $(KAFKA_POM)
$(CONNECTOR_JARS)/.complete: $(CONNECTOR_POM)
$(KAFKA_JARS)/.complete $(CONNECTOR_JARS)/.complete:
	@command -v java >/dev/null || { echo "make compat needs Java 17 or newer (java is not on the path)" >&2; exit 1; }
	@command -v mvn >/dev/null || { echo "make compat needs Maven (mvn is not on the path)" >&2; exit 1; }
	@echo "fetching the jars of $(@D)"
	@rm -rf "$(@D).partial" && mkdir -p "$(@D).partial"
	@fetch() { mvn -q -B -Dstyle.color=never -f $< dependency:copy-dependencies -DoutputDirectory="$$(realpath "$(@D).partial")" "$$@"; }; \
	  fetch || { echo "the download failed, trying once more" >&2; fetch -U; } \
	  || { echo "the jars of $(@D) could not be fetched" >&2; exit 1; }
	@rm -rf "$(@D)"
	@mv "$(@D).partial" "$(@D)"
	@touch "$@"
