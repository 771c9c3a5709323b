"""Each layout of a batch has the value of the canonical one, or an error says how to pass it."""

import pytest
import torch
import torch.nn.functional as F
from metric_tester import assert_same, check_in_a_collection
from torch.utils._python_dispatch import TorchDispatchMode
from torchmetrics.classification import MultilabelJaccardIndex

from mmseg_nondecomp.functional._inputs import FIRST_CALLS
from mmseg_nondecomp.metrics import (
    DirectAveragePrecision,
    JaccardIndexByImage,
    LovaszJaccardIndex,
    SmoothTopKAccuracy,
    SoftJaccardIndex,
)

C = 3
OVERLAPS = (LovaszJaccardIndex, SoftJaccardIndex, JaccardIndexByImage)
METRICS = (*OVERLAPS, DirectAveragePrecision, SmoothTopKAccuracy)
DTYPES = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.float32, torch.float64]
DTYPES += [torch.uint16] if hasattr(torch, 'uint16') else []
each_overlap = pytest.mark.parametrize('metric', OVERLAPS)
each_soft_overlap = pytest.mark.parametrize('metric', OVERLAPS[:2])
each_of_scores = pytest.mark.parametrize('metric', [*OVERLAPS, DirectAveragePrecision])


def value(metric, preds, target, num_classes=C, **arguments):
    arguments |= dict(k=2) if metric is SmoothTopKAccuracy else {}
    return metric(num_classes, **arguments)(preds, target)


def scene(n_channels=C, shape=(2, 4, 5), n_labels=None):
    """Return probabilities [N, n_channels, *] and labels [N, *]."""
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(shape[0], n_channels, *shape[1:], generator=generator)
    labels = torch.randint(0, n_labels or max(2, n_channels), shape, generator=generator)
    return (logits.softmax(1) if n_channels > 1 else logits.sigmoid()), labels


def one_hot(labels):
    return F.one_hot(labels, C).movedim(-1, 1)


