import re
from pathlib import Path

import pytest
from mmengine.config import Config

ROOT = Path(__file__).parents[1]
README = (ROOT / 'README.md').read_text()
BLOCKS = re.findall(r'```python\n(.*?)```', README, re.DOTALL)


@pytest.mark.parametrize('block', [block for block in BLOCKS if 'import torch' in block])
def test_examples_run(block):
    exec(compile(block, 'README.md', 'exec'), {})


@pytest.mark.parametrize('block', [block for block in BLOCKS if 'import torch' not in block])
def test_config_lines_apply_to_a_stock_config(block, tmp_path):
    import mmseg.datasets
    import mmseg.models  # noqa: F401  (registers the stock components)
    from mmseg.registry import DATA_SAMPLERS, METRICS, MODELS, TRANSFORMS

    stock = "_base_ = ['mmseg::fcn/fcn_r50-d8_4xb2-40k_cityscapes-512x1024.py']\n"
    (tmp_path / 'stock.py').write_text(stock)
    (tmp_path / 'mine.py').write_text(stock + block)
    base, mine = (Config.fromfile(tmp_path / name) for name in ('stock.py', 'mine.py'))
    losses = mine.model.decode_head.loss_decode
    losses = [MODELS.build(loss) for loss in (losses if isinstance(losses, list) else [losses])]
    pipeline = mine.train_dataloader.dataset.pipeline
    crops = [type(TRANSFORMS.build(step)) for step in pipeline if 'Crop' in step.type]
    evaluator = METRICS.build(mine.val_evaluator)
    used = [*map(type, [*losses, evaluator]), *crops, DATA_SAMPLERS.get(mine.train_dataloader.sampler.type)]
    assert any(component.__module__.startswith('mmseg_nondecomp') for component in used)
    for step in pipeline:
        step.type = step.type.replace('OnClass', '')
    assert pipeline == base.train_dataloader.dataset.pipeline


@pytest.mark.parametrize(
    'document',
    [path for folder in ('*.md', 'configs/*/*.md', 'docs/*.md') for path in sorted(ROOT.glob(folder))],
    ids=str,
)
def test_links_lead_somewhere(document):
    for target in re.findall(r'\]\(([^)#\s]+)', document.read_text()):
        assert target.startswith('http') or (document.parent / target).exists(), target


def test_named_files_exist():
    for name in re.findall(r'\b(?:tools|configs|requirements)/[\w./-]+\.\w+', README):
        assert (ROOT / name).exists(), name


def test_the_scripts_of_the_makefile_exist():
    for name in re.findall(r'\b(?:tools|configs)/[\w./-]+\.\w+', (ROOT / 'Makefile').read_text()):
        assert (ROOT / name).exists(), name
