"""Names decide about nothing in a report: not in HTML, nor in Markdown, in pictures, or in paths."""

import ast
import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip('mmengine')

from class_advice import advise, head_lines, told
from class_report import draw_long_tail, markdown, statistics
from comparison.report import write_report
from comparison.results import Comparison
from fill_metafile import RESULTS, metafile, results_of
from fill_tables import filled
from markdown_it import MarkdownIt
from mmengine.config import Config
from written_training import write_training

from mmseg_nondecomp.class_index import ClassIndex
from mmseg_nondecomp.class_index._index import ImageClasses

HOSTILE = [
    *('<script>alert(1)</script>', '"><img src=x onerror=alert(1)>', "' onmouseover='alert(1)"),
    *('</pre></details></style><svg onload=alert(1)>', 'javascript:alert(1)', '[click](javascript:alert(1))'),
    *('![x](http://example.com/pixel.png)', '<!-- table: x.json -->', '&lt;b&gt; &#60;i&#62;', 'a | b || c'),
    *('a\nb\n\n# c\n| d |\n| --- |', '```\n<script>alert(1)</script>\n```', '`code` **bold** _it_ ~~no~~'),
    *('back\\slash\\| \\', '$x$ and $\\frac{$', '$\\undefined{$ 5 $', '_hidden in legends'),
    *('%s %(a)s {0} {a.__class__}', '\x1b[31mred\x07', '\u202egnp.exe', '=cmd()|0', 'ß' * 300, '🛰️', ' ', '\x00'),
]
"""Texts that are something else in HTML, Markdown, formulas of pictures, formats, terminals or spreadsheets."""


class Tags(HTMLParser):
    """The tags of a page with the names of their attributes, and what they fetch."""

    def __init__(self, page):
        super().__init__()
        self.found, self.fetched = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, sorted(name for name, _ in attrs)))
        self.fetched += [value[:15] for name, value in attrs if name in ('src', 'href', 'srcset', 'style', 'action')]


def training(folder, name, classes):
    """Write a finished training of a config and of classes with these names."""
    areas = np.stack([np.random.default_rng(len(folder.name)).integers(1, 9, (3, 2)), np.full((3, 2), 10)], 1)
    return write_training(folder, areas, classes, dict(config='config.py', name=name), f'# {name}')


def report(folder, names):
    """Return the page and the Markdown of a comparison of two trainings with these names."""
    configs, classes = [f'a {names[0]}', f'b {names[1]}'], [f'c {names[2]}', names[3]]
    trainings = [training(folder / config[0], config, classes) for config in configs]
    page = write_report(Comparison(trainings), folder / 'out', names[0], f'python {names[1]}')
    return page.read_text(), (folder / 'out' / 'results.md').read_text()


def structure(text):
    """Return the structure of a text in Markdown, without its words."""
    tokens = MarkdownIt('commonmark', {'html': True}).enable('table').parse(text)
    found = []
    for token in tokens:
        inside = [child.type for child in token.children or () if child.type not in ('text', 'text_special')]
        found.append((token.type, token.tag, inside))
    return found


@pytest.fixture(scope='module')
def harmless(tmp_path_factory):
    return report(tmp_path_factory.mktemp('harmless'), ['name'] * 4)


@pytest.mark.filterwarnings('ignore:Glyph:UserWarning')
@pytest.mark.parametrize('first', range(0, len(HOSTILE), 4))
def test_names_are_text_in_the_report_of_a_comparison(tmp_path, harmless, first):
    page, tables = report(tmp_path, [*HOSTILE, *HOSTILE][first : first + 4])
    found, expected = Tags(page), Tags(harmless[0])
    assert found.found == expected.found
    assert set(found.fetched) == {'data:image/png;'}
    assert structure(tables) == structure(harmless[1])


def index_of(names):
    """Return an index of images with all classes, later ones with fewer pixels."""
    rng = np.random.default_rng(0)
    images = [
        ImageClasses(np.arange(len(names)), 1000 // (1 + np.arange(len(names))), 10_000, rng.random((len(names), 2, 2)))
        for _ in range(3)
    ]
    return ClassIndex.from_images(images, names, 2)


def class_stats(name):
    """Return the output of tools/class_stats.py for classes and a config of this name, and the lines for a config."""
    index = index_of([name, f'a {name}', f'{name} b'])
    cfg = Config(dict(train_dataloader=dict(dataset=dict(type='Name', pipeline=[dict(type='Load', path=name)]))))
    stats = statistics(index)
    head = head_lines(cfg, f'{name}.py')
    return f'{markdown(stats)}\n\n{told(advise(index, stats, cfg, 2), head)}', head


@pytest.mark.parametrize('name', HOSTILE, ids=range(len(HOSTILE)))
def test_a_name_is_text_in_the_statistics_of_classes(name):
    text, head = class_stats(name)
    assert structure(text) == structure(class_stats('name')[0])
    written = {statement.targets[0].id: ast.literal_eval(statement.value) for statement in ast.parse(head).body[:1]}
    assert written == {'_base_': [f'./{Path(f"{name}.py").name}']}


@pytest.mark.filterwarnings('ignore:Glyph:UserWarning')
def test_names_are_text_in_the_picture_of_classes(tmp_path):
    draw_long_tail(statistics(index_of(HOSTILE)), tmp_path / 'a.png')


@pytest.mark.parametrize('name', HOSTILE, ids=range(len(HOSTILE)))
def test_a_name_is_text_in_the_tables_of_the_documentation(tmp_path, name):
    comment = '<!-- table: a.json -->\n<!-- end of table -->\n'

    def page(text):
        (tmp_path / 'a.json').write_text(json.dumps({'table': [{'candidate': text, text: 1.5}]}))
        return filled(comment, tmp_path)

    assert structure(page(name)) == structure(page('name'))
    assert filled(page(name), tmp_path) == page(name)


FORMS = ['[]', '{}', '"a"', '{"table": 3, "tables": 3}', '{"table": [1], "tables": {"short": [1]}}', 'no JSON']


@pytest.mark.parametrize('form', FORMS)
def test_results_of_another_form_are_named(tmp_path, form):
    (tmp_path / 'a.json').write_text(form)
    with pytest.raises(ValueError, match=r'^line 1: (a\.json has no rows|Expecting value)'):
        filled('<!-- table: a.json -->\n<!-- end of table -->\n', tmp_path)
    with pytest.raises(ValueError, match=r'table2\.json should have rows of configs|Expecting value'):
        results_of(tmp_path / 'a.json')


@pytest.mark.parametrize(
    'name', ['../../../etc/passwd', '!!python/object/apply:os.system [touch canary]', 'a: &a [*a]']
)
def test_a_metafile_has_configs_alone(tmp_path, name):
    (tmp_path / RESULTS).parent.mkdir(parents=True)
    (tmp_path / RESULTS).write_text(json.dumps({'tables': {'short': [{'config': name, 'mIoU': '1'}]}}))
    with pytest.raises(ValueError, match='rows that are no config of'):
        metafile(tmp_path)


@pytest.mark.parametrize('path', ['../a.json', '{folder}/a.json', 'link/a.json'])
def test_tables_are_of_results_in_the_repository(tmp_path, path):
    root = tmp_path / 'root'
    root.mkdir()
    (root / 'link').symlink_to(tmp_path)
    (tmp_path / 'a.json').write_text(json.dumps({'table': [{'a': 'secret'}]}))
    comment = f'<!-- table: {path.format(folder=tmp_path)} -->\n<!-- end of table -->\n'
    with pytest.raises(ValueError, match=r'a\.json is not in the repository'):
        filled(comment, root)
