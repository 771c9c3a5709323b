"""MMDetection's stock configs with the loss swapped in train, predict and evaluate on files laid out as COCO."""

import json
import math
from pathlib import Path

import cv2
import numpy as np
import pytest

pytest.importorskip('mmdet')

from mmdet.datasets import CocoDataset
from mmdet.utils import register_all_modules
from mmengine.config import Config
from mmengine.runner import Runner

from mmseg_nondecomp.datasets import ShapeBoxes

ROOT = Path(__file__).parents[2]
CONFIGS = {'faster-rcnn': 'ap_faster-rcnn_r50_fpn_1x_coco.py', 'retinanet': 'ap_retinanet_r50_fpn_1x_coco.py'}
ITERATIONS = 8
N_IMAGES = {'train': 8, 'val': 4}


@pytest.fixture(scope='module')
def coco(tmp_path_factory) -> Path:
    """Write generated images and boxes of COCO's first classes. The first image of each split has no box."""
    root = tmp_path_factory.mktemp('coco')
    (root / 'annotations').mkdir()
    for split, n_images in N_IMAGES.items():
        folder = root / f'{split}2017'
        folder.mkdir()
        images, boxes = [], []
        for i, drawn in enumerate(ShapeBoxes(split, n_images, pipeline=[])):
            file = f'{i:012d}.jpg'
            cv2.imwrite(str(folder / file), drawn['img'])
            height, width = drawn['img'].shape[:2]
            images.append(dict(id=i, file_name=file, height=height, width=width))
            for instance in drawn['instances'] if i else []:
                left, top, right, bottom = (float(edge) for edge in instance['bbox'])
                area = (right - left) * (bottom - top)
                box = dict(bbox=[left, top, right - left, bottom - top], area=area, iscrowd=0)
                boxes.append(dict(id=len(boxes), image_id=i, category_id=1 + instance['bbox_label'], **box))
        assert boxes
        categories = [dict(id=1 + i, name=name) for i, name in enumerate(CocoDataset.METAINFO['classes'])]
        found = dict(images=images, annotations=boxes, categories=categories)
        (root / 'annotations' / f'instances_{split}2017.json').write_text(json.dumps(found))
    return root


@pytest.mark.parametrize('name', CONFIGS)
def test_trains_predicts_and_evaluates(name, coco, tmp_path):
    register_all_modules(init_default_scope=True)
    config = Config.fromfile(ROOT / 'configs' / 'coco' / CONFIGS[name])
    config.work_dir = str(tmp_path)
    config.visualizer.name = str(tmp_path)  # MMEngine keeps one of each name, with its folder
    config.randomness = dict(seed=0)
    config.model.backbone.init_cfg = None  # no download
    for part in ('train_cfg', 'test_cfg'):  # few proposals are enough
        proposals = config.model[part].get('rpn_proposal' if part == 'train_cfg' else 'rpn')
        if proposals:
            proposals.max_per_img = 100
    # A network that has learned nothing is driven too far by the rate for a pretrained one.
    config.optim_wrapper.optimizer.lr = 1e-3
    for part in ('train', 'val', 'test'):
        loader = config[f'{part}_dataloader']
        loader.update(num_workers=0, persistent_workers=False)
        loader.dataset.update(data_root=f'{coco}/')
        for step in loader.dataset.pipeline:
            if step.type == 'Resize':
                step.scale = (96, 96)
    config.train_dataloader.dataset.filter_cfg = None  # images without objects, too
    for part in ('val', 'test'):
        config[f'{part}_evaluator'].ann_file = str(coco / 'annotations' / 'instances_val2017.json')
    config.train_cfg = dict(by_epoch=True, max_epochs=ITERATIONS * 2 // N_IMAGES['train'], val_interval=2)
    config.param_scheduler = []
    config.default_hooks.logger.interval = 1

    runner = Runner.from_cfg(config)
    runner.train()

    assert runner.iter == ITERATIONS
    [scalars] = tmp_path.glob('*/vis_data/scalars.json')
    lines = [json.loads(line) for line in scalars.read_text().splitlines()]
    losses = [line['loss_cls'] for line in lines if 'loss_cls' in line]
    assert len(losses) == ITERATIONS
    # One minus an average precision: no number of boxes has divided it.
    assert all(0 < loss <= 1 for loss in losses)
    assert max(losses) > 0.1
    measured = [line['coco/bbox_mAP'] for line in lines if 'coco/bbox_mAP' in line]
    assert measured
    assert all(math.isfinite(value) and (value == -1 or 0 <= value <= 1) for value in measured)
    assert all(np.isfinite(parameter.detach().numpy()).all() for parameter in runner.model.parameters())
