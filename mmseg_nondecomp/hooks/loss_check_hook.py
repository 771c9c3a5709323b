"""Check of a training for mistakes that raise no error."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from mmengine.runner import Runner
from torch import nn

from mmseg_nondecomp.hooks import _data_findings as of_data
from mmseg_nondecomp.hooks import _model_findings as of_model
from mmseg_nondecomp.losses._base import RegisteredLoss
from mmseg_nondecomp.registry import HOOKS


@HOOKS.register_module()
class LossCheckHook(Hook):
    """Check of a training for mistakes that raise no error. Each is a warning in the log and says what to change.

    At the start of the training:

    - a loss of this package that is in the config, and that no head was built with;
    - two losses of one ``loss_name`` in a head that keeps only the last one (``PointHead``);
    - a head of one channel that decides at MMSegmentation's probability of 0.3 where its loss decides at 0.5;
    - a Lovász hinge in a head that predicts the largest of more than two logits;
    - a number of classes that is not that of the training data set;
    - ``reduce_zero_label`` for training and not for validation, or the other way round;
    - an endless sampler in a loop of epochs, `IoUAdaptiveSampler` without `TrainIoUHook`, and `RandomCropOnClass`
      without a sampler of this package.

    At the first validation, or without one after the first epoch: losses of this package that were never called. With
    ``torch.compile`` this is not checked.

    The training itself does not change. ``tools/train.py`` and ``tools/compare.py`` add the hook.

    Example:
        In a config::

            custom_hooks = [dict(type='LossCheckHook')]
    """

    priority = 'HIGH'  # before hooks that raise an error for the same reason

    def __init__(self) -> None:
        self._handles: list[Any] = []
        self._uncalled: dict[str, RegisteredLoss] = {}
        self._first_iteration = 0

    def before_train(self, runner: Runner) -> None:
        """Report what is found at the start, and watch the calls of the losses."""
        model: Any = runner.model.module if is_model_wrapper(runner.model) else runner.model
        for text in _findings(runner, model):
            runner.logger.warning(text)
        self._first_iteration = runner.iter
        self._uncalled = {} if runner.cfg.get('compile') else _losses(model)
        self._handles = [
            loss.register_forward_pre_hook(partial(self._note, name)) for name, loss in self._uncalled.items()
        ]

    def before_val(self, runner: Runner) -> None:
        """Report the losses that were not called before the first validation."""
        self._report_uncalled(runner)

    def after_train_epoch(self, runner: Runner) -> None:
        """Report them after the first epoch if there is no validation."""
        if runner.val_loop is None:
            self._report_uncalled(runner)

    def after_train(self, runner: Runner) -> None:
        """Report them at the end of a training that was not validated."""
        self._report_uncalled(runner)

    def _note(self, name: str, *_: Any) -> None:
        """Record a call of a loss."""
        self._uncalled.pop(name, None)

    def _report_uncalled(self, runner: Runner) -> None:
        names = [f'`model.{name}` ({type(loss).__name__})' for name, loss in self._uncalled.items()]
        text = of_model.uncalled_losses(names, runner.iter)
        if text is not None and runner.iter > self._first_iteration:
            runner.logger.warning(text)
        self._uncalled = {}
        while self._handles:
            self._handles.pop().remove()


def _findings(runner: Runner, model: nn.Module) -> Iterator[str]:
    """Yield the texts of all mistakes that are found before the first iteration."""
    config, loader = runner.cfg, runner.train_dataloader
    of_config = config.get('model')
    class_names = getattr(loader.dataset, 'metainfo', {}).get('classes')
    texts = [of_model.unbuilt_losses(model, of_config)]
    for head in of_model.heads_of(model, of_config):
        texts += [of_model.overwritten_loss(head), of_model.stock_threshold(head)]
        texts += [of_model.hinge_of_many_classes(head), of_model.other_number_of_classes(head, class_names)]
    validation = getattr(runner.val_loop, 'dataloader', None)
    texts += [of_data.shifted_labels(loader.dataset, getattr(validation, 'dataset', None))]
    texts += [of_data.endless_epoch(loader, runner.train_loop), of_data.missing_iou(loader, runner.hooks)]
    texts += [of_data.crop_without_class(loader, config.get('train_dataloader'))]
    return (text for text in texts if text is not None)


def _losses(model: nn.Module) -> dict[str, RegisteredLoss]:
    """Return the losses of this package by their names in the model; those of a teacher are not called in training."""
    modules = model.named_modules()
    return {name: loss for name, loss in modules if isinstance(loss, RegisteredLoss) and 'teacher' not in name}
