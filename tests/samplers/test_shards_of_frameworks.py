"""Samplers in two processes of Lightning and Accelerate: together they draw what one process draws, nothing twice."""

import os
import sys
from itertools import chain, islice

import pytest
import torch
from numbered import Numbered
from processes import find_as_a_process, started
from torch import distributed
from torch.utils.data import DataLoader

from mmseg_nondecomp import EquiBatchSampler, IoUAdaptiveSampler

DATA = Numbered(*([image % 3] for image in range(24)))
EPOCHS = 2
SAMPLERS = [EquiBatchSampler, IoUAdaptiveSampler]
FRAMEWORKS = ['pytorch_lightning', 'accelerate']
SETTINGS = dict(seed=0, infinite=False)


def drawn_by_lightning(cls, as_batches=False, **settings):
    """Return the images of each epoch that Lightning's Trainer hands to the training steps of this process."""
    from pytorch_lightning import LightningModule, Trainer

    class Witness(LightningModule):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Linear(1, 1)
            self.images = [[] for _ in range(EPOCHS)]

        def training_step(self, batch, _):
            self.images[self.current_epoch] += batch.tolist()
            return self.head(batch.float().view(-1, 1)).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.0)

        def train_dataloader(self):
            if as_batches:
                return DataLoader(range(24), batch_sampler=cls(DATA, batch_size=2, **SETTINGS))
            return DataLoader(range(24), 2, sampler=cls(DATA, shard=not wraps, **SETTINGS))

    wraps = settings.get('use_distributed_sampler', True)
    quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    module = Witness()
    Trainer(accelerator='cpu', devices=2, strategy='ddp', max_epochs=EPOCHS, **quiet, **settings).fit(module)
    return module.images


def drawn_by_accelerate(cls, shard=False, **settings):
    """Return the images of each epoch that a data loader of Accelerate yields in this process."""
    from accelerate import Accelerator, DataLoaderConfiguration

    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**settings))
    loader = accelerator.prepare(DataLoader(range(24), 2, sampler=cls(DATA, shard=shard, **SETTINGS)))
    return [[image for batch in loader for image in batch.tolist()] for _ in range(EPOCHS)]


def drawn_without_end():
    """Return the first images of an endless stream that Accelerate distributes."""
    from accelerate import Accelerator

    loader = Accelerator(cpu=True).prepare(
        DataLoader(range(24), 2, sampler=EquiBatchSampler(DATA, seed=0, shard=False))
    )
    return [image for batch in islice(iter(loader), 9) for image in batch.tolist()]


def message_for_batches():
    with pytest.raises(TypeError) as error:
        drawn_by_lightning(EquiBatchSampler, as_batches=True)
    return str(error.value)


def find(rank):
    os.environ |= dict(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE='2', LOCAL_WORLD_SIZE='2', GROUP_RANK='0')
    os.environ |= dict(TORCHELASTIC_RUN_ID='test', MASTER_ADDR='127.0.0.1', MASTER_PORT='29999')
    if sys.argv[4] == 'pytorch_lightning':
        found = {
            (cls.__name__, wraps): drawn_by_lightning(cls, use_distributed_sampler=wraps)
            for cls in SAMPLERS
            for wraps in (True, False)
        }
        return found | {'batches': message_for_batches()}
    found = {
        (cls.__name__, dispatches): drawn_by_accelerate(cls, dispatch_batches=dispatches)
        for cls in SAMPLERS
        for dispatches in (False, True)
    }
    return found | {'sharded twice': drawn_by_accelerate(EquiBatchSampler, shard=True), 'endless': drawn_without_end()}


def found_by_ranks(framework, folder):
    processes = started(__file__, folder, 2, framework)
    try:
        errors = [process.communicate(timeout=240)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], errors
    return [torch.load(folder / f'{rank}.pt') for rank in range(2)]


def epochs_of_one_process(cls):
    images = [int(image) for image in islice(cls(DATA, seed=0), 24 * EPOCHS)]
    return [sorted(images[24 * epoch : 24 * (epoch + 1)]) for epoch in range(EPOCHS)]


def together(ranks, key):
    return [sorted(chain(*parts)) for parts in zip(*(rank[key] for rank in ranks), strict=True)]


@pytest.mark.parametrize('framework', FRAMEWORKS)
def test_processes_draw_the_stream_of_one_process(framework, tmp_path):
    pytest.importorskip(framework)
    ranks = found_by_ranks(framework, tmp_path)
    for cls in SAMPLERS:
        for distributes in (False, True):
            key = cls.__name__, distributes
            assert [len(epoch) for rank in ranks for epoch in rank[key]] == [12] * 4
            assert together(ranks, key) == epochs_of_one_process(cls), key
    assert together(ranks, ('EquiBatchSampler', True)) == [list(range(24))] * EPOCHS, 'nothing twice'
    if framework == 'accelerate':
        assert {len(epoch) for epoch in together(ranks, 'sharded twice')} != {24}, 'a test that cannot fail'
        drawn = sorted(chain(*(rank['endless'] for rank in ranks)))
        assert drawn == sorted(int(image) for image in islice(EquiBatchSampler(DATA, seed=0), 36))
    else:
        assert 'use_distributed_sampler=False' in ranks[0]['batches']
        assert 'shard=False' in ranks[0]['batches']


def test_without_shards_each_process_yields_the_whole_stream(monkeypatch):
    streams = {cls: list(map(int, islice(cls(DATA, seed=0), 48))) for cls in SAMPLERS}
    monkeypatch.setattr(distributed, 'is_initialized', lambda: True)
    monkeypatch.setattr(distributed, 'get_rank', lambda: 1)
    monkeypatch.setattr(distributed, 'get_world_size', lambda: 2)
    for cls, expected in streams.items():
        whole = cls(DATA, shard=False, **SETTINGS)
        assert len(whole) == 24
        assert [int(image) for _ in range(EPOCHS) for image in whole] == expected
        part = cls(DATA, **SETTINGS)
        assert len(part) == 12
        assert [int(image) for _ in range(EPOCHS) for image in part] == expected[1::2]
        with pytest.raises(TypeError, match='`shard` should be True or False'):
            cls(DATA, shard=None)


if __name__ == '__main__':
    find_as_a_process(find)
