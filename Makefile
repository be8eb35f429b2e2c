# One word per job. Everything a job needs is installed by the job itself.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
ARGS   ?=

.DEFAULT_GOAL := help
.PHONY: help up test check bench chaos fmt lock servers examples clean

help: ## Show what there is to run
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: $(STAMP) servers ## Run the whole service on this machine (Ctrl-C stops it)
	@exec $(BIN)/novel up $(ARGS)

test: $(STAMP) servers examples ## Run every test against a real MariaDB and a real Redis
	@$(BIN)/python -m pytest -n 2 $(ARGS)

check: $(STAMP) ## Formatting, lint, types and architecture
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q tests/architecture

bench: $(STAMP) servers ## Measure, each figure beside its bare counterpart (ARGS="--quick", "--only NAME")
	@$(BIN)/python -m loadtests.bench $(ARGS)

chaos: $(STAMP) servers ## Kill workers while crawlers push, and see that nothing is lost (ARGS="--items 5000", "--seed N")
	@$(BIN)/python -m loadtests.chaos $(ARGS)

fmt: $(STAMP) ## Format the code and fix what can be fixed
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .

lock: ## Resolve the dependencies anew into requirements.lock
	@$(PYTHON) -m venv $(VENV)-lock && $(VENV)-lock/bin/pip install --quiet uv
	@$(VENV)-lock/bin/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --upgrade \
		--generate-hashes --no-emit-index-url --no-annotate --custom-compile-command "make lock" \
		--quiet --output-file requirements.lock
	@rm -rf $(VENV)-lock

servers:
	@deploy/debian-packages.sh servers

examples:
	@deploy/debian-packages.sh examples

clean: ## Delete the virtual environment and all local data
	rm -rf $(VENV) .local .mypy_cache .ruff_cache .pytest_cache

$(STAMP): requirements.lock pyproject.toml
	@deploy/debian-packages.sh python "$(PYTHON)"
	@echo "Installing Python packages into $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@
