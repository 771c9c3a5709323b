"""Pictures of ``docs/concepts``: ``python tools/draw_concepts.py [NAME...]``.

Each picture shows numbers computed with the package when it is drawn, and is saved to ``docs/images/<name>.png``. All
pictures take half a minute.
"""

import argparse
from pathlib import Path
from types import ModuleType

import matplotlib as mpl
import torch
from concepts import (
    STYLE,
    direct_loss,
    loss_max_pooling,
    lovasz,
    s_measures,
    sampling,
    scope,
    top_k,
)

PICTURES: dict[str, ModuleType] = {
    'loss-max-pooling': loss_max_pooling,
    'lovasz': lovasz,
    's-measures': s_measures,
    'direct-loss': direct_loss,
    'top-k': top_k,
    'sampling': sampling,
    'scope': scope,
}


def main() -> None:
    """Draw the named pictures, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('names', nargs='*', help=f'names out of {", ".join(PICTURES)} (default: all)')
    parser.add_argument('--out', type=Path, default=Path(__file__).parents[1] / 'docs/images')
    args = parser.parse_args()
    unknown = set(args.names) - set(PICTURES)
    if unknown:
        parser.error(f'no picture is called {", ".join(sorted(unknown))}')
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # The computations are too small to benefit from several threads.
    for name in args.names or PICTURES:
        picture = PICTURES[name]
        path = args.out / f'{name}.png'
        with mpl.rc_context(STYLE):
            # Without the version of matplotlib, the same numbers give the same file.
            picture.draw(picture.compute()).savefig(path, dpi=110, metadata={'Software': None})
        print(path, flush=True)


if __name__ == '__main__':
    main()
