# Every target sets up what it needs, and does nothing where nothing changed.

PYTHON ?= python3
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin

PACKAGES := core $(patsubst %/pyproject.toml,%,$(sort $(wildcard libs/*/pyproject.toml plugins/*/pyproject.toml)))

# An environment is up to date while these files are as they were when it was made.
DIGEST := $(shell { pwd; cat Makefile scripts/install requirements-dev.txt pyproject.toml $(PACKAGES:%=%/pyproject.toml); } | cksum | cut -d' ' -f1)
INSTALL_STAMP := $(VENV)/.installed-$(DIGEST)
DEV_STAMP := $(VENV)/.made-$(DIGEST)

# With it, every start of delf would compile its modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## (.*)/make \1\t\2/' | expand -t 16

.PHONY: install
install: $(INSTALL_STAMP) ## install delf for use, into .venv: what `delf run` and `delf demo` need
	@echo "delf is here: $(CURDIR)/$(BIN)/delf"

.PHONY: demo
demo: $(INSTALL_STAMP) ## run two tasks on a small shop, without any key
	@$(BIN)/delf demo $(ARGS)

.PHONY: serve
serve: $(INSTALL_STAMP) ## open the page on a small shop with two tasks; ARGS="--port 8081"
	@$(BIN)/delf demo --web $(ARGS)

.PHONY: test
test: $(DEV_STAMP) ## run the quick tests, which need no service; ARGS="tests/core -k name"
	$(BIN)/pytest -n auto --dist worksteal -m "not services and not browser and not chaos and not slow" $(ARGS)

.PHONY: test-all
test-all: $(DEV_STAMP) ## run all tests: databases, Docker, a browser, kills, builds
	$(BIN)/pytest -n auto --dist worksteal -m "not soak" $(ARGS)

.PHONY: test-soak
test-soak: $(DEV_STAMP) ## run the longest tests, whose kinds shorter ones show, too
	$(BIN)/pytest -n auto --dist worksteal -m soak $(ARGS)

.PHONY: dev
dev: $(DEV_STAMP) ## make .venv: every package editable, and the tools
	@:

.PHONY: lint
lint: $(DEV_STAMP) ## check style, formatting and layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-logo

.PHONY: generated
generated: $(DEV_STAMP) ## write what is generated: tables of the pages, lists of names
	cd tests && export PYTHONPATH=../scripts && \
		../$(BIN)/python -m support.tables && ../$(BIN)/python -m support.public_names

.PHONY: fix
fix: $(DEV_STAMP) ## mend style and formatting
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.PHONY: types
types: $(DEV_STAMP) ## check the types
	$(BIN)/pyright

.PHONY: docs
docs: $(DEV_STAMP) ## check the documentation
	$(BIN)/pytest -m docs $(ARGS)

.PHONY: site
site: $(DEV_STAMP) ## build the documentation as a site into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build $(ARGS)

.PHONY: screenshots
screenshots: $(DEV_STAMP) ## make the pictures of the page in docs/
	$(BIN)/python scripts/screenshots

.PHONY: bench
bench: $(DEV_STAMP) ## measure: benchmarks/bench_*.py
	@for script in $(sort $(wildcard benchmarks/bench_*.py)); do \
		$(BIN)/python $$script $(ARGS) || exit 1; \
	done

.PHONY: conformance
conformance: $(DEV_STAMP) ## run MCP's conformance suite on both sides; ARGS="--write" for docs/mcp.md
	@$(BIN)/python scripts/mcp_conformance.py $(ARGS)

.PHONY: coverage
coverage: $(DEV_STAMP) ## run the tests and say which lines they miss
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(ARGS)
	$(BIN)/coverage combine -q
	$(BIN)/coverage report

.PHONY: dist
dist: $(DEV_STAMP) ## build a wheel and an sdist of every package into dist/, and check them
	@$(BIN)/python scripts/dist dist $(PACKAGES)

.PHONY: downstream
downstream: $(DEV_STAMP) ## run the plugins and suites of an earlier commit with this core; REF=HEAD~1
	@scripts/downstream $(or $(REF),HEAD~1) $(ARGS)

.PHONY: clean
clean: ## remove environments and caches
	rm -rf $(VENV) dist .coverage .coverage.* .hypothesis .import_linter_cache .pytest_cache .ruff_cache
	find . -name .git -prune -o -name __pycache__ -type d -exec rm -rf {} +

$(INSTALL_STAMP):
	@echo "installing into $(VENV)"
	@PYTHON=$(PYTHON) scripts/install $(VENV) -e 'core[standard]' -e plugins/demo
	@rm -f $(VENV)/.installed-* && touch $@

$(DEV_STAMP):
	@echo "installing into $(VENV)"
	@PYTHON=$(PYTHON) scripts/install $(VENV) --all-extras \
		-r requirements-dev.txt $(PACKAGES:%=-r %/pyproject.toml) $(PACKAGES:%=-e %)
	@rm -f $(VENV)/.made-* $(VENV)/.installed-* && touch $@ $(INSTALL_STAMP)

