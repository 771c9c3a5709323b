"""Ten-crop test of the ImageNet configs: the views, the averaged probabilities, and ``tools/test.py --tta``."""

import needs_mmpretrain  # noqa: F401  isort: skip

import itertools
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from code_blocks import ROOT
from mmengine.config import Config
from mmengine.dataset import Compose, pseudo_collate
from mmengine.registry import MODELS, init_default_scope
from shipped_configs import CONFIGS, each, load

from mmseg_nondecomp.functional import smooth_topk_loss

IMAGENET = sorted((CONFIGS / 'imagenet').glob('*.py'))
BOTH = [path for path in IMAGENET if path.stem.endswith('in1k')]
N_CLASSES, CROP = 7, 224


@pytest.fixture(autouse=True)
def _scope():
    init_default_scope('mmpretrain')


def picture(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def ten_crops(image: np.ndarray, crop: int = CROP) -> list[np.ndarray]:
    """The corners, top left first and row by row, and the centre; each is followed by its mirror image."""
    height, width = image.shape[:2]
    middle = image[round((height - crop) / 2) :, round((width - crop) / 2) :][:crop, :crop]
    corners = [image[:crop, :crop], image[:crop, -crop:], image[-crop:, :crop], image[-crop:, -crop:]]
    return [view for part in [*corners, middle] for view in (part, part[:, ::-1])]


def chance_in_top(scores: np.ndarray, k: int, weight_of_set: Any) -> np.ndarray:
    """Probability of each label to be in a set of k, drawn with the weights, divided by k, from all sets."""
    total, found = 0.0, np.zeros(len(scores))
    for members in itertools.combinations(range(len(scores)), k):
        weight = weight_of_set(scores[list(members)])
        total += weight
        found[list(members)] += weight
    return found / total / k


@each(IMAGENET)
@pytest.mark.parametrize('size', [(256, 256), (256, 401), (339, 256)], ids=str)
def test_the_views_are_the_four_corners_and_the_centre_with_their_mirror_images(path: Path, size, tmp_path: Path):
    image = picture(*size)
    cv2.imwrite(str(tmp_path / 'image.png'), image)
    found = Compose(load(path).tta_pipeline)(dict(img_path=str(tmp_path / 'image.png'), gt_label=3))
    assert len(found['inputs']) == len(found['data_samples']) == 10
    for view, expected in zip(found['inputs'], ten_crops(image), strict=True):
        assert (view.permute(1, 2, 0).numpy() == expected).all()
    assert [sample.gt_label.item() for sample in found['data_samples']] == [3] * 10
    assert [sample.flip for sample in found['data_samples']] == [False, True] * 5


@pytest.mark.parametrize('size', [(300, 450), (1000, 600), (90, 120)], ids=str)
def test_images_are_resized_to_256_at_the_shorter_side(size, tmp_path: Path):
    cv2.imwrite(str(tmp_path / 'image.png'), picture(*size))
    item = dict(img_path=str(tmp_path / 'image.png'), gt_label=0)
    resize = [dict(type='LoadImageFromFile'), dict(type='ResizeEdge', scale=256, edge='short')]
    resized = Compose(resize)(dict(item))['img']
    assert min(resized.shape[:2]) == 256
    cfg = load(BOTH[0])
    found = Compose(cfg.tta_pipeline)(dict(item))['inputs']
    for view, expected in zip(found, ten_crops(resized), strict=True):
        assert (view.permute(1, 2, 0).numpy() == expected).all()
    # The single crop of the validation is the ninth view.
    assert torch.equal(Compose(cfg.test_pipeline)(dict(item))['inputs'], found[8])


def tta_of(cfg: Config) -> Any:
    """The model as `tools/test.py --tta` builds it, for few classes."""
    torch.manual_seed(0)
    cfg.model.head.num_classes = N_CLASSES
    cfg.tta_model.module = dict(cfg.model, data_preprocessor=dict(cfg.data_preprocessor, num_classes=N_CLASSES))
    return MODELS.build(cfg.tta_model).eval()


@each(BOTH)
@pytest.mark.parametrize('k', [2, 5])
def test_scores_are_the_mean_over_crops_of_the_chance_to_be_in_the_top_k(path: Path, k: int, tmp_path: Path):
    cfg, is_smooth = load(path), 'topk5' in path.name
    if k != 5:  # the value of the configs
        cfg.model.head.update(dict(loss=dict(cfg.model.head.loss, k=k)) if is_smooth else dict(k=k, tau=1 / k))
    model = tta_of(cfg)
    model.module.head.fc.weight.data *= 5  # scores that differ
    items = []
    for index, size in enumerate([(256, 300), (256, 256)]):
        cv2.imwrite(str(tmp_path / f'{index}.png'), picture(*size, seed=index))
        items.append(Compose(cfg.tta_pipeline)(dict(img_path=str(tmp_path / f'{index}.png'), gt_label=index)))
    mean, std = (np.array(cfg.data_preprocessor[name]) for name in ('mean', 'std'))

    def weight(members: np.ndarray) -> float:
        if is_smooth:
            return math.exp(members.mean() / cfg.model.head.loss.tau)
        return math.prod(math.exp(score) for score in members)

    with torch.no_grad():
        found = model.test_step(pseudo_collate(items))
        for index, size in enumerate([(256, 300), (256, 256)]):
            views = np.stack(ten_crops(picture(*size, seed=index)))[..., ::-1]  # blue, green, red to RGB
            tensor = torch.tensor(((views - mean) / std).astype(np.float32)).permute(0, 3, 1, 2)
            scores = model.module.head(model.module.extract_feat(tensor)).double().numpy()
            assert scores.std(1).min() > 0.1
            chances = [chance_in_top(row, k, weight) for row in scores]
            np.testing.assert_allclose(found[index].pred_score, np.mean(chances, 0), rtol=1e-4, atol=1e-6)
            assert found[index].gt_label.item() == index


def test_the_weights_are_those_of_the_loss():
    """The smooth loss is -log of the chance that the label is in the set, without its margin."""
    scores = torch.randn(N_CLASSES, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for k, tau in ((2, 0.1), (3, 1.0), (5, 0.2)):
        chances = k * chance_in_top(scores.numpy(), k, lambda members, tau=tau: math.exp(members.mean() / tau))
        for label in range(N_CLASSES):
            loss = smooth_topk_loss(scores[None], torch.tensor([label]), k, tau, margin=0.0)
            assert math.exp(-loss.item() / tau) == pytest.approx(chances[label], rel=1e-6)


@each(BOTH)
def test_the_order_of_the_labels_of_one_crop_is_that_of_the_scores(path: Path):
    """So the top-5 accuracy on the central crop, which selects the epoch, is that of the scores."""
    model = MODELS.build(dict(load(path).model)).head
    generator = torch.Generator().manual_seed(0)
    for scale in (0.1, 1.0, 3.0):
        scores = scale * torch.randn(500, 1000, generator=generator)
        marginals = torch.stack([sample.pred_score for sample in model._get_predictions(scores, None)])
        assert torch.equal(marginals.topk(5).indices.sort(1).values, scores.topk(5).indices.sort(1).values)
        # The predicted label is that of the highest score, also where rounding makes probabilities equal.
        labels = [sample.pred_label.item() for sample in model._get_predictions(scores, None)]
        assert labels == scores.argmax(1).tolist()


@pytest.fixture
def imagenet(tmp_path: Path) -> Path:
    """Three images of a class and one of another, in MMPretrain's layout."""
    for cls, n in enumerate((3, 1)):
        folder = tmp_path / 'data' / 'imagenet' / 'val' / f'n{cls:08d}'
        folder.mkdir(parents=True)
        for index in range(n):
            cv2.imwrite(str(folder / f'{index}.JPEG'), picture(260, 300, seed=10 * cls + index))
    return tmp_path


@each(BOTH)
def test_the_command_of_the_readme_reports_the_accuracy_of_ten_crops(path: Path, imagenet: Path):
    (imagenet / 'config.py').write_text(
        f'_base_ = {str(path)!r}\n'
        f'model = dict(head=dict(num_classes={N_CLASSES}))\n'
        f'data_preprocessor = dict(num_classes={N_CLASSES})\n'
        "dataset = dict(metainfo=dict(classes=('n00000000', 'n00000001')))\n"
        'test_dataloader = dict(num_workers=0, persistent_workers=False, batch_size=3, dataset=dataset)\n'
    )
    model = tta_of(load(path)).module
    # The first class has the third place on every image, the second class the sixth.
    model.head.fc.bias.data = torch.tensor([4.0, 1.0, 6.0, 5.0, 3.0, 2.0, 0.0])
    model.head.fc.weight.data *= 0.01
    torch.save(dict(state_dict=model.state_dict()), imagenet / 'weights.pth')

    command = [sys.executable, str(ROOT / 'tools' / 'test.py'), 'config.py', 'weights.pth', '--tta']
    environment = os.environ | dict(OMP_NUM_THREADS='1', CUDA_VISIBLE_DEVICES='')
    run = subprocess.run(command, cwd=imagenet, env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-3000:]
    [report] = imagenet.glob('work_dirs/**/[0-9]*.json')
    values = json.loads(report.read_text())
    assert (values['accuracy/top1'], values['accuracy/top5']) == (0, 75)
    used = Config.fromfile(next(imagenet.glob('work_dirs/*/config.py')))
    assert used.model.type == 'AverageClsScoreTTA'
    assert used.test_dataloader.dataset.pipeline == load(path).tta_pipeline
