# Two commands do everything on a fresh machine with Python 3.11 or later: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip --quiet --disable-pip-version-check install --constraint constraints.txt
HERE := $(shell pwd | cksum | cut -d" " -f1)
CORE := $(VENV)/core-$(HERE)
DEV := $(VENV)/dev-$(HERE)

.PHONY: demo test test-long bench docs clean

demo: $(CORE)
	@$(BIN)/python -m precad train

# One more worker than cores: some tests wait for processes most of their time.
WORKERS = $$($(BIN)/python -c 'import os; print((os.cpu_count() or 1) + 1)')
PYTEST = $(BIN)/python -m pytest -q --dist worksteal -n $(WORKERS)

# Everything that a change to the core could break; CONTRIBUTING.md lists the rest, which test-long runs.
test: $(DEV)
	@$(BIN)/python -m ruff check
	@$(BIN)/python -m ruff format --check
	@$(BIN)/python -m mypy
	@$(PYTEST) -m "not long"

test-long: $(DEV)
	@$(PYTEST) -m long

docs: $(DEV)
	@$(BIN)/zensical build --strict --clean
	@echo "the documentation is in site/index.html"

bench: $(CORE)
	@$(BIN)/python -m precad bench arithmetic

# A virtual environment that is broken, or was moved, is made anew.
$(CORE): pyproject.toml constraints.txt
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@echo "installing precad into $(VENV) ..."
	@$(INSTALL) --editable '.[train]'
	@touch $@

$(DEV): pyproject.toml constraints.txt | $(CORE)
	@echo "installing the tools for development ..."
	@$(INSTALL) --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) build dist site .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests -name __pycache__ -type d -exec rm -rf {} +
