"""Big classes of an image, and the losses of the scores that predict them."""

import numpy as np
import pytest
import torch
from mmengine.logging import MessageHub
from mmengine.structures import PixelData
from mmseg.registry import MODELS
from mmseg.structures import SegDataSample
from processes import find_as_a_process, found_by_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import mmseg_nondecomp.heads  # noqa: F401
from mmseg_nondecomp import SMeasureLoss

N_CLASSES = 4
IGNORED = 255


def head(**arguments):
    torch.manual_seed(0)
    arguments = {'in_channels': 3, 'in_index': 0, 'num_classes': N_CLASSES, 'dropout_ratio': 0.0, **arguments}
    return MODELS.build(dict(type='SMeasureHead', **arguments))


def images(n=12, seed=0):
    """Labels of several sizes of several classes; some images are ignored in part, one is as a whole."""
    generator = np.random.default_rng(seed)
    labels = np.zeros((n, 10, 10), dtype=np.int64)
    for label in labels:
        for _ in range(3):
            y, x, h, w = generator.integers(0, 8, 4)
            label[y : y + h, x : x + w] = generator.integers(0, N_CLASSES)
        label[: generator.integers(0, 3)] = IGNORED
    labels[1:2] = IGNORED
    return torch.from_numpy(labels)


def samples_of(labels, paths=None):
    paths = paths or [f'images/{i}.png' for i in range(len(labels))]
    return [
        SegDataSample(gt_sem_seg=PixelData(data=label[None]), metainfo={} if path == '' else dict(img_path=path))
        for label, path in zip(labels, paths, strict=True)
    ]


def features_of(labels, seed=0):
    return [torch.randn(len(labels), 3, 5, 5, generator=torch.Generator().manual_seed(seed))]


class Recorder(nn.Module):
    loss_name = 'loss_recorded'

    def __init__(self):
        super().__init__()
        self.calls = []

    def forward(self, scores, target, weight=None, avg_factor=None):
        self.calls.append((scores.detach(), target, weight, avg_factor))
        return scores.sum()


def groups(built, labels):
    """Targets s and weights of the images that the losses are called with."""
    built.loss_decode = Recorder()
    built.loss(features_of(labels), samples_of(labels), None)
    [(_, target, weight, _)] = built.loss_decode.calls
    return target.float().reshape(len(labels), -1).tolist(), weight.reshape(len(labels), -1)[:, 0].tolist()


def areas(label):
    """Area of each class by definition; none where all pixels are ignored."""
    valid = [value for value in label.flatten().tolist() if value != IGNORED]
    return [valid.count(c) / len(valid) for c in range(N_CLASSES) if valid]


def of_class(share, cls):
    return sum(share[1:]) if cls is None else share[cls]


def sizes(labels, cls):
    """Sizes of a class, or of the foreground, in the images that have it."""
    return [of_class(areas(label), cls) for label in labels if areas(label) and of_class(areas(label), cls) > 0]


def assert_by_definition(built, labels, thresholds, group, cls=None):
    """Compare targets and weights; return the targets of the images that count. A size is of images that have one."""
    counted = []
    for label, s, weight in zip(labels, *groups(built, labels), strict=True):
        share = areas(label)
        assert weight == bool(share and (group != 'size' or of_class(share, cls) > 0))
        if weight:
            big = [area > threshold for area, threshold in zip(share, thresholds, strict=True)]
            if group == 'majority':
                votes = [vote for vote, area in zip(big, share, strict=True) if area > 0]
                big = [votes.count(True) > votes.count(False)]
            assert s == ([of_class(share, cls) > thresholds[0]] if group == 'size' else big)
            counted.append(s)
    assert 0 < len(counted) < len(labels)
    return counted


