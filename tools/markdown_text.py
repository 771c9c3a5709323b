"""Escaping of names in Markdown."""

import re

MARKS = re.compile(r'[\\`*<|~$]|&(?=#?\w+;)|\](?=[(\[])|(?<![^\W_])_|_(?![^\W_])')
"""Characters with a meaning in Markdown: code, emphasis, tags, cells, formulas, entities, links."""


def in_one_line(text: object) -> str:
    """Return a text without line breaks and terminal control characters."""
    return ' '.join(''.join(letter if letter.isprintable() else ' ' for letter in str(text)).split())


def escaped(text: object) -> str:
    r"""Return a text escaped for Markdown.

    Example:
        >>> print(escaped('<b> | tiny-unet_ce_lts [+0.1, +0.5]'))
        \<b> \| tiny-unet_ce_lts [+0.1, +0.5]
    """
    return MARKS.sub(r'\\\g<0>', in_one_line(text))


def code(text: object) -> str:
    """Return a name as code, delimited by more backticks than it contains."""
    name = in_one_line(text)
    fence = '`' * (1 + max(map(len, re.findall('`+', name)), default=0))
    space = ' ' if name.startswith('`') or name.endswith('`') or not name else ''
    return f'{fence}{space}{name}{space}{fence}'
