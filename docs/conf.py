"""The documentation site: ``make docs``. Its source is the repository, so that the pages of `configs/` belong to it.

Nothing is fetched when a page is read: formulas are MathML, made here by docutils.
"""

import sys
from importlib.metadata import version as version_of
from types import SimpleNamespace

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

import mmseg_nondecomp.heads

logger = logging.getLogger(__name__)

project = 'mmseg_nondecomp'
release = version_of(project)

root_doc = 'docs/index'
include_patterns = ['docs/**', 'configs/*/README.md', 'README.md', 'CHANGELOG.md', 'CONTRIBUTING.md']
exclude_patterns = ['.*', '**/.*', '**/__pycache__', '*.egg-info', 'docs/_*', 'work_dirs', 'data']
exclude_patterns += ['benchmarks', 'mmseg_nondecomp', 'tests', 'tools']
extensions = ['myst_parser', 'sphinx.ext.autodoc', 'sphinx.ext.napoleon']
suppress_warnings = ['myst.header']

myst_enable_extensions = ['dollarmath']
myst_fence_as_directive = ['math']
myst_heading_anchors = 4

default_role = 'code'
autodoc_member_order = 'bysource'
autodoc_typehints_format = 'short'
python_maximum_signature_line_length = 100
napoleon_numpy_docstring = False

html_theme = 'furo'
html_title = project
html_static_path = ['_static']
html_css_files = ['site.css']
html_additional_pages = {'index': 'first_page.html'}
html_copy_source = False
html_show_copyright = False
html_math_renderer = 'mathml'
templates_path = ['_templates']


def visit_math(self: nodes.NodeVisitor, node: nodes.math | nodes.math_block) -> None:
    """Write a formula as MathML."""
    as_block = isinstance(node, nodes.math_block)
    try:
        formula = tex2mathml(node.astext().strip().replace(r'\dots', r'\ldots'), as_block)
    except MathError as error:
        logger.warning('no MathML for %s: %s', node.astext(), error, location=node)
        raise nodes.SkipNode from error
    self.body.append(f'<div class="formula">{formula}</div>' if as_block else formula)
    raise nodes.SkipNode


def adapt_docstring(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Escape the asterisk of [N, *], and replace footnotes, whose numbers would clash on a page."""
    lines[:] = [line.replace(', *]', r', \*]').replace(' [1]_', '').replace('.. [1] ', 'Reference: ') for line in lines]


def show_head_of_mmpretrain() -> None:
    """Import the head that needs MMPretrain with substitutes for that package, for its docstring."""
    used = dict(Accuracy='evaluation.metrics', DataSample='structures', LinearClsHead='models.heads')
    for name, module in used.items():
        sys.modules[f'mmpretrain.{module}'] = SimpleNamespace(**{name: type(name, (), {})})
    from mmseg_nondecomp.heads.topk_cls_head import TopKClsHead

    mmseg_nondecomp.heads.TopKClsHead = TopKClsHead


def setup(app: Sphinx) -> None:
    """Register the additions to Sphinx."""
    show_head_of_mmpretrain()
    app.add_html_math_renderer('mathml', (visit_math, None), (visit_math, None))
    app.connect('autodoc-process-docstring', adapt_docstring)