def several_labels():
    return torch.randint(0, 2, (2, C, 4, 5), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize('shape', [(12,), (3, 7), (2, 4, 5), (2, 3, 4, 5)], ids=str)
@pytest.mark.parametrize('metric', METRICS)
def test_class_indices(metric, shape):
    preds, labels = scene(shape=shape)
    expected = value(metric, preds, labels)
    for target in (labels, labels.unsqueeze(1)):
        for dtype in DTYPES:
            assert_same(value(metric, preds, target.to(dtype)), expected, rtol=0, atol=0)
    ignored = labels.clone()
    ignored.view(-1)[::3] = -100
    expected = value(metric, preds, torch.where(ignored == -100, 255, ignored))
    for dtype in (torch.int8, torch.int64, torch.float32):
        found = value(metric, preds, ignored.to(dtype).unsqueeze(1), ignore_index=-100)
        assert_same(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize('metric', METRICS)
def test_one_hot_labels(metric):
    preds, labels = scene()
    expected = value(metric, preds, labels)
    exact = dict() if metric in (SoftJaccardIndex, SmoothTopKAccuracy) else dict(rtol=0, atol=0)
    for dtype in (*DTYPES, torch.bool, torch.int64):
        assert_same(value(metric, preds, one_hot(labels).to(dtype)), expected, **exact)


@each_overlap
def test_decided_classes(metric):
    _, labels = scene()
    decided = labels.roll(1)
    expected = value(metric, one_hot(decided).float(), labels)
    for target in (labels, labels.unsqueeze(1), one_hot(labels)):
        for preds in (decided, decided.unsqueeze(1), decided.to(torch.uint8), decided.to(torch.int16)):
            assert_same(value(metric, preds, target), expected)


@pytest.mark.parametrize('with_channel', [False, True])
@pytest.mark.parametrize('shape', [(12,), (3, 7), (2, 4, 5), (2, 4, 1)], ids=str)
@each_of_scores
def test_one_class(metric, shape, with_channel):
    preds, labels = scene(1, shape)
    expected = value(metric, preds, labels, 1)
    if not with_channel and (len(shape) > 1 or metric is not JaccardIndexByImage):
        preds = preds.squeeze(1)
    for target in (labels, labels.unsqueeze(1)):
        for dtype in (*DTYPES, torch.bool):
            exact = dict() if metric is SoftJaccardIndex and dtype.is_floating_point else dict(rtol=0, atol=0)
            assert_same(value(metric, preds, target.to(dtype), 1), expected, **exact)
        mask = target * 255
        for dtype in (torch.uint8, torch.int32):
            found = value(metric, preds, mask.to(dtype), 1, ignore_index=-100)
            assert_same(found, expected, rtol=0, atol=0)
        mask.view(-1)[::3] = 2
        of_labels = torch.where(mask == 2, 255, target)
        found = value(metric, preds, mask.float(), 1, ignore_index=2)
        assert_same(found, value(metric, preds, of_labels, 1))


@each_overlap
def test_decisions_of_one_class(metric):
    preds, labels = scene(1)
    decided = preds > 0.5
    expected = value(metric, decided.float(), labels, 1)
    for decisions in (decided, decided.squeeze(1), decided.int(), decided.squeeze(1).to(torch.uint8)):
        for target in (labels, labels.unsqueeze(1), labels.bool(), labels.unsqueeze(1).bool()):
            assert_same(value(metric, decisions, target, 1), expected)


def test_a_single_dimension_is_one_image_and_the_first_of_two_counts_images():
    decided, labels = torch.tensor([[0, 1, 1, 1], [0, 0, 0, 0]]), torch.tensor([[0, 0, 1, 1], [1, 0, 0, 0]])
    rows = [value(JaccardIndexByImage, decided[i], labels[i], 2)['image'] for i in range(2)]
    assert_same(value(JaccardIndexByImage, decided, labels, 2)['image'], torch.stack(rows).mean())
    assert rows[0] == (1 / 2 + 2 / 3) / 2


class TestSeveralLabels:
    @each_soft_overlap
    def test_each_channel_is_a_class_by_itself(self, metric):
        logits = 3 * torch.randn(2, C, 4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        target = several_labels()
        arguments = dict(average=None, classes='all')
        expected = torch.stack([metric(1, **arguments)(logits[:, c], target[:, c]) for c in range(C)])
        for preds in (logits, logits.sigmoid()):
            for dtype in (*DTYPES, torch.bool, torch.int64):
                found = value(metric, preds, target.to(dtype), mode='multilabel', **arguments)
                torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
        shares = torch.rand(2, C, 4, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        expected = torch.stack([metric(1, **arguments)(logits[:, c], shares[:, c]) for c in range(C)])
        assert_same(value(metric, logits, shares, mode='multilabel', **arguments), expected)

    def test_averages_over_images(self):
        logits = 3 * torch.randn(2, C, 4, 5, generator=torch.Generator().manual_seed(0))
        target = several_labels()
        target[0, 2], logits[0, 2] = 0, -1.0  # neither true nor decided

        def of(image, classes):
            parts = [value(JaccardIndexByImage, logits[[image], c], target[[image], c], 1)['image'] for c in classes]
            return torch.stack(parts).mean()

        found = value(JaccardIndexByImage, logits, target, mode='multilabel')
        assert_same(found['image'], (of(0, [0, 1]) + of(1, [0, 1, 2])) / 2)
        assert_same(found['worst'], min(of(0, [0, 1]), of(1, [0, 1, 2])))
        assert_same(found['dataset'], MultilabelJaccardIndex(C)(logits.sigmoid(), target))
        assert_same(found['batch'], found['dataset'])
        for preds in (logits > 0, (logits > 0).int(), logits.sigmoid()):
            assert_same(value(JaccardIndexByImage, preds, target.bool(), mode='multilabel'), found)

    @each_overlap
    def test_class_indices_are_one_label_or_none(self, metric):
        preds, labels = scene(n_labels=C + 1)
        target = F.one_hot(labels, C + 1)[..., :C].movedim(-1, 1)
        found = value(metric, preds, labels, mode='multilabel')
        assert_same(found, value(metric, preds, target, mode='multilabel'))

    @each_soft_overlap
    def test_only_decided_or_true_classes_are_seen(self, metric):
        preds, target = torch.tensor([[0.4, 0.4, 0.6], [0.0, 0.4, 0.3]]), torch.tensor([[1, 0, 0], [0, 0, 0]])
        assert value(metric, preds, target, mode='multilabel', average=None).isnan().tolist() == [False, True, False]


class TestLogits:
    @each_overlap
    @pytest.mark.parametrize('n_channels', [1, C])
    def test_interpolated_probabilities_are_no_logits(self, metric, n_channels):
        probs, _ = scene(n_channels, (1, 9, 9))
        probs = F.interpolate((probs > 0.5).float(), (64, 41), mode='bilinear') * (1 + 1e-6)
        labels = scene(n_channels, (1, 64, 41))[1]
        assert 1 < probs.max() < 1.001
        for preds in (probs, probs - 1e-6):
            assert_same(value(metric, preds, labels, n_channels), value(metric, preds.clamp(0, 1), labels, n_channels))

    @pytest.mark.parametrize(('n_channels', 'mode'), [(1, None), (C, None), (C, 'multilabel')])
    @each_overlap
    def test_whether_scores_in_the_unit_interval_are_logits_can_be_set(self, metric, n_channels, mode):
        scores, target = scene(n_channels)
        target = several_labels() if mode else target
        is_multiclass = n_channels > 1 and mode is None
        arguments = dict(num_classes=n_channels, mode=mode)
        of_logits = value(metric, scores, target, from_logits=True, **arguments)
        probs = scores.softmax(1) if is_multiclass else scores.sigmoid()
        assert_same(of_logits, value(metric, probs, target, from_logits=False, **arguments))
        of_probs = value(metric, scores, target, from_logits=False, **arguments)
        assert_same(value(metric, scores, target, **arguments), of_probs)
        if metric is JaccardIndexByImage:
            of_logits, of_probs = of_logits['dataset'], of_probs['dataset']
        assert (of_logits == of_probs) == (metric is JaccardIndexByImage and is_multiclass)
        message = r'`preds` should hold probabilities in \[0, 1\] with `from_logits=False`\. Found 2'
        with pytest.raises(ValueError, match=message):
            value(metric, scores + 2, target, from_logits=False, **arguments)

    @each_overlap
    def test_ignored_items_may_have_any_score(self, metric):
        probs, labels = scene()
        labels[:, 0] = 255
        expected = value(metric, probs, labels)
        probs[:, :, 0] = 7.0
        assert_same(value(metric, probs, labels, from_logits=False), expected)

    @pytest.mark.parametrize(
        ('settings', 'first', 'second'),
        [
            (dict(from_logits=True), 9.0, 0.2),
            (dict(from_logits=False), 0.8, 0.2),
            (dict(mode='multilabel'), 0.8, 0.2),
        ],
    )
    @each_overlap
    def test_metrics_of_other_settings_keep_their_own_states_in_a_collection(self, metric, settings, first, second):
        labels = torch.tensor([[0, 1, 2, 2]])
        batches = [(scale * one_hot(labels).float(), labels) for scale in (first, second, second)]
        check_in_a_collection({'told': metric(C, **settings), 'by default': metric(C)}, batches, n_groups=2)
        equal = {'one': metric(C), 'other': metric(C, mode='multiclass')}
        check_in_a_collection(equal, batches, n_groups=1)


PREDS, LABELS = scene()
ONE, OF_ONE = scene(1)
SQUARE = torch.rand(2, 4, 5)
NO_SINGLE_LABEL = torch.ones(2, C, 4, 5)
ZERO_OR_255 = torch.where(OF_ONE == 1, 255, 0)
SAY_255 = r'`target` should hold the labels 0 and 1\. Found a mask of 0 and 255.*`target // 255`.*`ignore_index=255`'

REFUSED = [
    (METRICS, C, {}, PREDS, LABELS[:, :2], r'`target`.*\(2, 4, 5\).*F\.interpolate'),
    (METRICS, C, {}, PREDS, one_hot(LABELS).movedim(1, -1), r'`target`.*\.movedim\(-1, 1\)'),
    (METRICS, C, {}, SQUARE, LABELS, r'`preds` should hold scores of shape \[N, 3, \*\]'),
    (METRICS, C, {}, PREDS, LABELS + 0.5, '`target` should hold class indices: whole numbers'),
    (METRICS, C, {}, PREDS, torch.full_like(LABELS, C), r'`target` should hold labels in \[0, 2\].*Found 3'),
    (METRICS, C, {}, PREDS, torch.full_like(LABELS, -100), r'`target` should hold labels in \[0, 2\].*Found -100'),
    (METRICS, C, {}, PREDS[:, :, 0], LABELS, r'`target`.*\(2, 5\)'),
    (METRICS, C, {}, PREDS[:, :, 0], torch.zeros(2, 1, C, 5), '`preds` should have a channel for each class'),
    (OVERLAPS, C, {}, PREDS.movedim(1, -1), LABELS, r'`preds`.*\.movedim\(-1, 1\)'),
    (OVERLAPS, C, {}, PREDS, NO_SINGLE_LABEL, r"`target`.*add up to 1.*Found 3\.0.*`mode='multilabel'`"),
    ([SmoothTopKAccuracy], C, {}, PREDS, NO_SINGLE_LABEL, r'`target`.*add up to 1.*Found 3\.0'),
    (OVERLAPS, C, {}, one_hot(LABELS), LABELS, r'Found a one-hot prediction.*`preds\.float\(\)`'),
    (OVERLAPS, C, {}, one_hot(LABELS), one_hot(LABELS), r'Found a one-hot prediction.*`preds\.float\(\)`'),
    (OVERLAPS, C, dict(mode='multilabel'), PREDS, 2 * NO_SINGLE_LABEL, r'`target`.*\[0, 1\].*Found 2\.0'),
    (OVERLAPS, C, dict(mode='multilabel'), LABELS, LABELS, '`preds`.*decisions of 0 and 1'),
    (OVERLAPS, C, dict(mode='multilabel'), 2 * one_hot(LABELS), LABELS, '`preds` should hold decisions.*Found 2'),
    ([JaccardIndexByImage], C, {}, PREDS, PREDS, '`target` should be 0 or 1, as soft labels'),
    ([JaccardIndexByImage], 1, {}, ONE, ONE, '`target` should be 0 or 1, as soft labels'),
    (METRICS[:4], 1, {}, PREDS, LABELS, r'`preds`.*\[N, 1, \*\].*\(2, 3, 4, 5\)'),
    (METRICS[:4], 1, {}, ONE, ZERO_OR_255, SAY_255),
    (METRICS[:4], 1, {}, ONE, ZERO_OR_255.float(), SAY_255),
    (METRICS[:4], 1, {}, ONE, ZERO_OR_255.to(torch.uint8).unsqueeze(1), SAY_255),
    (METRICS[:4], 2, {}, PREDS[:, :2], ZERO_OR_255, SAY_255),
    ([DirectAveragePrecision], C, {}, PREDS, 255 * several_labels(), SAY_255),
    (METRICS[:4], 1, dict(ignore_index=-100), ONE, torch.where(LABELS == 2, 255, LABELS), r'Found 0, 1 and 255'),
    (METRICS[:4], 1, {}, ONE, torch.full_like(OF_ONE, 2), r'`target` should hold labels in \[0, 1\].*Found 2'),
    (OVERLAPS, 1, {}, 255 * OF_ONE, OF_ONE, '`preds` should hold decisions of 0 and 1.*Found 255'),
]


@pytest.mark.parametrize(('metrics', 'num_classes', 'arguments', 'preds', 'target', 'message'), REFUSED)
def test_other_layouts_are_refused(metrics, num_classes, arguments, preds, target, message):
    for metric in metrics:
        with pytest.raises(ValueError, match=message):
            value(metric, preds, target, num_classes, **arguments)


@each_overlap
def test_modes_fit_the_number_of_classes(metric):
    assert_same(value(metric, PREDS, LABELS, mode='multiclass'), value(metric, PREDS, LABELS))
    assert_same(value(metric, ONE, OF_ONE, 1, mode='binary'), value(metric, ONE, OF_ONE, 1))
    for mode, num_classes, expected in (('binary', 3, "'multiclass' or"), ('multiclass', 1, "'binary'")):
        with pytest.raises(ValueError, match=f'`mode` should be {expected}.* for `num_classes={num_classes}`'):
            metric(num_classes, mode=mode)
    with pytest.raises(ValueError, match=r"`mode`.*Found 'several'"):
        metric(3, mode='several')
    with pytest.raises(TypeError, match=r'`from_logits`.*Found 1'):
        metric(3, from_logits=1)


class Reads(TorchDispatchMode):
    """Counts the values that the host reads from tensors."""

    number = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.number += function.overloadpacket.__name__ == '_local_scalar_dense'
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ('metrics', 'arguments', 'good', 'bad'),
    [
        (METRICS, {}, (PREDS, LABELS), (PREDS, LABELS + C)),
        (OVERLAPS, dict(from_logits=False), (PREDS, LABELS), (PREDS + 1, LABELS)),
        (OVERLAPS, dict(mode='multilabel'), (one_hot(LABELS), LABELS), (2 * one_hot(LABELS), LABELS)),
    ],
)
def test_on_a_device_values_are_read_in_the_first_updates_only(metrics, arguments, good, bad, monkeypatch):
    topk = ('functional.topk.smooth', 'functional.topk._symmetric_sums')
    for module in ('functional._inputs', 'metrics.functional._inputs', *topk):
        monkeypatch.setattr(f'mmseg_nondecomp.{module}.can_be_read', lambda *_: False)
    for kind in metrics:
        metric = kind(C, **arguments, **(dict(k=2) if kind is SmoothTopKAccuracy else {}))
        for _ in range(FIRST_CALLS):
            with pytest.raises(ValueError, match=r'Parameter `\w+` should hold'):
                metric.clone().update(*bad)
            metric.update(*good)
        with Reads() as reads:
            metric.update(*good)
        assert reads.number == 0
