from importlib.util import find_spec

import pytest


@pytest.fixture
def no_package_of_data_sets(monkeypatch):
    """Hide the folder tests/datasets, which Trainer imports where the package `datasets` is not installed."""
    if find_spec('transformers'):
        monkeypatch.setattr('transformers.trainer.is_datasets_available', lambda: False)
