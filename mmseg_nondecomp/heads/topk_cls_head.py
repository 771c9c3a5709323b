"""Linear classification head whose predictions can be averaged for the top k. Importing it needs MMPretrain."""

from typing import Any

import torch
from mmpretrain.evaluation.metrics import Accuracy
from mmpretrain.models.heads import LinearClsHead
from mmpretrain.structures import DataSample
from torch import Tensor

from mmseg_nondecomp.functional._inputs import check_k
from mmseg_nondecomp.functional.topk import topk_marginals
from mmseg_nondecomp.functional.topk.smooth import check_temperature
from mmseg_nondecomp.registry import MODELS


@MODELS.register_module()
class TopKClsHead(LinearClsHead):
    r"""MMPretrain's ``LinearClsHead`` for a model that was trained with a top-k loss.

    ``pred_score`` is the probability of each label to be in the top-k set, divided by k for a sum of 1: see
    :func:`mmseg_nondecomp.functional.topk_marginals`. ``AverageClsScoreTTA`` averages it over the crops of an image,
    for the top-k accuracy. ``pred_label`` is the label of the highest score.

    With ``cal_acc=True`` the log has the accuracy of the training batch. The stock head counts scores above 0 only,
    which is wrong for losses that leave the offset of the scores open.

    At a low temperature each of the k highest labels has nearly 1 / k, and rounding loses their order. For the top-1
    accuracy use the stock ``LinearClsHead``.

    Args:
        num_classes: The number of classes.
        in_channels: The number of channels of the feature.
        k: The size of the set. By default that of the loss.
        tau: The temperature. By default that of the loss.
        **kwargs: Arguments of ``LinearClsHead``: ``loss``, ``topk``, ``cal_acc``, ``init_cfg``.

    Example:
        In an MMPretrain config::

            custom_imports = dict(imports=['mmseg_nondecomp', 'mmseg_nondecomp.heads'])
            model = dict(head=dict(type='TopKClsHead', loss=dict(_delete_=True, type='SmoothTopKLoss', k=5)))
    """

    def __init__(
        self, num_classes: int, in_channels: int, k: int | None = None, tau: float | None = None, **kwargs: Any
    ) -> None:
        super().__init__(num_classes, in_channels, **kwargs)
        self.k = self._setting('k', k)
        self.tau = self._setting('tau', tau)
        check_k(self.k, num_classes)
        check_temperature(self.tau)

    def _setting(self, name: str, value: Any) -> Any:
        value = getattr(self.loss_module, name, None) if value is None else value
        if value is None:
            loss = type(self.loss_module).__name__
            raise TypeError(f'Parameter `{name}` should be given: the loss of the head, {loss}, has none.')
        return value

    def _get_predictions(self, cls_score: Tensor, data_samples: list[DataSample | None] | None) -> list[DataSample]:
        """Return the samples with the top-k probabilities of the labels and the label of the highest score."""
        scores = topk_marginals(cls_score.float() / (self.k * self.tau), self.k)
        labels = cls_score.argmax(1, keepdim=True)
        samples = [None] * len(scores) if data_samples is None else data_samples
        return [
            (DataSample() if sample is None else sample).set_pred_score(score).set_pred_label(label)
            for sample, score, label in zip(samples, scores, labels, strict=True)
        ]

    def _get_loss(self, cls_score: Tensor, data_samples: list[DataSample], **kwargs: Any) -> dict[str, Any]:
        """Return the loss, and the accuracy whatever the offset of the scores."""
        losses = super()._get_loss(cls_score, data_samples, **kwargs)
        if self.cal_acc:
            target = torch.cat([sample.gt_label for sample in data_samples])
            accuracies = Accuracy.calculate(cls_score, target, topk=self.topk, thrs=(None,))
            losses.update({f'accuracy_top-{k}': a for k, a in zip(self.topk, accuracies, strict=True)})
        return losses
