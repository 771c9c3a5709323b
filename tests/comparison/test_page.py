import re
from html.parser import HTMLParser

from comparison.page import Page
from matplotlib.figure import Figure

EVIL = '<script>alert("1")</script><img src=x onerror=alert(2)>\'"&'


class Tags(HTMLParser):
    """The tags of a page and their attributes."""

    def __init__(self):
        super().__init__()
        self.found, self.text = [], []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text.append(data)


def parsed(page):
    tags = Tags()
    tags.feed(page.html())
    return tags


def everything(text):
    page = Page(text)
    page.heading(text)
    page.text(text)
    page.table([{text: text}])
    page.figure(Figure(figsize=(1, 1)), text)
    page.details(text, text)
    return page


def test_whatever_is_shown_is_text():
    harmless, evil = parsed(everything('name')), parsed(everything(EVIL))
    assert [tag for tag, _ in evil.found] == [tag for tag, _ in harmless.found]
    assert [sorted(attrs) for _, attrs in evil.found] == [sorted(attrs) for _, attrs in harmless.found]
    assert sum(EVIL in text for text in evil.text) == sum('name' in text for text in harmless.text)


def test_nothing_is_fetched_and_no_script_may_run():
    page = everything('name')
    [policy] = [attrs['content'] for tag, attrs in parsed(page).found if attrs.get('http-equiv')]
    assert policy.startswith("default-src 'none'")
    [image] = [attrs for tag, attrs in parsed(page).found if tag == 'img']
    assert image['src'].startswith('data:image/png;base64,iVBOR')
    assert not re.search(r'(?:src|href)=[^d]|url\(|@import|https?:', page.html().replace('src="data:', ''))
