import pytest
import torch
from jaccard_scenes import assert_same_loss, batch
from reference import lovasz as reference

from mmseg_nondecomp import LovaszHingeLoss
from mmseg_nondecomp.functional import lovasz_hinge, prox_lovasz_hinge


@pytest.mark.parametrize('scope', ['image', 'batch'])
def test_sorted_is_the_function(scope):
    logits, labels = batch(1)
    expected = lovasz_hinge(logits[:, 0], labels, per_image=scope == 'image', ignore_index=255)
    found = LovaszHingeLoss(scope=scope, bins=None)(logits, labels)
    assert_same_loss(found, expected, logits)
    if scope == 'batch':
        valid = (labels != 255).flatten()
        oracle = reference.lovasz_hinge(logits.detach().flatten()[valid].numpy(), labels.flatten()[valid].numpy())
        assert found.item() == pytest.approx(float(oracle), rel=1e-9)


FAMILIES = {
    'random': lambda x, labels: x,
    'untrained': lambda x, labels: 0.01 * x,
    'confident': lambda x, labels: x + 6 * (labels - 0.5),
    'collapsed': lambda x, labels: 0.1 * x - 20,
    'with an outlier': lambda x, labels: torch.where(x == x[0, 0, 0, 0], 1e5 * (0.5 - labels), x),
}


@pytest.mark.parametrize('family', FAMILIES)
def test_the_histogram_is_near_the_sorted_loss(family):
    generator = torch.Generator().manual_seed(0)
    labels = (torch.rand(2, 64, 64, generator=generator) < 0.1).long()
    logits = torch.randn(2, 1, 64, 64, generator=generator, dtype=torch.float64)
    logits = FAMILIES[family](logits, labels.unsqueeze(1))
    logits.requires_grad_()
    values = LovaszHingeLoss()(logits, labels), LovaszHingeLoss(bins=None)(logits, labels)
    assert values[0].item() == pytest.approx(values[1].item(), rel=1e-5)
    found, exact = (torch.autograd.grad(value, logits)[0] for value in values)
    assert (found - exact).norm() <= 0.002 * exact.norm()


def test_pixels_on_the_right_side_of_the_margin_have_no_gradient():
    logits, labels = torch.tensor([[[[2.0, 0.5, -3.0, -0.5]]]], requires_grad=True), torch.tensor([[[1, 1, 0, 0]]])
    for bins in (None, 1024):
        (gradient,) = torch.autograd.grad(LovaszHingeLoss(bins=bins)(logits, labels), logits)
        assert (gradient != 0).tolist() == [[[[False, True, False, True]]]]


class TestProximal:
    @pytest.mark.parametrize('scope', ['image', 'batch'])
    @pytest.mark.parametrize('lam', [0.05, 1.0, 30.0])
    def test_gradient_is_the_proximal_step(self, scope, lam):
        logits, labels = batch(1)
        (gradient,) = torch.autograd.grad(LovaszHingeLoss(scope=scope, proximal=lam)(logits, labels), logits)
        sets = [[0], [1]] if scope == 'image' else [[0, 1]]
        for images in sets:
            valid = labels[images] != 255
            sign = (2 * labels[images] - 1)[valid].double()
            margins = 1 - sign * logits.detach()[images, 0][valid]
            step = lam * (margins - prox_lovasz_hinge(margins, labels[images][valid] == 1, lam))
            torch.testing.assert_close(gradient[images, 0][valid], -sign * step / len(sets))
            assert not gradient[images, 0][~valid].any()

    def test_value_is_the_envelope_and_of_nothing_an_attached_zero_and_a_nan_that_counts_is_not_hidden(self):
        logits, labels = batch(1)
        values = [LovaszHingeLoss(proximal=lam)(logits, labels).item() for lam in (0.1, 1.0, 10.0, 1e6)]
        hinge = LovaszHingeLoss(bins=None)(logits, labels).item()
        assert values == sorted(values)
        assert values[0] < values[-1] <= hinge
        assert values[-1] == pytest.approx(hinge, rel=1e-5)
        loss = LovaszHingeLoss(proximal=1.0)
        value = loss(logits, torch.full_like(labels, 255))
        assert value == 0
        assert not torch.autograd.grad(value, logits)[0].any()
        logits = logits.detach()
        logits[1, 0, 2, 2] = torch.nan
        assert loss(logits, labels).isnan()
        labels[1, 2, 2] = 255
        assert loss(logits, labels).isfinite()

    @pytest.mark.parametrize('scope', ['image', 'batch'])
    def test_several_decisions_are_averaged(self, scope):
        logits, _ = batch(3)
        labels = torch.randint(0, 3, (3, 6, 8), generator=torch.Generator().manual_seed(1))
        loss = LovaszHingeLoss(scope=scope, proximal=0.5)
        each = [loss(logits[:, c : c + 1], (labels == c).long()) for c in range(3)]
        torch.testing.assert_close(loss(logits, labels), sum(each) / 3)

    @pytest.mark.parametrize(
        ('args', 'error', 'named'),
        [
            (dict(proximal=0), ValueError, r'`proximal` should be in \(0, inf\). Found 0'),
            (dict(proximal=1.0, scope='world'), ValueError, "`proximal`.*scope='world'"),
            (dict(proximal=1.0, memory=2), ValueError, '`proximal`.*`memory`'),
        ],
        ids=str,
    )
    def test_settings_that_do_not_fit_together_are_named(self, args, error, named):
        with pytest.raises(error, match=named):
            LovaszHingeLoss(**args)

    def test_weights_and_soft_labels_are_refused(self):
        logits, labels = batch(1)
        loss = LovaszHingeLoss(proximal=1.0)
        weight = torch.ones(labels.shape)
        torch.testing.assert_close(loss(logits, labels, weight=weight), loss(logits, labels))
        with pytest.raises(ValueError, match=r'`weight`.*`proximal`'):
            loss(logits, labels, weight=weight * 0.5)
        with pytest.raises(ValueError, match=r'`target`.*`proximal`'):
            loss(logits, torch.full_like(logits, 0.5))
