"""Cost of each loss, pixel sampler and hook in a whole training step of a stock network."""

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch

from benchmarks import Case, Row, Step
from benchmarks.scenes import shape_label
from benchmarks.tiny_unet import labelled

CONFIG = 'mmseg::fcn/fcn_r18-d8_4xb2-80k_cityscapes-512x1024.py'
CROSS_ENTROPY = dict(type='CrossEntropyLoss', use_sigmoid=False)
LOSSES: dict[str, dict[str, Any]] = {
    'cross-entropy': CROSS_ENTROPY,
    'LossMaxPooling': dict(type='LossMaxPooling'),
    'LovaszSoftmaxLoss': dict(type='LovaszSoftmaxLoss'),
    'LovaszHingeLoss': dict(type='LovaszHingeLoss'),
    'SoftIoULoss': dict(type='SoftIoULoss'),
    'SMeasureLoss, F_1 of each class': dict(type='SMeasureLoss'),
    'SmoothTopKLoss, k = 2': dict(type='SmoothTopKLoss', k=2),
    'HardTopKLoss, k = 2': dict(type='HardTopKLoss', k=2),
    'DirectZeroOneLoss': dict(type='DirectZeroOneLoss'),
    'DirectAPLoss': dict(type='DirectAPLoss'),
    'LovaszLoss of mmsegmentation': dict(type='LovaszLoss', reduction='none'),
}
SAMPLERS: dict[str, dict[str, Any]] = {
    'cross-entropy, LossMaxPoolingPixelSampler': dict(type='LossMaxPoolingPixelSampler'),
    'cross-entropy, OHEMPixelSampler of mmsegmentation': dict(type='OHEMPixelSampler', min_kept=65_536),
}
IOU = dict(type='torchmetrics.classification.MulticlassJaccardIndex', num_classes=19, ignore_index=255)
HOOKS: dict[str, dict[str, Any]] = {
    'cross-entropy, TrainIoUHook': dict(type='TrainIoUHook'),
    'cross-entropy, TrainMetricsHook (mIoU)': dict(type='TrainMetricsHook', metrics=dict(mIoU=IOU)),
}


def cases(quick: bool) -> Iterator[Case]:
    """Yield cases for FCN with a ResNet-18 on batches of two images: the part after the logits, and whole steps."""
    side = 32 if quick else 512
    training = Training((2, 3, side, side))
    setups = {name: training.setup(loss=loss) for name, loss in LOSSES.items()}
    setups |= {name: training.setup(sampler=sampler) for name, sampler in SAMPLERS.items()}
    setups |= {name: training.setup(hook=hook) for name, hook in HOOKS.items()}
    training.step(setups['cross-entropy'], training.whole)  # creates the optimizer's state
    for group, part in (
        ('decode head: from logits to their gradient', training.after_logits),
        ('a training step of FCN-ResNet-18', training.whole),
    ):
        steps = {name: partial(training.step, setup, part) for name, setup in setups.items()}
        label = shape_label((2, 3, side, side))
        yield Case(group, label, 2 * side**2, 'pixels', steps, also=percent_over_cross_entropy)


def percent_over_cross_entropy(row: Row) -> Row:
    """Return the median of the differences in the same round, and their interquartile range."""
    over, spread = 100 * (row['time against cross-entropy'] - 1), 100 * row['IQR of that']
    return {'over cross-entropy': f'{over:+.1f} %', 'IQR of that in points': round(spread, 1)}


class Setup(NamedTuple):
    """Loss, pixel sampler and hook of a training step."""

    loss: Any
    sampler: Any
    hook: Any


class Training:
    """Network and optimizer; the setups are applied to its decode head in turn."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        from mmengine.hub import get_config
        from mmengine.logging import MessageHub
        from mmengine.registry import MODELS, DefaultScope

        cfg = get_config(CONFIG).model
        with_batch_norm(cfg)
        cfg.pretrained = None
        torch.manual_seed(0)
        with DefaultScope.overwrite_default_scope('mmseg'):
            self.model = MODELS.build(cfg).train()
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01, 0.9, weight_decay=0.0005)
        self.inputs = torch.randn(shape)
        labels = torch.randint(0, 19, (shape[0], 1, shape[2] // 16, shape[3] // 16))
        self.samples = labelled(labels.repeat_interleave(16, 2).repeat_interleave(16, 3))
        self.logits = torch.randn(shape[0], 19, shape[2] // 8, shape[3] // 8, requires_grad=True)
        # The part of a Runner that the hooks use.
        self.runner = SimpleNamespace(
            model=self.model,
            iter=0,
            message_hub=MessageHub.get_instance('benchmark'),
            train_dataloader=SimpleNamespace(dataset=None, sampler=None, batch_sampler=None),
        )

    def setup(
        self,
        loss: dict[str, Any] = CROSS_ENTROPY,
        sampler: dict[str, Any] | None = None,
        hook: dict[str, Any] | None = None,
    ) -> Setup:
        """Return the components of these configs for the decode head; the auxiliary head keeps its cross-entropy."""
        from mmengine.registry import HOOKS as REGISTERED_HOOKS
        from mmengine.registry import MODELS, TASK_UTILS, DefaultScope

        with DefaultScope.overwrite_default_scope('mmseg'):
            return Setup(
                MODELS.build(loss),
                sampler and TASK_UTILS.build(sampler | dict(context=self.model.decode_head)),
                hook and REGISTERED_HOOKS.build(hook),
            )

    def step(self, setup: Setup, part: Step) -> None:
        """Run an iteration in which losses log as in training."""
        head, hub = self.model.decode_head, self.runner.message_hub
        head.loss_decode, head.sampler = setup.loss, setup.sampler
        hub.update_info('loop_stage', 'train')
        hub.update_info('iter', self.runner.iter)
        try:
            if setup.hook:
                setup.hook.before_train(self.runner)
            part()
            if setup.hook:
                setup.hook.after_train_iter(self.runner, 0)
                setup.hook.after_train(self.runner)
        finally:
            hub.pop_info('loop_stage')
        self.runner.iter += 1

    def whole(self) -> None:
        """Run forward pass, loss, backward pass and optimizer."""
        total, _ = self.model.parse_losses(self.model(self.inputs, self.samples, mode='loss'))
        total.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def after_logits(self) -> None:
        """Run the part of the decode head in which setups differ."""
        total, _ = self.model.parse_losses(self.model.decode_head.loss_by_feat(self.logits, self.samples))
        total.backward()
        self.logits.grad = None


def with_batch_norm(cfg: Any) -> None:
    """Replace synchronised batch normalisation, which needs a GPU."""
    for name, value in cfg.items():
        if name == 'norm_cfg':
            value.type = 'BN'
        elif isinstance(value, dict):
            with_batch_norm(value)
