"""Stock models of MMSegmentation and MMDetection train and predict with the losses of this package."""

import json
import logging
from collections import Counter

import pytest
from code_blocks import ROOT

pytest.importorskip('mmseg')
pytest.importorskip('mmdet')

from stock.catalogue import StockModel, heads_of, model_of, stock_models
from stock.cells import FAIL, OK, STOCK, rows_of
from stock.summary import letter, table

REPORT = json.loads((ROOT / 'benchmarks/stock.json').read_text())
ROWS = REPORT['results']
CONFIGS = sorted({(row['toolbox'], row['config']) for row in ROWS})


@pytest.fixture(autouse=True)
def _quiet():
    """Silence what stock models log as they are built."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(('toolbox', 'config'), CONFIGS, ids=[config for _, config in CONFIGS])
def test_no_cell_fails_and_as_many_are_ok_as_in_the_results(toolbox, config):
    stock = StockModel(toolbox, config.partition('/')[0], config, heads_of(model_of(toolbox, config)))
    found = list(rows_of(stock))
    failed = [row for row in found if row['outcome'].startswith(FAIL)]
    assert not failed
    kept = [row for row in ROWS if (row['toolbox'], row['config']) == (toolbox, config)]
    n_ok, n_kept = (sum(row['outcome'] == OK for row in rows) for rows in (found, kept))
    assert n_ok >= n_kept, [row for row in found if row['outcome'] != OK]
    assert [(row['slot'], row['head'], row['loss']) for row in found] == [
        (row['slot'], row['head'], row['loss']) for row in kept
    ]


@pytest.mark.parametrize('toolbox', ['mmseg', 'mmdet'])
def test_the_results_have_a_row_for_each_installed_folder_with_a_slot(toolbox):
    models, folders = stock_models(toolbox)
    assert folders == REPORT['folders'][toolbox]
    without_slots = {stock.config for stock in models} - {config for _, config in CONFIGS}
    assert {config.partition('/')[0] for config in without_slots} <= NO_SLOT
    assert {folder for folder, configs in folders.items() if not configs} <= {'common'}


NO_SLOT = {'autoassign', 'centernet', 'centripetalnet', 'cornernet', 'free_anchor', 'grid_rcnn', 'pisa', 'ssd'}
"""Folders with a config that names no loss of a slot: its heads compute their loss themselves or have a default."""


def test_every_outcome_has_its_letter_in_the_documentation():
    page = (ROOT / 'docs/stock-models.md').read_text()
    outcomes = Counter(row['outcome'] for row in ROWS if row['slot'])
    for found in {letter(outcome) for outcome in outcomes} - {OK}:
        assert f'| {found} |' in page
    assert table(ROWS) == REPORT['table']
    assert {row['loss'] for row in ROWS if row['outcome'] == OK} > {STOCK}
