"""Losses in the trainers of Ultralytics, on generated images; nothing is downloaded."""
# ruff: noqa: E402

import copy
import os
import pickle
import subprocess
import sys
import tempfile
from types import SimpleNamespace

os.environ.setdefault('YOLO_CONFIG_DIR', tempfile.mkdtemp())
os.environ.setdefault('YOLO_OFFLINE', 'true')
os.environ.setdefault('YOLO_VERBOSE', 'false')

import pytest
import torch

ultralytics = pytest.importorskip('ultralytics')

import cv2
import numpy as np
from torch.nn import functional as F
from ultralytics import YOLO
from ultralytics.cfg import get_cfg
from ultralytics.utils.nms import TorchNMS
from ultralytics.utils.ops import crop_mask

from mmseg_nondecomp import (
    LossMaxPooling,
    LovaszHingeLoss,
    LovaszSoftmaxLoss,
    SMeasureLoss,
    SoftIoULoss,
    SumOfLosses,
    metric_loss,
)
from mmseg_nondecomp.adapters.ultralytics import _SetCriterion, criterion_of, use_loss

SETTINGS = dict(
    epochs=1, imgsz=64, batch=4, device='cpu', workers=0, plots=False, amp=False, verbose=False, nbs=4, optimizer='SGD'
)


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    """Return the configuration of a data set with label maps and outlines of squares, and an ignored border."""
    folder = tmp_path_factory.mktemp('data')
    generator = np.random.default_rng(0)
    for split in ('train', 'val'):
        for kind in ('images', 'masks', 'labels'):
            (folder / kind / split).mkdir(parents=True)
        for i in range(8):
            label = np.zeros((64, 64), np.uint8)
            x, y, size = generator.integers([4, 4, 20], [24, 24, 36])
            label[y : y + size, x : x + size] = 1
            image = (40 + 150 * label[..., None] + generator.integers(0, 30, (64, 64, 3))).astype(np.uint8)
            label[:2] = 255
            cv2.imwrite(str(folder / 'images' / split / f'{i}.png'), image)
            cv2.imwrite(str(folder / 'masks' / split / f'{i}.png'), label)
            corners = np.array([x, y, x + size, y, x + size, y + size, x, y + size]) / 64
            (folder / 'labels' / split / f'{i}.txt').write_text(' '.join(['0', *map(str, corners)]))

    def configuration(names, masks):
        lines = [f'path: {folder}', 'train: images/train', 'val: images/val', *['masks_dir: masks'] * masks, 'names:']
        file = folder / f'{len(names)}{masks}.yaml'
        file.write_text('\n'.join([*lines, *(f'  {i}: {name}' for i, name in enumerate(names))]))
        return str(file)

    return configuration


class Witness:
    """Keeps the weights before and after the training, and the losses of the steps."""

    def __init__(self, model):
        self.losses, self.items = [], []
        model.add_callback('on_train_start', self.start)
        model.add_callback('on_train_batch_end', self.step)
        model.add_callback('on_model_save', self.end)

    def start(self, trainer):
        self.before = [p.detach().clone() for p in trainer.model.parameters()]

    def step(self, trainer):
        self.losses.append(trainer.loss.item())
        self.items.append(trainer.loss_items)

    def end(self, trainer):
        self.changed = sum(not torch.equal(a, b) for a, b in zip(self.before, trainer.model.parameters(), strict=True))
        self.criterion, self.metrics, self.last = trainer.model.criterion, dict(trainer.metrics), trainer.last


def trained(model, data, folder, loss, **settings):
    use_loss(model, loss)
    witness = Witness(model)
    model.train(data=data, project=str(folder), **SETTINGS | settings)
    assert len(witness.losses) == 2
    assert np.isfinite(witness.losses).all()
    assert witness.changed > 50
    assert b'mmseg_nondecomp' not in witness.last.read_bytes()
    return witness


def loaded_elsewhere(checkpoint):
    """Return the result of loading a checkpoint in a process that does not import this package."""
    program = (
        'import sys, torch\nfrom ultralytics import YOLO\nmodel = YOLO(sys.argv[1])\n'
        'model.predict(torch.rand(1, 3, 64, 64), verbose=False)\n'
        "print(getattr(model.model, 'criterion', None), 'mmseg_nondecomp' in sys.modules)"
    )
    return subprocess.run([sys.executable, '-c', program, str(checkpoint)], capture_output=True, text=True, check=True)


@pytest.mark.parametrize('n_classes', [1, 2])
def test_semantic_training(data, tmp_path, n_classes):
    names = ['square'] if n_classes == 1 else ['ground', 'square']
    loss = 'miou' if n_classes == 2 else LovaszSoftmaxLoss()
    witness = trained(YOLO('yolo26n-sem.yaml'), data(names, True), tmp_path, loss)
    assert set(witness.items[0]) == {'set_loss', 'aux_loss'}
    total = 4 * sum(witness.items[0].values()).item()
    assert witness.losses[0] == pytest.approx(total, rel=1e-6)
    assert witness.metrics['val/set_loss'] > 0
    if n_classes == 2:
        assert loaded_elsewhere(witness.last).stdout.split()[-2:] == ['None', 'False']


