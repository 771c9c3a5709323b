"""Silent mistakes in the data and the sampler of a training. Each function returns the text of one of them, or None."""

from collections.abc import Iterator
from typing import Any

from mmengine.runner import EpochBasedTrainLoop

from mmseg_nondecomp.hooks._model_findings import typed_dicts
from mmseg_nondecomp.hooks.train_iou_hook import TrainIoUHook
from mmseg_nondecomp.samplers import IoUAdaptiveSampler
from mmseg_nondecomp.samplers.class_driven_sampler import ClassDrivenSampler


def shifted_labels(training: Any, validation: Any) -> str | None:
    """Find a validation data set that reads label 0 in another way than the training data set."""
    ways, others = ({bool(part.reduce_zero_label) for part in _parts(data)} for data in (training, validation))
    if not ways or others <= ways:
        return None
    [other] = others - ways
    return (
        f'`reduce_zero_label` is {not other} in `train_dataloader.dataset` and {other} in `val_dataloader.dataset`, so '
        'their labels differ by one. Set the same value in both, and in `test_dataloader.dataset`.'
    )


def endless_epoch(dataloader: Any, loop: Any) -> str | None:
    """Find a sampler without an end in a loop that waits for the end of an epoch."""
    sampler = class_driven_sampler(dataloader)
    if sampler is None or not sampler.infinite or not isinstance(loop, EpochBasedTrainLoop):
        return None
    return (
        f'{type(sampler).__name__} has no end, and {type(loop).__name__} waits for the end of an epoch. Set '
        '`infinite=False` in `train_dataloader.sampler`, or train with an `IterBasedTrainLoop`.'
    )


def missing_iou(dataloader: Any, hooks: Any) -> str | None:
    """Find a sampler that follows the IoU in a training that does not measure it."""
    sampler = class_driven_sampler(dataloader)
    if not isinstance(sampler, IoUAdaptiveSampler) or any(isinstance(hook, TrainIoUHook) for hook in hooks):
        return None
    return (
        'IoUAdaptiveSampler receives no IoU, so all classes stay equally likely. Add '
        "`dict(type='TrainIoUHook')` to `custom_hooks`."
    )


def crop_without_class(dataloader: Any, config: Any) -> str | None:
    """Find a crop on the sampled class in a training whose sampler draws no classes."""
    steps = typed_dicts(config, 'train_dataloader')
    places = [place for place, step in steps if _name(step['type']) == 'RandomCropOnClass']
    if not places or class_driven_sampler(dataloader) is not None:
        return None
    return (
        f'`{places[0]}` is RandomCropOnClass, and no sampler of this package draws a class for it, so it crops as '
        "RandomCrop does. Set `sampler=dict(type='EquiBatchSampler')` in `train_dataloader`."
    )


def class_driven_sampler(dataloader: Any) -> ClassDrivenSampler | None:
    """Return the sampler of this package that a data loader draws from, as its sampler or its batch sampler."""
    batches = getattr(dataloader, 'batch_sampler', None)
    for sampler in (batches, getattr(batches, 'sampler', None), getattr(dataloader, 'sampler', None)):
        if isinstance(sampler, ClassDrivenSampler):
            return sampler
    return None


def _parts(dataset: Any) -> Iterator[Any]:
    """Yield the data sets with a ``reduce_zero_label``, also within wrappers."""
    if hasattr(dataset, 'reduce_zero_label'):
        yield dataset
        return
    for name in ('dataset', '_dataset'):  # of RepeatDataset and MultiImageMixDataset; of `num_batch_per_epoch`
        yield from _parts(getattr(dataset, name)) if hasattr(dataset, name) else ()
    for part in getattr(dataset, 'datasets', ()):
        yield from _parts(part)


def _name(kind: Any) -> str:
    """Return the name of a class that is given as such or by its name."""
    return kind.rpartition('.')[2] if isinstance(kind, str) else getattr(kind, '__name__', '')
