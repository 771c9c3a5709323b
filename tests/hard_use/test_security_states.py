"""States that a checkpoint hands to losses, samplers and hooks: taken as they were saved, or refused by name."""

import copy
import pickle

import numpy as np
import pytest
import torch

from mmseg_nondecomp import IoUAdaptiveSampler, LovaszSoftmaxLoss, SMeasureLoss

CHANGES = {
    'missing': None,
    'text': lambda value: 'text',
    'a list': lambda value: value.tolist(),
    'integers of another kind': lambda value: value.to(torch.int16),
    'complex': lambda value: value.to(torch.complex64),
    'of more dimensions': lambda value: value.unsqueeze(0),
    'longer': lambda value: torch.cat([value, value]) if value.dim() else value.expand(3),
    'one number': lambda value: value.new_zeros((1,) * 6),
    'without end': lambda value: value.new_zeros(()).expand(1 << 40),
}
"""Ways to damage a tensor of a state."""


def seen_by_a_loss(n_steps=2):
    """Return an S-measure loss after three batches and that many steps."""
    loss = SMeasureLoss(per_example=True, mode='multilabel')
    generator = torch.Generator().manual_seed(0)
    for step in range(3):
        scores = torch.randn(8, 2, generator=generator, requires_grad=True)
        labels = torch.randint(0, 2, (8, 2), generator=generator).float()
        loss(scores, labels, ids=torch.arange(8) + 4 * step)
        if step < n_steps:
            loss.step(ascend=False)
    return loss


def parts():
    state = seen_by_a_loss().get_extra_state()
    return [(part, name) for part in state for name in state[part]]


@pytest.mark.parametrize('change', CHANGES)
@pytest.mark.parametrize(('part', 'name'), parts())
def test_the_state_of_an_s_measure_loss_is_whole(part, name, change):
    loss = seen_by_a_loss()
    state = copy.deepcopy(loss.get_extra_state())
    if CHANGES[change] is None:
        del state[part][name]
    else:
        state[part][name] = CHANGES[change](state[part][name])
    with pytest.raises(ValueError, match=r'state of an S-measure loss should have `|belong together'):
        loss.set_extra_state(state)


@pytest.mark.parametrize(
    ('name', 'value'), [('touched', 99), ('touched', -1), ('ids', 0), ('calls', -8), ('calls', 1 << 40)]
)
def test_rows_of_examples_belong_together(name, value):
    loss = seen_by_a_loss()
    state = copy.deepcopy(loss.get_extra_state())
    state['examples'][name].fill_(value)
    with pytest.raises(ValueError, match='should belong together'):
        loss.set_extra_state(state)


@pytest.mark.parametrize('n_steps', [0, 1, 2, 3])
def test_a_saved_state_is_loaded(n_steps):
    loss, other = seen_by_a_loss(n_steps), SMeasureLoss(per_example=True)
    other.load_state_dict(pickle.loads(pickle.dumps(loss.state_dict())))
    for state in (loss, other):
        state.step()
    for part, values in loss.get_extra_state().items():
        for name, value in values.items():
            torch.testing.assert_close(other.get_extra_state()[part][name], value, equal_nan=True)


@pytest.mark.parametrize(
    'state', ['text', torch.ones(2, 3), torch.ones(3, 2, 5, 2, 9), torch.ones(1, 1, 1, 1, 1).long()]
)
def test_the_memory_of_a_lovasz_loss_is_histograms(state):
    loss = LovaszSoftmaxLoss(memory=3)
    with pytest.raises(ValueError, match='state of a memory should be histograms'):
        loss.load_state_dict(dict.fromkeys(loss.state_dict(), state))


class Boxes:
    metainfo = dict(classes=('a', 'b', 'c'))

    def __len__(self):
        return 9

    def get_cat_ids(self, index):
        return [index % 3]


SHARES = torch.full((3,), 0.5, dtype=torch.float64)


@pytest.mark.parametrize(
    'state',
    [
        dict(since=[0], iou=[]),
        dict(since=[], iou=[]),
        dict(since=[0, 5], iou=[SHARES]),
        dict(since=[5, 0], iou=[SHARES, SHARES]),
        dict(since=[3], iou=[SHARES]),
        dict(since=[0], iou=[SHARES[:2]]),
        dict(since=[0], iou=[SHARES * np.nan]),
        dict(since=[0], iou=[SHARES * np.inf]),
        dict(since=[0], iou=[-SHARES]),
        dict(since=[0, 2], iou=[SHARES, torch.ones(3, 3, dtype=torch.float64)]),
    ],
)
def test_the_state_of_a_sampler_is_shares(state):
    pytest.importorskip('mmengine')
    sampler = IoUAdaptiveSampler(Boxes(), seed=0)
    before = copy.deepcopy(sampler.state_dict())
    with pytest.raises(ValueError, match='The state should'):
        sampler.load_state_dict(state)
    assert sampler.state_dict()['since'] == before['since']
    assert len(list(zip(range(20), sampler, strict=False))) == 20