@pytest.mark.parametrize('yaml', ['yolo11n-seg.yaml', 'yolo26n-seg.yaml'])
def test_segment_training(data, tmp_path, yaml, monkeypatch):
    monkeypatch.setattr('torchvision.ops.nms', TorchNMS.nms)  # compiled operators may be missing
    loss = LovaszHingeLoss(scope='image') if '26' in yaml else 'miou'
    witness = trained(YOLO(yaml), data(['square'], False), tmp_path, loss)
    parts = [getattr(witness.criterion, name, witness.criterion) for name in ('one2many', 'one2one')]
    assert all(part.single_mask_loss.losses for part in parts)
    assert {'box_loss', 'seg_loss', 'cls_loss'} <= set(witness.items[0])
    assert witness.metrics['val/seg_loss'] >= 0


def test_training_is_resumed(data, tmp_path):
    model = YOLO('yolo26n-sem.yaml')
    use_loss(model, LovaszSoftmaxLoss())
    model.add_callback('on_model_save', lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model.train(data=data(['ground', 'square'], True), project=str(tmp_path), **SETTINGS | dict(epochs=2))
    resumed = YOLO(tmp_path / 'train' / 'weights' / 'last.pt')
    use_loss(resumed, LovaszSoftmaxLoss())
    witness = Witness(resumed)
    resumed.train(resume=True)
    assert len(witness.items) == 2
    assert all('set_loss' in items for items in witness.items)


@pytest.mark.parametrize('n_classes', [1, 4])
def test_semantic_loss_is_that_of_the_direct_call(n_classes):
    loss = LovaszSoftmaxLoss()
    criterion = criterion_of('semantic', loss, n_classes)
    logits, auxiliary = (torch.randn(3, n_classes, size, size, requires_grad=True) for size in (8, 4))
    masks = torch.randint(0, max(n_classes, 2), (3, 32, 32)).int()
    masks[:, :5] = 255
    total, items = criterion((logits, auxiliary), dict(semantic_mask=masks))
    resized = [F.interpolate(each, (32, 32), mode='bilinear', align_corners=False) for each in (logits, auxiliary)]
    main, aux = (loss(each, masks) for each in resized)
    expected = 3 * (main + 0.4 * aux)
    assert total.item() == pytest.approx(expected.item(), abs=1e-6)
    assert items['set_loss'].item() == pytest.approx(main.item(), abs=1e-6)
    of_total, of_expected = (torch.autograd.grad(each, (logits, auxiliary)) for each in (total, expected))
    torch.testing.assert_close(of_total, of_expected, atol=1e-6, rtol=0)
    alone, items = criterion(logits, dict(semantic_mask=masks))  # as in a validation
    assert alone.item() == pytest.approx(3 * main.item(), abs=1e-5)
    assert items['aux_loss'] == 0


@pytest.mark.parametrize('n_classes', [1, 4])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float16, torch.bfloat16])
def test_masks_without_a_class(n_classes, dtype):
    """Batches of one label, batches with ignored pixels and background, and batches that are ignored entirely."""
    criterion = criterion_of('semantic', 'miou', n_classes)
    logits = torch.randn(2, n_classes, 8, 8, dtype=dtype, requires_grad=True)
    for labels in ([0, 0], [0, 255], [255, 255]):
        masks = torch.tensor(labels, dtype=torch.uint8).view(2, 1, 1).expand(2, 8, 8)
        total, _ = criterion(logits, dict(semantic_mask=masks))
        (gradient,) = torch.autograd.grad(total, logits)
        assert total.isfinite()
        assert gradient.isfinite().all()
    assert total == 0
    assert not gradient.any()


@pytest.mark.parametrize('loss', [LovaszHingeLoss(scope='image'), SoftIoULoss(scope='image', loss_weight=2.0)])
def test_each_instance_is_a_set_of_the_pixels_in_its_box(loss):
    masks = torch.zeros(3, 20, 24)
    masks[0, 3:9, 4:13], masks[1, 10:20, 2:8] = 1, 1  # the box of the third is empty
    boxes = torch.tensor([[2.5, 2.0, 14.2, 10.0], [1.0, 8.7, 9.0, 20.0], [5.0, 5.0, 5.0, 9.0]])
    inside = crop_mask(torch.ones_like(masks), boxes)
    coefficients, prototypes = torch.randn(3, 6, requires_grad=True), torch.randn(6, 20, 24, requires_grad=True)
    found = criterion_of('segment', loss, 1)(masks, coefficients, prototypes, boxes, torch.rand(3))
    logits = torch.einsum('nk,khw->nhw', coefficients, prototypes)
    expected = sum(
        loss(logits[i][inside[i] > 0].view(1, 1, -1), masks[i][inside[i] > 0].long().view(1, -1)) for i in range(2)
    )
    assert found.item() == pytest.approx(expected.item(), abs=1e-6)
    of_found, of_expected = (torch.autograd.grad(each, (coefficients, prototypes)) for each in (found, expected))
    torch.testing.assert_close(of_found, of_expected, atol=1e-6, rtol=0)
    assert not of_found[0][2].any()


