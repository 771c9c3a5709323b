"""Imports of the package and of its dependencies. Each test runs in a new process."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from mmengine.registry import DATA_SAMPLERS, EVALUATOR, HOOKS, METRICS, MODELS, TASK_UTILS, TRANSFORMS

import mmseg_nondecomp
from mmseg_nondecomp import registry

MEAN = dict(m=dict(type='torchmetrics.MeanMetric'))
HIDE_OPENMMLAB = """
    import sys

    class Hiding:
        def __init__(self, finder):
            self.finder = finder

        def find_spec(self, name, *args):
            if name.split('.')[0] in ('mmengine', 'mmcv', 'mmseg', 'mmdet', 'mmpretrain'):
                return None
            return self.finder.find_spec(name, *args)

    sys.meta_path = [Hiding(finder) for finder in sys.meta_path]
"""


def run(*programs):
    """Run programs one after the other in a new process; what they print."""
    source = '\n'.join(textwrap.dedent(program) for program in programs)
    root = str(Path(__file__).parents[1])
    environment = os.environ | {'PYTHONPATH': os.pathsep.join([root, os.environ.get('PYTHONPATH', '')])}
    done = subprocess.run([sys.executable, '-c', source], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_is_registered_in_the_root():
    assert registry.MODELS is MODELS
    assert MODELS.get('LossMaxPooling') is mmseg_nondecomp.LossMaxPooling
    assert TASK_UTILS.get('LossMaxPoolingPixelSampler') is mmseg_nondecomp.LossMaxPoolingPixelSampler
    for name in ('EquiBatchSampler', 'IoUAdaptiveSampler'):
        assert DATA_SAMPLERS.get(name) is getattr(mmseg_nondecomp, name)
    for name in ('DualAscentHook', 'LossWeightHook', 'TrainIoUHook', 'TrainMetricsHook'):
        assert HOOKS.get(name) is getattr(mmseg_nondecomp, name)
    assert METRICS.get('TorchMetricsEvaluator') is mmseg_nondecomp.TorchMetricsEvaluator
    assert EVALUATOR.get('TorchMetricsEvaluator') is not None
    assert TRANSFORMS.get('RandomCropOnClass') is mmseg_nondecomp.RandomCropOnClass


def test_works_without_openmmlab():
    found = run(
        HIDE_OPENMMLAB,
        """
        import torch
        import mmseg_nondecomp
        from mmseg_nondecomp.registry import HAS_MMENGINE, MODELS

        assert not HAS_MMENGINE
        torch.manual_seed(0)
        model, loss = torch.nn.Conv2d(3, 4, 1), mmseg_nondecomp.LossMaxPooling()
        images, labels = torch.randn(2, 3, 8, 8), torch.randint(0, 4, (2, 8, 8))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        before = loss(model(images), labels)
        before.backward()
        optimizer.step()
        assert loss(model(images), labels) < before
        try:
            MODELS.build(dict(type='LossMaxPooling'))
        except ImportError as error:
            print(error)
        try:
            mmseg_nondecomp.LossMaxPooling(pixel_loss=dict(type='FocalLoss'))
        except ImportError as error:
            print(error)

        class Images:
            def __len__(self):
                return 3

            def __getitem__(self, i):
                return i, i.cls

            def get_cat_ids(self, i):
                return [[0], [1, 2], [2]][i]

        sampler = mmseg_nondecomp.EquiBatchSampler(Images(), seed=0, infinite=False)
        assert sorted(cls for _, cls in torch.utils.data.DataLoader(Images(), None, sampler=sampler)) == [0, 1, 2]
        assert not {'mmengine', 'mmcv', 'mmseg', 'mmdet', 'mmpretrain'} & set(sys.modules)
        """,
    )
    by_name, inner = found.splitlines()
    for message, name in ((by_name, 'LossMaxPooling'), (inner, 'FocalLoss')):
        assert name in message
        assert 'pip install "mmseg_nondecomp[mmseg]"' in message


def test_imports_no_models_and_lacks_without_openmmlab_what_is_known_to_need_it():
    found = run(HIDE_OPENMMLAB, 'import mmseg_nondecomp; print(*mmseg_nondecomp.__all__)').split()
    assert set(mmseg_nondecomp.__all__) - set(found) == set(mmseg_nondecomp.NEEDS)
    run(
        """
        import sys
        from mmengine.registry import MODELS

        assert 'mmseg_nondecomp' not in sys.modules
        loss = MODELS.build(dict(type='mmseg_nondecomp.LossMaxPooling', p=2.0))
        assert type(loss) is sys.modules['mmseg_nondecomp'].LossMaxPooling and loss.p == 2
        for name in ('mmseg', 'mmdet', 'mmpretrain', 'torchmetrics'):
            assert name not in sys.modules, name
        """
    )


@pytest.mark.parametrize(
    ('registry', 'settings'),
    [
        ('HOOKS', dict(type='mmseg_nondecomp.TrainIoUHook')),
        ('METRICS', dict(type='mmseg_nondecomp.TorchMetricsEvaluator', metrics=MEAN, inputs=dict(m='labels'))),
        ('TRANSFORMS', dict(type='mmseg_nondecomp.RandomCropOnClass', crop_size=8)),
    ],
)
def test_dotted_names_need_no_import(registry, settings):
    run(f'from mmengine.registry import {registry}; assert {registry}.build({settings})')
