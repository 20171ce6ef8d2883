# make book     the whole book at profile smoke, from a fresh clone
# make test     lint, types, tests, notebooks (minutes)
# make thorough the tests that take long: 2,000 worlds, every checkpoint, kills, pages
# Needs Python 3.11 to 3.14, git and make; everything else goes into .venv.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export OMP_NUM_THREADS ?= 1
# Another Python than the first one found: make book PYTHON=/path/to/python3
PYTHON ?=
PYTEST_WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help setup lab book laptop test thorough format bench clean

help: ## list the targets
	@echo "usage: make TARGET [PYTHON=python3.12]"
	@sed -n 's/^\([a-z]*\):.*## /  \1\t/p' Makefile

setup: $(STAMP) ## create .venv and install, unless that is done
	@:

lab: $(STAMP) ## open the chapters in JupyterLab
	@$(BIN)/jupyter lab --ServerApp.root_dir="$(CURDIR)" notebooks/0_start/start_here.ipynb

book: $(STAMP) ## regenerate every notebook at profile smoke and build the HTML book
	@$(BIN)/fl-core book --profile smoke

laptop: $(STAMP) ## the same at profile laptop: the published results
	@$(BIN)/fl-core book --profile laptop

test: $(STAMP) ## lint, format check, type check, tests, notebooks
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy
	$(BIN)/python -m pytest -q -n $(PYTEST_WORKERS) --no-loadscope-reorder

thorough: $(STAMP) ## the tests that take long; FL_BOOK_HTML=_build/smoke/html has them read a book that is built
	HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest -q -n $(PYTEST_WORKERS) --durations 15 -m "(thorough or hypothesis) and not alone" tests
	$(BIN)/python -m pytest -q -n 0 -m alone tests

format: $(STAMP) ## rewrite sources as ruff formats them, and execute and normalise the notebooks
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .
	$(BIN)/python -m fl_core.bookbuild.notebooks refresh

bench: $(STAMP) ## measure speed and memory against targets (about 15 minutes)
	@$(BIN)/fl-core bench

clean: ## remove built books and caches, keep .venv and data
	rm -rf _build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find fl_core tests book notebooks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# The stamp holds the folder it was made for: a checkout that was moved or copied is installed anew.
ifneq ($(shell cat $(STAMP) 2>/dev/null),$(CURDIR))
.PHONY: $(STAMP)
endif

$(STAMP): pyproject.toml constraints.txt
	@command -v git >/dev/null 2>&1 || { echo "error: git is not installed; results record the commit they come from" >&2; exit 1; }
	@fits='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))'; found=; \
	for python in $(or $(PYTHON),python3.11 python3.12 python3.13 python3.14 python3 python); do \
	  if "$$python" -c "$$fits" >/dev/null 2>&1; then found=$$python; break; fi; \
	done; \
	if [ -z "$(PYTHON)" ] && $(BIN)/python -c "import pip; $$fits" >/dev/null 2>&1; then exit 0; fi; \
	if [ -z "$$found" ]; then \
	  echo "error: no Python 3.11 to 3.14 found$(if $(PYTHON), as PYTHON=$(PYTHON),; name one with make PYTHON=/path/to/python3)" >&2; exit 1; \
	fi; \
	"$$found" -c 'import venv, ensurepip' 2>/dev/null || { echo "error: $$found has no module venv; on Debian or Ubuntu install the package python3-venv" >&2; exit 1; }; \
	echo "creating $(VENV) with $$("$$found" --version)"; \
	"$$found" -m venv --clear $(VENV) || { echo "error: $$found could not create $(VENV)" >&2; exit 1; }
	@echo "installing into $(VENV) (about 1.6 GB, once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[book,dev,cluster]" || { \
	  echo "error: the installation failed, pip says why above; is the package index reachable? 'make' again continues" >&2; exit 1; }
	@echo "$(CURDIR)" > $@
