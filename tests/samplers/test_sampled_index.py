import copy
import pickle

import pytest
from torch.utils.data import DataLoader

from mmseg_nondecomp.samplers.sampled_index import SampledIndex

INDEX = SampledIndex(13, 4, (0.25, 0.75))


def is_same(index, value):
    return type(index) is SampledIndex and (int(index), index.cls, index.place) == (value, 4, (0.25, 0.75))


def test_is_an_integer():
    assert INDEX == int(INDEX) == 13
    assert hash(INDEX) == hash(13)
    assert [*['a'] * 13, ['b'][INDEX - 13]] == ['a'] * 13 + ['b']
    assert f'{INDEX:06d}' == '000013'
    assert INDEX - 0.5 == 12.5
    with pytest.raises(TypeError):
        INDEX + 'a'


@pytest.mark.parametrize(
    ('index', 'value'),
    [
        (INDEX + 2, 15),
        (INDEX - 10, 3),
        (INDEX % 5, 3),
        (pickle.loads(pickle.dumps(INDEX)), 13),
        (copy.deepcopy(INDEX), 13),
        (copy.copy(INDEX), 13),
    ],
    ids=['plus', 'minus', 'remainder', 'pickled', 'deep copy', 'copy'],
)
def test_keeps_the_class(index, value):
    assert is_same(index, value)


def found(dataset, num_workers):
    loader = DataLoader(dataset, batch_sampler=[[INDEX]], num_workers=num_workers, collate_fn=list)
    return next(iter(loader))[0]


@pytest.mark.parametrize('num_workers', [0, 2])
def test_reaches_the_pipeline(num_workers):
    stock = pytest.importorskip('mmengine.dataset')

    class Data(stock.BaseDataset):
        def load_data_list(self):
            return [dict(number=i) for i in range(10)]

    both = dict(type=stock.ConcatDataset, datasets=[Data(), Data()])
    for dataset in (
        stock.RepeatDataset(Data(), 3),
        stock.ConcatDataset([Data(), Data()]),
        stock.RepeatDataset(both, 2),
    ):
        results = found(dataset, num_workers)
        assert results['number'] == 3
        assert is_same(results['sample_idx'], 3)
