"""What a metric is computed from: decided classes, scores, logits or boxes."""

from dataclasses import dataclass

from torchmetrics import Metric

KINDS = ('labels', 'scores', 'logits', 'instances')

RANKS_LOGITS = {'DirectAveragePrecision', 'SmoothTopKAccuracy'}
RANKS_SCORES = {
    'BinaryCalibrationError',
    'BinaryHingeLoss',
    'BinaryPrecisionRecallCurve',
    'MulticlassCalibrationError',
    'MulticlassHingeLoss',
    'MulticlassPrecisionRecallCurve',
    'MultilabelCoverageError',
    'MultilabelPrecisionRecallCurve',
    'MultilabelRankingAveragePrecision',
    'MultilabelRankingLoss',
}
TAKES_SCORES = {'LovaszJaccardIndex', 'SoftJaccardIndex'}
TAKES_LABELS = {
    'BinaryConfusionMatrix',
    'DiceScore',
    'GeneralizedDiceScore',
    'HausdorffDistance',
    'JaccardIndexByImage',
    'MeanIoU',
    'MulticlassConfusionMatrix',
    'MulticlassExactMatch',
    'MultilabelConfusionMatrix',
    'MultilabelExactMatch',
    '_AbstractStatScores',
}
TAKES_INSTANCES = {'IntersectionOverUnion', 'MeanAveragePrecision'}


@dataclass(frozen=True)
class Need:
    """What a metric is given.

    Args:
        kind: ``'labels'`` for decided classes, ``'scores'`` for probabilities, ``'logits'`` for these before softmax or
            sigmoid, ``'instances'`` for boxes or masks with labels and scores.
        form: ``'classes'`` for scores [N, C, *], ``'binary'`` for those of class 1 alone, [N, *], ``'channel'`` for the
            same as [N, 1, *], ``'multilabel'`` for [N, C, *] with a target of the same shape.
    """

    kind: str
    form: str = 'classes'


def need_of(name: str, metric: Metric, kind: str | None) -> Need:
    """What a metric needs, as its class tells; ``kind`` where the user says which kind."""
    if kind is not None and kind not in KINDS:
        raise ValueError(f'Parameter `inputs` should be one of {KINDS} for metric {name!r}. Found {kind!r}.')
    inner = inner_metrics(metric)
    families = set().union(*(_families(part) for part in inner))
    if any(getattr(part, 'input_format', None) == 'one-hot' for part in inner):
        raise ValueError(
            f"Metric {name!r} ({type(metric).__name__}) should take class indices: set `input_format='index'`."
        )
    if kind == 'labels' and families & (RANKS_SCORES | RANKS_LOGITS):
        raise ValueError(
            f'Metric {name!r} ({type(metric).__name__}) compares scores, which decided classes do not have: '
            "`inputs` should be 'scores' or 'logits' for it, or not be given."
        )
    kind = kind or _kind_of_families(families, any((getattr(part, 'top_k', 1) or 1) > 1 for part in inner))
    if kind is None:
        raise ValueError(
            f'Metric {name!r} ({type(metric).__name__}) may take decided classes or scores. Say which, as in '
            f"`inputs=dict({name}='labels')`; it may be one of {KINDS}."
        )
    return Need(kind, _form(inner, families))


def inner_metrics(metric: Metric) -> list[Metric]:
    """The metric itself and those that it wraps."""
    return [part for part in metric.modules() if isinstance(part, Metric)]


def _families(metric: Metric) -> set[str]:
    return {
        base.__name__
        for base in type(metric).__mro__
        if base.__module__.split('.')[0] in ('torchmetrics', 'mmseg_nondecomp')
    }


def _kind_of_families(families: set[str], ranks_top_k: bool) -> str | None:
    if families & TAKES_INSTANCES:
        return 'instances'
    if families & RANKS_LOGITS:
        return 'logits'
    if families & (RANKS_SCORES | TAKES_SCORES) or ranks_top_k:
        return 'scores'
    if families & TAKES_LABELS:
        return 'labels'
    return None


def _form(inner: list[Metric], families: set[str]) -> str:
    if any(isinstance(getattr(part, 'num_labels', None), int) for part in inner):
        return 'multilabel'
    if any(family.startswith('Binary') for family in families):
        return 'binary'
    if families & (RANKS_LOGITS | TAKES_SCORES) and all(
        getattr(part, 'num_classes', None) in (None, 1) for part in inner
    ):
        return 'channel'
    return 'classes'
