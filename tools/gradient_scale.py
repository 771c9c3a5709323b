"""Effect of loss max-pooling on the gradient of a model: ``python tools/gradient_scale.py CONFIG [CHECKPOINT]``.

Measured for several p on the same training batches and weights (random without a checkpoint): the norm of the gradient
relative to that of the plain mean, its variation over batches, the sum of the pixel weights, the share of pixels at
full weight, and the largest share of the gradient from one image. With SGD, lower the learning rate by the first number
when switching the loss; Adam normalises it.
"""

import argparse
import itertools
import math

import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner, load_checkpoint
from torch import Tensor

from mmseg_nondecomp import LossMaxPooling
from mmseg_nondecomp.functional._inputs import read_inputs
from mmseg_nondecomp.functional.max_pooling import pooled_items, pooling_weights
from mmseg_nondecomp.losses._pixel_losses import pixel_losses

NORMS = (math.inf, 4, 1.7, 1.3, 1.1, 1)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('config')
    parser.add_argument('checkpoint', nargs='?')
    parser.add_argument('--batches', type=int, default=8)
    parser.add_argument('--ratio', type=float, default=0.25)
    args = parser.parse_args()
    cfg = Config.fromfile(args.config)
    init_default_scope(cfg.get('default_scope', 'mmseg'))
    torch.manual_seed(0)
    batches = Runner.build_dataloader(cfg.train_dataloader, seed=0)
    model = MODELS.build(cfg.model)
    model.init_weights()
    if args.checkpoint:
        load_checkpoint(model, args.checkpoint, map_location='cpu')
    model.train()
    rows = {p: [] for p in NORMS}
    for batch in itertools.islice(batches, args.batches):
        data = model.data_preprocessor(batch, training=True)
        label = torch.cat([sample.gt_sem_seg.data for sample in data['data_samples']])
        logits = model.decode_head.forward(model.extract_feat(data['inputs']))
        for p in NORMS:
            rows[p].append(measure(model, logits, label, LossMaxPooling(p, args.ratio)))
    print(table(rows))


def measure(model: torch.nn.Module, logits: Tensor, label: Tensor, loss: LossMaxPooling) -> tuple[Tensor, list[float]]:
    """Return the gradient of a batch as one vector; the sum of weights, the support, and the largest image share."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def gradient(value: Tensor) -> Tensor:
        grads = torch.autograd.grad(value, parameters, retain_graph=True, allow_unused=True)
        return torch.cat([g.flatten() for g in grads if g is not None])

    inputs = read_inputs(logits, label, ignore_index=255)
    losses, valid = pixel_losses(inputs, loss.pixel_loss, loss.class_weight), inputs.valid
    weights, support = pooling_weights(losses.detach(), valid, loss.p, pooled_items(valid, loss.ratio))
    images = [gradient((losses[i].masked_fill(~valid[i], 0) * weights[i]).sum()).norm() for i in range(len(losses))]
    share = max(images) / sum(images)
    return gradient(loss(logits, label)), [weights.sum(1).mean().item(), support.mean().item(), share.item()]


def table(rows: dict[float, list[tuple[Tensor, list[float]]]]) -> str:
    """Return one row for each p."""
    lines = [
        '| p | gradient norm / mean loss | noise / signal | Σw* | support | largest image |',
        '|---|---|---|---|---|---|',
    ]
    reference = torch.stack([g for g, _ in rows[math.inf]]).norm(dim=1)
    for p, measured in rows.items():
        gradients = torch.stack([g for g, _ in measured])
        mean = gradients.mean(0)
        noise = (gradients - mean).norm(dim=1).mean() / mean.norm()
        numbers = torch.tensor([values for _, values in measured]).mean(0).tolist()
        ratio = (gradients.norm(dim=1) / reference).median()
        lines.append(f'| {p:g} | {ratio:.2f} | {noise:.2f} | {" | ".join(f"{number:.2f}" for number in numbers)} |')
    return '\n'.join(lines)


if __name__ == '__main__':
    main()
