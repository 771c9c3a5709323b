"""The kind and the form of the predictions that a metric takes."""

from dataclasses import dataclass

from torchmetrics import Metric

KINDS = ('labels', 'scores', 'logits', 'instances')

# Names of classes of torchmetrics and of this package, which are searched for in the bases of a metric.
RANKS_LOGITS = {'DirectAveragePrecision', 'SmoothTopKAccuracy'}
RANKS_SCORES = {
    *('BinaryCalibrationError', 'BinaryHingeLoss', 'BinaryPrecisionRecallCurve'),
    *('MulticlassCalibrationError', 'MulticlassHingeLoss', 'MulticlassPrecisionRecallCurve'),
    *('MultilabelCoverageError', 'MultilabelPrecisionRecallCurve', 'MultilabelRankingAveragePrecision'),
    'MultilabelRankingLoss',
}
TAKES_SCORES = {'LovaszJaccardIndex', 'SoftJaccardIndex'}
TAKES_LABELS = {f'{task}ConfusionMatrix' for task in ('Binary', 'Multiclass', 'Multilabel')} | {
    *('DiceScore', 'GeneralizedDiceScore', 'HausdorffDistance', 'JaccardIndexByImage', 'MeanIoU'),
    *('MulticlassExactMatch', 'MultilabelExactMatch', '_AbstractStatScores'),
}
TAKES_INSTANCES = {'IntersectionOverUnion', 'MeanAveragePrecision'}


@dataclass(frozen=True)
class InputSpec:
    """Input specification of a metric.

    The kind is ``'labels'`` for decided classes, ``'scores'`` for probabilities, ``'logits'`` for scores before softmax
    or sigmoid, ``'instances'`` for boxes or masks with labels and scores. The form is ``'classes'`` for scores [N, C,
    *], ``'binary'`` for those of class 1 alone, [N, *], ``'channel'`` for the same as [N, 1, *], ``'multilabel'`` for
    [N, C, *] with a target of the same shape.
    """

    kind: str
    form: str = 'classes'


def input_spec_of(name: str, metric: Metric, kind: str | None) -> InputSpec:
    """Return the input specification of a metric by its class; ``kind`` replaces the kind."""
    if kind is not None and kind not in KINDS:
        raise ValueError(f'Parameter `inputs` should be one of {KINDS} for metric {name!r}. Found {kind!r}.')
    inner = inner_metrics(metric)
    families = {
        base.__name__
        for part in inner
        for base in type(part).__mro__
        if base.__module__.split('.')[0] in ('torchmetrics', 'mmseg_nondecomp')
    }
    who = f'Metric {name!r} ({type(metric).__name__})'
    if any(getattr(part, 'input_format', None) == 'one-hot' for part in inner):
        raise ValueError(f"{who} should take class indices: set `input_format='index'`.")
    if kind == 'labels' and families & (RANKS_SCORES | RANKS_LOGITS):
        raise ValueError(
            f'{who} compares scores, which decided classes do not have: '
            "`inputs` should be 'scores' or 'logits' for it, or not be given."
        )
    ranks_top_k = any((getattr(part, 'top_k', 1) or 1) > 1 for part in inner)
    kind = kind or _kind(families, ranks_top_k)
    if kind is None:
        raise ValueError(
            f'{who} may take decided classes or scores. Say which, as in '
            f"`inputs=dict({name}='labels')`; it may be one of {KINDS}."
        )
    return InputSpec(kind, _form(inner, families))


def inner_metrics(metric: Metric) -> list[Metric]:
    """Return the metric itself and those that it wraps."""
    return [part for part in metric.modules() if isinstance(part, Metric)]


def _kind(families: set[str], ranks_top_k: bool) -> str | None:
    if families & TAKES_INSTANCES:
        return 'instances'
    if families & RANKS_LOGITS:
        return 'logits'
    if families & (RANKS_SCORES | TAKES_SCORES) or ranks_top_k:
        return 'scores'
    return 'labels' if families & TAKES_LABELS else None


def _form(inner: list[Metric], families: set[str]) -> str:
    if any(isinstance(getattr(part, 'num_labels', None), int) for part in inner):
        return 'multilabel'
    if any(family.startswith('Binary') for family in families):
        return 'binary'
    of_one_class = all(getattr(part, 'num_classes', None) in (None, 1) for part in inner)
    return 'channel' if of_one_class and families & (RANKS_LOGITS | TAKES_SCORES) else 'classes'
