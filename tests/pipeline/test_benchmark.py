"""tools/benchmark.py on tiny data: every registered component is measured, and times and sizes are right."""

import json
import math
import sys
from collections import defaultdict

import benchmark
import pytest
import torch
from every_loss import WRAPPERS
from mmengine.registry import DATA_SAMPLERS, HOOKS, METRICS, MODELS, TASK_UTILS
from torchmetrics import Metric

from benchmarks import (
    busy,
    decisions,
    lmp,
    lovasz,
    lovasz_hinge,
    measure,
    overhead,
    peers,
    s_measure,
    scenes,
    soft_iou,
    table,
)
from mmseg_nondecomp import losses, metrics, samplers

NAMES = [
    *('ap', 'decisions', 'lmp', 'lovasz', 'lovasz-hinge', 'metric-updates', 'metrics', 'overhead', 's-measure'),
    *('sampling', 'soft-iou', 'topk', 'zero-one'),
]
COUNTED = ['launches', 'traffic']
"""Tried in tests/hard_use/test_launches.py and tests/hard_use/test_distributed_traffic.py."""
IN_PROCESSES = ['busy']


@pytest.fixture(scope='module')
def command():

    def run(*arguments):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, 'argv', ['benchmark.py', *map(str, arguments)])
            benchmark.main()

    return run


def registered():
    """Return the losses, samplers, evaluators and metrics of the package."""
    found = {
        cls
        for registry in (MODELS, DATA_SAMPLERS, TASK_UTILS, METRICS)
        for cls in registry.module_dict.values()
        if cls.__module__.startswith(('mmseg_nondecomp.losses', 'mmseg_nondecomp.samplers', 'mmseg_nondecomp.eval'))
    }
    found |= {cls for cls in vars(metrics).values() if isinstance(cls, type) and issubclass(cls, Metric)}
    names = {cls.__name__ for cls in found}
    assert names >= {*losses.__all__, *samplers.__all__, *metrics.__all__}
    return found


@pytest.fixture(scope='module')
def smoke(command, tmp_path_factory):
    """Run all benchmarks. Return the folder, and the components of the package that each benchmark has built."""
    folder = tmp_path_factory.mktemp('benchmarks')
    built = defaultdict(set)
    for name in NAMES:
        with pytest.MonkeyPatch.context() as patch:
            for cls in registered():

                def init(self, *args, _cls=cls, _init=cls.__init__, _name=name, **kwargs):
                    built[_name].add(_cls)
                    _init(self, *args, **kwargs)

                patch.setattr(cls, '__init__', init)
            command(name, '--quick', '--out', folder)
    return folder, built


def test_all_are_tried_here():
    assert list(benchmark.BENCHMARKS) == NAMES
    assert list(benchmark.COUNTS) == COUNTED
    assert list(benchmark.IN_PROCESSES) == IN_PROCESSES


@pytest.mark.parametrize('name', NAMES)
def test_leaves_numbers_a_table_and_a_picture(smoke, name):
    folder, _ = smoke
    report = json.loads((folder / f'{name}.json').read_text())
    assert report['metadata']['torch'] == torch.__version__
    assert report['metadata']['quick'] is True
    assert 'mmsegmentation' in report['metadata']['peers']
    assert {'threads', 'load of the machine before', 'seconds'} <= report['metadata'].keys()
    assert report['table'] == table.compact(report['results'])
    assert all(row['median ms'] > 0 and row['rounds'] == 2 for row in report['results'])
    assert (folder / f'{name}.png').read_bytes().startswith(b'\x89PNG')