@pytest.mark.parametrize('threshold', [0.0, 0.05, 0.1, 0.3])
@pytest.mark.parametrize(
    ('group', 'cls'), [('size', None), ('size', 0), ('size', 2), ('classes', None), ('majority', None)]
)
def test_targets_and_weights_are_those_of_the_definition(group, cls, threshold):
    built = head(group=group, of_class=cls, size_threshold=threshold)
    found = assert_by_definition(built, images(40), [threshold] * N_CLASSES, group, cls)
    assert group != 'majority' or threshold == 0 or {s for [s] in found} == {0.0, 1.0}


class TestMean:
    """The threshold is the mean size of what was there, in all the images that were drawn."""

    @pytest.mark.parametrize('cls', [None, 2])
    def test_is_that_of_all_that_were_drawn(self, cls):
        built = head(group='size', of_class=cls, size_threshold='mean')
        drawn = []
        for seed in range(3):
            labels = images(seed=seed)
            drawn += sizes(labels, cls)
            assert_by_definition(built, labels, [np.mean(drawn)] * N_CLASSES, 'size', cls)

    @pytest.mark.parametrize('group', ['classes', 'majority'])
    def test_each_class_has_its_own(self, group):
        means = [np.mean(sizes(images(), cls)) for cls in range(N_CLASSES)]
        assert_by_definition(head(group=group, size_threshold='mean'), images(), means, group)

    def test_a_class_that_is_in_no_image(self):
        labels = images().where(images() != 2, 0)
        found, _ = groups(head(group='classes', size_threshold='mean'), labels)
        assert not any(s[2] for s in found)
        found, weights = groups(head(group='size', of_class=2, size_threshold='mean'), labels)
        assert not any(weights)

    def test_is_in_the_state_dict_and_only_training_takes_part(self):
        built, other = head(size_threshold='mean'), head(size_threshold='mean')
        groups(built, images())
        drawn = built.drawn.clone()
        assert drawn.any()
        other.load_state_dict(built.state_dict())
        with torch.no_grad():
            groups(built, images(seed=1))
        groups(built.eval(), images(seed=1))
        assert torch.equal(built.drawn, drawn)
        assert torch.equal(other.drawn, drawn)
        assert 'drawn' not in head(size_threshold=0.1).state_dict()

    def test_begins_anew_with_a_training(self, monkeypatch):
        built = head(size_threshold='mean')
        groups(built, images())
        once = built.drawn.clone()
        hub = MessageHub.get_instance('head')
        monkeypatch.setattr(MessageHub, 'get_current_instance', lambda: hub)
        hub.update_info('loop_stage', 'train')
        for iteration, times in [(7, 2), (0, 1), (1, 2)]:
            hub.update_info('iter', iteration)
            groups(built, images())
            torch.testing.assert_close(built.drawn, times * once)


class TestScores:
    @pytest.mark.parametrize(('group', 'n_scores'), [('size', 1), ('majority', 1), ('classes', N_CLASSES)])
    @pytest.mark.parametrize('channels', [None, 5])
    def test_one_for_an_image_or_for_each_class(self, group, n_scores, channels):
        built = head(group=group, channels=channels, norm_cfg=dict(type='BN') if channels else None)
        assert built(features_of(images())).shape == (12, n_scores, 1, 1)

    def test_are_linear_in_the_mean_of_features_of_any_size_and_a_prediction_is_as_large_as_the_image(self):
        """As with any decode head."""
        built, [features] = head(), features_of(images())
        expected = features.mean((2, 3)) @ built.conv_seg.weight.flatten(1).T + built.conv_seg.bias
        torch.testing.assert_close(built([features]).flatten(1), expected)
        found = built.predict([features], [dict(img_shape=(10, 12))] * 12, None)
        torch.testing.assert_close(found, expected[:, :, None, None].expand(12, 1, 10, 12))
        for size in ((1, 1), (4, 9)):
            assert head()([torch.randn(2, 3, *size)]).shape == (2, 1, 1, 1)
        built = head(in_channels=[3, 2], in_index=[0, 1], input_transform='resize_concat')
        assert built([torch.randn(2, 3, 8, 8), torch.randn(2, 2, 4, 4)]).shape == (2, 1, 1, 1)
        built, features = head(dropout_ratio=0.5), features_of(images())
        assert not torch.equal(built(features), built(features))
        assert torch.equal(built.eval()(features), built(features))


