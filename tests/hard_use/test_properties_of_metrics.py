"""Each metric streams: however hypothesis cuts items into updates, the value is that of all of them at once.

Probabilities have ties, zeros and ones; there are updates without an image, and images of ignored pixels alone.
`HARD_USE_CASES` sets how many there are, and makes them others in each run.
"""

import os

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from metric_tester import assert_same, tensors_of, union
from metrics.test_contract import N_CLASSES, every_case

N_CASES = int(os.environ.get('HARD_USE_CASES', 300))
LOGITS = st.one_of(st.sampled_from([0.0, 1.0, -1.0, 40.0, -200.0]), st.floats(-8, 8, width=16))
LABELS = st.one_of(st.integers(0, N_CLASSES - 1), st.just(255))


@st.composite
def updates(draw):
    """Draw one to four updates with up to three images of one size."""
    size = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    found = []
    for n in draw(st.lists(st.integers(0, 3), min_size=1, max_size=4)):
        scores = draw(arrays(np.float32, (n, N_CLASSES, *size), elements=LOGITS, fill=st.nothing()))
        labels = draw(arrays(np.int64, (n, *size), elements=LABELS, fill=st.nothing()))
        found.append((torch.tensor(scores).softmax(1), torch.tensor(labels)))
    return found


@pytest.mark.filterwarnings('ignore')  # that nothing was seen
@every_case
def test_updates_are_added_up(case):
    @settings(max_examples=N_CASES, deadline=None, derandomize='HARD_USE_CASES' not in os.environ, database=None)
    @given(updates())
    def check(batches):
        streamed, once = case.seen(batches).compute(), case.value_of(*union(batches))
        assert_same(case.without_grouping(streamed), case.without_grouping(once))
        for value in tensors_of(streamed):
            assert (value.isnan() | ((value >= -1e-6) & (value <= 1 + 1e-6))).all()

    check()
