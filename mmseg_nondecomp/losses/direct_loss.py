"""What the registered losses of direct loss minimisation share: the sets of items, the processes, and MMDetection."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from mmseg_nondecomp.functional.class_average import class_average, class_weights
from mmseg_nondecomp.functional.direct_ap_loss import check_binary, check_mode
from mmseg_nondecomp.functional.items import class_items, number_of_classes, valid_items
from mmseg_nondecomp.functional.loss_augmented_ranking import check_epsilon
from mmseg_nondecomp.losses.base import SetLoss
from mmseg_nondecomp.losses.monitor import is_logged, log_scalar
from mmseg_nondecomp.losses.queries import LARGEST, Queries


class QueryLosses(NamedTuple):
    """The loss of each query of each set."""

    losses: Tensor
    """Of shape [R, S]."""
    counted: Tensor
    """Which queries have anything to compare, bool of shape [R, S]."""
    filled: Tensor
    """Which sets have any item, bool of shape [R]."""


class DirectLoss(SetLoss):
    """A loss whose gradient is that of direct loss minimisation, for each class of a set, or all of them together.

    It has what MMDetection asks of a classification loss that chooses its own channels, activation and accuracy.
    """

    has_terms = False
    custom_cls_channels = True
    custom_activation = True
    custom_accuracy = True
    class_weight: Tensor | None

    default_name: str
    """The key in the log, unless another is given."""
    measure: str
    """What the true measure is called in the log."""

    def __init__(
        self,
        epsilon: float = 0.1,
        mode: str = 'positive',
        per_class: bool = True,
        use_sigmoid: bool = True,
        background_column: bool | None = None,
        class_weight: Sequence[float] | None = None,
        scope: str = 'batch',
        loss_weight: float = 1.0,
        loss_name: str | None = None,
        **leaked: Any,
    ) -> None:
        if use_sigmoid is not True:
            leaked['use_sigmoid'] = use_sigmoid
        super().__init__(loss_weight, self.default_name if loss_name is None else loss_name, scope, leaked)
        check_epsilon(epsilon)
        check_mode(mode)
        for name, flag in (('per_class', per_class), ('background_column', background_column)):
            if not isinstance(flag, bool) and (flag is not None or name == 'per_class'):
                raise TypeError(f'Parameter `{name}` should be True or False. Found {flag!r}.')
        if class_weight is not None and not per_class:
            raise ValueError(
                'Parameter `class_weight` should be None with `per_class=False`, where classes are no sets of their '
                f'own. Found {class_weight}.'
            )
        self.epsilon = epsilon
        self.mode = mode
        self.per_class = per_class
        self.use_sigmoid = True
        self.background_column = background_column
        self.has_background_column = bool(background_column)
        self.register_buffer('class_weight', class_weights(class_weight), persistent=False)

    def value(
        self, pred: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int | None, reduction: str, **_: Any
    ) -> Tensor:
        """Compute the average of the losses of the queries."""
        queries = self.shared(self.queries(pred, target, weight, ignore_index))
        losses, counted, filled = self.losses(queries, self.mode)
        if is_logged():
            self.log(queries, losses, counted)
        # What is no number is shown, even where the class does not count.
        shown = counted | losses.isnan()
        return class_average(losses, shown, filled, 'present', self.class_weight)

    def queries(self, pred: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int | None) -> Queries:
        """Return each class of each image as one query."""
        n_classes = number_of_classes(pred)
        valid = valid_items(pred, target, weight, ignore_index, n_classes + 1)
        if weight is not None:
            check_binary('weight', weight, valid)
        scores, labels, mass = class_items(pred, target, valid, None, zero_is_class=pred.dim() == 2)
        if labels.is_floating_point():
            is_positive = labels > 0.5
        else:
            is_positive = labels.unsqueeze(1) == torch.arange(n_classes, device=pred.device).view(1, -1, 1)
        return Queries(scores, is_positive, (mass > 0).unsqueeze(1).expand_as(scores))

    def merged(self, each: Queries) -> Queries:
        """Return each class of each set, or each set, as one query."""
        if self.scope != 'image':
            each = Queries(*(part.movedim(0, 1).flatten(1).unsqueeze(0) for part in each))
        return each if self.per_class else Queries(*(part.flatten(1).unsqueeze(1) for part in each))

    def shared(self, queries: Queries) -> Queries:
        """Return the queries of the whole sets, where their losses are no sums over images, classes and processes."""
        return queries

    def losses(self, queries: Queries, mode: str) -> QueryLosses:
        """The loss of each query."""
        raise NotImplementedError

    def logged(self, losses: Tensor) -> Tensor:
        """The measure that belongs to losses of the positive update."""
        raise NotImplementedError

    @torch.no_grad()
    def log(self, queries: Queries, losses: Tensor, counted: Tensor) -> None:
        """Show the mean of the true measure over all queries that have one."""
        if not counted.any():
            return
        if self.mode in ('hinge', 'perceptron'):
            losses = self.losses(queries, 'positive').losses
        mean = torch.where(counted, self.logged(losses), 0).sum() / counted.sum()
        log_scalar(f'{self.loss_name}_{self.measure}', mean)

    def get_cls_channels(self, num_classes: int) -> int:
        """How many channels a box head of MMDetection has: one for each class, none for the background."""
        if self.background_column is None:
            self.has_background_column = True
        return num_classes

    def get_activation(self, cls_score: Tensor) -> Tensor:
        """The scores that boxes are ranked by, from 0 to 1, from those of the head [N, C].

        A sigmoid would round scores from 17 on to 1 and lose their order, and nothing keeps them from drifting there.

        Box heads drop the last column, which they take for the background: they get one of zeros. Dense heads do not.
        Box heads tell that they are one by asking for their number of channels.
        """
        scores = 0.5 + 0.5 * F.softsign(cls_score.float().clamp(-LARGEST, LARGEST))
        if self.has_background_column:
            scores = torch.cat([scores, scores.new_zeros(*scores.shape[:-1], 1)], -1)
        return scores

    @torch.no_grad()
    def get_accuracy(self, cls_score: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The share of objects, in percent, whose class has the highest score; 0 without objects."""
        n_classes = cls_score.shape[-1]
        is_object = (labels >= 0) & (labels < n_classes)
        hits = is_object & (cls_score.argmax(-1) == labels)
        return {'acc_classes': 100 * hits.sum() / is_object.sum().clamp(min=1)}

    def extra_repr(self) -> str:
        """The settings, as ``print(model)`` shows them."""
        return f'epsilon={self.epsilon}, mode={self.mode!r}, per_class={self.per_class}, scope={self.scope!r}'
