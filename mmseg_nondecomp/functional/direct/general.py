r"""Direct loss minimisation for any labelling problem: theorem 1 of Song et al.

A loss L of a labelling y may be a step function of the scores of a network. With F(y), the score of a labelling, the
gradient of its expectation is the limit, for :math:`\epsilon \to 0`, of

.. math:: \pm \frac{1}{\epsilon} \left( \nabla F(y_\text{direct}) - \nabla F(y_w) \right), \qquad
   y_\text{direct} = \arg\max_y F(y) \pm \epsilon L(y), \qquad y_w = \arg\max_y F(y):

a step away from a labelling that is worse, or towards one that is better.

Reference:
    Y. Song, A. G. Schwing, R. S. Zemel, R. Urtasun: Training deep neural networks via direct loss minimization.
    ICML 2016. https://arxiv.org/abs/1511.06411 (theorem 1)
"""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from mmseg_nondecomp.functional._inputs import check_number, check_option
from mmseg_nondecomp.functional.direct._gradient import MODES, comparison, with_gradient

Labelling = TypeVar('Labelling')


def direct_loss(
    score: Callable[[Labelling], Tensor],
    inference: Callable[[], Labelling],
    augmented_inference: Callable[[float], Labelling],
    loss: Callable[[Labelling], Tensor],
    epsilon: float = 0.1,
    mode: str = 'positive',
    truth: Labelling | None = None,
) -> Tensor:
    r"""Compute the loss of the labelling with the highest score, with the direct-loss gradient.

    A labelling can be any object: only these functions read it. Both inferences run without gradients, so the gradient
    reaches a network through ``score`` alone.

    Args:
        score: Returns F of a labelling, with the graph of the network, in any shape, such as a value for each example.
        inference: Returns a labelling that maximises F.
        augmented_inference: Returns a labelling that maximises :math:`F + w L` for a number w: ``epsilon`` with
            the positive update, ``-epsilon`` with the negative one, 1 with the hinge.
        loss: Returns L of a labelling, in the shape of its score.
        epsilon: The weight of the loss in the labelling that is compared.
        mode: The update: ``'positive'``, ``'negative'``, ``'hinge'`` or ``'perceptron'``, as in `direct_ap_loss`. The
            last two are upper bounds of the loss and need ``truth``.
        truth: The true labelling.

    Example:
        Classification in which each confusion has its own cost: a labelling is a class for each example.

        >>> cost = torch.tensor([[0.0, 1.0, 9.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
        >>> logits = torch.tensor([[0.2, 0.0, 0.1], [0.0, 3.0, 0.0]], requires_grad=True)
        >>> label = torch.tensor([0, 1])
        >>> costs = direct_loss(
        ...     score=lambda y: logits.gather(1, y.unsqueeze(1)).squeeze(1),
        ...     inference=lambda: logits.argmax(1),
        ...     augmented_inference=lambda w: (logits + w * cost[label]).argmax(1),
        ...     loss=lambda y: cost[label, y],
        ... )
        >>> costs
        tensor([0., 0.], grad_fn=<...>)
        >>> costs.mean().backward()
        >>> logits.grad
        tensor([[-5.,  0.,  5.],
                [ 0.,  0.,  0.]])
    """
    check_number('epsilon', epsilon, '(0, inf)')
    check_option('mode', mode, MODES)
    weight, other_weight, factor = comparison(epsilon, mode)
    if other_weight is None and truth is None:
        raise ValueError(f'Parameter `truth` should be given with `mode={mode!r}`. Found None.')
    with torch.no_grad():
        direct = augmented_inference(weight) if weight else inference()
        other = truth if other_weight is None and truth is not None else inference()
        loss_of_direct, loss_of_other = loss(direct), loss(other)
    difference = score(direct) - score(other)
    if loss_of_other.shape != difference.shape:
        raise ValueError(
            f'Parameter `loss` should return a value for each score, of shape {tuple(difference.shape)}. '
            f'Found {tuple(loss_of_other.shape)}.'
        )
    if other_weight is None:
        return difference + weight * loss_of_direct
    ones = torch.ones_like(difference).unsqueeze(-1)
    return with_gradient(difference.unsqueeze(-1), loss_of_other, ones, factor)
