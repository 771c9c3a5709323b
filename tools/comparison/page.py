"""Page of HTML in one file: pictures are embedded, and all text is escaped."""

import base64
import io
from collections.abc import Sequence
from typing import Any

from jinja2 import Environment
from matplotlib.figure import Figure

TEMPLATE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.25rem 0.7rem; border-bottom: 1px solid #8884; text-align: right; }
td { white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
.scroll { overflow-x: auto; }
figure { margin: 1.5rem 0; }
img { max-width: 100%; background: white; }
figcaption { color: #777; font-size: 0.9rem; }
pre { overflow-x: auto; font-size: 0.8rem; background: #8881; padding: 1rem; }
</style>
<h1>{{ title }}</h1>
{% for kind, part in parts %}
{% if kind == 'heading' %}
<h{{ part.level }}>{{ part.text }}</h{{ part.level }}>
{% elif kind == 'text' %}
<p>{{ part.text }}</p>
{% elif kind == 'table' %}
<div class="scroll"><table>
<tr>{% for title in part.rows[0] %}<th>{{ title }}</th>{% endfor %}</tr>
{% for row in part.rows %}
<tr>{% for value in row.values() %}<td>{{ value }}</td>{% endfor %}</tr>
{% endfor %}
</table></div>
{% elif kind == 'figure' %}
<figure><img alt="{{ part.caption }}" src="data:image/png;base64,{{ part.png }}">
{%- if part.caption %}<figcaption>{{ part.caption }}</figcaption>{% endif %}</figure>
{% elif kind == 'details' %}
<details><summary>{{ part.title }}</summary><pre>{{ part.text }}</pre></details>
{% endif %}
{% endfor %}
</html>
"""


class Page:
    """A page of headings, tables and pictures."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.parts: list[tuple[str, dict[str, Any]]] = []

    def heading(self, text: str, level: int = 2) -> None:
        """Add a heading."""
        self.parts.append(('heading', dict(text=text, level=level)))

    def text(self, text: str) -> None:
        """Add a paragraph."""
        self.parts.append(('text', dict(text=text)))

    def table(self, rows: Sequence[dict[str, Any]]) -> None:
        """Add a table of rows with the same keys, which are the titles of the columns."""
        self.parts.append(('table', dict(rows=rows)))

    def figure(self, figure: Figure, caption: str = '') -> None:
        """Add a picture with a caption."""
        buffer = io.BytesIO()
        figure.savefig(buffer, format='png', dpi=110)
        self.parts.append(('figure', dict(png=base64.b64encode(buffer.getvalue()).decode(), caption=caption)))

    def details(self, title: str, text: str) -> None:
        """Add a text that opens on a click."""
        self.parts.append(('details', dict(title=title, text=text)))

    def html(self) -> str:
        """Return the whole page."""
        environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
        return environment.from_string(TEMPLATE).render(title=self.title, parts=self.parts)
