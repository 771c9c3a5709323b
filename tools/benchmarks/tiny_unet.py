"""Training steps of the U-Net of LongTailShapes, with or without a head for S-measures of images."""

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import Step

ROOT = Path(__file__).parents[2]


def unet_step(of_head: dict[str, Any] | None, ascend: bool) -> tuple[Step, Any]:
    """Return a training step of the stock model with a head that has the given loss, and that loss."""
    from mmengine.config import Config
    from mmengine.registry import MODELS, DefaultScope

    import mmseg_nondecomp.heads  # noqa: F401  registers the head

    cfg = Config.fromfile(ROOT / 'configs' / 'long_tail_shapes' / 'tiny-unet_ce_lts.py').model
    if of_head is not None:
        cfg.auxiliary_head = dict(
            type='SMeasureHead', in_channels=64, in_index=0, num_classes=16, group='majority', loss_decode=of_head
        )
    torch.manual_seed(0)
    with DefaultScope.overwrite_default_scope('mmseg'):
        model = MODELS.build(cfg).train()
    loss = None if of_head is None else model.auxiliary_head.loss_decode
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    inputs = torch.randn(8, 3, 64, 64)
    samples = labelled(F.interpolate(torch.randint(0, 16, (8, 1, 4, 4)).float(), size=(64, 64)).long())

    def step() -> None:
        total, _ = model.parse_losses(model(inputs, samples, mode='loss'))
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        if loss is not None:
            loss.step(ascend=ascend)

    return step, loss


def labelled(labels: Tensor) -> list[Any]:
    """Return label maps [N, 1, H, W] as MMSegmentation passes them to its heads."""
    from mmengine.structures import PixelData
    from mmseg.structures import SegDataSample

    samples = []
    for i, label in enumerate(labels):
        shape = tuple(label.shape[1:])
        sample = SegDataSample(metainfo=dict(img_path=f'{i}.png', img_shape=shape, ori_shape=shape))
        sample.gt_sem_seg = PixelData(data=label)
        samples.append(sample)
    return samples


def fill_examples(loss: Any, n: int) -> None:
    """Call the loss with n examples, a tenth of them positives."""
    generator = torch.Generator().manual_seed(0)
    target = (torch.rand(n, generator=generator) < 0.1).long()
    loss(torch.randn(n, 1, generator=generator, requires_grad=True), target, ids=torch.arange(n))
    loss.step()
