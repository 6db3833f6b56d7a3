# Each target makes its own environment when there is none; only Python (3.10 or newer) and make are needed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
RUNS ?= runs

STUDIES := $(subst _,-,$(basename $(notdir $(filter-out %/__init__.py,$(wildcard mtkit/reproduce/studies/*.py)))))
SCALE ?= toy
DATA ?=

.PHONY: demo test check bench run help clean studies $(STUDIES)

help:
	@echo "make demo              train a translator from nothing, translate and score, in a few minutes"
	@echo "make test              all tests"
	@echo "make check             format, lint, types, tests"
	@echo "make bench             speed and memory on this machine"
	@echo "make studies           the chapter's tables and figures that make can reproduce, such as make table-1-1"
	@echo "                       (SCALE=toy|multi30k|paper, DATA=FOLDER, ARGS='--seeds 3 …')"
	@echo "make run RECIPE=FILE   train, evaluate and report one recipe (SET='--set key=value …')"

$(VENV)/installed: pyproject.toml constraints.txt
	@echo "setting up $(VENV) (once)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --editable .
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed
	@$(PIP) --editable '.[dev]'
	@touch $@

demo: $(VENV)/installed
	@echo "training recipes/toy/transformer.yaml, then translating and scoring its test sets"
	@$(BIN)/mtkit train recipes/toy/transformer.yaml --output $(RUNS)/toy-transformer
	@$(BIN)/mtkit evaluate $(RUNS)/toy-transformer
	@echo
	@echo "Next:"
	@echo "  echo 'The old dog sees the cat.' | $(BIN)/mtkit translate $(RUNS)/toy-transformer"
	@echo "  $(BIN)/mtkit info $(RUNS)/toy-transformer"
	@echo "  $(BIN)/mtkit train recipes/toy/rnnsearch.yaml"

test: $(VENV)/installed-dev
	@echo "running all tests, several minutes"
	@$(BIN)/python -m pytest -q -n 2

check: $(VENV)/installed-dev
	@echo "checking format, lint and types, then running all tests"
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q -n 2

bench: $(VENV)/installed-dev
	@echo "measuring speed and memory; nothing else should run meanwhile"
	@$(BIN)/python tests/benchmarks/training_speed.py
	@$(BIN)/python tests/benchmarks/start_up.py
	@$(BIN)/python tests/benchmarks/reading_memory.py

run: $(VENV)/installed
	@test -n "$(RECIPE)" || { echo "make run needs RECIPE=FILE" >&2; exit 2; }
	@echo "training $(RECIPE), then translating and scoring its test sets"
	@run=$$($(BIN)/mtkit train '$(RECIPE)' $(SET)) && $(BIN)/mtkit evaluate "$$run"

studies: $(VENV)/installed
	@$(BIN)/mtkit reproduce

$(STUDIES): $(VENV)/installed
	@$(BIN)/mtkit reproduce $@ --scale $(SCALE) $(if $(DATA),--data '$(DATA)') $(ARGS)

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache
