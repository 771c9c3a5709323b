"""The experiments on decisions at prediction, in small."""

from pathlib import Path

import numpy as np
import pytest
import torch
from reproductions import decisions, lovasz_decision, promised_recall

from mmseg_nondecomp.functional.decisions import Thresholds, decide_overlap

ROOT = Path(__file__).parents[2]
ONE = {'cross-entropy': 'ce'}


@pytest.fixture
def module(monkeypatch, tmp_path):
    """One loss, a training of one step, and a few images to predict."""
    monkeypatch.setattr(decisions, 'OUT', tmp_path / 'work_dirs')
    monkeypatch.chdir(ROOT)
    options = {'train_cfg.max_iters': 1, 'train_cfg.val_interval': 1, 'default_hooks.checkpoint.interval': 1}
    for part, number in (('train', 8), ('val', 2), ('test', 2)):
        options |= {
            f'{part}_dataloader.dataset.data_root': str(tmp_path / 'data'),
            f'{part}_dataloader.dataset.num_images': number,
            f'{part}_dataloader.dataset.image_size': 64,
            f'{part}_dataloader.num_workers': 0,
            f'{part}_dataloader.persistent_workers': False,
        }
    monkeypatch.setattr(decisions, 'OPTIONS', options)
    monkeypatch.setattr(decisions, 'SIZES', {'val': 4, 'test': 3})
    monkeypatch.setattr(decisions, 'LOSSES', ONE)
    monkeypatch.setattr(lovasz_decision, 'LOSSES', ONE | {'other': 'lovasz'})
    return decisions


def test_decisions_leave_a_table_a_picture_and_a_sentence(module):
    done = module.reproduce([0])
    argmax, *others = done.rows
    assert argmax['decision'] == 'argmax'
    assert 'data set: gain' not in argmax
    assert len(others) == 5
    for row in others:
        assert row['image: gain'].endswith(' of 1')
        assert 0 <= row['image Dice']['mean'] <= 100
    assert [fit['seed'] for fit in done.results['fits']] == [0, 0, 0]
    assert 'class offsets for mIoU (data set): cross-entropy ' in done.found
    assert len(done.figure.axes) == 3


def test_areas_are_those_of_the_decided_maps():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 4, 8, 8, generator=generator)
    labels = torch.randint(0, 4, (3, 8, 8), generator=generator).masked_fill(torch.rand(3, 8, 8) < 0.2, 255)
    areas = decisions.areas_of(lambda z, image: z.max(1).indices, logits, labels, logits)
    decided = logits.argmax(1)
    for image in range(3):
        for c in range(4):
            is_true, is_decided = labels[image] == c, (decided[image] == c) & (labels[image] != 255)
            assert areas[image, :, c].tolist() == [(is_true & is_decided).sum(), (is_true | is_decided).sum()]


def test_the_pixels_of_a_batch_are_one_set():
    logits = torch.randn(2, 3, 6, 5, generator=torch.Generator().manual_seed(0))
    found = lovasz_decision.decide(logits, ('first_order', True), temperature=2.0)
    side_by_side = torch.cat(list(logits), 2).unsqueeze(0)
    expected = decide_overlap((side_by_side / 2).softmax(1), expectation='first_order')[0]
    assert torch.equal(torch.cat(list(found), 1), expected)


def test_nowozins_decision_is_compared_on_the_same_batches(module):
    done = lovasz_decision.reproduce([0])
    assert [row['decision'] for row in done.rows] == [*lovasz_decision.WAYS] * 2
    assert all(len(run['mIoU of batches']) == lovasz_decision.N_BATCHES for run in done.results['runs'])
    labels = torch.arange(4).view(-1, 1, 1).expand(-1, 2, 2)
    batches = lovasz_decision.batches_with_all_classes(labels, 4)
    assert all(sorted(batch.tolist()) == [0, 1, 2, 3] for batch in batches)


def test_splits_give_the_thresholds_of_a_fit():
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 2, (100, 6, 6), generator=generator)
    logits = torch.randn(100, 2, 6, 6, generator=generator)
    logits[:, 1] += 3 * labels
    images, thresholds = promised_recall.images_of(logits, labels, 1)
    drawn = (torch.arange(100) < 50).double().unsqueeze(0)
    first, second = promised_recall.halves(drawn, images), promised_recall.halves(1 - drawn, images)
    row = promised_recall.outcome(first, second, thresholds, 'image')
    fitted = Thresholds.fit([(logits[:50], labels[:50])], recall=0.9, classes=[1], bins=promised_recall.BINS)
    assert row['threshold'] == pytest.approx(fitted.values[1])
    reached = logits[50:].softmax(1)[:, 1] >= fitted.values[1]
    of_images = [(r & (y == 1)).sum() / (y == 1).sum() for r, y in zip(reached, labels[50:], strict=True)]
    assert row['recall'] == pytest.approx(np.mean(of_images), abs=1e-6)
    assert row['holds'] == (row['recall'] >= 0.9)
    few = promised_recall.halves((torch.arange(100) < 9).double().unsqueeze(0), images)
    assert promised_recall.outcome(few, second, thresholds, 'image') is None
