"""S-measures by reparameterized dual ascent, as a registered loss."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from mmseg_nondecomp.functional._averaging import ClassLosses, class_average
from mmseg_nondecomp.functional._inputs import Classes, Inputs, check_classes, check_option
from mmseg_nondecomp.functional.s_measures.multipliers import DualAscent, Statistics, StepSizes, lagrangians
from mmseg_nondecomp.functional.s_measures.problem import rate_problem
from mmseg_nondecomp.functional.s_measures.projection import check_ids, finite_examples
from mmseg_nondecomp.functional.s_measures.rates import rated_items
from mmseg_nondecomp.losses._base import SetLoss, Value, is_traced_in_training, training_iteration
from mmseg_nondecomp.losses._distributed import lengths_by_process, rows_by_process, sum_over
from mmseg_nondecomp.registry import MODELS


@MODELS.register_module()
class SMeasureLoss(DualAscent, SetLoss):
    r"""F_β, precision at a recall, recall at a precision, or an area under a curve, by dual ascent on a Lagrangian.

    The Lagrangian is that of :mod:`mmseg_nondecomp.functional.s_measures.problem`, divided by the weight of the true
    positive rate where that is above 1, which keeps the size of its gradient while multipliers fall. Items with a score
    above 0 are predicted positive. With one channel, positives have label 1; with two, the score is their difference;
    with more, each class is a query against the rest, and the loss is the mean over queries. It may be negative: the
    log has the true measure on the mini-batch as ``train/<loss_name>_<measure>``, and ``train/<loss_name>_violation``,
    above 0 where the constraint does not hold.

    Margins, thresholds and multipliers are no parameters of the network. They start at the balance of both classes and
    take their own steps, by the items of all processes: in each iteration of MMEngine's Runner, or as `DualAscentHook`
    says; elsewhere call ``loss.step()`` after the optimizer's step. They are in the ``state_dict``, and start anew with
    a training of a Runner that is not resumed. Gradients come from bounds on the rates, which are far above the rates
    unless the classes are almost separable. Multipliers that follow bounds end far from the target; by default they
    follow the true rates. With ``per_example=True`` they follow the bounds as in the paper's Algorithm 1, from which it
    differs in that sums are means, ``damping`` is not 0, and ε is at least 1.

    Args:
        measure: ``'f_beta'``, ``'precision_at_recall'`` (the recall of the constraint is ``target``),
            ``'recall_at_precision'``, ``'auc_roc'`` or ``'auc_pr'``.
        beta: Weight of the recall relative to the precision in F_β.
        target: The recall or the precision of the constraint.
        anchors: Number of operating points on the curve; each has its own threshold.
        surrogate: Bound on the rates: ``'hinge'``, the paper's, or ``'logistic'``, which is smooth and does not give
            up where classes overlap. By default the hinge with ``per_example``, else the other.
        proxy: Whether multipliers and margins follow the true rates. By default they do, but not with ``per_example``.
        per_example: Whether each example has its own τ and λ, by the ``ids`` of the call; scores are then of shape
            [N, C], with the hinge. Where classes overlap, the bound of a precision may be out of reach, and F_β ends
            far below the optimum.
        classes: With several queries, those that are averaged.
        eta_epsilon: Step size of the margin ε of F_β; the paper's.
        eta_threshold: Step size of the thresholds of an area.
        eta_mu: Step size of μ. The paper's, 1e-5, leaves it where it starts.
        eta_tau: Step size of τ; the paper's.
        eta_lambda: Step size of λ. The paper's is 1e-3.
        damping: Weight of the current violation added to the multiplier (augmented Lagrangian); it damps oscillations.
        momentum: Decay of the counts behind the rates, per iteration.
        **common: The arguments of `SetLoss`. In ``scope='batch'`` each process divides by the number of its own items;
            ``'image'`` is refused: multipliers belong to the measure of a data set. ``loss_weight`` is the paper's α.

    Example:
        >>> loss = SMeasureLoss(measure='precision_at_recall', target=0.9)
        >>> scores = torch.zeros(8, 1, requires_grad=True)
        >>> loss(scores, torch.tensor([0, 0, 0, 0, 0, 0, 1, 1])).backward()
        >>> loss.step()
    """

    default_name = 'loss_s_measure'
    has_terms = has_value_of_images = False
    one_vs_rest = two_channels_decide = True
    shown = ('measure', 'beta', 'target', 'surrogate', 'proxy', 'per_example', 'scope')

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
        *,
        eta_epsilon: float = 1e-2,
        eta_threshold: float = 1e-2,
        eta_mu: float = 5e-2,
        eta_tau: float = 1e-2,
        eta_lambda: float = 1e-1,
        damping: float = 1.0,
        momentum: float = 0.9,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        check_option('scope', self.scope, ('batch', 'world'))
        check_classes(classes)
        sizes = StepSizes(eta_epsilon, eta_threshold, eta_mu, eta_tau, eta_lambda, damping, momentum)
        self.set_up(rate_problem(measure, beta, target, anchors), sizes, surrogate, proxy, per_example)
        self.measure, self.beta, self.target, self.classes = measure, beta, target, classes

    def tick(self) -> None:
        """Step once in each iteration of a Runner."""
        if self.follows_runner and is_traced_in_training():
            torch._dynamo.disable(self.tick)()  # a graph has no iteration: it breaks here
        elif self.follows_runner:
            self.follow(training_iteration())

    def value(self, inputs: Inputs, ids: Tensor | None = None, **_: Any) -> Value:
        """Average the Lagrangians; with ``per_example``, ``ids`` [N] number the examples for good."""
        items, learns = rated_items(inputs), self.training and torch.is_grad_enabled()
        state, problem = self.variables(inputs)
        threshold = state.threshold if problem.is_area else None
        with_bounds = learns and (not self.proxy or problem.is_area)
        penalties, own = items.sums(state.epsilon, threshold, self.surrogate, with_bounds)
        sums = sum_over('world')(own) if learns or self.scope == 'world' else own
        counts = (sums if self.scope == 'world' else own)[:, 0, :2]
        examples = None
        if self.examples is not None:
            ids = check_ids(ids, inputs)
            examples = partial(self.examples.total, ids, items, state.epsilon, self.sizes.damping)
        losses, present = lagrangians(problem, state, penalties, counts, self.reduce, examples)
        non_empty = counts.any().view(1)
        of_classes = losses.to(inputs.scores).unsqueeze(0), (present & non_empty).unsqueeze(0), non_empty
        loss = class_average(ClassLosses(*of_classes), self.classes, self.class_weight)
        return Value(loss, Statistics(state, problem, items, sums, ids) if learns else None)

    @torch.no_grad()
    def observe(self, inputs: Inputs, statistics: Statistics) -> None:
        """Add the items to those of the next step."""
        self.learn(statistics)
        if self.examples is not None and statistics.ids is not None:
            parts = finite_examples(statistics.ids, statistics.items)
            lengths = lengths_by_process(len(parts[0]), parts[0].device)
            self.examples.add(*(torch.cat(rows_by_process(part, lengths)) for part in parts))

    def measures(self, inputs: Inputs, statistics: Statistics | None) -> dict[str, Tensor]:
        """Return the true measures and the violation of a training call."""
        return {} if statistics is None else statistics.measures(self.beta, self.proxy)
