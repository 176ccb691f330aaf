# Every target sets up what it needs first. `make` alone lists the targets.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

BIN := .venv/bin
SET_UP := .venv/.set-up
SEEDS ?= 200
FIRST ?= 1
FUZZ_SECONDS ?= 60
MUTANT_SEEDS ?= 1000
ARGS ?=

# Spark takes Java from JAVA_HOME and its Python from PYSPARK_PYTHON. The set-up points .java at a Java 17 or newer,
# so only the set-up itself sees the JAVA_HOME of the caller.
CALLER_JAVA_HOME := $(JAVA_HOME)
export JAVA_HOME := $(CURDIR)/.java
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export SPARK_LOCAL_IP := 127.0.0.1
unexport SPARK_HOME

# Images of containers set this, and then each process compiles all of Veredus anew, which takes half of a node's start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/\1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{ printf "  %-14s %s\n", $$1, $$2 }'

.PHONY: setup
setup: $(SET_UP) ## virtual environment, pinned dependencies, Java runtime

# A Java that was found and has gone since, or one that was taken away, is looked for anew.
ifeq ($(wildcard .java/bin/java),)
.PHONY: $(SET_UP)
endif
$(SET_UP): pyproject.toml scripts/setup $(wildcard requirements/*.txt)
	@JAVA_HOME="$(CALLER_JAVA_HOME)" scripts/setup

.PHONY: format
format: $(SET_UP) ## format the sources, and fix what the linter can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: static
static: $(SET_UP) ## check format, lint, types and import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

.PHONY: seeds
seeds: $(SET_UP) ## simulated worlds: make seeds SEEDS=200 FIRST=1
	$(BIN)/veredus sim run --first $(FIRST) --seeds $(SEEDS)

.PHONY: campaign
campaign: $(SET_UP) ## seeds for hours; continues the last campaign: make campaign ARGS='--hours 8'
	$(BIN)/veredus sim campaign --ledger docs/proof-ledger.json --page docs/proof.md $(ARGS)

.PHONY: mutants
mutants: $(SET_UP) ## planted bugs, and which tests find which bug: make mutants ARGS='--only NAME'
	$(BIN)/python -m mutants --seeds $(MUTANT_SEEDS) $(ARGS)

.PHONY: quick
quick: $(SET_UP) ## the quick tests, without Spark and other servers
	$(BIN)/python -m pytest -n 2 --dist loadgroup --max-worker-restart 0 -m "not spark and not slow and not interop" $(ARGS)

.PHONY: check
check: static quick seeds ## everything that must pass before each commit, in under 90 seconds

.PHONY: test
test: $(SET_UP) ## all tests: make test ARGS='-k fenced'
	$(BIN)/python -m pytest -n 2 --dist loadgroup --max-worker-restart 0 $(ARGS)

.PHONY: attack
attack: $(SET_UP) ## attacks at full size; their measurements go to docs/security.md
	ATTACK_FULL=1 $(BIN)/python -m pytest -m attack --timeout 300 $(ARGS)

.PHONY: demo
demo: $(SET_UP) ## publishers, node and Spark on real flights, with kills: make demo SEED=7
	$(BIN)/python examples/demo/run.py $(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: demo-topics
demo-topics: $(SET_UP) ## 50 clients on topics, with kills and merges: make demo-topics SEED=7
	$(BIN)/python examples/topics/run.py $(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: chaos
chaos: $(SET_UP) ## inject faults into real processes: 20 runs of a minute, each audited
	$(BIN)/veredus chaos --seed $(or $(SEED),1) --runs 20 --seconds 60 $(ARGS)

.PHONY: bench-audit
bench-audit: $(SET_UP) ## measure the audit: make bench-audit ARGS='--count 100000000'
	$(BIN)/python -m benchmarks.audit $(ARGS)

.PHONY: bench
bench: $(SET_UP) ## measure Veredus and other systems: make bench ARGS=--quick
	$(BIN)/python -m benchmarks $(ARGS)

.PHONY: bench-peers
bench-peers: ## install the other systems for make bench, with apt
	scripts/install-peers

.PHONY: fuzz
fuzz: $(SET_UP) ## test the decoders with random input: make fuzz FUZZ_SECONDS=60
	$(BIN)/python -m fuzz --seconds $(FUZZ_SECONDS) $(ARGS)

.PHONY: fuzz-campaign
fuzz-campaign: $(SET_UP) ## random input for hours; continues the last campaign: make fuzz-campaign ARGS='--hours 2'
	$(BIN)/python -m fuzz.campaign $(ARGS)

.PHONY: man
man: $(SET_UP) ## man pages of all commands, in build/man: man -M build/man veredus
	$(BIN)/python scripts/man.py build/man/man1

.PHONY: pins
pins: $(SET_UP) ## resolve the version ranges of pyproject.toml again
	scripts/pin

.PHONY: clean
clean: ## remove everything that make has created, also the virtual environment
	rm -rf .venv .java .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
