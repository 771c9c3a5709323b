"""Losses of this package in trainers of nnU-Net v2.

``python -m mmseg_nondecomp.adapters.nnunet`` prints the folder of the trainers, for ``nnUNet_extTrainer``.
"""

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from mmseg_nondecomp.adapters._loss import as_loss

TRAINERS = Path(__file__).with_name('nnunet_trainers')
"""Folder that nnU-Net searches for trainers."""


class SetLossTrainer:
    """First base class of a trainer with a loss of this package: ``class Mine(SetLossTrainer, nnUNetTrainer)``.

    The other base class determines everything else, the weights of deep supervision included.
    """

    label_manager: Any
    configuration_manager: Any
    device: Any

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        owner = next(base for base in cls.__mro__ if '_build_loss' in vars(base))
        if not issubclass(owner, SetLossTrainer):
            raise TypeError(
                f'{cls.__name__} should have `SetLossTrainer` before {owner.__name__} in its bases, or the loss of '
                f'{owner.__name__} is used. Found ({", ".join(base.__name__ for base in cls.__bases__)}).'
            )

    def build_set_loss(self, **layout: Any) -> nn.Module:
        """Return the loss of one output of the network.

        Args:
            **layout: ``mode``, ``ignore_index`` and ``scope`` for the labels and the plans of the data set.
        """
        raise NotImplementedError(f'{type(self).__name__} should define `build_set_loss`, which returns a loss.')

    @property
    def foreground(self) -> list[int]:
        """Channels other than the background: ``classes`` of a loss that leaves it out."""
        return list(range(not self.label_manager.has_regions, self.label_manager.num_segmentation_heads))

    def _build_loss(self) -> nn.Module:
        labels = self.label_manager
        loss = self.build_set_loss(
            mode='multilabel' if labels.has_regions else 'multiclass',
            ignore_index=None if labels.has_regions else labels.ignore_label,
            scope='world' if self.configuration_manager.batch_dice else 'image',
        )
        of_output = OutputLoss(as_loss(loss), labels.has_regions, labels.has_ignore_label).to(self.device)
        stock: nn.Module = super()._build_loss()  # type: ignore[misc]
        if not hasattr(stock, 'weight_factors'):  # no deep supervision
            return of_output
        stock.loss = of_output
        return stock


class OutputLoss(nn.Module):
    """A loss with the targets of nnU-Net: labels [b, 1, *], or regions [b, R, *] and a channel of ignored voxels.

    Args:
        loss: The loss, without state.
        has_regions: Whether targets are regions, which may overlap.
        has_ignore_label: Whether voxels may be ignored. The ignored value of labels is an argument of the loss itself.
    """

    def __init__(self, loss: nn.Module, has_regions: bool = False, has_ignore_label: bool = False) -> None:
        super().__init__()
        state = [name for name in loss.state_dict() if not name.endswith('weight')]
        if state:
            raise ValueError(
                'Parameter `loss` should have no state: checkpoints of nnU-Net do not include it, and deep supervision '
                f'calls the loss at several scales. Found {type(loss).__name__} with {", ".join(state)}. Write '
                '`memory=0`, or replace an S-measure by another measure.'
            )
        self.loss, self.has_regions, self.has_ignore_label = loss, has_regions, has_ignore_label

    def forward(self, net_output: Tensor, target: Tensor) -> Tensor:
        """Compute the loss of logits [b, C, *]."""
        n_regions, n_ignore = net_output.shape[1], int(self.has_ignore_label)
        n_channels = n_regions + n_ignore if self.has_regions else 1
        if target.dim() != net_output.dim() or target.shape[1] != n_channels:
            expected = f'{n_regions} regions, {n_ignore} of ignored voxels' if self.has_regions else 'class indices'
            raise ValueError(
                f'Parameter `target` should be of shape [b, {n_channels}, *]: {expected}. Found {tuple(target.shape)} '
                f'for an output of shape {tuple(net_output.shape)}; use the transforms of nnUNetTrainer.'
            )
        if not self.has_regions:
            return self.loss(net_output, target)
        if not self.has_ignore_label:
            return self.loss(net_output, target.float())
        return self.loss(net_output, target[:, :-1].float(), weight=1 - target[:, -1].float())


if __name__ == '__main__':
    print(TRAINERS)
