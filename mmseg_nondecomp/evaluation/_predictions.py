"""Predictions of MMSegmentation, MMPretrain and MMDetection in the form that metrics take."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mmseg_nondecomp.evaluation._batch import Batch, Scores, batch_of_classes, check_labels_suffice, needs_scores
from mmseg_nondecomp.evaluation._input_spec import InputSpec
from mmseg_nondecomp.evaluation._matching import hits, lie_within

Samples = Sequence[Mapping[str, Any]]


def batches_of(samples: Samples, specs: set[InputSpec]) -> list[Batch]:
    """Convert the data samples of one batch to one batch for the metrics, or several if images differ in size."""
    if not samples:
        return []
    first = samples[0]
    if 'pred_sem_seg' in first:
        return _of_mmseg(samples, specs)
    if 'pred_score' in first or 'pred_label' in first:
        return [_of_mmpretrain(samples, specs)]
    if 'pred_instances' in first:
        return _of_mmdet(samples, specs)
    raise ValueError(
        'Data samples should hold `pred_sem_seg` (MMSegmentation), `pred_score` (MMPretrain) or `pred_instances` '
        f'(MMDetection). Found {sorted(map(str, first))}.'
    )


def stacked(parts: list[Tensor]) -> Tensor:
    """Stack tensors of one shape; return a view of a single one."""
    return parts[0].unsqueeze(0) if len(parts) == 1 else torch.stack(parts)


def _of_mmseg(samples: Samples, specs: set[InputSpec]) -> list[Batch]:
    _check(specs, 'kind', ('labels', 'scores', 'logits'), 'label maps')
    _check(specs, 'form', ('classes', 'binary', 'channel'), 'one class a pixel')
    labels, logits, targets = [], [], []
    for sample in samples:
        decided = _data(sample, 'pred_sem_seg').squeeze(0).long()
        target = _data(sample, 'gt_sem_seg').squeeze(0).to(decided.device).long()
        if decided.shape != target.shape:
            raise ValueError(
                'Label maps should be predicted at the size of the ground truth. '
                f'Found {tuple(decided.shape)} and {tuple(target.shape)}.'
            )
        labels.append(decided)
        targets.append(target)
        if needs_scores(specs):
            logits.append(_data(sample, 'seg_logits'))
    alike = len({target.shape for target in targets}) == 1
    batches = []
    for images in [slice(None)] if alike else [slice(i, i + 1) for i in range(len(samples))]:
        values = stacked(logits[images]) if logits else None
        # MMSegmentation has applied the sigmoid.
        scores = None if values is None else Scores(values, are_probabilities=values.shape[1] == 1)
        batches.append(batch_of_classes(specs, stacked(labels[images]), scores, stacked(targets[images])))
    return batches


def _of_mmpretrain(samples: Samples, specs: set[InputSpec]) -> Batch:
    _check(specs, 'kind', ('labels', 'scores', 'logits'), 'classes of images')
    if 'pred_score' not in samples[0]:
        check_labels_suffice(specs)  # first, since a metric of several labels needs no single label
        labels = _one_label(samples, 'pred_label')
        return batch_of_classes(specs, labels, None, _one_label(samples, 'gt_label').to(labels.device))
    scores = Scores(stacked([sample['pred_score'] for sample in samples]), are_probabilities=True)
    inputs: dict[InputSpec, tuple[Any, Any]] = {}
    multilabel = {spec for spec in specs if spec.form == 'multilabel'}
    if multilabel:
        target = stacked([_several_labels(sample, scores.values) for sample in samples])
        for spec in multilabel:
            inputs[spec] = scores.of('logits' if spec.kind == 'logits' else 'scores', 'multilabel'), target
    single = specs - multilabel
    if single:
        target = _one_label(samples, 'gt_label').to(scores.values.device)
        inputs |= batch_of_classes(single, scores.of('scores', 'classes').argmax(1), scores, target).inputs
    return Batch(inputs, len(samples))


def _one_label(samples: Samples, key: str) -> Tensor:
    for sample in samples:
        if key not in sample or sample[key].numel() != 1:
            raise ValueError(
                f'A metric of one class an image needs one `{key}` for each. '
                f'Found {sample[key].tolist() if key in sample else "none"}; '
                'with several labels, take a metric that has `num_labels`.'
            )
    return torch.cat([sample[key].reshape(1) for sample in samples]).long()


def _several_labels(sample: Mapping[str, Any], scores: Tensor) -> Tensor:
    if 'gt_score' in sample:
        return sample['gt_score'].to(scores.device).long()
    if 'gt_label' in sample:
        return F.one_hot(sample['gt_label'].to(scores.device).long(), scores.shape[1]).sum(0).clamp(max=1)
    raise ValueError('Data samples should hold the ground truth, `gt_score` or `gt_label`. Found neither.')


def _of_mmdet(samples: Samples, specs: set[InputSpec]) -> list[Batch]:
    _check(
        specs,
        'kind',
        ('instances', 'scores', 'logits'),
        'boxes, whose true class depends on how they are matched; torchmetrics.detection.MeanAveragePrecision matches '
        'them itself, and metrics of two classes that take scores are given those of boxes that are right or wrong',
    )
    of_matches = {spec for spec in specs if spec.kind != 'instances'}
    _check(of_matches, 'form', ('binary', 'channel'), 'boxes, which are right or wrong')
    pairs = [_instances(sample) for sample in samples]
    if not of_matches:
        preds, target = map(list, zip(*pairs, strict=True))
        return [Batch(dict.fromkeys(specs, (preds, target)), len(samples))]
    batches = []
    for detections, objects in pairs:
        values, is_hit = _right_or_wrong(detections, objects)
        inputs: dict[InputSpec, tuple[Any, Any]] = dict.fromkeys(specs - of_matches, ([detections], [objects]))
        scores = Scores(values.unsqueeze(1), are_probabilities=True)
        inputs |= {spec: (scores.of(spec.kind, spec.form), is_hit.long()) for spec in of_matches}
        batches.append(Batch(inputs, 1))
    return batches


def _instances(sample: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the detections and the objects of an image as `MeanAveragePrecision` takes them."""
    if 'gt_instances' not in sample:
        raise ValueError(
            'Data samples should hold the ground truth, `gt_instances`. Found none: the pipeline should have '
            'LoadAnnotations.'
        )
    detections = sample['pred_instances']
    device = detections['labels'].device
    true = [sample['gt_instances']]
    if len(sample.get('ignored_instances', {}).get('labels', ())) > 0:
        true.append(sample['ignored_instances'])
    parts = [
        {
            'labels': part['labels'].to(device),
            'iscrowd': torch.full_like(part['labels'], ignored, device=device),
            **_shapes(part, device),
        }
        for ignored, part in enumerate(true)
    ]
    preds = {'scores': detections['scores'], 'labels': detections['labels'], **_shapes(detections, device)}
    return preds, {key: torch.cat([part[key] for part in parts]) for key in parts[0]}


