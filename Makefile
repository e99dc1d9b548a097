# `make demo` and `make test` set up everything they need; the second time they start at once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test lint docs release-test release-check bench wheel clean

demo: $(VENV)/.demo
	$(BIN)/escounts count examples/sample.mp4 -o out/demo -f json,png,html --force

test: $(VENV)/.test
	$(BIN)/python -m pytest -n 2 --dist loadfile  # a file stays in one process: what its tests share is made once

release-test: $(VENV)/.test
	$(BIN)/python -m pytest -m release

# PARTS: some of its parts, all when empty. SHARE: of the cases, 0.02 tries everything in small.
SHARE ?= 1
release-check: $(VENV)/.release
	$(BIN)/python .ci/release_check.py $(PARTS) --share $(SHARE)

lint: $(VENV)/.test
	$(BIN)/ruff check src tests benchmarks paper
	$(BIN)/ruff format --check src tests benchmarks paper
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

docs: $(VENV)/.test
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo build/site/index.html

bench: $(VENV)/.test
	$(BIN)/python benchmarks/count.py
	$(BIN)/python benchmarks/growth.py

wheel: $(VENV)/.test
	$(BIN)/python -m pip wheel --quiet --no-deps -w dist .

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(INSTALL) -e '.[app]'
	touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(INSTALL) -e '.[test]'
	touch $@ $(VENV)/.demo

$(VENV)/.release: $(VENV)/.test
	$(INSTALL) -e '.[release]'
	touch $@

clean:
	rm -rf $(VENV) build dist out
