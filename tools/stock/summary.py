"""Tables of the matrix for the documentation: a row for each head, a column for each loss."""

import re
from collections import Counter

from stock import Row

KINDS = {
    'a': r'^refused: .*`k` should be below',
    'b': r'^refused: .*`reduction_override` should not be "none"',
    'c': r'^refused: .*`target` should (?:be 0 or 1|be a tensor|hold shares that add up)',
    'd': r'^refused: .*`target` should hold (?:labels in|class indices of shape)',
    'e': r'^refused: .*`weight` should be of shape',
    'f': r'^warns: .*look like probabilities',
    'g': r'^control fails: so does cross-entropy',
    'h': r'^control fails: ',
    'i': r'^refused: .*as the box head was told',
}
"""Letters of the documentation, and the outcomes that they stand for."""
UNUSED = '–'


def letter(outcome: str) -> str:
    """Return the text of an outcome in a table.

    Raises:
        ValueError: If it is of a kind that the documentation does not describe.
    """
    if outcome == 'ok':
        return 'ok'
    if outcome.startswith('not used'):
        return UNUSED
    found = next((key for key, pattern in KINDS.items() if re.search(pattern, outcome)), None)
    if found is None:
        raise ValueError(f'No letter of the documentation stands for the outcome {outcome!r}.')
    return found


def table(rows: list[Row]) -> list[Row]:
    """Return a row for each head and slot with the outcomes of all models, and one for each model that is not tried."""
    found: dict[tuple[str, ...], Row] = {}
    outcomes: dict[tuple[str, str, str], dict[str, Counter[str]]] = {}
    for row in rows:
        key = (row['slot'], row['head'], row['toolbox'])
        if not row['slot']:
            reason = row['outcome'].partition(': ')[2]
            found[(*key, row['config'])] = dict(slot='none', model=row['config'].partition('/')[0], reason=reason)
            continue
        outcomes.setdefault(key, {}).setdefault(row['loss'], Counter())[_text(row['outcome'])] += 1
    for key, losses in outcomes.items():
        head = dict(slot=key[0], toolbox=key[2], head=key[1], models=losses['stock'].total())
        found[key] = head | {loss: ', '.join(sorted(texts, key=_ok_first)) for loss, texts in losses.items()}
    return [found[key] for key in sorted(found)]


def _text(outcome: str) -> str:
    try:
        return letter(outcome)
    except ValueError:
        return outcome.partition(':')[0]


def _ok_first(text: str) -> tuple[bool, str]:
    return text != 'ok', text
