import json
from importlib.metadata import packages_distributions, version

import numpy as np
import pytest
from comparison.report import write_report
from comparison.results import Comparison
from comparison.tables import class_rows, markdown, score_rows, spread, summary_rows
from hard_use.hindrances import full_disk


def areas(hits, n_images=3):
    """Return the areas of images in which so many of 10 pixels of a class are right."""
    return [[[hit - image % 2 for hit in hits], [10, 10]] for image in range(n_images)]


@pytest.fixture
def comparison(write_training):
    return Comparison(
        [
            write_training(name, seed, areas(hits), schedule)
            for schedule in ('short', 'long')
            for seed in (0, 1)
            for name, hits in (('base', (8, 2 + seed)), ('other', (7, 5)))
        ]
    )


def test_rows_are_means_and_differences_of_paired_seeds(comparison):
    base, other = score_rows(comparison, 'short')
    assert base['config'] == 'base'
    assert base['seed 0'] == f'{100 * (23 / 30 + 5 / 30) / 2:.2f}'
    assert base['mIoU'] == spread([100 * 28 / 60, 100 * 31 / 60])
    assert base['against the first'] == ''
    gain = 100 * (34 / 60 - (28 + 31) / 120)
    assert other['against the first'].startswith(f'{gain:+.1f} [')
    assert other['against the first'].endswith('], 2 of 2')


def test_late_validations_have_their_mean_and_their_deviation_within_a_run(comparison):
    for i, trained in enumerate(comparison.groups['short']['other']):
        trained.result['curve'] = [{'data set': score + 10 * i} for score in (99, 40, 41, 42, 43, 44)]
    base, other = score_rows(comparison, 'short')
    assert base['last 5 validations'] == '37.5 ± 17.7'
    assert other['last 5 validations'] == '47.0 ± 1.6'
    comparison.groups['short']['base'][0].result['curve'] = [{'data set': 3.0}]
    comparison.groups['short']['base'][1].result['curve'] = [{'data set': 4.0}]
    assert score_rows(comparison, 'short')[0]['last 5 validations'] == '3.5'


def test_classes_come_by_their_pixels_and_average_to_the_mean(comparison):
    *classes, mean = class_rows(comparison, 'short')
    assert [row['class'] for row in classes] == ['sky', 'bird']
    assert [row['share of pixels'] for row in classes] == ['50.00 %', '50.00 %']
    assert float(mean['other']) == pytest.approx(np.mean([float(row['other']) for row in classes]), abs=0.06)


def test_a_class_that_no_seed_has_is_absent(write_training):
    nothing = [[[5, 0], [10, 0]]]
    with np.errstate(invalid='ignore'):
        trained = write_training('base', 0, nothing)
    trained.result['IoU']['bird'] = None
    assert class_rows(Comparison([trained]), 'short')[1]['base'] == 'absent'


def test_schedules_stand_side_by_side(comparison):
    [row, _] = summary_rows(comparison)
    assert list(row) == ['config', '10 iterations', '10 iterations: against the first'], 'of equal length here'


def test_each_learning_rate_has_a_first_config_of_its_own(write_training):
    trainings = [
        write_training(f'{name} lr {lr}', 0, areas((hit, hit)), lr=lr)
        for lr, hit in ((0.1, 3), (0.2, 6))
        for name in ('base', 'other')
    ]
    rows = score_rows(Comparison(trainings), 'short')
    assert [row['against the first'] != '' for row in rows] == [False, True, False, True]
    assert all(row['against the first'][:4] in ('', '+0.0') for row in rows)


def test_report_has_tables_pictures_and_metadata(comparison, tmp_path):
    page = write_report(comparison, tmp_path / 'out', 'A title', 'python tools/compare.py base.py other.py')
    document = json.loads((tmp_path / 'out' / 'results.json').read_text())
    assert document['table'] == summary_rows(comparison)
    assert len(document['trainings']) == 8
    assert document['metadata']['seeds'] == [0, 1]
    for name in ('torch', 'mmengine', 'mmcv', 'mmseg'):  # Of either stack: on OneDL the distributions have other names.
        [distribution] = set(packages_distributions()[name])
        assert document['metadata'][distribution] == version(distribution)
    told = (tmp_path / 'out' / 'results.md').read_text()
    assert markdown(score_rows(comparison, 'long')) in told
    html = page.read_text()
    assert html.count('<img') == 2 * 5  # curves, classes, legend, on the way, wins and losses
    assert '<script' not in html
    assert html.count('&lt;script&gt;alert(1)') == 4


def test_on_a_full_disk_each_file_is_whole_or_as_before(comparison, tmp_path):
    out = tmp_path / 'out'
    write_report(comparison, out, 'A title', 'command')
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    for most in (0, *(len(content) - 1 for content in before.values())):
        with full_disk(most), pytest.raises(OSError, match=r'Could not write .*File too large.*Make room'):
            write_report(comparison, out, 'Another title', 'another command')
        left = {path.name: path.read_bytes() for path in out.iterdir()}
        assert left == before


def test_a_single_config_needs_no_differences(write_training, tmp_path):
    page = write_report(Comparison([write_training('base', 0, areas((8, 2)))]), tmp_path / 'out', 'One', 'command')
    assert page.read_text().count('<img') == 3  # curves, legend, on the way
