"""Decisions from tools/fit_decision.py, as one uses them with tools/test.py."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import DefaultScope
from mmseg.registry import MODELS
from PIL import Image
from processes import a_free_port

from mmseg_nondecomp.functional.decisions import ClassOffsets, ImageOverlap, Thresholds, read_decision

ROOT = Path(__file__).parents[2]
CONFIG = 'configs/long_tail_shapes/tiny-unet_ce_lts.py'
BAR = 'configs/long_tail_shapes/tiny-unet_bce-bar_lts.py'
DECIDING = ['model.type=DecidingSegmentor', 'model.segmentor=EncoderDecoder']
KINDS = {'ClassOffsets': ClassOffsets, 'ImageOverlap': ImageOverlap, 'Thresholds': Thresholds}
OPTIONS = {
    'ClassOffsets': ['--measure', 'dice'],
    'ImageOverlap': [],
    'Thresholds': ['--f-beta', '1', '--unit', 'item'],
}


@pytest.fixture(scope='module')
def untrained(tmp_path_factory):
    """Return the checkpoint of the stock model of a config, untrained, with scores that differ from pixel to pixel."""

    def checkpoint(config):
        torch.manual_seed(0)
        with DefaultScope.overwrite_default_scope('mmseg'):
            model = MODELS.build(Config.fromfile(ROOT / config).model)
        model.decode_head.conv_seg.weight.data.normal_()
        path = tmp_path_factory.mktemp('untrained') / 'untrained.pth'
        torch.save({'state_dict': model.state_dict(), 'meta': {}}, path)
        return path

    return checkpoint


def scores_of(log):
    """Return the table of classes and the mIoU that tools/test.py prints."""
    return re.findall(r'\| +\w+ +\| +([\d.]+|nan) \|', log), float(re.findall(r'mIoU: ([\d.]+)', log)[-1])


def test_offsets_have_the_mean_iou_that_their_report_states(tool, untrained, tmp_path):
    path = untrained(CONFIG)
    log = tool('fit_decision.py', CONFIG, path, '--work-dir', tmp_path)
    written = tmp_path / 'ClassOffsets.json'
    report = read_decision(written).report
    assert f"decision='{written}'" in log
    assert f'gain to expect {report.gain:+.4f}' in log
    test = ['test.py', CONFIG, path, '--work-dir', tmp_path]
    assert scores_of(tool(*test))[1] == pytest.approx(100 * report.before, abs=0.006)
    decided = tool(*test, options=[*DECIDING, f'model.decision={written}'])
    assert scores_of(decided)[1] == pytest.approx(100 * report.fitted, abs=0.006)
    assert report.fitted > report.before + 0.005


@pytest.mark.parametrize('name', OPTIONS)
def test_a_decision_of_a_single_channel_changes_the_prediction(name, tool, untrained, tmp_path):
    path, written = untrained(BAR), tmp_path / 'folder' / 'decision.json'
    tool('fit_decision.py', BAR, path, '--work-dir', tmp_path, '--decision', name, '--out', written, *OPTIONS[name])
    assert type(read_decision(written)) is KINDS[name]
    test = ['test.py', BAR, path, '--work-dir', tmp_path]
    assert scores_of(tool(*test)) != scores_of(tool(*test, options=[*DECIDING, f'model.decision={written}']))


@pytest.mark.parametrize('name', ['ImageOverlap', 'Thresholds'])
def test_a_decision_between_classes_changes_the_prediction(name, tool, untrained, tmp_path):
    path, written = untrained(CONFIG), tmp_path / f'{name}.json'
    tool('fit_decision.py', CONFIG, path, '--work-dir', tmp_path, '--decision', name, *OPTIONS[name])
    assert type(read_decision(written)) is KINDS[name]
    test = ['test.py', CONFIG, path, '--work-dir', tmp_path]
    assert scores_of(tool(*test)) != scores_of(tool(*test, options=[*DECIDING, f'model.decision={written}']))


def test_the_decision_of_the_config_is_not_part_of_the_fit(tool, untrained, tmp_path):
    path = untrained(BAR)
    first, second = tmp_path / 'first.json', tmp_path / 'second.json'
    fit = ['fit_decision.py', BAR, path, '--work-dir', tmp_path, '--out']
    tool(*fit, first)
    tool(*fit, second, options=[*DECIDING, f'model.decision={first}'])
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize('name', ['ClassOffsets', 'ImageOverlap'])
def test_two_processes_fit_as_one(name, tool, command_of, environment, untrained, tmp_path):
    """On an odd number of images."""
    path, five = untrained(BAR), ['val_dataloader.dataset.num_images=5', 'val_dataloader.batch_size=2']
    one, two = tmp_path / 'one.json', tmp_path / 'two.json'
    settings = ['fit_decision.py', BAR, path, '--work-dir', tmp_path, '--decision', name, *OPTIONS[name], '--out']
    tool(*settings, one, options=five)
    _, *words = command_of(*settings, two, '--launcher', 'pytorch', options=five)
    launcher = ['-m', 'torch.distributed.run', '--nproc_per_node=2', f'--master_port={a_free_port()}']
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get('PYTHONPATH', '')]))
    done = subprocess.run(
        [sys.executable, *launcher, *words],
        cwd=ROOT,
        env=environment() | {'PYTHONPATH': paths},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.count('written: ') == 1
    first, second = (json.loads(file.read_text()) for file in (one, two))
    if name == 'ImageOverlap':  # a sum of floats
        parts = [(state['state'].pop('report'), state['state'].pop('temperature')) for state in (first, second)]
        assert parts[0][0] == pytest.approx(parts[1][0], abs=1e-6)
        assert parts[0][1] == pytest.approx(parts[1][1], rel=1e-6)
    assert first == second


VIEWS = """
tta_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(
        type='TestTimeAug',
        transforms=[
            [dict(type='Resize', scale_factor=factor, keep_ratio=True) for factor in (1.0, 0.5)],
            [dict(type='RandomFlip', prob=p, direction='horizontal') for p in (0.0, 1.0)],
            [dict(type='LoadAnnotations')],
            [dict(type='PackSegInputs')],
        ],
    ),
]
"""


@pytest.mark.parametrize(
    ('model', 'views'),
    [
        ('DecidingSegmentor', 'SegTTAModel'),
        ('mmseg_nondecomp.DecidingSegmentor', 'mmseg.SegTTAModel'),
        ('DecidingSegmentor', 'DecidingTTAModel'),
    ],
)
def test_views_are_decided(model, views, tool, untrained, tmp_path):
    """A decision for class 7 in all pixels is seen in the maps."""
    config, path = tmp_path / 'views.py', untrained(CONFIG)
    offsets = [0.0] * 7 + [1000.0] + [0.0] * 8
    decision = f'dict(type="ClassOffsets", values={offsets})'
    config.write_text(
        f'_base_ = {str(ROOT / CONFIG)!r}\n{VIEWS}\n'
        f'model = dict(type={model!r}, segmentor="EncoderDecoder", decision={decision})\n'
        f'tta_model = dict(_delete_=True, type={views!r})\n'
    )
    tool('test.py', config, path, '--work-dir', tmp_path, '--out', tmp_path / 'maps', '--tta')
    maps = [np.array(Image.open(file)) for file in sorted((tmp_path / 'maps').glob('*.png'))]
    assert len(maps) == 4
    assert all((found == 7).all() for found in maps)


def test_a_config_without_views(tool, untrained, tmp_path):
    log = tool('test.py', CONFIG, untrained(CONFIG), '--work-dir', tmp_path, '--tta', fails=True)
    assert '--tta needs `tta_model` and `tta_pipeline`' in log
