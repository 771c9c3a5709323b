"""The pictures of ``docs/concepts``: ``python tools/draw_concepts.py [NAME...]``.

Each picture shows numbers that the package computes when it is drawn, and goes to ``docs/images/<name>.png``. All of
them take half a minute.
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
    """Draw the pictures that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('names', nargs='*', help=f'which of {", ".join(PICTURES)} (default: all)')
    parser.add_argument('--out', type=Path, default=Path(__file__).parents[1] / 'docs/images')
    args = parser.parse_args()
    unknown = set(args.names) - set(PICTURES)
    if unknown:
        parser.error(f'no picture is called {", ".join(sorted(unknown))}')
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # What is drawn is small: to share it costs more than to do it.
    for name in args.names or PICTURES:
        picture = PICTURES[name]
        path = args.out / f'{name}.png'
        with mpl.rc_context(STYLE):
            # Without the version of matplotlib, the same numbers make the same file.
            picture.draw(picture.compute()).savefig(path, dpi=110, metadata={'Software': None})
        print(path, flush=True)


if __name__ == '__main__':
    main()
