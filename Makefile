.PHONY: help env demo test test-hard test-mmpretrain test-onedl test-core test-oldest docs lint format benchmark clean

PYTHON_IN_ENV := .venv/bin/python
# A process for each core, up to four, each with one thread: models are tiny, and some tests start processes of their own.
PYTEST := OMP_NUM_THREADS=1 $(PYTHON_IN_ENV) -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

env:  ## build .venv: pinned packages, mmcv compiled with its ops (minutes once, then instant)
	@bash tools/setup_env.sh

demo: env  ## train cross-entropy, loss max-pooling and Lovász-Softmax on LongTailShapes; one page tells them apart
	@$(PYTHON_IN_ENV) tools/compare.py $(foreach loss,ce lmp lovasz,configs/long_tail_shapes/tiny-unet_$(loss)_lts.py) \
		--seeds 0 --out work_dirs/demo

test: env  ## run the tests
	@$(PYTEST) --ignore tests/hard_use

test-hard: env  ## the worst inputs, processes that die, full disks, crafted files: tests/hard_use
	@$(PYTEST) tests/hard_use

test-mmpretrain: env  ## run the tests that need MMPretrain, in an environment of its own
	@bash tools/setup_mmpretrain.sh
	@.venv-mmpretrain/bin/python -m pytest tests/with_mmpretrain

test-onedl:  ## run the tests of what meets OpenMMLab on its continuation OneDL, in an environment of its own
	@bash tools/test_onedl.sh

test-core:  ## build the sdist and the wheel, and run the tests that need no OpenMMLab on each, in an environment without it
	@bash tools/test_core.sh

test-oldest:  ## the same with the oldest torch, torchmetrics and numpy that are allowed
	@bash tools/test_core.sh oldest

docs: env  ## build the documentation site in docs/_build/html; a warning is an error
	@$(PYTHON_IN_ENV) -m sphinx --quiet --fresh-env --write-all --fail-on-warning --keep-going --conf-dir docs . docs/_build/html
	@echo "the first page: docs/_build/html/docs/index.html"

lint: env  ## style and types
	@$(PYTHON_IN_ENV) -m ruff check .
	@$(PYTHON_IN_ENV) -m ruff format --check .
	@$(PYTHON_IN_ENV) -m mypy

format: env  ## rewrite the sources in the house style
	@$(PYTHON_IN_ENV) -m ruff check --fix .
	@$(PYTHON_IN_ENV) -m ruff format .

benchmark: env  ## speed of the losses against their peers
	@$(PYTHON_IN_ENV) tools/benchmark.py

clean:  ## remove the environment and what training has left
	@rm -rf .venv .venv-mmpretrain .venv-core .venv-oldest .venv-onedl .setup.lock work_dirs data .pytest_cache .mypy_cache .ruff_cache docs/_build
