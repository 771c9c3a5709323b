"""The recipes of the adapters: their programs run, and print what the pages say."""

import pytest
from code_blocks import FRAMEWORKS, ROOT, is_program, run

PAGES = [ROOT / page for page in FRAMEWORKS]


@pytest.mark.parametrize('page', PAGES, ids=list(FRAMEWORKS))
@pytest.mark.usefixtures('no_package_of_data_sets')
def test_a_recipe_prints_what_it_says(page, tmp_path, monkeypatch):
    if not is_program(page):
        pytest.skip('needs the frameworks of make test-adapters')
    monkeypatch.chdir(tmp_path)
    for found, expected in run(page)[1]:
        assert expected is None or found == expected
