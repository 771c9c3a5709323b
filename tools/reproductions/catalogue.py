"""Catalogue of the reproductions of ``tools/reproduce.py``."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reproductions import (
    Reproduction,
    aerial_trees,
    decisions,
    direct_loss,
    direct_speed,
    fashion_tail,
    fine_tuning,
    land_cover,
    lmp_sweep,
    lmp_table2,
    lmp_tiling,
    lmp_weights,
    lovasz_decision,
    lovasz_prox,
    lovasz_synthetic,
    promised_recall,
    recipe,
    recipe_gradients,
    s_classifiers,
    s_digits,
    s_sky,
    topk_noise,
    topk_speed,
    topk_stability,
    topk_temperature,
)


@dataclass(frozen=True)
class Entry:
    """Reproduction in the list."""

    run: Callable[[Sequence[int]], Reproduction]
    """Function of the seeds; the first line of its module's docstring is its description."""
    source: str
    """Paper, and figure, table or section."""
    takes: str
    """Approximate duration for one seed on 2 cores."""
    variant: str = ''
    """Difference from other reproductions of the same module."""
    quick: Callable[[Sequence[int]], Reproduction] | None = None
    """Function of the seeds for ``--quick``, where there is a short version."""

    @property
    def shows(self) -> str:
        """Description in one line."""
        [line, *_] = (sys.modules[self.run.__module__].__doc__ or '').splitlines()
        return f'{line} {self.variant}'.strip()


REPRODUCTIONS = {
    'aerial-trees': Entry(aerial_trees.reproduce, 'beyond the papers, aerial photographs of trees', '5 min'),
    'decisions': Entry(decisions.reproduce, 'beyond the papers, decisions', '6 min'),
    'direct-linear': Entry(direct_loss.linear, 'direct loss, figure 4', '1.5 min', 'Linear, clean.'),
    'direct-linear-noise': Entry(direct_loss.linear_noise, 'direct loss, figure 5', '1.5 min', 'Linear, noisy.'),
    'direct-speed': Entry(direct_speed.reproduce, 'direct loss, section 3', '45 s'),
    'direct-synthetic': Entry(direct_loss.synthetic, 'direct loss, figure 3', '1.5 min', 'Four layers.'),
    'direct-synthetic-large': Entry(direct_loss.synthetic_large, 'direct loss, figure 3', '1.5 min', 'Large start.'),
    'fashion-tail': Entry(fashion_tail.reproduce, 'beyond the papers, Fashion-MNIST', '5 min'),
    'fine-tuning': Entry(fine_tuning.reproduce, 'Lovász-Softmax, section 4; loss max-pooling, section 5', '15 min'),
    'land-cover': Entry(
        land_cover.reproduce, 'beyond the papers, a data set of satellite images', '40 min', quick=land_cover.quick
    ),
    'lmp-sweep': Entry(lmp_sweep.reproduce, 'loss max-pooling, table 1', '5 min'),
    'lmp-tiling': Entry(lmp_tiling.reproduce, 'loss max-pooling, section 5.2', '2 min'),
    'lmp-weights': Entry(lmp_weights.reproduce, 'loss max-pooling, figures 1 and 2', '10 s'),
    'lovasz-decision': Entry(lovasz_decision.reproduce, 'Lovász-Softmax, section 4.3', '3 min'),
    'lovasz-synthetic': Entry(lovasz_synthetic.reproduce, 'Lovász-Softmax, figure 3', '10 s'),
    'lovasz-prox': Entry(lovasz_prox.reproduce, 'Lovász-Softmax, appendix C', '10 s'),
    'promised-recall': Entry(promised_recall.reproduce, 'beyond the papers, decisions', '2 min'),
    'recipe': Entry(recipe.reproduce, 'beyond the papers, metric_loss', '25 min'),
    'recipe-gradients': Entry(recipe_gradients.reproduce, 'beyond the papers, metric_loss', '2 min'),
    's-classifiers': Entry(s_classifiers.reproduce, 'S-measures, section 6', '5 min'),
    's-digits': Entry(s_digits.reproduce, 'S-measures, section 4', '1 min'),
    's-sky': Entry(s_sky.reproduce, 'S-measures, section 4', '2 min'),
    'topk-noise': Entry(topk_noise.reproduce, 'smooth top-k, tables 1 and 9', '1 min'),
    'topk-speed': Entry(topk_speed.reproduce, 'smooth top-k, tables 3 and 4', '30 s'),
    'topk-stability': Entry(topk_stability.reproduce, 'smooth top-k, table 5', '10 s'),
    'topk-temperature': Entry(topk_temperature.reproduce, 'smooth top-k, figure 2 and table 6', '3 min'),
    'table2': Entry(lmp_table2.reproduce, 'loss max-pooling, table 2', '25 min'),
}
