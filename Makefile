# Two commands do everything on a fresh machine with Python 3.11 or later: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

.PHONY: demo test bench clean

demo: $(VENV)/core
	@$(BIN)/precad demo

test: $(VENV)/dev
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/pytest -q -n auto

bench: $(VENV)/core
	@$(BIN)/precad bench arithmetic

$(VENV)/core: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing precad into $(VENV) ..."
	@$(PIP) install --editable .
	@touch $@

$(VENV)/dev: pyproject.toml | $(VENV)/core
	@echo "installing the tools for development ..."
	@$(PIP) install --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests -name __pycache__ -type d -exec rm -rf {} +
