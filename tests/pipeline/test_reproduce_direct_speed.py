"""Times of rankings and of losses of average precision, in small: that they are taken, told and drawn."""

import math

import pytest
import torch
from reproductions import direct_speed

from benchmarks import peers


@pytest.fixture
def speed(monkeypatch):
    for name, value in dict(N_POSITIVES=10, N_NEGATIVES=(20, 40), N_ITEMS=(64, 128)).items():
        monkeypatch.setattr(direct_speed, name, value)
    return direct_speed


def rows(*milliseconds):
    """Return rows of the positive update for 1 000, 10 000, ... negatives."""
    sizes = [10 ** (3 + i) for i in range(len(milliseconds))]
    ratio = 'time against sort of the negatives'
    return [
        {'negatives': n, 'candidate': 'positive update', 'median ms': time, ratio: time / 2}
        for n, time in zip(sizes, milliseconds, strict=True)
    ]


def test_leaves_tables_a_picture_and_a_sentence(speed):
    done = speed.reproduce([0])
    assert [row['negatives'] for row in done.results['rankings']] == [20, 20, 40, 40]
    assert {row['candidate'] for row in done.results['rankings']} == {speed.SORT, speed.UPDATE}
    assert sorted({row['items'] for row in done.results['steps']}) == [64, 128]
    assert len(done.rows) == len(done.results['rankings']) + len(done.results['steps'])
    assert all(row['median ms'] > 0 for row in done.rows)
    names = list(dict.fromkeys(row['candidate'] for row in done.results['steps']))
    assert {'binary cross-entropy', 'direct AP loss, positive', 'smooth AP over pairs'} <= set(names)
    ranking, step, memory = done.figure.axes
    assert [line.get_label() for line in ranking.lines] == [speed.SORT, speed.UPDATE, 'n log n']
    assert [line.get_label() for line in step.lines] == [line.get_label() for line in memory.lines] == names


def test_the_sentence_has_the_ratios_and_the_growth(speed, monkeypatch):
    monkeypatch.setattr(speed, 'N_POSITIVES', 1000)
    monkeypatch.setattr(speed, 'N_NEGATIVES', (1000, 10_000))
    said = speed.found(rows(2.0, 14.0))
    growth = 11_000 * math.log(11_000) / (2000 * math.log(2000))
    assert 'takes 1, 7 times a sort of 1000, 10000 negatives' in said
    assert f'its time grows 7-fold, and n log n {growth:.0f}-fold' in said


def test_the_peer_is_given_probabilities_and_places(speed, monkeypatch, tmp_path):
    """As its documentation has it; its package imports what its loss does not need, which is left alone."""
    package = tmp_path / 'libauc'
    for folder in ('losses', 'utils'):
        (package / folder).mkdir(parents=True)
        (package / folder / '__init__.py').write_text('import no_such_package\n')
    (package / '__init__.py').write_text('import no_such_package\n')
    (package / 'losses' / 'auc.py').write_text(
        'class APLoss:\n'
        '    def __init__(self, data_len):\n'
        '        self.n = data_len\n'
        '    def __call__(self, preds, target, index):\n'
        '        assert index.tolist() == list(range(self.n)) and 0 < preds.min() <= preds.max() < 1\n'
        '        return preds[target == 1].sum()\n'
    )
    with monkeypatch.context() as patch:
        for name in ('libauc', 'libauc.losses', 'libauc.utils', 'libauc.losses.auc'):
            patch.delitem(peers.sys.modules, name, raising=False)
        patch.syspath_prepend(str(tmp_path))
        [(_, loss)] = peers.libauc_peer(3).items()
        value = loss(torch.tensor([2.0, -1.0, 0.0]), torch.tensor([0, 0, 1]))
        for name in ('libauc', 'libauc.losses', 'libauc.utils', 'libauc.losses.auc'):
            peers.sys.modules.pop(name, None)
    assert value == 0.5
