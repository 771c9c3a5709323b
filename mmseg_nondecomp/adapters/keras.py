"""Losses of this package for `keras.Model.compile`, on the backend torch."""

from typing import Any

import torch
from torch import Tensor, nn

from mmseg_nondecomp import losses
from mmseg_nondecomp.adapters._loss import as_loss_with, logits_of, refuse_multipliers
from mmseg_nondecomp.functional._inputs import MODES, check_flag, check_option

NEEDS_TORCH = 'mmseg_nondecomp.adapters.keras needs Keras 3 with the backend torch: set the environment variable '
NEEDS_TORCH += '`KERAS_BACKEND=torch` before Keras is imported.'

try:
    import keras
except ModuleNotFoundError as error:  # also without TensorFlow, the default backend
    raise ModuleNotFoundError(f'{NEEDS_TORCH} {error}.', name=error.name) from error
if keras.backend.backend() != 'torch':
    raise ImportError(f'{NEEDS_TORCH} Found the backend {keras.backend.backend()!r}.')


@keras.saving.register_keras_serializable(package='mmseg_nondecomp')
class KerasLoss(keras.losses.Loss):
    """A loss with the layouts of Keras: predictions [N, *, C], targets [N, *], [N, *, 1] or [N, *, C].

    Args:
        loss: A loss class, such as `LovaszSoftmaxLoss`, the name of a measure, such as ``'miou'``, or a loss with the
            settings below. Models compiled with the latter cannot be saved.
        mode: ``'multiclass'``, ``'binary'`` for a single channel, or ``'multilabel'``.
        from_logits: False if the last layer has the activation softmax or sigmoid.
        ignore_index: The label that removes a pixel.
        data_format: ``'channels_last'`` or ``'channels_first'``; by default that of Keras.
        name: The name of the loss.
        **options: Further arguments of the loss, such as ``classes`` or ``scope``.
    """

    def __init__(
        self,
        loss: nn.Module | type[nn.Module] | str,
        mode: str = 'multiclass',
        from_logits: bool = True,
        ignore_index: int | None = None,
        data_format: str | None = None,
        name: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(name=name)
        check_option('mode', mode, MODES)
        check_flag('from_logits', from_logits)
        self.data_format = keras.config.image_data_format() if data_format is None else data_format
        check_option('data_format', self.data_format, ('channels_last', 'channels_first'))
        if isinstance(loss, str) and loss in losses.__all__:  # from a saved model
            loss = getattr(losses, loss)
        self.settings = dict(loss=loss, mode=mode, from_logits=from_logits, ignore_index=ignore_index, **options)
        self.mode, self.from_logits = mode, from_logits
        self.loss = as_loss_with(loss, mode=mode, ignore_index=ignore_index, **options)
        refuse_multipliers(self.loss, 'Keras')
        self._checked: dict[Any, int] = {}

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Tensor:
        """Compute the loss, a scalar; weights are of shape [N], [N, 1], [N, *] or [N, *, 1]."""
        y_true, y_pred = keras.ops.convert_to_tensor(y_true), keras.ops.convert_to_tensor(y_pred)
        items = y_pred.shape[:-1]
        if self.data_format == 'channels_first':
            items = torch.Size((len(y_pred), *y_pred.shape[2:]))
        else:
            y_true = y_true.movedim(-1, 1) if y_true.dim() == y_pred.dim() else y_true
            y_pred = y_pred.movedim(-1, 1)
        if not self.from_logits:
            y_pred = logits_of(y_pred, self.mode, 'y_pred', 'logits need `from_logits=True`.', self._checked)
        if sample_weight is None:
            return self.loss(y_pred, y_true)
        weight = keras.ops.convert_to_tensor(sample_weight)
        if weight.numel() == len(y_pred):  # one for each image
            weight = weight.view(-1, *[1] * (len(items) - 1)).expand(items)
        return self.loss(y_pred, y_true, weight.squeeze(-1) if weight.shape == (*items, 1) else weight)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments, with the name of a loss class."""
        loss = self.settings['loss']
        if isinstance(loss, nn.Module):
            raise TypeError(
                'Parameter `loss` should be the name of a measure or a loss class, so that the model can be saved. '
                f'Found {loss!r}: write `KerasLoss({type(loss).__name__}, ...)`.'
            )
        loss = loss if isinstance(loss, str) else loss.__name__
        return {**self.settings, 'loss': loss, 'data_format': self.data_format, 'name': self.name}
