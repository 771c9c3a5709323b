"""README.md says what happens, and the Makefile names what exists."""

import pytest
from code_blocks import ROOT, blocks, is_config
from documents import check_config, configs_of, named_files

README = ROOT / 'README.md'
MAKEFILE = ROOT / 'Makefile'
CONFIGS = configs_of([README], ('mmseg',))


@pytest.mark.parametrize('block', [block for block in blocks(README, 'python') if not is_config(block)])
def test_examples_run(block):
    exec(compile(block.code, 'README.md', 'exec'), {})


@pytest.mark.parametrize('block', CONFIGS.values(), ids=CONFIGS.keys())
def test_config_lines_apply_to_a_stock_config(block, tmp_path):
    check_config(block, tmp_path)


@pytest.mark.parametrize('document', [README, MAKEFILE], ids=lambda path: path.name)
def test_named_files_exist(document):
    for name in named_files(document):
        assert (ROOT / name).exists(), name