class TestLosses:
    def test_default(self):
        built, labels = head(), images()
        losses = built.loss(features_of(labels), samples_of(labels), None)
        assert list(losses) == ['loss_s_measure']
        assert isinstance(built.loss_decode, SMeasureLoss)
        assert (built.loss_decode.measure, built.loss_decode.loss_weight) == ('f_beta', 1e-2)
        losses['loss_s_measure'].backward()
        assert built.conv_seg.weight.grad.abs().sum() > 0

    @pytest.mark.parametrize('group', ['size', 'majority', 'classes'])
    @pytest.mark.parametrize(
        ('loss', 'function'),
        [
            (dict(type='SMeasureLoss'), lambda *call: SMeasureLoss(mode='multilabel')(*call)),
            (dict(type='CrossEntropyLoss', use_sigmoid=True), nn.functional.binary_cross_entropy_with_logits),
        ],
    )
    def test_value_is_that_of_the_images_that_count(self, group, loss, function):
        built, labels = head(group=group, loss_decode=loss | dict(loss_weight=0.5)), images()
        [found] = built.loss(features_of(labels), samples_of(labels), None).values()
        scores = built(features_of(labels)).flatten(1)
        target, weight = (torch.tensor(part) for part in groups(head(group=group), labels))
        torch.testing.assert_close(found, 0.5 * function(scores[weight > 0], target[weight > 0]))

    def test_another_loss_has_s_1_for_its_positives_and_losses_of_one_name_are_added(self):
        built, labels = head(loss_decode=dict(type='DirectAPLoss')), images(40)
        target, weight = (torch.tensor(part) for part in groups(head(), labels))
        perfect = torch.where(weight[:, None] > 0, target, 0)[:, :, None, None]
        assert built.loss_by_feat(perfect, samples_of(labels))['loss_ap'] == 0
        assert built.loss_by_feat(-perfect, samples_of(labels))['loss_ap'] > 0
        labels = images()
        one, other = (dict(type='SMeasureLoss', loss_weight=weight) for weight in (1.0, 2.0))
        named = dict(type='CrossEntropyLoss', use_sigmoid=True, loss_name='loss_size')
        together = head(loss_decode=[one, other, named]).loss(features_of(labels), samples_of(labels), None)
        alone = head(loss_decode=one).loss(features_of(labels), samples_of(labels), None)
        assert list(together) == ['loss_s_measure', 'loss_size']
        torch.testing.assert_close(together['loss_s_measure'], 3 * alone['loss_s_measure'])

    @pytest.mark.parametrize('loss', ['SMeasureLoss', 'CrossEntropyLoss'])
    @pytest.mark.parametrize('group', ['size', 'majority', 'classes'])
    def test_nothing_valid_is_a_zero_that_can_be_differentiated(self, loss, group):
        loss = dict(type=loss) if loss == 'SMeasureLoss' else dict(type=loss, use_sigmoid=True)
        built, labels = head(group=group, loss_decode=loss), torch.full((3, 4, 4), IGNORED)
        [value] = built.loss(features_of(labels), samples_of(labels), None).values()
        value.backward()
        assert value == 0
        assert not built.conv_seg.weight.grad.any()

    def test_features_of_half_precision(self):
        built, labels = head(group='classes'), images()
        with torch.autocast('cpu', torch.bfloat16):
            losses = built.loss([features_of(labels)[0].bfloat16()], samples_of(labels), None)
        assert losses['loss_s_measure'].dtype == torch.float32