def test_every_component_has_a_benchmark_and_an_overhead(smoke):
    """A line of the overhead does not count."""
    _, built = smoke
    measured = set().union(*(built[name] for name in NAMES if name != 'overhead'))
    assert {cls.__name__ for cls in registered() - measured} == WRAPPERS
    assert {loss['type'] for loss in overhead.LOSSES.values()} >= set(losses.__all__) - WRAPPERS
    assert {each['type'] for each in overhead.SAMPLERS.values()} >= set(samplers.__all__) & set(TASK_UTILS.module_dict)
    hooks = {each['type'] for each in overhead.HOOKS.values()}
    assert hooks == {name for name in HOOKS.module_dict if name.startswith('Train')}


@pytest.fixture(scope='module')
def busy_report(command, tmp_path_factory):
    """The report of a quick run beside competing processes, which is timed in one setting for all."""
    folder = tmp_path_factory.mktemp('busy')
    with pytest.MonkeyPatch.context() as patch:
        times = busy.timed_with({}, quick=True)
        patch.setattr(busy, 'timed_with', lambda variables, quick: times)
        command('busy', '--quick', '--out', folder)
    assert [path.name for path in folder.iterdir()] == ['busy.json']
    return json.loads((folder / 'busy.json').read_text())


def test_every_loss_is_timed_alone_and_beside_competitors_in_each_setting(busy_report):
    assert {row['candidate'].split(',')[0] for row in busy_report['table']} >= set(losses.__all__) - WRAPPERS
    settings = ('', ' with OMP_WAIT_POLICY=passive', ' with OMP_NUM_THREADS=1')
    columns = ('ms alone', 'beside / alone', 'beside on one core / alone')
    for row in busy_report['table']:
        assert list(row) == ['candidate', *(column + setting for setting in settings for column in columns)]
        assert all(float(row[column]) > 0 for column in list(row)[1:])
    assert busy_report['metadata']['quick'] is True


def test_the_number_of_threads_is_that_of_the_setting():
    """Whatever the environment of the caller."""
    code = 'import json, torch; print(json.dumps(torch.get_num_threads()))'
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('OMP_NUM_THREADS', '7')
        patch.setattr(busy, 'WORKER', ('-c', code))
        assert busy.timed_with({'OMP_NUM_THREADS': '1'}, quick=True) == 1
        assert busy.timed_with({}, quick=True) != 7


def test_a_competitor_ends_with_its_context_and_with_the_process_that_started_it():
    with busy.competitor() as other:
        with other.at_work():
            assert other.process.poll() is None
        process = other.process
    assert process.poll() is not None
    with busy.competitor() as other:
        other.process.stdin.close()
        assert other.process.wait(timeout=60) == 0


def test_names_are_listed_and_an_unknown_one_is_refused(command, capsys, tmp_path):
    command('--list', '--out', tmp_path / 'nothing')
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == [*NAMES, *COUNTED, *IN_PROCESSES]
    assert not (tmp_path / 'nothing').exists()
    with pytest.raises(SystemExit):
        command('lovasc', '--out', tmp_path / 'nothing')
    assert 'no benchmark is called lovasc' in capsys.readouterr().err
    assert not (tmp_path / 'nothing').exists()


def test_candidates_have_their_turn_in_every_round_and_ratios_are_of_the_same_round():
    turns = []
    steps = {name: lambda name=name: turns.append(name) for name in 'abc'}
    times = measure.in_turns(steps, repeats=30, seconds=0)
    assert turns == ['a', 'b', 'c'] * 3
    assert {name: len(each) for name, each in times.items()} == dict.fromkeys('abc', 3)
    turns.clear()
    measure.in_turns(steps, repeats=5)
    assert len(turns) == 15
    # A machine that is twice as slow in some rounds changes times, not ratios.
    slow = [1.0, 2.0, 1.0, 2.0]
    first, second = measure.summaries({'a': slow, 'b': [3 * time for time in slow]}, 'case')
    assert (first['median ms'], second['median ms']) == (1.5, 4.5)
    assert second['time against a'] == 3
    assert second['IQR of that'] == 0
    assert second['IQR ms'] == 3
    assert second['quartiles ms'] == [3, 6]


