"""Claims of the papers that tools/reproduce.py confirms or refutes, on two seeds."""

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import reproduce as tool
import torch
from reproductions.catalogue import REPRODUCTIONS
from reproductions.descent import prox_at_distance
from reproductions.two_pieces import two_pieces
from scipy.optimize import minimize

ROOT = Path(__file__).parents[2]
NAMES = ['lovasz-synthetic', 'lovasz-prox']
PAPERS = ['loss max-pooling', 'Lovász-Softmax', 'S-measures', 'direct loss', 'smooth top-k', 'beyond the papers']


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp('reproduced')
    command = [sys.executable, str(ROOT / 'tools' / 'reproduce.py'), *NAMES, '--seeds', '0', '1', '--out', str(path)]
    environment = {**os.environ, 'OMP_NUM_THREADS': '1'}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (path / 'printed.txt').write_text(done.stdout)
    return path


@pytest.fixture(scope='module')
def synthetic(folder):
    return json.loads((folder / 'lovasz-synthetic.json').read_text())


@pytest.fixture(scope='module')
def prox(folder):
    return json.loads((folder / 'lovasz-prox.json').read_text())


def rows_of(report, group, **wanted):
    """Return the rows with these values, by their first column."""
    rows = [row for row in report['results'][group] if all(row[key] == value for key, value in wanted.items())]
    return {next(iter(row.values())): row for row in rows}


@pytest.mark.parametrize('name', NAMES)
def test_leaves_a_picture_numbers_and_a_table(folder, name):
    assert (folder / f'{name}.png').read_bytes().startswith(b'\x89PNG')
    report = json.loads((folder / f'{name}.json').read_text())
    assert report['metadata']['seeds'] == [0, 1]
    assert report['metadata']['torch'] == torch.__version__
    printed = (folder / 'printed.txt').read_text()
    assert report['found'] in printed
    assert f'{name}: ' in printed
    assert '|---|' in printed


@pytest.fixture
def command(monkeypatch, tmp_path):
    """Run the command in this process, with an output folder that does not exist."""

    def run(*arguments):
        monkeypatch.setattr(sys, 'argv', ['reproduce.py', *arguments, '--out', str(tmp_path / 'nothing')])
        tool.main()

    return run


def test_an_unknown_name_is_refused(command, tmp_path, capsys):
    with pytest.raises(SystemExit, match='2'):
        command('lovasz-synthetics')
    assert 'no reproduction is called lovasz-synthetics' in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('arguments', [[], ['--list'], [NAMES[0], '--list']])
def test_without_a_name_and_on_demand_there_is_a_list_and_nothing_is_run(command, tmp_path, capsys, arguments):
    command(*arguments)
    assert not list(tmp_path.iterdir())
    printed = capsys.readouterr().out
    first = printed.index('lovasz-synthetic (Lovász-Softmax, figure 3; 10 s)\n')
    assert 'minima of surrogates compared with the minimum of the Jaccard loss' in printed[first:].splitlines()[1]


def test_all_runs_all_and_the_catalogue_describes_each(command, monkeypatch, tmp_path):
    ran = []
    monkeypatch.setattr(tool, 'run', lambda *arguments: ran.append(arguments))
    command('--all', '--seeds', '3')
    assert ran == [(name, [3], tmp_path / 'nothing') for name in REPRODUCTIONS]
    for entry in REPRODUCTIONS.values():
        assert callable(entry.run)
        assert len(entry.shows) > 40
        assert entry.shows.endswith(('.', '?'))
        assert entry.source.partition(', ')[0] in PAPERS
        assert re.fullmatch(r'[\d.]+ (s|min)', entry.takes)
    assert len({entry.shows for entry in REPRODUCTIONS.values()}) == len(REPRODUCTIONS)
    assert {path.stem for path in (ROOT / 'benchmarks' / 'reproduce').glob('*.json')} <= set(REPRODUCTIONS)


def test_minima_are_at_known_places_and_that_of_the_lovasz_hinge_near_that_of_the_jaccard_loss(synthetic):
    for run in synthetic['results']['seeds']:
        away = {name: abs(bias - run['bias']['Jaccard loss']) for name, bias in run['bias'].items()}
        assert 2 * away['Lovász hinge'] < min(away['cross-entropy'], away['hinge'])
        best = run['reached']['Jaccard loss']
        assert best <= run['reached']['Lovász hinge'] < best + 0.03
        assert min(run['reached']['cross-entropy'], run['reached']['hinge']) > best + 0.05
    largest = max(synthetic['results']['by radius'], key=float)
    summary = synthetic['results']['by radius'][largest]
    away = {name: summary[name]['distance to the Jaccard argmin']['mean'] for name in ('cross-entropy', 'Lovász hinge')}
    assert away['cross-entropy'] <= away['Lovász hinge']
    assert f'radius {largest}' in synthetic['found']
    # The minima that are known show that the data are those of the paper.
    for summary in synthetic['results']['by radius'].values():
        share = summary['share of foreground']['mean']
        log_odds = math.log(share / (1 - share))
        best = 1 - summary['Jaccard loss']['Jaccard loss there']['mean']
        assert summary['cross-entropy']['argmin b']['mean'] == pytest.approx(log_odds, abs=0.15)
        assert summary['Jaccard loss']['argmin b']['mean'] == pytest.approx(log_odds - math.log(best), abs=0.25)


