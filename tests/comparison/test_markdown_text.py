import pytest
from markdown_it import MarkdownIt
from markdown_text import code, escaped, in_one_line


def shown(text):
    """Return the text that Markdown shows, which has to be nothing but text or code."""
    [token] = [token for token in MarkdownIt().parseInline(text)[0].children if token.type != 'text' or token.content]
    assert token.type in ('text', 'code_inline')
    return token.content


@pytest.mark.parametrize(
    'name', ['tiny-unet_ce_lts', 'ce lr 0.01', '+1.5 [+0.1, +2.9], 3 of 3', 'R & D', 'c#', 'a > b']
)
def test_usual_names_stay_as_they_are(name):
    assert escaped(name) == name
    assert code(name) == f'`{name}`'


@pytest.mark.parametrize(
    'name', ['*a*', '<b>', '`a`', '_a_', 'a|b', '[a](b)', '![a](b)', '&lt;', '\\', '\\*', '`', '``']
)
def test_escaped_names_are_shown_unchanged(name):
    assert shown(escaped(name)) == name
    assert shown(code(name)) == name


@pytest.mark.parametrize('name', ['a\nb', 'a\r\n\n b', 'a\x1b\x00b', ' a\u202eb ', 'a\ud800b'])
def test_control_characters_become_spaces(name):
    assert in_one_line(name) == escaped(name) == 'a b'
    assert code(name) == '`a b`'
