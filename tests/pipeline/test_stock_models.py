"""One line of a stock config, in MMSegmentation's own training script and in the one here."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from mmengine.utils import is_installed

ROOT = Path(__file__).parents[2]
STOCK = Path(find_spec('mmseg').origin).parent / '.mim'
# Each with where it finds the stock configs. OneDL's own script finds no `mmseg::`: its distributions have new names,
# which ours tells MMEngine.
SCRIPTS = {
    'stock': (STOCK / 'tools' / 'train.py', 'mmseg::' if is_installed('mmsegmentation') else f'{STOCK}/configs/'),
    'ours': (ROOT / 'tools' / 'train.py', 'mmseg::'),
}
BOTH = ['mmseg_nondecomp', 'mmseg_nondecomp.datasets']
CONFIG = """
_base_ = ['{configs}_base_/models/{model}.py', '{root}/configs/_base_/datasets/long_tail_shapes.py',
          '{root}/configs/_base_/schedules/schedule_long_tail_shapes.py', '{configs}_base_/default_runtime.py']
custom_imports = dict(imports={imports}, allow_failed_imports=False)
model = dict(
    pretrained=None,
    data_preprocessor=dict(size=(64, 64)),
    decode_head=dict(num_classes=16, loss_decode=dict(_delete_=True, type='{name}')),
    auxiliary_head=dict(num_classes=16),
)
train_cfg = dict(max_iters=2, val_interval=2)
train_dataloader = dict(batch_size=2, num_workers=0, persistent_workers=False,
                        dataset=dict(data_root='{scenes}', num_images=8))
val_dataloader = dict(batch_size=2, num_workers=0, persistent_workers=False,
                      dataset=dict(data_root='{scenes}', num_images=4))
default_hooks = dict(logger=dict(interval=1))
"""


@pytest.mark.parametrize(
    ('script', 'model', 'name', 'imports', 'logged'),
    [
        ('stock', 'fcn_r50-d8', 'LossMaxPooling', BOTH, 'loss_lmp_support'),
        ('stock', 'deeplabv3plus_r50-d8', 'mmseg_nondecomp.LossMaxPooling', BOTH[1:], 'loss_lmp_support'),
        ('stock', 'fcn_r50-d8', 'LovaszSoftmaxLoss', BOTH, 'loss_lovasz_miou'),
        ('ours', 'fcn_r50-d8', 'LossMaxPooling', BOTH, 'loss_lmp_support'),
    ],
)
def test_one_line_trains_a_stock_model(script, model, name, imports, logged, scenes, tmp_path):
    program, configs = SCRIPTS[script]
    config = tmp_path / 'mine.py'
    config.write_text(CONFIG.format(configs=configs, model=model, name=name, imports=imports, root=ROOT, scenes=scenes))
    command = [sys.executable, program, config, '--work-dir', tmp_path / 'out']
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    log = done.stdout + done.stderr
    assert done.returncode == 0, log[-3000:]
    assert f'decode.{logged.rsplit("_", 1)[0]}:' in log
    assert f'{logged}:' in log
    assert 'mIoU' in log
