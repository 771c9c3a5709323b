import pytest

from mmseg_nondecomp._utils.arguments import check_integer, is_number


@pytest.mark.parametrize('value', [True, 1.0, '1', None])
def test_no_integers(value):
    with pytest.raises(TypeError, match=rf'Parameter `n` should be an integer\. Found {value!r}\.'):
        check_integer('n', value, 0)


@pytest.mark.parametrize(
    ('value', 'highest', 'message'),
    [(1, None, 'at least 2. Found 1'), (1, 4, 'from 2 to 4. Found 1'), (5, 4, 'from')],
)
def test_integers_out_of_range(value, highest, message):
    with pytest.raises(ValueError, match=f'Parameter `n` should be {message}'):
        check_integer('n', value, 2, highest)


def test_integers_in_range():
    for value in (2, 3, 4):
        check_integer('n', value, 2, 4)


def test_numbers():
    assert [is_number(value) for value in (0, 0.5, True, '1', None)] == [True, True, False, False, False]
