"""What MMSegmentation, MMPretrain and MMDetection predict, in the form that metrics take."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mmseg_nondecomp.evaluation.batch import Batch, batch_of_classes, check_labels_suffice, needs_scores, stacked
from mmseg_nondecomp.evaluation.matches import hits, lie_within
from mmseg_nondecomp.evaluation.need import Need
from mmseg_nondecomp.evaluation.scores import Scores

Samples = Sequence[Mapping[str, Any]]


def batches_of(samples: Samples, needs: set[Need]) -> list[Batch]:
    """The data samples of one batch, as one or, where images differ in size, several batches for the metrics.

    Raises:
        ValueError: If the samples are not of a known form, or lack what is needed.
    """
    if not samples:
        return []
    first = samples[0]
    if 'pred_sem_seg' in first:
        return _of_mmseg(samples, needs)
    if 'pred_score' in first or 'pred_label' in first:
        return [_of_mmpretrain(samples, needs)]
    if 'pred_instances' in first:
        return _of_mmdet(samples, needs)
    raise ValueError(
        'Data samples should hold `pred_sem_seg` (MMSegmentation), `pred_score` (MMPretrain) or `pred_instances` '
        f'(MMDetection). Found {sorted(map(str, first))}.'
    )


def _of_mmseg(samples: Samples, needs: set[Need]) -> list[Batch]:
    _check_kinds(needs, ('labels', 'scores', 'logits'), 'label maps')
    _check_forms(needs, ('classes', 'binary', 'channel'), 'one class a pixel')
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
        if needs_scores(needs):
            logits.append(_data(sample, 'seg_logits'))
    alike = len({target.shape for target in targets}) == 1
    batches = []
    for images in [slice(None)] if alike else [slice(i, i + 1) for i in range(len(samples))]:
        scores = None
        if logits:
            values = stacked(logits[images])
            scores = Scores(values, are_probabilities=values.shape[1] == 1)  # MMSegmentation has applied the sigmoid
        batches.append(batch_of_classes(needs, stacked(labels[images]), scores, stacked(targets[images])))
    return batches


def _of_mmpretrain(samples: Samples, needs: set[Need]) -> Batch:
    _check_kinds(needs, ('labels', 'scores', 'logits'), 'classes of images')
    if 'pred_score' not in samples[0]:
        check_labels_suffice(needs)  # before one label is asked for where a metric of several is given
        labels = _one_label(samples, 'pred_label')
        return batch_of_classes(needs, labels, None, _one_label(samples, 'gt_label').to(labels.device))
    scores = Scores(stacked([sample['pred_score'] for sample in samples]), are_probabilities=True)
    inputs: dict[Need, tuple[Any, Any]] = {}
    multilabel = {need for need in needs if need.form == 'multilabel'}
    if multilabel:
        target = _several_labels(samples, scores.values)
        inputs = {
            need: (scores.of('logits' if need.kind == 'logits' else 'scores', 'multilabel'), target)
            for need in multilabel
        }
    single = needs - multilabel
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


def _several_labels(samples: Samples, scores: Tensor) -> Tensor:
    rows = []
    for sample in samples:
        if 'gt_score' in sample:
            rows.append(sample['gt_score'].to(scores.device).long())
        elif 'gt_label' in sample:
            labels = sample['gt_label'].to(scores.device).long()
            rows.append(F.one_hot(labels, scores.shape[1]).sum(0).clamp(max=1))
        else:
            raise ValueError('Data samples should hold the ground truth, `gt_score` or `gt_label`. Found neither.')
    return stacked(rows)


def _of_mmdet(samples: Samples, needs: set[Need]) -> list[Batch]:
    _check_kinds(
        needs,
        ('instances', 'scores', 'logits'),
        'boxes, whose true class depends on how they are matched; torchmetrics.detection.MeanAveragePrecision matches '
        'them itself, and metrics of two classes that take scores are given those of boxes that are right or wrong',
    )
    of_matches = {need for need in needs if need.kind != 'instances'}
    _check_forms(of_matches, ('binary', 'channel'), 'boxes, which are right or wrong')
    preds, target = [], []
    for sample in samples:
        found = sample['pred_instances']
        if 'gt_instances' not in sample:
            raise ValueError(
                'Data samples should hold the ground truth, `gt_instances`. Found none: the pipeline should have '
                'LoadAnnotations.'
            )
        device = found['labels'].device
        preds.append({'scores': found['scores'], 'labels': found['labels'], **_shapes(found, device)})
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
        target.append({key: torch.cat([part[key] for part in parts]) for key in parts[0]})
    if not of_matches:
        return [Batch(dict.fromkeys(needs, (preds, target)), len(samples))]
    batches = []
    for detections, objects in zip(preds, target, strict=True):
        values, is_hit = _right_or_wrong(detections, objects)
        inputs: dict[Need, tuple[Any, Any]] = dict.fromkeys(needs - of_matches, ([detections], [objects]))
        scores = Scores(values.unsqueeze(1), are_probabilities=True)
        inputs |= {need: (scores.of(need.kind, need.form), is_hit.long()) for need in of_matches}
        batches.append(Batch(inputs, 1))
    return batches


def _right_or_wrong(found: dict[str, Tensor], true: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The scores of the detections of an image, and which are right; without those of what does not count."""
    counts = true['iscrowd'] == 0
    objects = true['boxes'][counts], true['labels'][counts]
    is_hit = hits(found['boxes'], found['scores'], found['labels'], *objects)
    ignored = true['boxes'][~counts], true['labels'][~counts]
    kept = is_hit | ~lie_within(found['boxes'], found['labels'], *ignored)
    return found['scores'][kept], is_hit[kept]


def _shapes(instances: Mapping[str, Any], device: torch.device) -> dict[str, Tensor]:
    boxes = instances['bboxes']
    found = {'boxes': getattr(boxes, 'tensor', boxes).to(device)}
    if 'masks' in instances:
        masks = instances['masks']
        masks = masks if isinstance(masks, Tensor) else torch.from_numpy(masks.to_ndarray())
        found['masks'] = masks.to(device).bool()
    return found


def _data(sample: Mapping[str, Any], key: str) -> Tensor:
    if key not in sample:
        hint = {
            'gt_sem_seg': 'the pipeline should have LoadAnnotations',
            'seg_logits': 'the metrics need scores, which the model does not hand over',
        }[key]
        raise ValueError(f'Data samples should hold `{key}`. Found {sorted(map(str, sample))}: {hint}.')
    return sample[key]['data']


def _check_kinds(needs: set[Need], kinds: tuple[str, ...], what: str) -> None:
    unknown = {need.kind for need in needs} - set(kinds)
    if unknown:
        raise ValueError(f'The predictions are {what}. Found metrics that need {" and ".join(sorted(unknown))}.')


def _check_forms(needs: set[Need], forms: tuple[str, ...], what: str) -> None:
    unknown = {need.form for need in needs} - set(forms)
    if unknown:
        raise ValueError(f'The predictions are {what}. Found metrics of {" and ".join(sorted(unknown))} form.')
