"""Small functions have tinygrad's names and results."""

import numpy as np
import pytest

from kernelet.compat import helpers


def test_products_and_polynomials():
    assert (helpers.prod([2, 3, 4]), helpers.prod(())) == (24, 1)
    assert helpers.polyN(2.0, [1, 2, 3]) == 11.0
    np.testing.assert_array_equal(helpers.polyN(np.array([1.0, 2]), [1, 0, 1]), [2, 5])


@pytest.mark.parametrize(("number", "power"), [(0, 1), (1, 1), (2, 2), (3, 4), (1025, 2048)])
def test_the_next_power_of_two(number, power):
    assert helpers.next_power2(number) == power


def test_lists_are_flattened_and_measured():
    assert helpers.fully_flatten([1, [2, (3, "ab")], np.array([4, 5])]) == [1, 2, 3, "ab", 4, 5]
    assert helpers.fully_flatten(np.array(3)) == [np.array(3)]
    assert helpers.get_shape([[1, 2, 3], [4, 5, 6]]) == (2, 3)
    assert helpers.get_shape([[], []]) == (2, 0)
    assert helpers.get_shape("text") == ()
    with pytest.raises(ValueError, match="inhomogeneous"):
        helpers.get_shape([[1], 2])


def test_arguments_come_spread_out_or_in_a_list():
    assert helpers.argfix(1, 2) == helpers.argfix((1, 2)) == helpers.argfix([1, 2]) == (1, 2)
    with pytest.raises(ValueError, match="bad arg"):
        helpers.argfix([1], 2)


def test_dicts_are_merged_unless_they_disagree():
    assert helpers.merge_dicts([{1: 2}, {1: 2, 3: 4}]) == {1: 2, 3: 4}
    with pytest.raises(RuntimeError, match="different values for the same key"):
        helpers.merge_dicts([{1: 2}, {1: 3}])


def test_order_and_membership():
    assert helpers.dedup("banana") == ["b", "a", "n"]
    assert helpers.partition(range(5), lambda number: number > 2) == ([3, 4], [0, 1, 2])
    assert (helpers.argsort([3, 1, 2]), helpers.argsort((2, 1))) == ([1, 2, 0], (1, 0))
    assert helpers.get_child({"a": [1, type("Holder", (), {"b": 7})]}, "a.1.b") == 7


def test_colors_are_escapes_that_can_be_taken_away(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = helpers.colored("x", "RED", background=True)
    assert text == "\x1b[101mx\x1b[0m"
    assert (helpers.ansistrip(text), helpers.ansilen(text)) == ("x", 1)
    assert helpers.colored(5, None) == "5"
    monkeypatch.setenv("NO_COLOR", "1")
    assert helpers.colored("x", "red") == "x"


def test_amounts_in_words():
    assert [helpers.size_to_str(size) for size in (5, 2048, 5 << 20)] == [
        "5 B",
        "2.00 KB",
        "5.00 MB",
    ]
    assert [helpers.time_to_str(each).strip() for each in (1e-3, 1.5, 20)] == [
        "1000.00us",
        "1500.00ms",
        "20.00s",
    ]
    assert helpers.word_wrap("aaa bbb", 4) == "aaa\nbbb"
