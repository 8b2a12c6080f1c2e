# Needs make and Python 3.11 or newer, nothing else. Another interpreter: make PYTHON=python3.12 test
PYTHON  ?= python3
WORKERS ?= 2
OUT     ?= runs

VENV := .venv
BIN  := $(VENV)/bin

# One stamp per set of packages; each is remade when its inputs change.
VENV_STAMP  := $(VENV)/.stamp-venv
RUN_STAMP   := $(VENV)/.stamp-run
ALL_STAMP   := $(VENV)/.stamp-all
TEST_STAMP  := $(VENV)/.stamp-test
BENCH_STAMP := $(VENV)/.stamp-bench
DOCS_STAMP  := $(VENV)/.stamp-docs
PINS        := pyproject.toml constraints.txt

# The build backend is installed apart, in an environment of its own. Older pips take its pins
# from PIP_CONSTRAINT, newer ones from PIP_BUILD_CONSTRAINT.
INSTALL := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
	PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install -c constraints.txt

# One thread per worker: without it the workers fight over the cores.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help reproduce reproduce-all test check bench docs docs-open lint types format package clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# Identities, then figures; a failure of the first does not stop the second.
define run-figures
@mkdir -p $(OUT) && rm -f $(OUT)/verify.json
@status=0; $(BIN)/natgrad verify --json $(OUT)/verify.json || status=$$?; \
$(BIN)/natgrad reproduce $(1) --preset quick --out $(OUT) || status=$$?; \
exit $$status
endef

reproduce: $(RUN_STAMP) ## Install natgrad, check every identity, make the papers' figures and a report
	$(call run-figures)

reproduce-all: $(ALL_STAMP) ## The same with every other figure: equations and all that needs extras
	$(call run-figures,--all)

test: lint types ## Install natgrad with its test tools; lint, types and every test
	$(PYTEST) $(ARGS)

check: lint types ## The same without the slow tests: run it before each commit
	$(PYTEST) -m "not slow" $(ARGS)

bench: $(BENCH_STAMP) ## Run every benchmark, one after the other
	@set -e; found=; for script in benchmarks/bench_*.py; do \
		if [ -f "$$script" ]; then found=1; echo "== $$script"; $(BIN)/python "$$script" $(ARGS); fi; \
	done; \
	if [ -z "$$found" ]; then echo "There is no benchmarks/bench_*.py to run."; fi

docs: $(DOCS_STAMP) ## Build the site in docs/_build, with every warning an error
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build
	@echo "The site is in docs/_build/index.html"

docs-open: docs ## Build the site and open it
	@$(BIN)/python -m webbrowser "file://$(CURDIR)/docs/_build/index.html"

lint: $(TEST_STAMP) ## Lint, and check the formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(TEST_STAMP) ## Check the types
	$(BIN)/mypy

format: $(TEST_STAMP) ## Format the code and fix what the linter can fix
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

# What is not in the core: it needs the extras `lab` or `sklearn`.
WITH_EXTRAS := lab experiments verify cli sklearn

package: $(TEST_STAMP) ## Build sdist and wheel, install the wheel alone, run the core's doctests
	rm -rf dist build/package
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m build --outdir dist
	"$(PYTHON)" -m venv build/package
	PIP_DISABLE_PIP_VERSION_CHECK=1 build/package/bin/python -m pip install -q -c constraints.txt \
		dist/*.whl pytest
	cd build/package && OMP_NUM_THREADS=1 bin/python -m pytest -q -c /dev/null --rootdir . \
		--doctest-modules --import-mode=importlib -p no:cacheprovider \
		-o doctest_optionflags="ELLIPSIS NORMALIZE_WHITESPACE" \
		$(foreach name,$(WITH_EXTRAS),--ignore-glob='*/natgrad/$(name)') \
		lib/python*/site-packages/natgrad

clean: ## Remove the environment, caches and builds; results in runs/ stay
	rm -rf $(VENV) build dist docs/_build docs/reference docs/figures docs/tutorials docs/sources docs/identities.rst \
		.mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV_STAMP):
	@command -v "$(PYTHON)" >/dev/null 2>&1 || { \
		echo "natgrad needs Python 3.11 or newer, but there is no '$(PYTHON)' here." \
		"Name another with: make PYTHON=python3.12"; exit 1; } >&2
	@"$(PYTHON)" -c 'import sys; sys.version_info >= (3, 11) or sys.exit("natgrad needs Python 3.11 or newer, but $(PYTHON) is Python %d.%d. Name another with: make PYTHON=python3.12" % sys.version_info[:2])'
	"$(PYTHON)" -m venv $(VENV)
	@touch $@

$(RUN_STAMP): $(VENV_STAMP) $(PINS)
	$(INSTALL) --editable '.[lab]'
	@touch $@

$(ALL_STAMP): $(VENV_STAMP) $(PINS)
	$(INSTALL) --editable '.[lab,limits]'
	@touch $(RUN_STAMP) $@

# The test, bench and docs installs contain the run-time one.
$(TEST_STAMP): $(VENV_STAMP) $(PINS)
	$(INSTALL) --editable '.[test]'
	@touch $(RUN_STAMP) $@

$(BENCH_STAMP): $(VENV_STAMP) $(PINS)
	$(INSTALL) --editable '.[bench]'
	@touch $(RUN_STAMP) $@

$(DOCS_STAMP): $(VENV_STAMP) $(PINS)
	$(INSTALL) --editable '.[docs]'
	@touch $(RUN_STAMP) $@