def _right_or_wrong(preds: dict[str, Tensor], true: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the scores of the detections of an image that count, and whether they are right."""
    counts = true['iscrowd'] == 0
    objects = true['boxes'][counts], true['labels'][counts]
    is_hit = hits(preds['boxes'], preds['scores'], preds['labels'], *objects)
    ignored = true['boxes'][~counts], true['labels'][~counts]
    kept = is_hit | ~lie_within(preds['boxes'], preds['labels'], *ignored)
    return preds['scores'][kept], is_hit[kept]


def _shapes(instances: Mapping[str, Any], device: torch.device) -> dict[str, Tensor]:
    boxes = instances['bboxes']
    shapes = {'boxes': getattr(boxes, 'tensor', boxes).to(device)}
    if 'masks' in instances:
        masks = instances['masks']
        masks = masks if isinstance(masks, Tensor) else torch.from_numpy(masks.to_ndarray())
        shapes['masks'] = masks.to(device).bool()
    return shapes


def _data(sample: Mapping[str, Any], key: str) -> Tensor:
    if key not in sample:
        hint = {
            'gt_sem_seg': 'the pipeline should have LoadAnnotations',
            'seg_logits': 'the metrics need scores, which the model does not hand over',
        }[key]
        raise ValueError(f'Data samples should hold `{key}`. Found {sorted(map(str, sample))}: {hint}.')
    return sample[key]['data']


def _check(specs: set[InputSpec], part: str, known: tuple[str, ...], what: str) -> None:
    unknown = ' and '.join(sorted({getattr(spec, part) for spec in specs} - set(known)))
    if unknown:
        metrics = f'that need {unknown}' if part == 'kind' else f'of {unknown} form'
        raise ValueError(f'The predictions are {what}. Found metrics {metrics}.')
