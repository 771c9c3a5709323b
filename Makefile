.PHONY: help env demo test test-hard test-stock test-adapters test-mmpretrain test-onedl test-core test-oldest docs lint format benchmark clean

PYTHON_IN_ENV := .venv/bin/python
# One process per core, up to four, with one thread each: models are tiny, and some tests start further processes.
PYTEST := OMP_NUM_THREADS=1 $(PYTHON_IN_ENV) -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

env:  ## build .venv: pinned packages, mmcv compiled with its ops (about 8 minutes the first time)
	@bash tools/setup_env.sh

demo: env  ## train cross-entropy, loss max-pooling and metric_loss('miou') on LongTailShapes; write one page that compares them
	@$(PYTHON_IN_ENV) tools/compare.py $(foreach loss,ce lmp metric,configs/long_tail_shapes/tiny-unet_$(loss)_lts.py) \
		--seeds 0 --out work_dirs/demo

test: env  ## run the tests
	@$(PYTEST) --ignore tests/hard_use --ignore tests/stock --ignore tests/adapters

test-hard: env  ## run tests/hard_use: difficult inputs, killed processes, full disks, crafted files
	@$(PYTEST) tests/hard_use

test-stock: env  ## run tests/stock: a training step of every stock model with every loss (see docs/stock-models.md)
	@$(PYTEST) --dist worksteal tests/stock

test-adapters:  ## run the tests of the adapters of other frameworks and of their recipes, in a separate environment
	@bash tools/test_adapters.sh

test-mmpretrain: env  ## run the tests that need MMPretrain, in a separate environment
	@bash tools/setup_mmpretrain.sh
	@.venv-mmpretrain/bin/python -m pytest tests/with_mmpretrain

test-onedl:  ## run the tests of the OpenMMLab integration on its continuation OneDL, in a separate environment
	@bash tools/test_onedl.sh

test-core:  ## build sdist and wheel, and run the tests without OpenMMLab on each, in a separate environment
	@bash tools/test_core.sh

test-oldest:  ## the same as test-core with the oldest supported torch, torchmetrics and numpy
	@bash tools/test_core.sh oldest

docs: env  ## build the documentation site in docs/_build/html; warnings are errors
	@$(PYTHON_IN_ENV) -m sphinx --quiet --fresh-env --write-all --fail-on-warning --keep-going --conf-dir docs . docs/_build/html
	@echo "the first page: docs/_build/html/docs/index.html"

lint: env  ## check style and types
	@$(PYTHON_IN_ENV) -m ruff check .
	@$(PYTHON_IN_ENV) -m ruff format --check .
	@$(PYTHON_IN_ENV) -m mypy

format: env  ## format the sources
	@$(PYTHON_IN_ENV) -m ruff check --fix .
	@$(PYTHON_IN_ENV) -m ruff format .

benchmark: env  ## measure the speed of losses, samplers and metrics against their peers
	@$(PYTHON_IN_ENV) tools/benchmark.py

clean:  ## remove environments, caches, data and training output
	@rm -rf .venv .venv-mmpretrain .venv-core .venv-oldest .venv-onedl .venv-adapters .setup.lock work_dirs data .pytest_cache .mypy_cache .ruff_cache docs/_build
