"""Prediction of any MMSegmentation model by a decision for a measure instead of the argmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mmseg_nondecomp.functional.decisions import (
    ClassOffsets,
    DenseCRF,
    ImageOverlap,
    Thresholds,
    read_decision,
)
from mmseg_nondecomp.functional.decisions._logits import logits_of_probability
from mmseg_nondecomp.registry import MODELS, TASK_UTILS
from mmseg_nondecomp.segmentors._combined import arguments_of, combined_class

for kind in (ClassOffsets, DenseCRF, ImageOverlap, Thresholds):
    TASK_UTILS.register_module(module=kind)


@MODELS.register_module()
class DecidingSegmentor:
    """A segmentation model whose maps are decided for a measure.

    The network, its training and its checkpoints are not changed; ``pred_sem_seg`` of its predictions is computed by a
    decision of :mod:`mmseg_nondecomp.functional.decisions` from the logits, at the size of the label map.

    Args:
        segmentor: The type of the model, by name or as a class; or a config with further arguments, which may be that
            of a ``TiledSegmentor``.
        decision: One of ``dict(type='ImageOverlap')``, ``dict(type='ClassOffsets')``, ``dict(type='Thresholds')`` and
            ``dict(type='DenseCRF')``, with the arguments of this class or with ``file='...'``, which
            ``tools/fit_decision.py`` writes; or the path of such a file. With None maps are decided as before.
        **kwargs: Arguments of the type of the model.

    Example:
        In any MMSegmentation config::

            custom_imports = dict(imports=['mmseg_nondecomp'])
            model = dict(
                type='DecidingSegmentor', segmentor='EncoderDecoder', decision=dict(type='ImageOverlap', measure='iou'))
    """

    data_preprocessor: Any
    align_corners: bool

    def __new__(cls, *args: Any, segmentor: Any = 'EncoderDecoder', **kwargs: Any) -> DecidingSegmentor:
        """Return an instance of this class and of the class of the segmentor."""
        # Copies are made by the combined class.
        return super().__new__(cls.combined_with(segmentor) if cls is DecidingSegmentor else cls)

    @classmethod
    def combined_with(cls, segmentor: Any = 'EncoderDecoder') -> type:
        """Return the class of a segmentor with this prediction."""
        return combined_class(cls, segmentor, needs=('predict', 'postprocess_result'))

    def __init__(
        self, *args: Any, segmentor: Any = 'EncoderDecoder', decision: dict | str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **{**arguments_of(segmentor), **kwargs})
        self.decision = None if decision is None else _decision_of(decision)
        self.is_deciding = True
        values, n_channels = getattr(self.decision, 'values', None), getattr(self, 'out_channels', None)
        if values is not None and n_channels is not None and len(values) != n_channels:
            raise ValueError(
                f'Parameter `decision` should have a value for each of the {n_channels} channels of the model. '
                f'Found {len(values)}: {self.decision}.'
            )

    def predict(self, inputs: Tensor, data_samples: Sequence[Any] | None = None) -> Sequence[Any]:
        """Return the samples with scores and the decided maps of images [N, C, H, W]."""
        samples = super().predict(inputs, data_samples)  # type: ignore[misc]
        for image, sample in zip(inputs, samples, strict=True):
            if getattr(self.decision, 'needs_image', False):
                sample.set_data({'image': type(sample.seg_logits)(data=self._levels(image, sample))})
            if self.is_deciding:
                self.decide(sample)
        return samples

    def decide(self, sample: Any) -> None:
        """Set the map of a sample by its scores, [C, H, W]: logits, or the probability of a single channel."""
        if self.decision is None:
            return
        scores = sample.seg_logits.data.unsqueeze(0)
        logits = logits_of_probability(scores) if scores.shape[1] == 1 else scores
        image = {'image': sample.pop('image').data.unsqueeze(0)} if 'image' in sample else {}
        sample.pred_sem_seg.data = self.decision(logits, **image).to(sample.pred_sem_seg.data.dtype)

    def _levels(self, image: Tensor, sample: Any) -> Tensor:
        """Return a preprocessed image [C, H, W] in levels from 0 to 255, as the label map lies, at its size."""
        preprocessor, meta = self.data_preprocessor, sample.metainfo
        if getattr(preprocessor, '_enable_normalize', False):
            image = image * preprocessor.std + preprocessor.mean
        left, right, top, bottom = meta.get('img_padding_size', meta.get('padding_size', [0] * 4))
        image = image[:, top : image.shape[1] - bottom, left : image.shape[2] - right]
        if meta.get('flip'):
            image = image.flip(2 if meta['flip_direction'] == 'horizontal' else 1)
        size = sample.seg_logits.data.shape[1:]
        image = F.interpolate(image.unsqueeze(0), size=size, mode='bilinear', align_corners=False)
        return image[0].clamp(0, 255)


@MODELS.register_module()
class DecidingTTAModel:
    """Test-time augmentation whose mean probabilities are decided by a ``DecidingSegmentor``.

    MMSegmentation's ``SegTTAModel`` takes the argmax of the mean probabilities; it is otherwise the same.

    Example:
        In a config with a ``tta_pipeline``::

            tta_model = dict(type='DecidingTTAModel')
    """

    module: Any

    def __new__(cls, *args: Any, **kwargs: Any) -> DecidingTTAModel:
        """Return an instance of this class and of ``SegTTAModel``."""
        if cls is DecidingTTAModel:
            return super().__new__(combined_class(cls, 'mmseg.SegTTAModel', needs=('merge_preds',)))
        return super().__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not isinstance(self.module, DecidingSegmentor):
            raise TypeError(f'Parameter `module` should be a DecidingSegmentor. Found {type(self.module).__name__}.')

    def test_step(self, data: Any) -> Any:
        """Return the samples of a batch, each with the mean scores of all views and its decided map."""
        self.module.is_deciding = False  # views are not decided
        try:
            return super().test_step(data)  # type: ignore[misc]
        finally:
            self.module.is_deciding = True

    def merge_preds(self, data_samples_list: list[list[Any]]) -> list[Any]:
        """Return one sample for all views of an image."""
        merged = super().merge_preds(data_samples_list)  # type: ignore[misc]
        for sample, views in zip(merged, data_samples_list, strict=True):
            scores = torch.stack([view.seg_logits.data for view in views])
            is_single = scores.shape[1] == 1  # a single channel is a probability already
            mean = (scores if is_single else scores.softmax(1)).mean(0)
            sample.seg_logits = type(sample.seg_logits)(data=mean if is_single else mean.log())
            if 'image' in views[0]:
                sample.set_data({'image': views[0].image})
            self.module.decide(sample)
        return merged


def _decision_of(decision: dict | str) -> Any:
    """Return the decision of a config or a file."""
    if isinstance(decision, str):
        decision = dict(file=decision)
    if 'file' in decision:
        built = read_decision(decision['file'])
        found = type(built).__name__
        kind = str(decision.get('type', found)).rpartition('.')[2]  # without the scope
        if kind != found or set(decision) - {'type', 'file'}:
            raise ValueError(
                f'Parameter `decision` should have no arguments beside a file of {found}. Found {decision}.'
            )
    else:
        built = TASK_UTILS.build(decision)
    if getattr(built, 'mode', None) == 'multilabel':
        raise ValueError("Parameter `decision` should decide one class for each pixel. Found mode='multilabel'.")
    return built
