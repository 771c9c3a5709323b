"""The scores of a model in the forms that metrics take."""

import torch
from torch import Tensor


class Scores:
    """Scores [N, C, *] of a model, converted to probabilities or logits on request.

    With one channel they are the scores of class 1 of two.
    """

    def __init__(self, values: Tensor, are_probabilities: bool) -> None:
        self.values = values.to(torch.promote_types(values.dtype, torch.float32))
        self.are_probabilities = are_probabilities

    def of(self, kind: str, form: str) -> Tensor:
        """Return probabilities (``'scores'``) or logits, in one of the forms of `InputSpec`."""
        values = self._probabilities() if kind == 'scores' else self._logits()
        n_channels = values.shape[1]
        if form in ('classes', 'multilabel'):
            if n_channels > 1 or form == 'multilabel':
                return values
            other = 1 - values if kind == 'scores' else torch.zeros_like(values)
            return torch.cat([other, values], 1)
        if n_channels > 2:
            raise ValueError(f'A metric of two classes needs scores with 1 or 2 channels. Found {n_channels}.')
        if n_channels == 2:
            values = values[:, 1:] if kind == 'scores' else values[:, 1:] - values[:, :1]
        return values if form == 'channel' else values.squeeze(1)

    def _probabilities(self) -> Tensor:
        if self.are_probabilities:
            return self.values
        return self.values.sigmoid() if self.values.shape[1] == 1 else self.values.softmax(1)

    def _logits(self) -> Tensor:
        if not self.are_probabilities:
            return self.values
        least = torch.finfo(self.values.dtype).tiny
        log = self.values.clamp(min=least).log()
        # The logits of several classes are known up to a constant, which softmax ignores.
        return log - (1 - self.values).clamp(min=least).log() if self.values.shape[1] == 1 else log
