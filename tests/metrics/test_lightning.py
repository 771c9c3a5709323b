"""Metrics in PyTorch Lightning: logged by `self.log`, on steps and over epochs, stored and monitored."""

import pytest
import torch
from pytorch_lightning import LightningModule, Trainer, seed_everything
from pytorch_lightning.callbacks import Callback, ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MetricCollection

from mmseg_nondecomp.metrics import (
    DirectAveragePrecision,
    JaccardIndexByImage,
    LovaszJaccardIndex,
    SmoothTopKAccuracy,
    SoftJaccardIndex,
)
from mmseg_nondecomp.metrics.functional import lovasz_jaccard_index, soft_jaccard_index

N_CLASSES = 3
N_EPOCHS = 3


def metrics():
    return {
        'lovasz': LovaszJaccardIndex(N_CLASSES),
        'lovasz_all': LovaszJaccardIndex(N_CLASSES, classes='all'),
        'soft': SoftJaccardIndex(N_CLASSES),
        'top2': SmoothTopKAccuracy(N_CLASSES, k=2),
        'ap': DirectAveragePrecision(N_CLASSES),
        'ap_cells': DirectAveragePrecision(N_CLASSES, bins=256),
    }


class Colours(LightningModule):
    """Tells the class of a pixel by its colour; its loss is a metric."""

    def __init__(self):
        super().__init__()
        self.head = torch.nn.Conv2d(3, N_CLASSES, 1)
        self.train_index = LovaszJaccardIndex(N_CLASSES)
        self.index = SoftJaccardIndex(N_CLASSES)
        self.each = MetricCollection(metrics())
        self.images = JaccardIndexByImage(N_CLASSES)

    def training_step(self, batch, batch_idx):
        images, target = batch
        index = self.train_index(self.head(images).softmax(1), target)
        self.log('train', self.train_index, on_step=True, on_epoch=True)
        return 1 - index

    def validation_step(self, batch, batch_idx):
        images, target = batch
        probs = self.head(images).softmax(1)
        self.index.update(probs, target)
        self.each.update(probs, target)
        self.images.update(probs, target)
        self.log('val', self.index)
        self.log_dict(self.each)

    def on_validation_epoch_end(self):
        # Lightning logs a metric itself if it has one value.
        self.log_dict(self.images.compute())
        self.images.reset()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.1)


class Witness(Callback):
    """Keeps what Lightning has logged, and what the predictions were."""

    def __init__(self):
        self.steps, self.epochs, self.predictions, self.validations = [], [], [], []

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        with torch.no_grad():
            self.predictions.append((module.head(batch[0]).softmax(1), batch[1]))

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.steps.append(trainer.callback_metrics['train_step'].item())

    def on_train_epoch_end(self, trainer, module):
        self.epochs.append({name: value.item() for name, value in trainer.callback_metrics.items()})

    def on_validation_epoch_end(self, trainer, module):
        images, target = (torch.cat(part) for part in zip(*trainer.val_dataloaders, strict=True))
        self.validations.append((module.head(images).softmax(1), target))


def loader(n, seed):
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(0, N_CLASSES, (n, 4, 5), generator=generator)
    colours = torch.eye(3)[target].movedim(-1, 1)
    images = colours + 0.7 * torch.randn(colours.shape, generator=generator)
    target[:, 0] = 255
    return DataLoader(TensorDataset(images, target), batch_size=2)


def trainer(folder, epochs=N_EPOCHS, **arguments):
    return Trainer(
        accelerator='cpu',
        max_epochs=epochs,
        default_root_dir=folder,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        log_every_n_steps=1,
        num_sanity_val_steps=0,
        **arguments,
    )


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    """A module after training, what was logged, and its checkpoints."""
    folder = tmp_path_factory.mktemp('lightning')
    seed_everything(0)
    module, witness = Colours(), Witness()
    best = ModelCheckpoint(folder, monitor='val', mode='max', save_last=True)
    trainer(folder, callbacks=[witness, best]).fit(module, loader(8, 0), loader(5, 1))
    return module, witness, best


def test_values_of_steps_and_epochs_are_logged_of_each_metric_and_one_finds_the_best_checkpoint(trained):
    _, witness, best = trained
    expected = [lovasz_jaccard_index(*batch, N_CLASSES).item() for batch in witness.predictions]
    assert len(expected) == N_EPOCHS * 4
    assert witness.steps == pytest.approx(expected)
    for epoch, logged in enumerate(witness.epochs):
        of_epoch = slice(4 * epoch, 4 * epoch + 4)
        probs, target = (torch.cat(part) for part in zip(*witness.predictions[of_epoch], strict=True))
        expected = lovasz_jaccard_index(probs, target, N_CLASSES).item()
        assert logged['train_epoch'] == pytest.approx(expected)
        assert logged['train_epoch'] != pytest.approx(sum(witness.steps[of_epoch]) / 4)
    assert witness.epochs[-1]['val'] > witness.epochs[0]['val'] + 0.05, 'a metric is a loss'
    for logged, batch in zip(witness.epochs, witness.validations, strict=True):
        expected = {name: metric(*batch) for name, metric in metrics().items()}
        expected |= JaccardIndexByImage(N_CLASSES)(*batch) | dict(val=soft_jaccard_index(*batch, N_CLASSES))
        for name in expected.keys() - {'batch'}:
            assert logged[name] == pytest.approx(expected[name].item()), name
    values = [logged['val'] for logged in witness.epochs]
    assert best.best_model_score.item() == pytest.approx(max(values))
    images, target = (torch.cat(part) for part in zip(*loader(5, 1), strict=True))
    loaded = Colours.load_from_checkpoint(best.best_model_path)
    probs = loaded.head(images).softmax(1)
    assert soft_jaccard_index(probs, target, N_CLASSES).item() == pytest.approx(max(values))


def test_states_are_in_checkpoints_if_they_are_persistent(trained, tmp_path):
    _, _, best = trained
    stored = torch.load(best.last_model_path, weights_only=True)['state_dict']
    assert set(stored) == {'head.weight', 'head.bias'}
    module, restored = Colours(), Colours()
    for each in (module, restored):
        each.train_index.persistent(True)
    fitted = trainer(tmp_path, epochs=1, enable_checkpointing=False)
    fitted.fit(module, loader(8, 0), loader(5, 1))
    module.train_index.update(torch.rand(2, N_CLASSES, 4), torch.randint(0, N_CLASSES, (2, 4)))
    fitted.save_checkpoint(tmp_path / 'one.ckpt')
    restored.load_state_dict(torch.load(tmp_path / 'one.ckpt', weights_only=True)['state_dict'])
    torch.testing.assert_close(restored.train_index.metric_state, module.train_index.metric_state)
    assert restored.train_index.mass.any()


def test_training_goes_on_from_a_checkpoint(trained, tmp_path):
    _, witness, _ = trained
    seed_everything(0)
    first = ModelCheckpoint(tmp_path, save_last=True)
    trainer(tmp_path, epochs=1, callbacks=[first]).fit(Colours(), loader(8, 0), loader(5, 1))
    resumed = Witness()
    trainer(tmp_path, callbacks=[resumed, ModelCheckpoint(tmp_path)]).fit(
        Colours(), loader(8, 0), loader(5, 1), ckpt_path=first.last_model_path
    )
    assert resumed.steps == pytest.approx(witness.steps[4:])
    assert [logged['val'] for logged in resumed.epochs] == pytest.approx([e['val'] for e in witness.epochs[1:]])
