# One command from a fresh clone. Every target first builds its own virtual environment; a Python
# 3.11 or newer with pip is all it needs. The environment is brought up to date when a pyproject.toml
# or constraints.txt change, and otherwise costs nothing. A package whose hash is not in
# constraints.txt is not installed.
#
#   make test ARGS="tests/language -x"    hand arguments to the program that a target runs
#   PALIO_VENV=/some/dir make test        use another environment than .venv
#   PALIO_PYTHON=/some/python make test   build the environment with this interpreter

VENV := $(or $(PALIO_VENV),.venv)
PYTHON := $(VENV)/bin/python
CANDIDATES := $(or $(PALIO_PYTHON),python3 python3.13 python3.12 python3.11 python)

# The stamp names the checkout: an environment shared by two of them imports from one only.
STAMP := $(VENV)/.palio-$(shell pwd | cksum | cut -d' ' -f1)

# Both folders may be absent or hold no program yet, which mypy takes for an error.
CHECKED := src studies tests $(patsubst %/,%,$(sort $(dir $(wildcard benchmarks/*.py examples/*.py))))

define PROBE
import sys
if sys.version_info < (3, 11):
    sys.exit("Python %d.%d is too old" % sys.version_info[:2])
import importlib.util
if not (importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")):
    sys.exit("no venv module (Debian and Ubuntu: apt install python%d.%d-venv)" % sys.version_info[:2])
endef

# Made once everything is compiled, so that processes which start together need not wait for it.
# The demo begins without, and compiles beside itself.
KERNELS := $(STAMP)-kernels

# Processes that a command starts would compile all of Palio anew, each of them.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test check bench docs campaign nightly coverage pins clean

help: ## list what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(STAMP) ## watch events find their subscribers; ends by itself
	@$(VENV)/bin/palio demo $(ARGS)

test: $(KERNELS) ## run the tests, the doctests and the snippets of the documentation
	@$(PYTHON) -m pytest --numprocesses auto $(ARGS)

check: $(STAMP) ## format, lint, types (those of the snippets in the documentation, too), layering
	@$(PYTHON) -m ruff format --check
	@$(PYTHON) -m ruff check
	@$(PYTHON) -m tests.pages build/snippets
	@$(PYTHON) -m mypy $(CHECKED) build/snippets
	@$(PYTHON) -m pytest --quiet tests/test_layering.py

# A program has a main(); the other files are what programs share, or the other ends of theirs.
bench: $(KERNELS) ## run every program of benchmarks/; each prints tables
	@for file in $$(grep -ls '^def main()' benchmarks/[a-z]*.py); do \
	    name=$$(basename "$$file" .py); \
	    printf '\n== benchmarks.%s\n' "$$name"; \
	    $(PYTHON) -m "benchmarks.$$name" $(ARGS) || exit 1; \
	done

# Material for MkDocs prints an advertisement of its successor unless it is told not to.
docs: export NO_MKDOCS_2_WARNING := 1
docs: $(STAMP) ## build the documentation as a site, into build/site
	@"$(VENV)/bin/mkdocs" build --quiet --strict $(ARGS)
	@echo "build/site/index.html"

campaign: $(KERNELS) ## break virtual networks, and see what holds: ARGS="--seeds 1000 --jobs 2"
	@$(PYTHON) -m tests.campaign $(ARGS)

nightly: export PALIO_PROFILE := nightly
nightly: $(KERNELS) ## the tests with 10,000 examples a property and a fresh seed
	@$(PYTHON) -m pytest --numprocesses auto $(ARGS)

coverage: $(KERNELS) ## the tests, then the lines and branches they did not reach
	@$(PYTHON) -m coverage run -m pytest $(ARGS)
	@$(PYTHON) -m coverage report

# Without a new environment: what is in constraints.txt may have no hashes yet.
pins: ## write the hashes of constraints.txt anew, from the index that pip is configured for
	@$(or $(wildcard $(PYTHON)),python3) -m tests.pins

clean: ## back to a fresh clone: remove .venv, caches and built files
	rm -rf .venv .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage build dist
	find $(wildcard src studies tests benchmarks examples) -name __pycache__ -type d -prune -exec rm -rf {} +

# An interrupted or failed installation leaves no stamp, so that the next run tries again.
$(STAMP): export PROBE := $(PROBE)
$(STAMP): pyproject.toml studies/pyproject.toml constraints.txt
	@if ! "$(PYTHON)" -c "import sys; sys.exit(sys.version_info < (3, 11))" 2>/dev/null; then \
	    if [ -n "$(PALIO_VENV)" ] && [ -e "$(VENV)/pyvenv.cfg" ]; then \
	        echo "PALIO_VENV=$(VENV) holds no working Python 3.11 or newer: remove it or name another" >&2; \
	        exit 1; \
	    fi; \
	    found=; seen=; \
	    for candidate in $(CANDIDATES); do \
	        command -v "$$candidate" >/dev/null || continue; \
	        if answer=$$("$$candidate" -c "$$PROBE" 2>&1); then found=$$candidate; break; fi; \
	        seen="$$seen$$(printf '\n  %s: %s' "$$candidate" "$$(echo "$$answer" | head -n 1)")"; \
	    done; \
	    if [ -z "$$found" ]; then \
	        echo "Palio needs Python 3.11 or newer with its venv module. Looked for: $(CANDIDATES)$$seen" >&2; \
	        echo "Install one, or name it: PALIO_PYTHON=/path/to/python make ..." >&2; \
	        exit 1; \
	    fi; \
	    echo "Creating $(VENV) with $$found"; \
	    "$$found" -m venv $(if $(PALIO_VENV),,--clear) "$(VENV)" || exit 1; \
	fi
	@rm -f "$(VENV)"/.palio-*
	@echo "Installing Palio and its tools into $(VENV); the first time takes one or two minutes"
	@"$(PYTHON)" -m pip --version >/dev/null 2>&1 || "$(PYTHON)" -m ensurepip >/dev/null
	@"$(PYTHON)" -m pip install --quiet --disable-pip-version-check \
	    --require-hashes --no-deps --requirement constraints.txt
	@"$(PYTHON)" -m pip install --quiet --disable-pip-version-check \
	    --no-build-isolation --no-deps --editable . --editable ./studies
	@"$(PYTHON)" -m pip check --quiet
	@touch "$@"

# Compiling kernels takes one processor; another one compiles the tests meanwhile.
$(KERNELS): $(STAMP)
	@$(PYTHON) -m pytest --quiet --collect-only >/dev/null 2>&1 & \
	    "$(VENV)/bin/palio" warm; outcome=$$?; wait; exit $$outcome
	@touch "$@"
