import re

from comparison.page import Page
from matplotlib.figure import Figure


def test_nothing_is_fetched_and_no_script_may_run():
    """That names cannot add tags is tested in hard_use/test_security_reports.py."""
    page = Page('name')
    page.heading('name')
    page.text('name')
    page.table([{'name': 'name'}])
    page.figure(Figure(figsize=(1, 1)), 'name')
    page.details('name', 'name')
    html = page.html()
    assert re.search(r'<meta http-equiv="Content-Security-Policy" content="default-src \'none\'', html)
    assert re.findall(r'<img[^>]* src="(.{27})', html) == ['data:image/png;base64,iVBOR']
    assert not re.search(r'(?:src|href)=[^d]|url\(|@import|https?:', html.replace('src="data:', ''))
