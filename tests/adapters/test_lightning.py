"""LossCallback in the Trainers of `lightning` and `pytorch_lightning`."""

import copy

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from mmseg_nondecomp import LovaszSoftmaxLoss, SMeasureLoss, SumOfLosses

PACKAGES = ['lightning.pytorch', 'pytorch_lightning']


@pytest.fixture(params=PACKAGES)
def package(request):
    return pytest.importorskip(request.param)


@pytest.fixture
def callback():
    for package in PACKAGES:
        try:
            __import__(package)
        except ImportError:
            continue
        from mmseg_nondecomp.adapters.lightning import LossCallback

        return LossCallback
    return pytest.skip('Lightning is not installed')


def data():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(24, 5, generator=generator)
    return DataLoader(TensorDataset(features, (features.sum(1) > 1).long()), batch_size=4)


def module_of(package, loss):
    class Classifier(package.LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.head = torch.nn.Linear(5, 1 if isinstance(loss, SMeasureLoss) else 2)
            self.loss = loss

        def training_step(self, batch, _):
            return self.loss(self.head(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.head.parameters(), lr=0.1)

    return Classifier()


def fit(package, module, folder, *callbacks, ckpt_path=None, **settings):
    trainer = package.Trainer(
        accelerator='cpu',
        callbacks=list(callbacks),
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **settings,
    )
    trainer.fit(module, data(), ckpt_path=ckpt_path)
    return trainer


def plain_loop(loss, epochs, accumulated):
    torch.manual_seed(0)
    head = torch.nn.Linear(5, 1)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    batches = [batch for _ in range(epochs) for batch in data()]
    for i, (features, label) in enumerate(batches, start=1):
        (loss(head(features), label) / accumulated).backward()
        if i % accumulated == 0:
            optimizer.step()
            optimizer.zero_grad()
            loss.step()
    return head


@pytest.mark.parametrize('accumulated', [1, 3])
def test_state_is_that_of_a_plain_loop(package, callback, tmp_path, accumulated):
    loss = SMeasureLoss(measure='precision_at_recall', target=0.9)
    own = copy.deepcopy(loss)
    module = module_of(package, loss)
    before = module.head.weight.clone()
    fit(package, module, tmp_path, callback(), max_epochs=2, accumulate_grad_batches=accumulated)
    head = plain_loop(own, 2, accumulated)
    torch.testing.assert_close(module.head.state_dict(), head.state_dict(), atol=1e-6, rtol=0)
    assert not torch.equal(module.head.weight, before)
    torch.testing.assert_close(loss.state_dict(), own.state_dict(), atol=1e-6, rtol=0)
    assert not loss.state.pending.any()


def test_loss_does_not_step_without_the_callback(package, tmp_path):
    loss = SMeasureLoss(measure='f_beta')
    fit(package, module_of(package, loss), tmp_path, max_epochs=1)
    assert loss.state.pending.any()


def test_training_goes_on_from_a_checkpoint(package, callback, tmp_path):
    expected, half, resumed = (SMeasureLoss(measure='f_beta') for _ in range(3))
    fit(package, module_of(package, expected), tmp_path, callback(), max_epochs=4)
    trainer = fit(package, module_of(package, half), tmp_path, callback(), max_epochs=2)
    trainer.save_checkpoint(tmp_path / 'half.ckpt')
    fit(package, module_of(package, resumed), tmp_path, callback(), max_epochs=4, ckpt_path=tmp_path / 'half.ckpt')
    assert resumed.state.epsilon != half.state.epsilon
    torch.testing.assert_close(resumed.state_dict(), expected.state_dict(), atol=1e-6, rtol=0)


def test_measures_are_logged(package, callback, tmp_path):
    loss = SumOfLosses([LovaszSoftmaxLoss(), LovaszSoftmaxLoss(scope='image', loss_name='loss_of_images')])
    module = module_of(package, loss)

    class Witness(package.Callback):
        def __init__(self):
            self.expected, self.logged = [], []

        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            decided = pl_module.head(batch[0]).argmax(1)
            of_classes = [((decided == c), (batch[1] == c)) for c in (0, 1)]
            ious = [(a & b).sum() / (a | b).sum() for a, b in of_classes if (a | b).any()]
            self.expected.append(sum(ious).item() / len(ious))

        def on_train_batch_end(self, trainer, *_):
            self.logged.append({name: value.item() for name, value in trainer.callback_metrics.items()})

    witness = Witness()
    fit(package, module, tmp_path, callback(), witness, max_epochs=2)
    assert len(witness.logged) == 12
    assert set(witness.logged[0]) == {'train/loss_lovasz_miou', 'train/loss_of_images_miou'}
    assert [each['train/loss_lovasz_miou'] for each in witness.logged] == pytest.approx(witness.expected, abs=1e-6)
    assert not any('observe' in vars(each) for each in module.modules())
    silent = fit(package, module, tmp_path, callback(log_measures=False), max_epochs=1)
    assert not silent.callback_metrics


def test_losses_are_left_as_they_were_after_an_exception(package, callback, tmp_path):
    module = module_of(package, LovaszSoftmaxLoss())
    module.on_train_batch_end = lambda *_: 1 / 0
    with pytest.raises(ZeroDivisionError):
        fit(package, module, tmp_path, callback(), max_epochs=1)
    assert 'observe' not in vars(module.loss)


def test_module_without_a_loss_of_this_package(package, callback, tmp_path):
    module = module_of(package, torch.nn.CrossEntropyLoss())
    with pytest.raises(ValueError, match=r'LossCallback needs a module that holds a loss.*Found none in Classifier'):
        fit(package, module, tmp_path, callback(), max_epochs=1)
