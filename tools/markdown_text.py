"""Names in Markdown: whatever is in them, they are text."""

import re

MARKS = re.compile(r'[\\`*<|~$]|&(?=#?\w+;)|\](?=[(\[])|(?<![^\W_])_|_(?![^\W_])')
"""What could begin or end something else: code, emphasis, a tag, a cell, a formula, an entity, a link."""


def in_one_line(text: object) -> str:
    """A text without line breaks, and without what terminals take for orders."""
    return ' '.join(''.join(letter if letter.isprintable() else ' ' for letter in str(text)).split())


def escaped(text: object) -> str:
    r"""A text as Markdown shows it.

    Example:
        >>> print(escaped('<b> | tiny-unet_ce_lts [+0.1, +0.5]'))
        \<b> \| tiny-unet_ce_lts [+0.1, +0.5]
    """
    return MARKS.sub(r'\\\g<0>', in_one_line(text))


def code(text: object) -> str:
    """A name as code, in more backticks than it has itself."""
    name = in_one_line(text)
    fence = '`' * (1 + max(map(len, re.findall('`+', name)), default=0))
    space = ' ' if name.startswith('`') or name.endswith('`') or not name else ''
    return f'{fence}{space}{name}{space}{fence}'
