"""Base class of the losses of direct loss minimisation, and the exchange of items between processes."""

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from mmseg_nondecomp.functional._averaging import ClassLosses, class_average, count_scores, score_bins, set_averages
from mmseg_nondecomp.functional._inputs import (
    Inputs,
    Reading,
    check_flag,
    check_number,
    check_option,
)
from mmseg_nondecomp.functional.direct._gradient import MODES as UPDATES
from mmseg_nondecomp.losses._base import SetLoss, Value, is_box_head
from mmseg_nondecomp.losses._distributed import lengths_by_process, rows_by_process, sum_over

MAX_EXCHANGED = 2**17  # largest number of items of all processes exchanged one by one; beyond, their histogram is
BINS = 2**14  # number of bins of that histogram; near a score s they are about s / 200 wide
LARGEST_SCORE = 1e30  # finite score that replaces infinity in means and in the activation


class Problems(NamedTuple):
    """One-vs-rest problems: R sets with S problems each, in which items with scores are positives or negatives."""

    scores: Tensor  # scores of shape [R, S, n]
    is_positive: Tensor  # whether an item is a positive, bool of shape [R, S, n]
    valid: Tensor  # whether an item counts, in all problems of a set alike, bool of shape [R, S, n]


class DirectLoss(SetLoss):
    """A loss of one-vs-rest problems with the gradient of direct loss minimisation.

    It defines channels, activation and accuracy for MMDetection's box heads. The arguments are those of `DirectAPLoss`.
    """

    has_terms = takes_shares = False
    one_vs_rest = True
    custom_cls_channels = custom_activation = custom_accuracy = True
    shown = ('epsilon', 'mode', 'per_class', 'scope')
    use_sigmoid = True

    def __init__(
        self,
        epsilon: float = 0.1,
        mode: str | None = None,
        per_class: bool = True,
        *,
        update: str | None = None,
        background_column: bool | None = None,
        use_sigmoid: bool | None = None,
        **common: Any,
    ) -> None:
        check_number('epsilon', epsilon, '(0, inf)')
        if mode in UPDATES:  # the name of this argument before `mode` was that of the layout
            mode, update = None, update or mode
        update = 'positive' if update is None else update
        check_option('update', update, UPDATES)
        check_flag('per_class', per_class)
        check_flag('background_column', background_column, optional=True)
        check_flag('use_sigmoid', use_sigmoid, optional=True)
        super().__init__(use_sigmoid=use_sigmoid, mode=mode, **common)
        self.use_sigmoid = True
        self.has_box_channels = self.states_channels  # whether a box head has none for the background
        self.n_box_channels: int | None = None
        if self.class_weight is not None and not per_class:
            raise ValueError(
                'Parameter `class_weight` should be None with `per_class=False`, where classes are not averaged. '
                f'Found {self.class_weight.tolist()}.'
            )
        self.epsilon, self.per_class = epsilon, per_class
        self.mode = self.update = update
        self.background_column = background_column
        self.has_background_column = bool(background_column)

    def reading(self, pred: Tensor, target: Any, weight: Tensor | None, avg_factor: Any) -> Reading:
        """Return how a call is read; a box head has to have no channel for the background."""
        reading = super().reading(pred, target, weight, avg_factor)
        has_labels = reading.mode is None and pred.dim() == 2 and not (isinstance(target, Tensor) and target.dim() > 1)
        if has_labels and pred.shape[1] > 1 and not self.has_box_channels and is_box_head(pred, weight, avg_factor):
            raise ValueError(
                'Parameter `use_sigmoid` should be True in the config of a box head of MMDetection, which otherwise '
                f'has a channel for the background: `loss_cls=dict(type={type(self).__name__!r}, use_sigmoid=True)`.'
            )
        if has_labels and self.n_box_channels not in (None, pred.shape[1]):
            raise ValueError(
                f'Parameter `pred` should have {self.n_box_channels} channels, as the box head was told. Found '
                f'{pred.shape[1]}: the head has one for the background, and needs a loss of all classes together.'
            )
        of_images = pred.dim() == 2 and isinstance(target, Tensor) and target.dim() == 2
        of_images = of_images and avg_factor is not None and not is_box_head(pred, weight, avg_factor)
        return reading._replace(is_crisp=True, is_mixed=of_images)

    def value(self, inputs: Inputs, each_set: bool = False, **_: Any) -> Value:
        """Compute the average of the losses of the problems; with ``each_set``, that of each set."""
        problems = self.problems(inputs)
        of_classes = self.losses(problems, self.update)
        # NaN is shown even where a class does not count.
        present = of_classes.present | of_classes.losses.isnan()
        average = set_averages if each_set else class_average
        loss = average(of_classes._replace(present=present), 'present', self.class_weight)
        return Value(loss, (problems, of_classes))

    def problems(self, inputs: Inputs) -> Problems:
        """Return each class of each image as one problem."""
        labels = inputs.one_hot()
        is_positive = labels > 0.5 if inputs.is_soft else labels
        return Problems(inputs.scores, is_positive, inputs.valid.unsqueeze(1).expand_as(inputs.scores))

    def losses(self, problems: Problems, update: str | None) -> ClassLosses:
        """Return the loss of each problem; for the update None, that of the paper, without a gradient."""
        raise NotImplementedError

    def measure(self, loss: Tensor) -> dict[str, Tensor]:
        """Return the measure that belongs to a mean loss, by its name in the log."""
        raise NotImplementedError

    def measures(self, inputs: Inputs, statistics: tuple[Problems, ClassLosses]) -> dict[str, Tensor]:
        """Return the mean of the true measure over all problems that have one."""
        problems, (losses, counted, _) = statistics
        if not counted.any():
            return {}
        losses = self.losses(problems, None).losses if self.update in ('hinge', 'perceptron') else losses
        return self.measure(torch.where(counted, losses, 0).sum() / counted.sum())

    def get_cls_channels(self, num_classes: int) -> int:
        """Return the number of channels of a box head of MMDetection: one for each class, none for the background."""
        if self.background_column is None:
            self.has_background_column = True
        self.has_box_channels, self.n_box_channels = True, num_classes
        return num_classes

    def get_activation(self, cls_score: Tensor) -> Tensor:
        """Return the scores that boxes are ranked by, from 0 to 1, from those of the head [N, C].

        A sigmoid rounds scores from 17 on to 1, and the loss does not limit them. Box heads, which alone call
        `get_cls_channels`, drop a last column as that of the background: zeros are added.
        """
        scores = 0.5 + 0.5 * F.softsign(cls_score.float().clamp(-LARGEST_SCORE, LARGEST_SCORE))
        if self.has_background_column:
            scores = torch.cat([scores, scores.new_zeros(*scores.shape[:-1], 1)], -1)
        return scores

    @torch.no_grad()
    def get_accuracy(self, cls_score: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Return the percentage of objects whose class has the highest score; 0 without objects."""
        n_classes = cls_score.shape[-1]
        is_object = (labels >= 0) & (labels < n_classes)
        hits = is_object & (cls_score.argmax(-1) == labels)
        return {'acc_classes': 100 * hits.sum() / is_object.sum().clamp(min=1)}


def gradient_of(losses: Tensor, scores: Tensor) -> Tensor:
    """Return the gradient of the losses [R, S] with respect to the scores [R, S, n]."""
    (gradient,) = torch.autograd.grad(losses, scores, torch.ones_like(losses), retain_graph=True)
    return gradient


def of_all_processes(own: Problems) -> Problems:
    """Return the items of all processes, with the gradient of those of this process.

    Beyond `MAX_EXCHANGED` items, the histogram of the scores is exchanged; each item then has the mean score of its
    bin, on every process. A collective: every process has to call it, with any number of items.
    """
    lengths = lengths_by_process(own.scores.shape[2], own.scores.device)
    if len(lengths) == 1 or max(lengths) == 0:
        return own
    return _gathered(own, lengths) if sum(lengths) <= MAX_EXCHANGED else by_bins(own)


def _gathered(own: Problems, lengths: list[int]) -> Problems:
    """Return the items in the order of the ranks of their processes."""
    scores, is_positive, valid = own
    kind = is_positive.to(torch.uint8) + 2 * valid.to(torch.uint8)
    parts, kinds = (rows_by_process(each.movedim(2, 0), lengths) for each in (scores.detach(), kind))
    parts[dist.get_rank()] = scores.movedim(2, 0)
    scores, kind = (torch.cat(each).movedim(0, 2) for each in (parts, kinds))
    return Problems(scores, kind % 2 == 1, kind >= 2)


def by_bins(own: Problems) -> Problems:
    """Return the items of this process, then those of the others, all of them with the mean score of their bin."""
    over = sum_over('world')
    shape = own.scores.shape[:2]
    scores, is_positive, valid = (part.flatten(0, 1) for part in own)
    exact = scores.detach().double().clamp(-LARGEST_SCORE, LARGEST_SCORE)
    own_bin = score_bins(scores.detach(), BINS)
    counts = count_scores(scores.detach(), is_positive, valid, BINS)
    of_all = over(counts)
    sums = torch.zeros(len(scores), BINS + 1, dtype=torch.float64, device=scores.device)
    sums = over(sums.scatter_add_(1, own_bin, torch.where(valid, exact, 0)))
    means = (sums / of_all.sum(1).clamp(min=1)).to(scores.dtype)
    means[:, -1] = torch.nan  # scores without an order
    of_others = (of_all - counts).flatten(1)
    n_others = int(of_others.sum(1).max())
    place = torch.arange(of_others.shape[1], device=scores.device).repeat(len(scores), 1)
    place = place.flatten().repeat_interleave(of_others.flatten()).view(len(scores), n_others)
    # The gradient is that with respect to the exact scores; infinite ones have none.
    zero_with_gradient = torch.where(scores.isfinite(), scores - scores.detach(), 0)
    of_all_items = (
        torch.cat([means.gather(1, own_bin) + zero_with_gradient, means.gather(1, place % (BINS + 1))], 1),
        torch.cat([is_positive, place > BINS], 1),
        torch.cat([valid, torch.ones_like(place, dtype=torch.bool)], 1),
    )
    return Problems(*(part.unflatten(0, shape) for part in of_all_items))
