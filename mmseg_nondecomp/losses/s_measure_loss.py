"""S-measures by reparameterized dual ascent, as a registered loss."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mmseg_nondecomp.functional.class_average import Classes, check_classes, class_average, class_weights
from mmseg_nondecomp.functional.rate_problem import AREAS, rate_problem
from mmseg_nondecomp.losses.dual_ascent_loss import DualAscentLoss
from mmseg_nondecomp.losses.dual_state import LITTLE, DualState, StepSizes, negatives_for_each
from mmseg_nondecomp.losses.monitor import is_logged, log_scalar
from mmseg_nondecomp.losses.rated_items import RatedItems, Sums, check_surrogate, rated_items
from mmseg_nondecomp.losses.scope import reduction_over
from mmseg_nondecomp.registry import MODELS


@MODELS.register_module()
class SMeasureLoss(DualAscentLoss):
    r"""F_β, precision at a recall, recall at a precision, or the area under a curve, by dual ascent on a Lagrangian.

    Each measure is a linear cost of two rates under a linear constraint on them
    (:mod:`mmseg_nondecomp.functional.rate_problem`). Of a head with one channel, items with a score above 0 are taken
    for positives, those of label 1; of one with two, the score is their difference; with more channels each class is a
    query of its own against the rest, and the loss is the mean over queries. For F_β the loss is

    .. math:: L = \beta^2 \varepsilon + r \operatorname{mean}_{S^-} \max(0, \varepsilon + z_j)
       + \mu \left( 1 - \operatorname{mean}_{S^+} \min(\varepsilon, z_i) \right)

    with r negatives for each positive, and with ``per_example=True``, the paper's own form (4),

    .. math:: L = \beta^2 \varepsilon + r \operatorname{mean}_{S^-} \max(0, \varepsilon + z_j)
       + \mu (1 - \operatorname{mean}_{S^+} \tau_i) + \operatorname{mean}_{S^+} \lambda_i (\tau_i - z_i).

    The first is the second at its least over τ. Where a true positive is paid more than 1, the loss is divided by what
    it is paid, so that its gradient stays of one size while multipliers fall from where they begin, at equal weights of
    both sides: there may be thousands of negatives for each positive. The paper has sums for means, and a μ of the
    opposite sign. A Lagrangian says little as a number and may be negative: the log has the true measure on the batch
    as ``train/<loss_name>_<measure>``, and ``train/<loss_name>_violation``, above 0 where the constraint does not hold.

    The network descends on L with whatever trains it. Margins, thresholds and multipliers are no parameters of it: the
    loss moves them by steps of its own, with what all processes have seen. A Runner of MMEngine has them move in each
    iteration, or as `DualAscentHook` says; in a loop of your own call ``loss.step()`` after the optimizer's. They are
    in the ``state_dict``; when a Runner begins a training that is not resumed, they begin anew.

    Gradients come from the bounds, multipliers from the true rates (``proxy=True``): bounds are far above the rates
    unless the classes are almost separable, and multipliers that follow bounds end far from the target. With
    ``per_example=True`` it is the paper's Algorithm 1 to the letter, whose multipliers follow the bounds.

    Args:
        measure: ``'f_beta'``, ``'precision_at_recall'`` (the recall of the constraint is ``target``),
            ``'recall_at_precision'``, ``'auc_roc'`` or ``'auc_pr'``.
        beta: How many times as much the recall counts as the precision in F_β.
        target: The recall or the precision that is asked for.
        anchors: The number of operating points of an area, each with a threshold of its own.
        surrogate: What bounds the rates: ``'hinge'`` as above and as in the paper, or ``'logistic'``, a smooth
            function, which does not give up where classes overlap. By default the hinge with ``per_example`` and else
            the other.
        proxy: Whether multipliers and margins follow the true rates instead of their bounds. By default they do, but
            not with ``per_example``.
        per_example: Whether each example has a τ and a λ of its own, kept by the ``ids`` that the loss is called with;
            scores are then of shape [N, C], and the surrogate is the hinge. It is there to be true to the paper: where
            classes overlap, the bounds of a precision may be out of reach, and F_β ends far below what it can be.
        classes: With several queries, those that are averaged.
        class_weight: Makes the mean over queries a weighted one.
        eta_epsilon: The step size of the margin ε of F_β; the paper's.
        eta_threshold: The step size of the thresholds of an area.
        eta_mu: The step size of μ. The paper's, 1e-5, leaves it where it starts.
        eta_tau: The step size of τ; the paper's.
        eta_lambda: The step size of λ. The paper's is 1e-3.
        damping: What the price of a constraint has of its present violation beside the multiplier, which keeps both
            from swinging (an augmented Lagrangian).
        momentum: What an iteration leaves of the counts from which the rates of multipliers are taken.
        use_sigmoid: Only for MMDetection's dense heads, which read it from the config. With a single class, label 0 is
            then the object, as MMDetection has it.
        scope: ``'batch'``, where each process divides by the number of its own items, or ``'world'``, by that of all.
        loss_weight: The factor of this loss in the objective, the paper's α.
        loss_name: The key in the log.

    Raises:
        TypeError: If an argument is unknown or of a wrong type.
        ValueError: If an argument is out of range.

    Example:
        >>> import torch
        >>> loss = SMeasureLoss(measure='precision_at_recall', target=0.9)
        >>> scores = torch.zeros(8, 1, requires_grad=True)
        >>> loss(scores, torch.tensor([0, 0, 0, 0, 0, 0, 1, 1])).backward()
        >>> loss.step()

        A binary head of MMSegmentation, its multipliers moved in each iteration::

            model = dict(decode_head=dict(out_channels=1, threshold=0.5, loss_decode=[
                dict(type='CrossEntropyLoss', use_sigmoid=True),
                dict(type='SMeasureLoss', measure='f_beta', loss_weight=0.1)]))

    Reference:
        S. N. Ravi, A. Venkatesh, G. M. Fung, V. Singh: Optimizing nondecomposable data dependent regularizers via
        Lagrangian reparameterization offers significant performance and efficiency gains. AAAI 2020.
        https://arxiv.org/abs/1909.12398
    """

    has_terms = False
    class_weight: Tensor | None

    def __init__(
        self,
        measure: str = 'f_beta',
        beta: float = 1.0,
        target: float | None = None,
        anchors: int = 10,
        surrogate: str | None = None,
        proxy: bool | None = None,
        per_example: bool = False,
        classes: Classes = 'present',
        class_weight: Sequence[float] | None = None,
        eta_epsilon: float = 1e-2,
        eta_threshold: float = 1e-2,
        eta_mu: float = 5e-2,
        eta_tau: float = 1e-2,
        eta_lambda: float = 1e-1,
        damping: float = 1.0,
        momentum: float = 0.9,
        use_sigmoid: bool | None = None,
        scope: str = 'batch',
        loss_weight: float = 1.0,
        loss_name: str = 'loss_s_measure',
        **leaked: Any,
    ) -> None:
        if use_sigmoid is not None and use_sigmoid is not True:
            leaked['use_sigmoid'] = use_sigmoid
        problem = rate_problem(measure, beta, target, anchors)
        sizes = StepSizes(eta_epsilon, eta_threshold, eta_mu, eta_tau, eta_lambda, damping, momentum)
        super().__init__(
            problem,
            measure,
            sizes,
            proxy,
            per_example,
            loss_weight=loss_weight,
            loss_name=loss_name,
            scope=scope,
            leaked=leaked,
        )
        self.surrogate = surrogate or ('hinge' if per_example else 'logistic')
        check_surrogate(self.surrogate)
        if scope == 'image':
            raise ValueError(
                "Parameter `scope` should be 'batch' or 'world': multipliers belong to the measure of a data set. "
                "Found 'image'."
            )
        if per_example and (measure in AREAS or self.surrogate != 'hinge'):
            raise ValueError(
                'Parameter `per_example` should be False but for a measure at one operating point, and with '
                f"`surrogate='hinge'`. Found True with {measure!r} and {self.surrogate!r}."
            )
        check_classes(classes)
        self.beta, self.target, self.classes = beta, target, classes
        self.use_sigmoid = bool(use_sigmoid)
        self.register_buffer('class_weight', class_weights(class_weight), persistent=False)

    def value(
        self,
        pred: Tensor,
        target: Tensor,
        weight: Tensor | None,
        ignore_index: int | None,
        reduction: str,
        ids: Tensor | None = None,
        **_: Any,
    ) -> Tensor:
        """Compute the average of the Lagrangians of the queries.

        Args:
            pred: As for `forward`, and so are the others.
            target: Class indices, of which C is none of the classes, or soft labels.
            weight: How much each item counts.
            ignore_index: The label that removes an item.
            reduction: The loss has no terms.
            ids: With ``per_example``, a number for each example that stays the same, int64 of shape [N].
        """
        observes = self.training and torch.is_grad_enabled()
        if observes and self.follows_runner:
            self.keep_time()
        items = rated_items(pred, target, weight, ignore_index, self.use_sigmoid)
        if self.per_example:
            self._check_ids(ids, pred)
        state = self.state_of(items.scores)
        with_bounds = observes and (not self.proxy or self.measure in AREAS)
        threshold = state.threshold if self.measure in AREAS else None
        penalties, own = items.sums(state.epsilon, threshold, self.surrogate, with_bounds)
        world = reduction_over('world')
        is_shared = world.world_size > 1 and (observes or self.scope == 'world')
        of_all = world(own.clone()) if is_shared else own
        counts = (of_all if self.scope == 'world' else own)[:, 0, :2]
        losses, present = self._lagrangians(items, state, penalties, counts, ids)
        if observes:
            self._observe(items, state, of_all, ids)
        filled = counts.any().view(1)
        return class_average(
            losses.unsqueeze(0), (present & filled).unsqueeze(0), filled, self.classes, self.class_weight
        )

    def _lagrangians(
        self, items: RatedItems, state: DualState, penalties: Tensor, counts: Tensor, ids: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The Lagrangian of each query, and whether it has had positives, of shape [Q]."""
        seen = state.counts + counts
        # So many positives and negatives would be here, if they came as evenly as they have: each counts alike in any
        # batch, and a mean is not one over the few positives of this.
        share = counts.sum(1, keepdim=True) / seen.sum(1, keepdim=True).clamp(min=LITTLE)
        evenly = (seen * share).clamp(min=LITTLE)
        r = negatives_for_each(seen)
        price = state.begun(state.price, state.counts, r, self.problem)
        pay, charge = self.problem.prices(price, r)
        weights = torch.stack([pay, charge], -1)
        if self.examples is not None:  # what is paid is in their penalties
            margin, w = (part.to(items.scores.dtype) for part in (state.epsilon, pay))
            values = self.examples.penalties(ids, items.scores[0], margin, w, self.sizes.damping)
            positive, _ = items.amounts()
            of_examples = torch.where(positive > 0, values * positive, 0).sum((0, 2)).view_as(pay)
            penalties = torch.stack([of_examples, penalties[..., 1]], -1)
            weights = torch.stack([torch.ones_like(pay), charge], -1)
        parts = (penalties * (weights / evenly.unsqueeze(1))).sum(-1)
        total = torch.addcmul(self.problem.constant(state.epsilon, price), pay, state.epsilon, value=-1)
        losses = (total + reduction_over(self.scope).total(parts)) / pay.clamp(min=1)
        return losses.mean(1).to(items.scores.dtype), seen[:, 0] > 0

    @torch.no_grad()
    def _observe(self, items: RatedItems, state: DualState, sums: Tensor, ids: Tensor | None) -> None:
        """Take down what the multipliers will go by; log the measure."""
        state.pending += sums
        if self.examples is not None:
            self.examples.see(ids, items.scores[0].T, (items.amounts()[0][0] > 0).T)
        if is_logged():
            self._log(items, Sums(*sums.unbind(-1)), state)

    def _log(self, items: RatedItems, sums: Sums, state: DualState) -> None:
        measured = items.measures(self.measure, self.beta, sums)
        present = (sums.n_pos[:, 0] > 0) & (sums.n_neg[:, 0] > 0)
        if not present.any():
            return
        n_present = present.sum()
        for name, values in measured.items():
            log_scalar(f'{self.loss_name}_{name}', torch.where(present, values, 0).sum() / n_present)
        seen = state.counts + torch.stack([sums.n_pos[:, 0], sums.n_neg[:, 0]], 1)
        rates = state.rates_of(sums)._replace(r=negatives_for_each(seen))
        violation = state.violation(self.problem, rates, self.proxy)
        of_present = torch.where(present.unsqueeze(1), violation, 0).mean(1)
        log_scalar(f'{self.loss_name}_violation', of_present.sum() / n_present)

    def _check_ids(self, ids: Tensor | None, pred: Tensor) -> None:
        if ids is None or ids.is_floating_point() or pred.dim() != 2 or ids.shape != pred.shape[:1]:
            found = 'None' if ids is None else f'{ids.dtype} of shape {tuple(ids.shape)}'
            raise ValueError(
                'Parameter `ids` should hold a number for each example, of shape [N] for scores [N, C], with '
                f'`per_example=True`. Found {found} for scores of shape {tuple(pred.shape)}.'
            )

    def extra_repr(self) -> str:
        """The settings, as ``print(model)`` shows them."""
        target = '' if self.target is None else f', target={self.target}'
        beta = f', beta={self.beta}' if self.measure == 'f_beta' else ''
        return (
            f'measure={self.measure!r}{beta}{target}, surrogate={self.surrogate!r}, proxy={self.proxy}, '
            f'per_example={self.per_example}, scope={self.scope!r}'
        )
