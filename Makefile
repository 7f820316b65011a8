# `make` tells what there is. Every target sets up first what it needs (deploy/set-up.sh).

PYTHON_IN_VENV := .venv/bin/python
PYTEST_ARGS ?=
BENCH_ARGS ?=
CONFORMANCE_ARGS ?=
export DATA LISTEN DRIVER CONFIG PYTHON UPGRADE

.DEFAULT_GOAL := help
.PHONY: help up region test conformance check bench papers lock clean set-up

region test bench: export WITH := region

help: ## tell what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-6s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: set-up ## run the ledger until Ctrl-C; DATA=DIR LISTEN=HOST:PORT DRIVER=fake|test|libvirt CONFIG=FILE
	@exec $(PYTHON_IN_VENV) deploy/make_up.py

region: set-up ## run a distributed ledger on this machine until Ctrl-C: PostgreSQL, Kafka, every role; DIR=DIRECTORY
	@test -n "$(DIR)" || { echo "make region: say where it keeps its state: DIR=DIRECTORY" >&2; exit 2; }
	@exec $(PYTHON_IN_VENV) deploy/region.py run "$(DIR)"

test: set-up ## run every test, guests in QEMU included; PYTEST_ARGS='-k words'
	@$(PYTHON_IN_VENV) -m pytest -p tests.support.skips $(PYTEST_ARGS)

conformance: set-up ## have Nova's own tests and schemas judge the Compute API; CONFORMANCE_ARGS=--write
	@$(PYTHON_IN_VENV) -m pytest tests/conformance
	@$(PYTHON_IN_VENV) -m tests.conformance $(CONFORMANCE_ARGS)

check: set-up ## formatting, lint, types, the rules of who imports whom
	@failed=0; \
	for step in "ruff format --check ." "ruff check ." mypy lint-imports; do \
	  echo "$$step"; .venv/bin/$$step || failed=1; \
	done; exit $$failed

bench: set-up ## measure both deployments as their clients see them, and print a table; BENCH_ARGS=
	@$(PYTHON_IN_VENV) -m tests.benchmarks.run $(BENCH_ARGS)

papers: set-up ## write anew the parts of the documents that are made from the code
	@$(PYTHON_IN_VENV) -m tests.papers.generated
	@$(PYTHON_IN_VENV) -m tests.papers.events_document
	@$(PYTHON_IN_VENV) -m tests.papers.asyncapi

lock: set-up ## write requirements.lock anew, older versions kept where they will do; UPGRADE=1 takes the newest
	@deploy/lock.sh

clean: ## remove all that was made here: .venv, caches; not the ledger's data
	@rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

set-up:
	@deploy/set-up.sh
