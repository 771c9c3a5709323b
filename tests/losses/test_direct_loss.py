from fractions import Fraction

import pytest
import torch
import torch.nn.functional as F
from calls import value_and_gradient
from reference import direct_loss as reference
from torchmetrics.functional.classification import binary_average_precision

from mmseg_nondecomp.functional import direct_ap_loss, direct_zero_one_loss
from mmseg_nondecomp.functional.direct._gradient import MODES as UPDATES
from mmseg_nondecomp.losses.direct_ap_loss import DirectAPLoss
from mmseg_nondecomp.losses.direct_zero_one_loss import DirectZeroOneLoss

each_mode = pytest.mark.parametrize('mode', UPDATES)
each_loss = pytest.mark.parametrize('kind', [DirectAPLoss, DirectZeroOneLoss])
FUNCTIONS = {DirectAPLoss: direct_ap_loss, DirectZeroOneLoss: direct_zero_one_loss}


def items(n=7, n_classes=3, seed=0):
    """Scores of boxes, and labels with the background, which is label C."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(n, n_classes, generator=generator, dtype=torch.float64)
    labels = torch.arange(n) % (n_classes + 1)
    return scores, labels[torch.randperm(n, generator=generator)]


def maps(n_classes=3):
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(2, n_classes, 5, 6, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, max(n_classes, 2), (2, 5, 6), generator=generator)
    labels[0, :2] = 255
    return scores, labels


def enumerated(scores, is_positive, epsilon, mode):
    exact = [Fraction(x) for x in scores.tolist()]
    positives, negatives = ([i for i, p in enumerate(is_positive.tolist()) if p == kind] for kind in (True, False))
    arguments = [exact[i] for i in positives], [exact[i] for i in negatives], Fraction(epsilon), mode
    gradient = torch.zeros_like(scores)
    of_items = [float(x) for x in reference.direct_gradient(*arguments)]
    gradient[positives + negatives] = torch.tensor(of_items, dtype=scores.dtype)
    if mode in reference.SIGNS:
        return float(1 - reference.average_precision_of_scores(exact, is_positive.tolist())), gradient
    return float(reference.surrogate(*arguments)), gradient


class TestOracle:
    @each_mode
    def test_the_average_precision_of_each_class_and_of_one_ranking_of_all_pairs(self, mode):
        scores, labels = items()
        each = [enumerated(scores[:, c], labels == c, 0.9, mode) for c in range(3)]
        expected = torch.tensor(sum(value for value, _ in each) / 3).double()
        gradient = torch.stack([gradient for _, gradient in each], 1) / 3
        assert gradient.any()
        torch.testing.assert_close(value_and_gradient(DirectAPLoss(0.9, mode), scores, labels), (expected, gradient))
        scores, labels = items(4, 2)
        is_positive = F.one_hot(labels, 3)[:, :2].bool()
        value, gradient = enumerated(scores.flatten(), is_positive.flatten(), 0.9, mode)
        actual = value_and_gradient(DirectAPLoss(0.9, mode, per_class=False), scores, labels)
        torch.testing.assert_close(actual, (torch.tensor(value).double(), gradient.view_as(scores)))

    @pytest.mark.parametrize('per_class', [True, False])
    @pytest.mark.parametrize('mode', ['positive', 'negative'])
    def test_the_share_of_wrong_decisions(self, mode, per_class):
        scores, labels = items(4, 2)
        signs = (2 * F.one_hot(labels, 3)[:, :2] - 1).flatten().tolist()
        oracle = reference.direct_zero_one([Fraction(x) for x in scores.flatten().tolist()], signs, 2, mode)
        gradient = torch.tensor([float(x) for x in oracle.gradient]).double().view_as(scores)
        assert gradient.any()
        actual = value_and_gradient(DirectZeroOneLoss(2.0, mode, per_class), scores, labels)
        torch.testing.assert_close(actual, (torch.tensor(float(oracle.loss)).double(), gradient))


class TestSets:
    @each_loss
    @pytest.mark.parametrize('per_class', [True, False])
    def test_each_image_is_a_set(self, kind, per_class):
        scores, labels = maps()
        loss = kind(1.0, per_class=per_class, scope='image')
        each = [loss(scores[i : i + 1], labels[i : i + 1]) for i in range(2)]
        assert each[0] != each[1]
        torch.testing.assert_close(loss(scores, labels), (each[0] + each[1]) / 2)
        torch.testing.assert_close(loss(scores, labels.where(labels > 5, 255)), torch.tensor(0.0).double())

    @each_loss
    @pytest.mark.parametrize('shape', [(12, 4), (2, 4, 3, 5)])
    def test_several_labels_are_0_or_1(self, kind, shape):
        loss, scores, soft = kind(1.0, mode='multilabel'), torch.randn(shape), torch.rand(shape)
        with pytest.raises(ValueError, match='`target` should be 0 or 1'):
            loss(scores, soft)
        labels = soft > 0.5
        expected = value_and_gradient(loss, scores, labels.float())
        for target in (labels, labels.int()):
            torch.testing.assert_close(value_and_gradient(loss, scores, target), expected)

    @each_loss
    def test_other_weights_are_named_and_items_have_no_loss_of_their_own(self, kind):
        scores, labels = items()
        with pytest.raises(ValueError, match=r'`weight` should be 0 or 1.*Found 0\.5'):
            kind()(scores, labels, torch.full((7,), 0.5))
        with pytest.raises(ValueError, match=f'`reduction_override`.*{kind.__name__}.*PAAHead.*elementwise.*"none"'):
            kind()(scores, labels, reduction_override='none')


@each_loss
@pytest.mark.parametrize('mode', ['hinge', 'perceptron'])
@pytest.mark.parametrize('data', [items, maps])
def test_bounds_have_the_gradient_of_their_value(kind, mode, data):
    scores, labels = (each[..., :3] if data is maps else each for each in data())
    for args in (dict(class_weight=[1.0, 2.0, 3.0]), dict(scope='image'), dict(per_class=False)):
        loss = kind(mode=mode, loss_weight=0.7, **args)
        assert torch.autograd.gradcheck(lambda x, loss=loss: loss(x, labels), scores.requires_grad_())


@pytest.mark.parametrize('update', UPDATES)
def test_steps_along_the_gradient_raise_the_average_precision(update):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(200, 6, generator=generator)
    target = (features[:, :2] + 0.5 * torch.randn(200, 2, generator=generator) > 1).float()
    weights = (0.1 * torch.randn(6, 2, generator=generator)).requires_grad_()
    loss, measure = DirectAPLoss(1.0, 'multilabel', update=update), DirectAPLoss(mode='multilabel')
    before = measure(features @ weights, target)
    optimiser = torch.optim.Adam([weights], 0.1)
    for _ in range(30):
        optimiser.zero_grad()
        loss(features @ weights, target).backward()
        optimiser.step()
    assert measure(features @ weights, target) < 0.5 * before


@each_loss
def test_in_a_head_of_mmsegmentation_with_one_channel(kind):
    heads = pytest.importorskip('mmseg.models.decode_heads')
    structures = pytest.importorskip('mmseg.structures')
    from mmengine.structures import PixelData

    loss = dict(type=kind.__name__, epsilon=1.0)
    settings = dict(in_channels=4, channels=4, num_classes=2, out_channels=1, num_convs=1, threshold=0.5)
    head = heads.FCNHead(**settings, loss_decode=loss)
    scores, labels = maps(1)
    samples = [structures.SegDataSample(gt_sem_seg=PixelData(data=label[None])) for label in labels]
    losses = head.loss_by_feat(scores.float(), samples)
    expected = FUNCTIONS[kind](scores[:, 0][labels != 255].float(), labels[labels != 255])
    torch.testing.assert_close(losses[head.loss_decode.loss_name], expected)


@each_mode
def test_scores_without_an_order_are_shown_even_in_classes_without_objects(mode):
    scores, labels = items(9)
    labels[labels == 1] = 3
    for value in (torch.nan, torch.inf):
        scores[2, 1] = value
        assert DirectAPLoss(mode=mode)(scores, labels).isnan()
        assert DirectAPLoss(mode=mode)(scores, labels, torch.arange(9) != 2).isfinite()


class TestLog:
    @each_mode
    @pytest.mark.parametrize('class_weight', [None, [1.0, 5.0, 2.0]])
    def test_the_mean_average_precision_and_nothing_where_there_is_nothing(self, hub, mode, class_weight):
        loss = DirectAPLoss(mode=mode, loss_weight=3.0, class_weight=class_weight)
        loss(torch.randn(5, 3), torch.full((5,), 3))
        assert not hub.log_scalars
        scores, labels = items(40)
        labels[labels == 0] = 3
        loss(scores, labels)
        expected = [binary_average_precision(scores[:, c].sigmoid(), (labels == c).long()).item() for c in (1, 2)]
        assert hub.get_scalar('train/loss_ap_ap').current() == pytest.approx(sum(expected) / 2)

    @each_mode
    def test_the_share_of_wrong_decisions(self, hub, mode):
        scores, labels = items(40)
        DirectZeroOneLoss(mode=mode, loss_name='loss_of_mine')(scores, labels)
        wrong = (scores > 0) != F.one_hot(labels, 4)[:, :3].bool()
        assert hub.get_scalar('train/loss_of_mine_error').current() == pytest.approx(wrong.float().mean().item())


class TestDetection:
    def test_box_heads_get_a_column_for_the_background_and_dense_heads_do_not(self):
        scores = torch.randn(5, 3)
        loss = DirectAPLoss()
        activated = 0.5 + scores / (2 * (1 + scores.abs()))
        torch.testing.assert_close(loss.get_activation(scores), activated)
        assert loss.get_cls_channels(3) == 3
        expected = torch.cat([activated, torch.zeros(5, 1)], 1)
        assert torch.equal(loss.get_activation(scores), expected)
        assert loss.get_activation(scores.half()).dtype == torch.float32  # half precision has too few numbers
        assert loss.get_activation(scores[:0]).shape == (0, 4)

    @pytest.mark.parametrize('offset', [-100.0, 0.0, 100.0])
    def test_scores_that_have_drifted_keep_their_order(self, offset):
        scores = (torch.randn(500, 3, generator=torch.Generator().manual_seed(0)) + offset).flatten()
        actual = DirectAPLoss().get_activation(scores.view(-1, 3)).flatten()
        assert (actual[scores.argsort()].diff() >= 0).all()
        assert actual.unique().numel() > 0.7 * scores.numel()  # of a sigmoid, one or none
        assert 0 < actual.min() < actual.max() < 1

    def test_infinite_scores_are_the_first_and_the_last_and_the_column_can_be_forced(self):
        scores = torch.tensor([[torch.inf, -torch.inf, 0.0]])
        assert DirectAPLoss().get_activation(scores).tolist() == [[1.0, 0.0, 0.5]]
        for forced in (True, False):
            loss = DirectAPLoss(background_column=forced)
            loss.get_cls_channels(3)
            assert loss.get_activation(torch.randn(5, 3)).shape[1] == 3 + forced

    @each_loss
    def test_the_accuracy_is_that_of_the_classes_of_objects(self, kind):
        scores = torch.eye(3)[[0, 1, 2, 2]]
        actual = kind().get_accuracy(scores, torch.tensor([0, 1, 1, 3]))
        assert {name: value.item() for name, value in actual.items()} == {'acc_classes': pytest.approx(200 / 3)}
        for n in (0, 2):
            (nothing,) = kind().get_accuracy(scores[:n], torch.full((n,), 3)).values()
            assert nothing == 0
            assert nothing.shape == ()


@pytest.mark.parametrize(
    ('arguments', 'error', 'name'),
    [
        (dict(epsilon=0), ValueError, 'epsilon'),
        (dict(mode='both'), ValueError, 'mode'),
        (dict(per_class=None), TypeError, 'per_class'),
        (dict(background_column=1), TypeError, 'background_column'),
        (dict(class_weight=[1.0], per_class=False), ValueError, 'class_weight'),
    ],
)
@each_loss
def test_mistakes_are_found_at_construction(kind, arguments, error, name):
    with pytest.raises(error, match=f'`{name}`'):
        kind(**arguments)


def test_settings_are_shown():
    shown = "DirectAPLoss(epsilon=0.5, mode='hinge', per_class=True, scope='batch')"
    assert repr(DirectAPLoss(0.5, update='hinge')) == shown
    assert repr(DirectAPLoss(0.5, 'hinge')) == shown, 'the name of the argument before `mode` was that of the layout'


def test_wrong_rankings_without_a_gradient_are_logged(hub):
    """M13: where positives and negatives are further apart than epsilon, both rankings are the same."""
    scores, labels = torch.tensor([[5.0, 0.1], [0.0, 0.0], [-5.0, 0.2]]), torch.tensor([1, 0, 1])
    for iteration, (epsilon, expected) in enumerate(((0.1, 0.5), (100.0, 0.0))):
        hub.update_info('iter', iteration)
        leaf = scores.clone().requires_grad_()
        DirectAPLoss(epsilon)(leaf, labels).backward()
        assert hub.get_scalar('train/loss_ap_dead').current() == expected
        assert bool(leaf.grad[:, 0].any()) == (expected == 0), 'the ranking of the second class is right'
