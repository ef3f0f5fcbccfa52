# The two commands: `make demo` (see it run on simulated Sparks) and `make test` (everything).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LAB := $(BIN)/python -m lab

.PHONY: golden help demo test test-full unit lint lab-up lab-down lab-install venv lock clean bench-check bench-roll

help: ## what there is
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

demo: venv lab-install ## three simulated Sparks, the real deploy, a table, a line to try
	$(LAB) up
	$(BIN)/pyinfra -y inventory/simulated.py deploy.py
	$(LAB) try

test: lint unit lab-install ## unit tests, and everything in the lab (root, Linux)
	$(BIN)/pytest -m "lab and not full" tests/lab

test-full: lint unit lab-install ## every case on every engine
	$(BIN)/pytest -m lab tests/lab

unit: venv ## under a minute, no root, no lab
	$(BIN)/pytest -n auto tests/unit

lint: venv ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench-check: venv lab-install ## the check of three hosts beside another tool's, with the floor
	$(LAB) up
	$(BIN)/python -m bench.check

bench-roll: venv lab-install ## what a roll costs a host beside the engine's own stop and boot
	$(LAB) up
	$(BIN)/python -m bench.roll

lab-install: venv
	$(LAB) install

lab-up: lab-install ## start the simulated lab
	$(LAB) up

lab-down: venv ## stop it; nothing is left behind
	$(LAB) down

# One pinned set for everyone; `make lock` moves it.
venv: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "sparkfleet needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12 venv"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "Installing the Debian package python3-venv."; apt-get update -qq; apt-get install -y -qq python3-venv; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

golden: venv ## write the compose file of each recipe anew (tests/cases/compose), to be reviewed
	$(BIN)/python -m tests.golden

lock: ## write requirements.lock anew from pyproject.toml
	$(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet pip-tools
	build/lock/bin/pip-compile --quiet --extra dev --strip-extras --no-emit-index-url \
	  --no-emit-find-links --no-header --output-file requirements.lock pyproject.toml

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
