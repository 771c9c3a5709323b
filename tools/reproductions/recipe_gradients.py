"""Gradients of cross-entropy and of the Lovász loss where one class has 97 % of the pixels.

A U-Net is trained on LongTailShapes, with all classes but the seven rarest as one: with the Lovász-Softmax loss L
alone, with cross-entropy + 3 L, with ``metric_loss('miou')``, and with cross-entropy for some iterations before L
alone. For the pixels of rare classes of the mini-batches, three numbers are averaged: the probability of their class,
and the sums over these pixels of the norms of the gradients of 3 L and of cross-entropy with respect to the logits.

The gradient of L with respect to a logit has the factor p (1 - p) of the softmax. Cross-entropy from the start lowers
the probabilities p of rare classes to their frequencies, before the features that tell them apart are learned.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from mmengine.registry import MODELS, DefaultScope
from mmengine.runner import Runner
from torch import Tensor

from mmseg_nondecomp import LovaszSoftmaxLoss, metric_loss
from reproductions import Reproduction
from reproductions.recipe import SETTINGS

ITERATIONS = 300
EVERY = 25  # iterations that a point of a curve averages
WAIT = 100
"""Iterations of cross-entropy before the Lovász loss alone."""
ALONE, CONSTANT, RISING, AFTER = 'L', 'cross-entropy + 3 L', "metric_loss('miou')", f'L after {WAIT} of cross-entropy'
P, LOVASZ, CROSS_ENTROPY = 'probability', 'gradient of 3 L', 'gradient of cross-entropy'
COLORS = {ALONE: 'tab:blue', CONSTANT: 'black', RISING: 'tab:red', AFTER: 'tab:orange'}
IGNORED = 255

Loss = Callable[[Tensor, Tensor], Tensor]


def lovasz(logits: Tensor, label: Tensor) -> Tensor:
    """Return three times the Lovász-Softmax loss."""
    return 3 * LovaszSoftmaxLoss(ignore_index=IGNORED)(logits, label)


def cross_entropy(logits: Tensor, label: Tensor) -> Tensor:
    """Return the mean cross-entropy."""
    return F.cross_entropy(logits, label, ignore_index=IGNORED)


def loss_of(way: str, iteration: int) -> Loss:
    """Return the loss of an iteration."""
    if way == RISING:
        return metric_loss('miou', ignore_index=IGNORED)
    if way == CONSTANT:
        return lambda logits, label: cross_entropy(logits, label) + lovasz(logits, label)
    return cross_entropy if way == AFTER and iteration < WAIT else lovasz


def reproduce(seeds: Sequence[int]) -> Reproduction:
    """Train in all ways and measure."""
    curves = {way: np.mean([train(way, seed) for seed in seeds], axis=0) for way in COLORS}
    rows = [
        {
            'loss': way,
            'iterations': f'{first} to {first + EVERY - 1}',
            **dict(zip((P, LOVASZ, CROSS_ENTROPY), curve[first // EVERY].tolist(), strict=True)),
        }
        for way, curve in curves.items()
        for first in (0, EVERY, WAIT, ITERATIONS - EVERY)
    ]
    return Reproduction({way: curve.tolist() for way, curve in curves.items()}, rows, finding(curves), draw(curves))


def train(way: str, seed: int) -> np.ndarray:
    """Return the three numbers [iterations / EVERY, 3] of a training."""
    cfg = SETTINGS['LongTailShapes, rare'].job('ce', seed).settings()
    torch.manual_seed(seed)
    with DefaultScope.overwrite_default_scope('mmseg'):
        model = MODELS.build(cfg.model)
        batches = iter(Runner.build_dataloader(cfg.train_dataloader, seed=seed))
    model.init_weights()
    model.train()
    rate = cfg.optim_wrapper.optimizer.lr
    optimizer = torch.optim.Adam(model.parameters(), rate)
    measured = []
    for iteration, batch in enumerate(itertools.islice(batches, ITERATIONS)):
        for group in optimizer.param_groups:
            group['lr'] = rate * (1 - iteration / ITERATIONS) ** 0.9
        logits, label = predict(model, batch)
        optimizer.zero_grad()
        loss_of(way, iteration)(logits, label).backward()
        optimizer.step()
        measured.append(of_rare_pixels(logits.detach(), label))
    return np.nanmean(np.array(measured).reshape(-1, EVERY, 3), axis=1)


def predict(model: Any, batch: Any) -> tuple[Tensor, Tensor]:
    """Return logits and labels of a mini-batch."""
    data = model.data_preprocessor(batch, training=True)
    label = torch.cat([sample.gt_sem_seg.data for sample in data['data_samples']])
    return model.decode_head(model.extract_feat(data['inputs'])), label


def of_rare_pixels(logits: Tensor, label: Tensor) -> list[float]:
    """Return the mean probability of the label at rare pixels, and two sums of norms; NaN if there are none."""
    rare = (label > 0) & (label != IGNORED)
    probability = logits.softmax(1).gather(1, label.masked_fill(~rare, 0).unsqueeze(1)).squeeze(1)
    numbers = [probability[rare].mean().item()]
    for loss in (lovasz, cross_entropy):
        leaf = logits.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(leaf, label), leaf)
        numbers.append(gradient.norm(dim=1)[rare].sum().item() if rare.any() else float('nan'))
    return numbers


def finding(curves: dict[str, np.ndarray]) -> str:
    """Return by how much the gradient of L is smaller beside cross-entropy."""
    second, last = ({way: curve[place] for way, curve in curves.items()} for place in (1, ITERATIONS // EVERY - 1))
    return (
        f'After {EVERY} iterations the probability of rare pixels is {second[CONSTANT][0]:.3f} with cross-entropy + '
        f'3 L and {second[ALONE][0]:.3f} with L alone; the gradient of 3 L at these pixels is '
        f'{second[CONSTANT][1] / second[ALONE][1]:.2f} times that of L alone, and cross-entropy has a gradient of '
        f'{second[CONSTANT][2] / second[CONSTANT][1]:.2f} times that of 3 L there. At the end the probability is '
        f'{last[CONSTANT][0]:.2f} with the constant sum, {last[ALONE][0]:.2f} with L, {last[RISING][0]:.2f} with the '
        f'rising weight, and {last[AFTER][0]:.2f} where L alone follows {WAIT} iterations of cross-entropy.'
    )


def draw(curves: dict[str, np.ndarray]) -> Figure:
    """Plot the three numbers against the iteration."""
    figure = Figure(figsize=(10, 3.4), layout='constrained')
    titles = (
        'probability of the right class',
        'gradient of 3 L at the logits',
        'gradient of cross-entropy at the logits',
    )
    middles = np.arange(ITERATIONS // EVERY) * EVERY + EVERY / 2
    for panel, (axis, title) in enumerate(zip(figure.subplots(1, 3), titles, strict=True)):
        for way, curve in curves.items():
            axis.plot(middles, curve[:, panel], color=COLORS[way], label=way)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel('iteration')
        axis.set_yscale('log')
        axis.grid(alpha=0.3)
    figure.axes[0].set_ylabel('at pixels of rare classes')
    figure.axes[0].legend(fontsize=8)
    return figure
