# `make` alone lists what one can do.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
ARCHIVED := $(VENV)/.archived
SERVERS := .servers
# One more than there are cores, since some tests wait, and four at most: each has a JVM and starts
# others. A file's tests share what they start.
WORKERS ?= --numprocesses $(shell n=$$(nproc); echo $$(( n < 3 ? n + 1 : 4 ))) --dist loadfile --no-loadscope-reorder

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:

.PHONY: help
help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: setup
setup: $(INSTALLED) ## Install the Python packages into .venv and find or install a JDK
	@PYTHON=$(BIN)/python scripts/ensure-jdk.sh

$(INSTALLED): pyproject.toml constraints.txt
	@PYTHON="$(PYTHON)" scripts/install-packages.sh $(VENV)
	@touch $@

.PHONY: servers
servers: setup ## Find or install the servers that tests run against
	@PYTHON=$(BIN)/python scripts/ensure-servers.sh $(CURDIR)/$(SERVERS)

.PHONY: archive
archive: $(ARCHIVED) ## Archive Spark's classes in .venv: Spark then starts in less time

$(ARCHIVED): $(INSTALLED)
	@$(MAKE) --no-print-directory setup
	@$(BIN)/anabranch prepare
	@touch $@

.PHONY: demo
demo: setup ## Run the demonstration: five scenes, three minutes
	@$(BIN)/anabranch demo

.PHONY: bench
bench: archive ## Measure a hop between two sites
	@$(BIN)/python -m bench hop

.PHONY: test
test: check ## Set up, then check everything but what takes minutes (soak); what CI runs

.PHONY: check
check: servers format-check lint types imports unit ## Check format, lint, types, import rules and tests

.PHONY: format
format: setup ## Rewrite the code in the one format
	@$(BIN)/ruff check --quiet --fix-only src bench simulation tests
	@$(BIN)/ruff format --quiet src bench simulation tests

.PHONY: format-check
format-check: setup ## Check that the code is formatted
	@echo "Format …" && $(BIN)/ruff format --quiet --check src bench simulation tests || \
		{ echo "Run 'make format'." >&2; exit 1; }

.PHONY: lint
lint: setup ## Check the code with ruff
	@echo "Lint …" && $(BIN)/ruff check --quiet src bench simulation tests

.PHONY: types
types: setup ## Check the types with mypy
	@echo "Types …" && $(BIN)/mypy --no-error-summary

.PHONY: imports
imports: setup ## Check that dependencies point downwards
	@echo "Import rules …" && $(BIN)/lint-imports --no-cache --no-logo > $(VENV)/imports.log || \
		{ cat $(VENV)/imports.log >&2; exit 1; }

.PHONY: unit
unit: servers archive ## Run the tests alone; ARGS="-k word" chooses
	@echo "Tests …"; rm -f .pytest_cache/v/cache/lastfailed; code=0; \
	$(BIN)/pytest --quiet -m "not soak" $(WORKERS) $(ARGS) || code=$$?; \
	if [ $$code -ne 1 ] || [ -n "$(ARGS)" ]; then exit $$code; fi; \
	echo "Once more, alone, what has failed. If it passes now, test or product depends on how busy" \
		"the machine is: a defect, to be mended."; \
	$(BIN)/pytest --quiet -m "not soak" -ra --last-failed --last-failed-no-failures none

.PHONY: fast
fast: setup format-check lint types imports ## Check all that needs no JVM; run it before each commit
	@echo "Tests without a JVM …" && $(BIN)/pytest --quiet -m "not spark and not slow and not soak" $(WORKERS) $(ARGS)

.PHONY: soak
soak: servers archive ## What takes long: volume, idling, kills at random with and without standbys
	@$(BIN)/pytest --quiet -m soak
	@ANABRANCH_KILLS=10 $(BIN)/pytest --quiet tests/e2e/test_site_restart.py

.PHONY: size
size: ## Count the modules and lines of the product
	@find src/anabranch -name '*.py' ! -name __init__.py -print0 | xargs -0 cat | wc -l | \
		xargs printf 'The product: %s modules, %s lines.\n' \
		"$$(find src/anabranch -name '*.py' ! -name __init__.py | wc -l)"

.PHONY: clean
clean: ## Remove the virtual environment, caches, build output and run-time state
	@rm -rf $(VENV) $(SERVERS) .anabranch .hypothesis .import_linter_cache .mypy_cache .pytest_cache \
		.ruff_cache build dist spark-warehouse
	@find src bench simulation tests -name __pycache__ -type d -prune -exec rm -rf {} +