class TestExamples:
    def rows(self, built):
        return set(built.loss_decode.examples.rows)

    def seen(self, paths):
        built = head(loss_decode=dict(type='SMeasureLoss', per_example=True))
        labels = torch.ones(len(paths), 4, 4, dtype=torch.long)  # all of them big: only positives have a τ
        built.loss(features_of(labels), samples_of(labels, paths), None)
        built.loss_decode.step()
        return self.rows(built)

    def test_an_image_is_identified_by_its_path_and_a_missing_one_is_named_where_it_is_needed(self):
        first = self.seen(['a.png', 'b.png', 'c.png'])
        assert first == self.seen(['c.png', 'a.png', 'b.png', 'a.png'])
        assert first & self.seen(['b.png', 'other/a.png']) == self.seen(['b.png'])
        assert len(self.seen([f'{i}.png' for i in range(1000)])) == 1000

        assert self.seen(['images/a.png']) == {8206107510315679034}, 'it is in checkpoints and never changes'
        with pytest.raises(ValueError, match='"img_path" to the `meta_keys` of PackSegInputs'):
            self.seen(['a.png', ''])
        labels = images()
        assert head().loss(features_of(labels), samples_of(labels, [''] * len(labels)), None)


class Trained(nn.Module):
    def __init__(self, **arguments):
        super().__init__()
        self.head = head(group='size', size_threshold='mean', **arguments)

    def forward(self, features, samples):
        return sum(self.head.loss(features, samples, None).values())


def trained(shard, wrap=lambda model: model, **loss):
    """The state of the head after three steps on one half of the images, or on all of them."""
    model = Trained(loss_decode=dict(type='SMeasureLoss', scope='world', **loss))
    wrapped = wrap(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for seed in range(3):
        labels = images(seed=seed)
        features, samples = features_of(labels, seed)[0][shard], samples_of(labels)[shard]
        optimizer.zero_grad()
        wrapped([features], samples).backward()
        optimizer.step()
        model.head.loss_decode.step()
    return model.state_dict()


CASES = [dict(measure='f_beta'), dict(measure='precision_at_recall', target=0.8), dict(per_example=True)]


def find(rank):
    return [trained(slice(5 * rank, 5 + 7 * rank), DistributedDataParallel, **loss) for loss in CASES]


def test_two_processes_train_as_one(tmp_path):
    found = found_by_ranks(__file__, tmp_path)
    for i, loss in enumerate(CASES):
        expected = trained(slice(None), **loss)
        for states in found:
            torch.testing.assert_close(states[i], expected, rtol=1e-6, atol=1e-6)
        assert expected['head.drawn'].any()


@pytest.mark.parametrize(
    ('arguments', 'error', 'name'),
    [
        (dict(group='area'), ValueError, 'group'),
        (dict(size_threshold=1.0), ValueError, 'size_threshold'),
        (dict(size_threshold='median'), TypeError, 'size_threshold'),
        (dict(group='size', of_class=N_CLASSES), ValueError, 'of_class'),
        (dict(group='majority', of_class=1), ValueError, 'of_class'),
        (dict(out_channels=1), TypeError, 'out_channels'),
        (dict(threshold=0.3), TypeError, 'threshold'),
        (dict(sampler=dict(type='OHEMPixelSampler')), TypeError, 'sampler'),
        (dict(input_transform='multiple_select', in_channels=[3], in_index=[0]), ValueError, 'input_transform'),
        (dict(loss_decode=dict(type='CrossEntropyLoss')), ValueError, 'loss_decode'),
        (dict(loss_decode=[dict(type='SMeasureLoss'), dict(type='LossMaxPooling')]), ValueError, 'loss_decode'),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else '',
)
def test_wrong_arguments_are_named(arguments, error, name):
    with pytest.raises(error, match=rf'`{name}`.*[Ff]ound'):
        head(**arguments)


def test_labels_of_bytes_are_read_and_a_label_that_is_no_class_is_named():
    labels = images()
    assert groups(head(), labels.byte()) == groups(head(), labels)
    labels[3, 5, 5] = N_CLASSES
    with pytest.raises(ValueError, match=rf'`num_classes` \({N_CLASSES}\).*Found {N_CLASSES} '):
        groups(head(), labels)


if __name__ == '__main__':
    find_as_a_process(find)
