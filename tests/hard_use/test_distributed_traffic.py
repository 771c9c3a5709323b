"""Communication of losses with ``scope='world'``, counted in one process that simulates many."""

import needs_openmmlab  # noqa: F401  isort: skip

import json
import sys
from pathlib import Path

import benchmark
import pytest
import torch
from distributed_scenes import built, losses_in
from every_loss import N_CLASSES

import mmseg_nondecomp
from benchmarks import traffic

LOSSES = [*losses_in('world')]
SIDES = (16, 32, 64)
MANY = 1024


def exchanged(loss, side, n_processes=MANY):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(1, N_CLASSES, side, side, generator=generator).requires_grad_()
    labels = torch.randint(0, N_CLASSES, (1, side, side), generator=generator)
    with traffic.one_of(n_processes):
        return traffic.collectives(built(loss, 'world'), logits, labels)


@pytest.mark.parametrize('loss', LOSSES)
def test_does_not_grow_with_the_pixels(loss):
    found = [exchanged(loss, side) for side in SIDES]
    assert found[0] == found[1] == found[2]
    assert found[0]


@pytest.mark.parametrize('loss', LOSSES)
def test_few_processes_send_no_more_than_many(loss):
    """Also where it is the items that are exchanged, being few."""
    most = 2 * sum(size for _, size in exchanged(loss, SIDES[0]))
    for n in (2, 8):
        for side in SIDES[:2]:
            assert traffic.sent(exchanged(loss, side, n), n) < most


def test_a_ring_sends():
    """Each of four processes: six quarters of what is added up, and three times what is gathered."""
    assert traffic.sent([traffic.Collective('allreduce_', 100)], 4) == 150
    assert traffic.sent([traffic.Collective('allgather_', 100)], 4) == 300
    with pytest.raises(KeyError):
        traffic.sent([traffic.Collective('alltoall_', 100)], 4)


@pytest.fixture(scope='module')
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp('traffic')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, 'argv', ['benchmark.py', 'traffic', '--quick', '--out', str(folder)])
        benchmark.main()
    assert [path.name for path in folder.iterdir()] == ['traffic.json']
    return json.loads((folder / 'traffic.json').read_text())


def test_every_loss_with_the_scope_is_in_the_table(report):
    rows = [row['loss'].split(',')[0] for row in report['table']]
    assert set(rows[1:]) == {loss.split()[0] for loss in LOSSES}
    assert all(hasattr(mmseg_nondecomp, row) for row in rows[1:])


def test_on_paper_and_in_code_it_is_the_same(report):
    values = dict(C=traffic.N_CLASSES, N=traffic.N_ITEMS)
    for row in report['table'][1:]:
        formula = row['handed over on paper'].replace('·', '*').replace('^', '**')
        assert int(row['bytes']) == eval(formula, {}, values), row['loss']


def test_the_table_of_the_repository_is_that_of_the_code(report):
    """Sizes of images do not matter, but for average precision with few processes."""
    kept = json.loads((Path(__file__).parents[2] / 'benchmarks' / 'traffic.json').read_text())
    assert not kept['metadata']['quick']
    columns = ('loss', 'handed over on paper', 'bytes', 'collectives', f'KiB sent, {MANY} processes')
    assert [[row[c] for c in columns] for row in kept['table']] == [
        [row[c] for c in columns] for row in report['table']
    ]
