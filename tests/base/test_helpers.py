from hypothesis import given
from hypothesis import strategies as st

from kernelet.base.helpers import argsort, ceiling_divide, round_up


@given(st.permutations(range(6)))
def test_argsort_of_a_permutation_is_its_inverse(order):
    inverse = argsort(order)
    assert [order[axis] for axis in inverse] == sorted(order)


@given(st.integers(0, 1000), st.integers(1, 50))
def test_pieces_cover_the_amount_and_no_more(amount, size):
    assert (ceiling_divide(amount, size) - 1) * size < amount <= ceiling_divide(amount, size) * size
    assert round_up(amount, size) % size == 0
