import pytest

from mmseg_nondecomp.functional.topk_settings import check_degree, check_k, check_margin, check_temperature


@pytest.mark.parametrize(
    ('check', 'value'),
    [
        (check_degree, 0),
        (lambda k: check_k(k, 5), 1),
        (lambda k: check_k(k, 5), 4),
        (check_temperature, 1e-36),
        (check_margin, 0),
    ],
)
def test_what_may_be(check, value):
    check(value)


@pytest.mark.parametrize(
    ('check', 'value', 'error', 'name'),
    [
        (check_degree, -1, ValueError, 'k'),
        (check_degree, 2.0, TypeError, 'k'),
        (check_degree, True, TypeError, 'k'),
        (lambda k: check_k(k, 5), 0, ValueError, 'k'),
        (lambda k: check_k(k, 5), 5, ValueError, 'k'),
        (check_temperature, 0, ValueError, 'tau'),
        (check_temperature, float('nan'), ValueError, 'tau'),
        (check_temperature, float('inf'), ValueError, 'tau'),
        (check_temperature, '1', TypeError, 'tau'),
        (check_margin, -0.1, ValueError, 'margin'),
        (check_margin, float('nan'), ValueError, 'margin'),
        (check_margin, None, TypeError, 'margin'),
    ],
)
def test_what_may_not_be_is_named(check, value, error, name):
    with pytest.raises(error, match=f'Parameter `{name}`'):
        check(value)