@pytest.mark.parametrize('yaml', ['yolo11n-seg.yaml', 'yolo26n-seg.yaml'])
def test_other_terms_of_instance_segmentation_stay(yaml):
    torch.manual_seed(0)
    model = YOLO(yaml).model
    model.args = get_cfg()
    squares = torch.zeros(2, 16, 16)
    squares[:, 4:12, 4:12] = 1
    boxes = torch.tensor([[0.5, 0.5, 0.5, 0.5]] * 2)
    batch = dict(img=torch.rand(2, 3, 64, 64), batch_idx=torch.arange(2.0), cls=torch.zeros(2, 1), bboxes=boxes)
    batch |= dict(masks=squares, sem_masks=torch.zeros(2, 16, 16))
    total, stock = model.loss(batch)
    trainer = SimpleNamespace(
        model=model, ema=SimpleNamespace(ema=copy.deepcopy(model)), data=dict(nc=80), device='cpu'
    )
    before = model.criterion
    _SetCriterion('segment', SoftIoULoss(scope='image'))(trainer)
    assert model.criterion is before, 'a resumed training has set the weights of its branches'
    changed, found = model.loss(batch)
    assert found.keys() == stock.keys()
    assert {name for name in found if found[name] != stock[name]} == {'seg_loss'}
    assert 0 < found['seg_loss'] < model.args.box
    assert [i for i in range(len(total)) if total[i] != changed[i]] == [1]
    assert trainer.ema.ema.loss(batch)[1]['seg_loss'].isfinite()


def test_parts_of_a_sum_are_weighted():
    masks, boxes = torch.zeros(1, 4, 4), torch.tensor([[0.0, 0.0, 4.0, 4.0]])
    masks[:, 1:3] = 1
    parts = [LovaszHingeLoss(scope='image', loss_weight=3.0), LossMaxPooling(scope='image', mode='binary')]
    call = (masks, torch.randn(1, 2), torch.randn(2, 4, 4), boxes, torch.ones(1))
    found = criterion_of('segment', SumOfLosses(parts, loss_weight=0.5), 1)(*call)
    expected = 0.5 * sum(criterion_of('segment', part, 1)(*call) for part in parts)
    assert found.item() == pytest.approx(expected.item(), abs=1e-6)


@pytest.mark.parametrize('measure', ['miou', 'image_miou', 'dice'])
def test_the_loss_of_a_measure_is_the_sum_of_those_of_masks(measure):
    masks, boxes = (torch.rand(3, 8, 8) > 0.5).float(), torch.tensor([[0.0, 0.0, 8.0, 8.0]] * 3)
    masks[0], masks[0, 2:4, 2:4] = 0, 1
    coefficients, prototypes = torch.randn(3, 4), torch.randn(4, 8, 8)
    logits = torch.einsum('nk,khw->nhw', coefficients, prototypes)
    dice = SoftIoULoss(alpha=0.5, beta=0.5)
    expected = sum(
        F.binary_cross_entropy_with_logits(x, y) + dice(x[None, None], y[None].long())
        for x, y in zip(logits, masks, strict=True)
    )
    for loss in (measure, metric_loss('image_dice', mode='binary')):
        found = criterion_of('segment', loss, 1)(masks, coefficients, prototypes, boxes, torch.ones(3))
        assert found.item() == pytest.approx(expected.item(), abs=1e-5)


def test_callback_is_sent_to_other_processes():
    """Ultralytics starts the processes of several GPUs with the pickled callbacks."""
    callback = pickle.loads(pickle.dumps(_SetCriterion('semantic', LovaszSoftmaxLoss(bins=None))))
    assert callback.task == 'semantic'
    assert callback.loss.bins is None


def test_mistakes(data):
    with pytest.raises(ValueError, match=r"'semantic' .* or 'segment'.* Found the task 'detect'"):
        use_loss(YOLO('yolo11n.yaml'), 'miou')
    model = YOLO('yolo26n-sem.yaml')
    with pytest.raises(TypeError, match=r'`model` should be a YOLO.*SemanticSegmentationModel'):
        use_loss(model.model, 'miou')
    with pytest.raises(TypeError, match='Ultralytics neither updates nor stores'):
        use_loss(model, SMeasureLoss())
    with pytest.raises(TypeError, match='Ultralytics neither updates nor stores'):
        use_loss(YOLO('yolo11n-seg.yaml'), 'f_beta')
    with pytest.raises(TypeError, match='Parameter `loss` should be a loss'):
        use_loss(model, None)
    with pytest.raises(ValueError, match="`scope` of the loss should be 'image': each mask is a set"):
        use_loss(YOLO('yolo11n-seg.yaml'), LovaszHingeLoss())
    with pytest.raises(SyntaxError, match='loss'):  # of Ultralytics itself
        model.train(data=data(['ground', 'square'], True), loss='miou', **SETTINGS)
