"""Class frequencies and suggestions of a sampler and a loss: ``python tools/class_stats.py CONFIG``.

Counts the classes of a data set as used in training and writes a table (class_stats.md), the same numbers
(class_stats.json) and a picture of the long tail (class_stats.png); for other splits the names end in their name, as
in class_stats_val.md. For the training split it adds suggestions with config lines. Labels that are neither a class nor
ignored, and masks with 255 for the object, are reported. The counts are cached and shared with the samplers.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from class_advice import advise, head_lines, told
from class_report import draw_long_tail, markdown, statistics
from markdown_text import escaped
from mmengine.config import Config, DictAction
from mmengine.registry import DATASETS, init_default_scope
from whole_file import whole_file, write_whole

import mmseg_nondecomp  # noqa: F401  registers the samplers and makes configs of both stacks loadable; import it before any config
from mmseg_nondecomp.class_index import ClassIndex, index_classes

MISTAKES = (OSError, ValueError, TypeError, KeyError, ImportError, SyntaxError)
"""Exceptions raised for an invalid config or for data that does not match it."""


def main() -> None:
    """Count the classes; print and write the table, the picture and the suggestions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('config')
    parser.add_argument('--split', choices=['train', 'val', 'test'], default='train')
    parser.add_argument('--out', type=Path, help='default: work_dirs/class_stats/<name of the config>')
    parser.add_argument('--cache-dir', type=Path, help='cache folder of the counts (default: ~/.cache/mmseg_nondecomp)')
    parser.add_argument('--num-workers', type=int, help='counting processes (default: by the size of the data)')
    parser.add_argument('--batch-size', type=int, help='images per batch (default: that of the config)')
    parser.add_argument('--cfg-options', nargs='+', action=DictAction, default={}, metavar='KEY=VALUE')
    args = parser.parse_args()
    if args.batch_size is not None and args.batch_size < 1:
        parser.error(f'argument --batch-size: should be positive, found {args.batch_size}')
    try:
        cfg, index = read(args)
        out = args.out or Path('work_dirs/class_stats') / Path(args.config).stem
        out.mkdir(parents=True, exist_ok=True)
    except MISTAKES as error:
        parser.error(in_one_line(error))

    stats = statistics(index)
    loader = cfg[f'{args.split}_dataloader']
    batch_size = args.batch_size or loader.get('batch_size') or 1
    advice = advise(index, stats, cfg, batch_size) if args.split == 'train' and not stats['mistakes'] else []
    head = head_lines(cfg, args.config)
    suggestions = 'Suggestions come when the labels are right.' if stats['mistakes'] else told(advice, head)
    report = f'# Classes of {escaped(Path(args.config).name)}, {args.split}\n\n{markdown(stats)}\n\n{suggestions}\n'
    numbers = {'config': args.config, 'split': args.split, 'batch_size': batch_size, **stats}
    numbers['suggestion'] = {'head': head, 'advice': [asdict(item) for item in advice]}
    name = 'class_stats' if args.split == 'train' else f'class_stats_{args.split}'
    write_whole(out / f'{name}.json', json.dumps(numbers, indent=1, ensure_ascii=False) + '\n')
    write_whole(out / f'{name}.md', report)
    with whole_file(out / f'{name}.png') as path:
        draw_long_tail(stats, path)
    print(report)
    outputs = {'table': 'md', 'numbers': 'json', 'picture': 'png'}
    print('\n'.join(f'{what}: {out / f"{name}.{suffix}"}' for what, suffix in outputs.items()))


def read(args: argparse.Namespace) -> tuple[Config, ClassIndex]:
    """Return the config with the settings of the command line, and the class index of its data set."""
    cfg = Config.fromfile(args.config)
    cfg.merge_from_dict(args.cfg_options)
    init_default_scope(cfg.get('default_scope') or 'mmseg')
    loader = cfg.get(f'{args.split}_dataloader') or {}
    if 'dataset' not in loader:
        raise ValueError(f'{args.config} has no `{args.split}_dataloader` with a `dataset`.')
    index = index_classes(DATASETS.build(loader['dataset']), args.cache_dir, args.num_workers)
    if not len(index.present_classes):
        raise ValueError(f'No image of `{args.split}_dataloader` holds any of its {index.n_classes} classes.')
    return cfg, index


def in_one_line(error: BaseException) -> str:
    """Return the message of an error without the traceback that a worker process prepends."""
    text = str(error.args[0] if isinstance(error, KeyError) and error.args else error)
    return ' '.join(text.rpartition(f'\n{type(error).__name__}: ')[2].split())


if __name__ == '__main__':
    main()