@pytest.mark.parametrize('nu', [0.25, 1.0, 4.0])
def test_the_closed_form_of_the_proximal_point_is_the_solution_of_its_problem(nu):
    problem = two_pieces(torch.tensor(nu, dtype=torch.float64))
    generator = np.random.default_rng(0)
    for x, lam in zip(generator.normal(size=(40, 2)), np.exp(generator.normal(size=40)), strict=True):
        # min t + lam/2 |u - x|² over (u, t) above the three pieces
        solution = minimize(
            lambda z, x=x, lam=lam: z[2] + lam / 2 * ((z[:2] - x) ** 2).sum(),
            np.append(x, 10.0),
            method='SLSQP',
            constraints=[{'type': 'ineq', 'fun': lambda z: [z[2], z[2] - nu * z[0], z[2] - z[1]]}],
            options={'ftol': 1e-14},
        )
        ours = problem.prox(torch.from_numpy(x), torch.tensor([lam]))
        np.testing.assert_allclose(ours.numpy(), solution.x[:2], atol=1e-5)


def test_a_proximal_point_is_found_at_a_distance():
    problem = two_pieces(torch.tensor(2.0, dtype=torch.float64))
    x = torch.tensor([[1.0, 0.5], [0.3, 2.0], [-1.0, 1.0]], dtype=torch.float64)
    distance = torch.tensor([[0.4], [0.7], [5.0]], dtype=torch.float64)
    found = prox_at_distance(problem, x, distance)
    moved = (found - x).norm(dim=1)
    torch.testing.assert_close(moved[:2], distance[:2, 0], rtol=1e-5, atol=0)
    torch.testing.assert_close(found[2], torch.tensor([-1.0, 0.0], dtype=torch.float64))  # the nearest minimum


@pytest.mark.parametrize('nu', [0.25, 1.0, 4.0])
def test_gradient_descent_and_momentum_cross_the_edge_that_the_proximal_algorithm_follows(prox, nu):
    rows = rows_of(prox, 'problem C.4', ν=nu)
    crossings = {name: row['crossings of the edge'] for name, row in rows.items()}
    assert crossings['proximal, λ = 1/η'] == crossings['proximal, equal length'] == 0
    assert min(crossings['gradient descent'], crossings['momentum']) > 0
    shortest = min(rows.values(), key=lambda row: row['path / shortest path'])
    assert shortest['problem C.4'].startswith('proximal')
    assert all(row['final f'] < 1e-6 for row in rows.values())


def test_proximal_steps_are_as_few_and_as_low_as_gradient_steps_but_momentum_takes_the_fewest(prox):
    rows = rows_of(prox, 'problem C.4 from random starts')
    assert max(rows['proximal, λ = 1/η']['more'], rows['proximal, equal length']['more']) < 0.01
    assert rows['proximal, λ = 1/η']['as many'] > 0.2, 'not strictly fewer, as the paper says'
    ratio = {name: row['median ratio of steps'] for name, row in rows.items()}
    assert ratio['momentum'] < ratio['proximal, equal length'] < ratio['proximal, λ = 1/η'] <= 1
    for row in prox['results']['proposition C.1']:
        assert 0 < row['with a λ'] <= row['draws']
        assert row['f(prox) ≤ f(gradient step)'] == row['with a λ']
        assert row['lengths agree to'] < 1e-3


def test_free_margins_gain_only_from_longer_steps_and_a_small_lambda_moves_a_minimum(prox):
    for eta in (1 / 20, 1 / 5):
        rows = rows_of(prox, 'free margins', **{'η / sum of margins': pytest.approx(eta)})
        steps = {name: row['steps to 0.1 % of the loss']['mean'] for name, row in rows.items()}
        assert steps['proximal, equal length'] < steps['gradient descent']
        assert steps['proximal, λ = 1/η'] == pytest.approx(steps['gradient descent'], abs=1)
        assert rows['proximal, λ = 1/η']['differs from gradient descent by'] < 0.02
    [eta, *_] = sorted({row['η'] for row in prox['results']['linear model']})
    rows = rows_of(prox, 'linear model', η=eta)
    excess = {name: row['excess at the end']['mean'] for name, row in rows.items()}
    assert max(excess['gradient descent'], excess['proximal, λ = 1']) < 1e-3
    assert excess['proximal, λ = 0.05'] > 3 * excess['proximal, λ = 1']
