"""Each picture of the documentation, and each file of results, is made by a command of the repository."""

import re

import benchmark
import pytest
from code_blocks import ROOT
from documents import DOCUMENTS
from draw_concepts import PICTURES as CONCEPTS
from reproductions.catalogue import REPRODUCTIONS

PICTURE = re.compile(r'\]\(([^)\s]+\.(?:png|svg|gif|jpe?g))\)')


@pytest.fixture(scope='module')
def made():
    """The files that the tools write into the repository, by their commands."""
    endings = ('json', 'png')
    return {
        **{f'benchmarks/{name}.{e}': f'benchmark.py {name}' for name in benchmark.BENCHMARKS for e in endings},
        **{f'benchmarks/{name}.json': f'benchmark.py {name}' for name in benchmark.COUNTS | benchmark.IN_PROCESSES},
        **{f'benchmarks/reproduce/{name}.{e}': f'reproduce.py {name}' for name in REPRODUCTIONS for e in endings},
        'benchmarks/stock.json': 'stock_matrix.py',
        'benchmarks/trainings/dice.json': 'compare.py',
        'benchmarks/trainings/one-class.json': 'compare.py',
        **{f'docs/images/{name}.png': f'draw_concepts.py {name}' for name in CONCEPTS},
    }


@pytest.mark.parametrize('document', DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_pictures_that_are_shown_can_be_made_again(document, made):
    for target in PICTURE.findall(document.read_text()):
        path = (document.parent / target).resolve().relative_to(ROOT)
        assert str(path) in made, target


def test_the_readme_shows_pictures_which_can_be_made_again(made):
    assert PICTURE.search((ROOT / 'README.md').read_text())
    files = [path for folder in ('benchmarks', 'docs/images') for path in (ROOT / folder).rglob('*.*')]
    assert {path.relative_to(ROOT).as_posix() for path in files} <= made.keys()
