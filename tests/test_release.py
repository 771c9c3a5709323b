"""Version, citation, licence and requirements of a release."""

import re
from pathlib import Path

import tomllib
import yaml

import mmseg_nondecomp

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']
CITATION = yaml.safe_load((ROOT / 'CITATION.cff').read_text())
PAPERS = {'1704.02966', '1705.08790', '1909.12398', '1511.06411', '1802.07595'}


def pins(name):
    return dict(re.findall(r'^([\w.-]+)==(\S+)$', (ROOT / 'requirements' / name).read_text(), re.MULTILINE))


def release(version):
    return tuple(map(int, re.findall(r'\d+', version)))


def test_the_version_is_stated_once():
    assert mmseg_nondecomp.__version__ == PROJECT['version']
    spelled = re.compile(rf'version\W+{re.escape(PROJECT["version"])}\b', re.IGNORECASE)
    sources = [*ROOT.glob('mmseg_nondecomp/**/*.py'), ROOT / 'CITATION.cff', ROOT / 'docs/conf.py']
    assert [path.name for path in sources if spelled.search(path.read_text())] == []


def test_the_citation_has_the_required_fields_and_names_the_papers():
    """Citation File Format 1.2.0."""
    assert {'cff-version', 'message', 'title', 'authors'} <= set(CITATION)
    assert CITATION['cff-version'] == '1.2.0'
    assert CITATION['type'] == 'software'
    assert CITATION['title'] == PROJECT['name']
    assert CITATION['license'] == PROJECT['license']['text'] == 'Apache-2.0'
    assert ' '.join((ROOT / 'LICENSE').read_text().split()).startswith('Apache License Version 2.0, January 2004')
    assert CITATION['authors'] == [{'name': 'mmseg_nondecomp contributors'}]
    assert {reference['url'].removeprefix('https://arxiv.org/abs/') for reference in CITATION['references']} == PAPERS
    for reference in CITATION['references']:
        assert set(reference) == {'type', 'title', 'authors', 'year', 'collection-title', 'url'}
        assert reference['type'] == 'conference-paper'
        assert isinstance(reference['year'], int)
        assert all(set(author) == {'family-names', 'given-names'} for author in reference['authors'])


def test_the_oldest_versions_are_the_lower_bounds_and_none_is_pinned_twice():
    oldest = pins('oldest.txt')
    for requirement in PROJECT['dependencies']:
        name, bound = requirement.split('>=')
        parts = len(release(bound))
        assert release(oldest[name])[:parts] == release(bound), requirement
    assert not pins('core.txt').keys() & pins('lock.txt').keys()
