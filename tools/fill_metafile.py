"""Write results of configs to the metafile that OpenMMLab's tools read: ``python tools/fill_metafile.py [--check]``.

``configs/long_tail_shapes/metafile.yml`` lists every config of its folder. Configs with rows in
``benchmarks/reproduce/table2.json`` get their mean mIoU over seeds at the short schedule. ``python tools/reproduce.py
table2 --seeds 0 1 2`` writes that file; a ``results.json`` of ``tools/compare.py`` can replace it. With ``--check``
nothing is written, and an outdated file is an error.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import yaml
from reproductions.lmp_table2 import WAYS, config_of

ROOT = Path(__file__).parents[1]
FOLDER = 'configs/long_tail_shapes'
METAFILE = f'{FOLDER}/metafile.yml'
RESULTS = 'benchmarks/reproduce/table2.json'
COLLECTION = 'Tiny U-Net on LongTailShapes'
TASK = {'Task': 'Semantic Segmentation', 'Dataset': 'LongTailShapes'}


def main() -> None:
    """Write the metafile, or check that it is up to date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--check', action='store_true', help='write nothing; fail if the file is out of date')
    args = parser.parse_args()
    try:
        text = metafile(ROOT)
    except ValueError as error:
        sys.exit(str(error))
    path = ROOT / METAFILE
    if path.is_file() and path.read_text() == text:
        return
    if args.check:
        sys.exit(f'{METAFILE} is out of date. Run `python tools/fill_metafile.py`.')
    path.write_text(text)
    print(f'{METAFILE} is written')


def metafile(root: Path) -> str:
    """Return the text of the metafile with the available results.

    Raises:
        ValueError: If there are results without a config in the folder.
    """
    results = results_of(root / RESULTS)
    configs = sorted(path.stem for path in (root / FOLDER).glob('*.py'))
    if strange := sorted(results.keys() - set(configs)):
        raise ValueError(f'{RESULTS} has rows that are no config of {FOLDER}: {", ".join(strange)}.')
    collection = {
        'Name': COLLECTION,
        'License': 'Apache License 2.0',
        'Metadata': {'Training Data': ['LongTailShapes']},
        'README': f'{FOLDER}/README.md',
        'Frameworks': ['PyTorch'],
    }
    document = {'Collections': [collection], 'Models': [model(name, results.get(name)) for name in configs]}
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def model(name: str, row: dict[str, str] | None) -> dict[str, Any]:
    """Return the entry of a config."""
    entry = {'Name': name, 'In Collection': COLLECTION, 'Config': f'{FOLDER}/{name}.py'}
    if row is None:
        return entry
    seeds = [key for key in row if key.startswith('seed ')]
    metrics = {'mIoU': float(row['mIoU'].partition(' ± ')[0])}
    return {**entry, 'Metadata': {'Seeds': max(1, len(seeds))}, 'Results': [{**TASK, 'Metrics': metrics}]}


def results_of(path: Path) -> dict[str, dict[str, str]]:
    """Return the rows of the short schedule by config name; empty if the file does not exist."""
    if not path.is_file():
        return {}
    report = json.loads(path.read_text())
    try:
        rows = {str(row['config']): row for row in report.get('tables', report.get('results'))['short']}
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f'{RESULTS} should have rows of configs under "tables" and "short".') from error
    stems = {title: Path(config_of(way)).stem for way, title in WAYS.items()}
    return {stems.get(name, name): row for name, row in rows.items()}


if __name__ == '__main__':
    main()