def test_the_peak_is_that_of_simultaneous_tensors():
    def step():
        for _ in range(3):
            torch.empty(2**18)
        return torch.empty(2**17).add(1)

    peak = measure.peak_memory(step)
    assert peak == pytest.approx(4 * 2**18, abs=64)  # and the number that is added


def rows(exponent, sizes=(10, 100, 1000)):
    return [
        dict(measured='work', unit='items', size=n, case=f'n={n}', candidate=name, rounds=3)
        | {
            'median ms': factor * n**exponent,
            'quartiles ms': [0.0, 0.1],
            'IQR ms': 0.1,
            'time against first': factor,
            'IQR of that': 0.0,
        }
        for n in sizes
        for name, factor in (('first', 1.0), ('second', 2.5))
    ]


@pytest.mark.parametrize('exponent', [0.0, 1.0, 2.0])
def test_growth_is_the_power_of_the_size(exponent):
    compact = table.compact(rows(exponent))
    assert [row['growth'] for row in compact] == [f'items^{exponent:.2f}'] * 2


def test_a_row_has_all_sizes_and_gaps_where_a_candidate_was_not_timed_and_three_digits():
    first, second = table.compact([*rows(1.0)[:4], *rows(1.0)[4:5]])
    assert first['size'] == second['size'] == 'n=10 · n=100 · n=1000'
    assert first['ms'] == '10.0 · 100 · 1000'
    assert second['ms'] == '25.0 · 250 · –'
    assert second['relative'] == '2.50 · 2.50 · –'
    single = table.compact(rows(1.0, sizes=(10,)))
    assert all('growth' not in row for row in single)
    values = [0.0123456, 1.5, 12.34, 1234.5, 0.0, 7, '2 %', math.nan]
    assert [table.number(value) for value in values] == ['0.0123', '1.50', '12.3', '1234', '0', '7', '2 %', 'nan']


def test_peers_that_are_not_installed_or_refuse_k_are_left_out(monkeypatch):
    assert peers.difftopk_peer(10_000, 20) == {}, 'it looks at the 16 highest scores'
    for part in (peers, lovasz, lovasz_hinge, soft_iou, s_measure):
        if hasattr(part, 'find_spec'):
            monkeypatch.setattr(part, 'find_spec', lambda name: None)
    assert decisions.peers(True) == decisions.peers(False) == {}
    assert all(part.peers() == {} for part in (lovasz, lovasz_hinge, soft_iou, s_measure))
    assert peers.libauc_peer(3) == peers.difftopk_peer(100, 5) == {}


def test_sorting_finds_the_weights_that_it_is_compared_with():
    values = torch.rand(2, 500, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 5
    ours = lmp.unsorted_weights(values, 1.3, 0.25)
    torch.testing.assert_close(lmp.sorted_weights(values, 1.3, 0.25), ours, rtol=1e-4, atol=1e-8)


def test_peers_have_the_value_that_the_package_has():
    """Of the installed peers; MMSegmentation is always there."""
    logits, target = scenes.half_trained((2, 7, 24, 24))
    one_channel, foreground = scenes.foreground((2, 1, 24, 24))
    softmax, hinge = lovasz.peers(), lovasz_hinge.peers()
    assert 'LovaszLoss of mmsegmentation' in softmax
    assert 'LovaszLoss of mmsegmentation' in hinge
    for found, kind, call in (
        (softmax, losses.LovaszSoftmaxLoss, (logits / 3, target)),
        (hinge, losses.LovaszHingeLoss, (one_channel, foreground)),
    ):
        for name, peer in found.items():
            settings = dict(scope='image', classes='all') if 'kornia' in name else {}
            torch.testing.assert_close(peer(*call), kind(bins=None, **settings)(*call))
    for peer in soft_iou.peers().values():
        torch.testing.assert_close(peer(logits, target), losses.SoftIoULoss()(logits, target), rtol=1e-4, atol=1e-5)
