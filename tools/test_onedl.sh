#!/usr/bin/env bash
# Test the package on OneDL, the maintained continuation of the OpenMMLab stack, in .venv-onedl: everything that uses
# classes, configs or checkpoints of MMCV, MMEngine and MMSegmentation, and whole training runs. Code in plain PyTorch and
# NumPy and further training runs (tools/compare.py, tools/reproduce.py) are left to `make test`. Tests that need
# MMDetection are skipped: version 3.3.0 refuses OneDL's MMCV.
#   PYTHON      the interpreter to build with (default: python3.11)
#   MAX_JOBS    compiler processes for MMCV (default: one per core)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tests=(
    tests/checkpoints tests/test_registry.py tests/test_configs.py
    tests/evaluation tests/heads tests/hooks tests/samplers tests/segmentors tests/transforms
    tests/class_index/test_annotations.py tests/class_index/test_build.py
    tests/datasets/test_long_tail_shapes.py tests/datasets/test_random_subset.py
    tests/datasets/test_voc_actions.py tests/datasets/test_without_mmsegmentation.py
    tests/losses/test_contract.py::test_what_leaks_from_a_merged_config_is_named
    tests/losses/test_loss_max_pooling_in_heads.py tests/losses/test_base.py tests/losses/test_pixel_losses.py
    tests/pipeline/test_fit_decision.py tests/pipeline/test_metrics.py
    tests/pipeline/test_s_measure_training.py tests/pipeline/test_sampling.py
    tests/pipeline/test_stock_models.py tests/pipeline/test_tiling.py tests/pipeline/test_training.py
)
bash tools/setup_env.sh onedl
# One thread per process, since the models are tiny and some tests start several processes.
OMP_NUM_THREADS=1 exec .venv-onedl/bin/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile "${tests[@]}"
