"""HTML page in one file, with embedded pictures and escaped texts."""

import base64
import io
from collections.abc import Sequence
from html import escape
from typing import Any

from matplotlib.figure import Figure

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.25rem 0.7rem; border-bottom: 1px solid #8884; text-align: right; }
td { white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
.scroll { overflow-x: auto; }
figure { margin: 1.5rem 0; }
img { max-width: 100%; background: white; }
figcaption, .note { color: #777; font-size: 0.9rem; }
pre { overflow-x: auto; font-size: 0.8rem; background: #8881; padding: 1rem; }
"""


class Page:
    """Builder of a page of headings, tables and pictures."""

    def __init__(self, title: str) -> None:
        self.title, self.parts = title, [f'<h1>{escape(title)}</h1>']

    def heading(self, text: str, level: int = 2) -> None:
        """Add a heading."""
        self.parts.append(f'<h{level}>{escape(text)}</h{level}>')

    def text(self, text: str) -> None:
        """Add a paragraph."""
        self.parts.append(f'<p>{escape(text)}</p>')

    def table(self, rows: Sequence[dict[str, Any]]) -> None:
        """Add a table of rows with the same keys, which are the titles of the columns."""
        head = ''.join(f'<th>{escape(str(title))}</th>' for title in rows[0])
        body = ''.join(
            f'<tr>{"".join(f"<td>{escape(str(value))}</td>" for value in row.values())}</tr>' for row in rows
        )
        self.parts.append(f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>')

    def figure(self, figure: Figure, caption: str = '') -> None:
        """Add a picture with a caption."""
        buffer = io.BytesIO()
        figure.savefig(buffer, format='png', dpi=110)
        data = base64.b64encode(buffer.getvalue()).decode()
        below = f'<figcaption>{escape(caption)}</figcaption>' if caption else ''
        image = f'<img alt="{escape(caption)}" src="data:image/png;base64,{data}">'
        self.parts.append(f'<figure>{image}{below}</figure>')

    def details(self, title: str, text: str) -> None:
        """Add a text that opens on a click."""
        self.parts.append(f'<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>')

    def html(self) -> str:
        """Return the complete page."""
        policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
        head = [
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<title>{escape(self.title)}</title>',
            f'<style>{STYLE}</style>',
        ]
        parts = '\n'.join([*head, *self.parts])
        return f'<!doctype html>\n<html lang="en">\n{parts}\n</html>\n'
