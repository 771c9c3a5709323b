"""Lines of configs on the pages of docs/ apply to the stock configs of MMPretrain that are named above them."""

import needs_mmpretrain  # noqa: F401  isort: skip

import pytest
from code_blocks import PAGES
from documents import check_config, configs_of

CONFIGS = configs_of(PAGES, ('mmpretrain',))


@pytest.mark.parametrize('block', CONFIGS.values(), ids=CONFIGS.keys())
def test_config_lines_apply_to_the_stock_config(block, tmp_path):
    check_config(block, tmp_path)
