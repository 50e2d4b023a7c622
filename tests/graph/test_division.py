"""Index arithmetic is exact, and equal indices are the same node."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest

from kernelet.base.dtype import dtypes
from kernelet.graph import division
from kernelet.graph.division import (
    FALSE,
    TRUE,
    ZERO,
    add_index,
    and_gates,
    bounds_gate,
    copies_of,
    divide_index,
    extreme,
    gate_parts,
    index_const,
    index_of,
    less_index,
    maximum_index,
    minimum_index,
    modulo_index,
    normalize_index,
    rebuild,
    replace_ranges,
    scale_index,
    substitute_index,
    subtract_index,
    terms_of,
    with_factored_maxima,
)
from kernelet.graph.ops import Op
from kernelet.graph.show import show_expression
from kernelet.graph.uop import ParamArg, RangeArg, UOp
from tests.reference.evaluate import evaluate


def loop(number: int, size: int | UOp) -> UOp:
    end = size if isinstance(size, UOp) else index_const(size)
    return UOp(Op.RANGE, dtypes.index, (end,), RangeArg(number, "loop"))


I, J, K = loop(0, 4), loop(1, 6), loop(2, 9)
N = UOp.variable("n", 1, 7)
Meaning = Callable[[dict[UOp, int]], int]


def text(index: UOp) -> str:
    return show_expression(index)


def scaled(*parts: tuple[UOp, int], plus: int = 0) -> UOp:
    total = index_const(plus)
    for index, factor in parts:
        total = add_index(total, scale_index(index, factor))
    return total


# ---- every value is right ----


class Indices:
    """Random indices, each with its meaning in Python."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.made: list[tuple[UOp, Meaning]] = [
            (variable, lambda at, variable=variable: at[variable]) for variable in (I, J, K)
        ]

    def grow(self) -> None:
        choose = self.random
        (x, fx), (y, fy) = choose.choice(self.made), choose.choice(self.made)
        n = choose.choice((1, 2, 3, 4, 6, 8, 9, 12, 24, 36))
        factor = choose.choice((-7, -3, -2, -1, 1, 2, 3, 4, 5, 9, 12))
        steps: tuple[tuple[UOp, Meaning], ...] = (
            (add_index(x, y), lambda at: fx(at) + fy(at)),
            (add_index(x, y), lambda at: fx(at) + fy(at)),
            (subtract_index(x, y), lambda at: fx(at) - fy(at)),
            (scale_index(x, factor), lambda at: fx(at) * factor),
            (add_index(x, index_const(factor)), lambda at: fx(at) + factor),
            (divide_index(x, n), lambda at: fx(at) // n),
            (divide_index(x, n), lambda at: fx(at) // n),
            (modulo_index(x, n), lambda at: fx(at) % n),
            (modulo_index(x, n), lambda at: fx(at) % n),
            (maximum_index(x, y), lambda at: max(fx(at), fy(at))),
            (minimum_index(x, y), lambda at: min(fx(at), fy(at))),
        )
        self.made.append(choose.choice(steps))


POINTS = [
    dict(zip((I, J, K), point, strict=True))
    for point in itertools.product(range(4), range(6), range(9))
]


@pytest.mark.parametrize("seed", range(60))
def test_arithmetic_gives_what_python_gives(seed: int) -> None:
    indices = Indices(seed)
    for _ in range(14):
        indices.grow()
    choose = random.Random(seed)
    for index, meaning in indices.made[3:]:
        low, high = index.bounds
        for at in choose.sample(POINTS, 12):
            wanted = meaning(at)
            assert evaluate(index, at) == [wanted], text(index)
            assert evaluate(with_factored_maxima(index), at) == [wanted], text(index)
            assert low <= wanted <= high
            fixed = substitute_index(index, {v: index_const(n) for v, n in at.items()})
            assert fixed is index_const(wanted)
        assert normalize_index(index) is index


def test_maxima_of_multiples_are_multiples() -> None:
    index = add_index(maximum_index(scale_index(I, -16), index_const(-4)), J)
    changed = with_factored_maxima(index)
    assert terms_of(changed).coefficients[J] == 1
    assert sorted(terms_of(changed).coefficients.values()) == [1, 4]
    assert with_factored_maxima(J) is J


@pytest.mark.parametrize("seed", range(40))
def test_conditions_give_what_python_gives(seed: int) -> None:
    indices = Indices(1000 + seed)
    for _ in range(10):
        indices.grow()
    choose = random.Random(seed)
    (x, fx), (y, fy) = choose.choice(indices.made), choose.choice(indices.made)
    size = choose.choice((1, 4, 9, 40))
    less, inside = less_index(x, y), bounds_gate(x, size)
    for at in choose.sample(POINTS, 40):
        assert evaluate(less, at) == [fx(at) < fy(at)]
        assert evaluate(inside, at) == [0 <= fx(at) < size]


# ---- the normal form ----


def test_a_sum_does_not_depend_on_its_order() -> None:
    first = add_index(add_index(I, scale_index(J, 3)), index_const(2))
    assert add_index(index_const(2), add_index(scale_index(J, 3), I)) is first
    assert terms_of(first) == (2, {I: 1, J: 3})


def test_what_cancels_is_gone() -> None:
    assert subtract_index(add_index(I, J), J) is I
    assert subtract_index(I, I) is ZERO
    assert scale_index(I, 0) is ZERO


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (divide_index(scaled((I, 6), (J, 1)), 6), "r0"),
        (modulo_index(scaled((I, 6), (J, 1)), 6), "r1"),
        (divide_index(scaled((I, 12), (J, 2), plus=1), 2), "(r0 * 6) + r1"),
        (divide_index(divide_index(K, 2), 2), "r2 // 4"),
        (modulo_index(modulo_index(K, 6), 3), "r2 % 3"),
        (divide_index(modulo_index(K, 6), 3), "(r2 // 3) % 2"),
        (modulo_index(scale_index(K, 4), 12), "(r2 % 3) * 4"),
        (divide_index(add_index(K, index_const(9)), 9), "1"),
        (modulo_index(scaled((I, 7), (J, 6)), 6), "r0"),
        (divide_index(scaled((J, -1), plus=5), 6), "0"),
        (maximum_index(I, index_const(9)), "9"),
        (minimum_index(I, index_const(9)), "r0"),
    ],
)
def test_division_keeps_only_what_it_must(index: UOp, expected: str) -> None:
    assert text(index) == expected


def test_digits_come_together_again() -> None:
    whole = scaled((divide_index(K, 3), 3), (modulo_index(K, 3), 1))
    assert whole is K
    deep = scaled(
        (divide_index(K, 6), 6), (modulo_index(divide_index(K, 2), 3), 2), (modulo_index(K, 2), 1)
    )
    assert deep is K


def test_division_by_nothing_indexes_nothing() -> None:
    assert divide_index(K, 0) is ZERO
    assert modulo_index(K, 0) is ZERO


# ---- variable sizes ----


def test_a_row_of_variable_length_is_taken_apart() -> None:
    inner = loop(5, N)
    flat = add_index(scale_index(I, N), inner)
    assert divide_index(flat, N) is I
    assert modulo_index(flat, N) is inner


def test_a_loop_of_variable_size_stays_inside_it() -> None:
    inner = loop(5, N)
    assert bounds_gate(inner, N) is TRUE
    assert bounds_gate(subtract_index(add_index(N, index_const(-1)), inner), N) is TRUE
    assert less_index(inner, index_const(7)) is TRUE
    assert bounds_gate(add_index(inner, index_const(1)), N) is not TRUE


def test_products_of_variables_do_not_depend_on_their_order() -> None:
    other = UOp.variable("m", 1, 5)
    assert scale_index(scale_index(I, N), other) is scale_index(scale_index(I, other), N)
    assert index_of(N * other) is index_of(other * N)


# ---- conditions ----


def test_what_bounds_prove_is_a_constant() -> None:
    assert less_index(I, index_const(4)) is TRUE
    assert less_index(index_const(3), I) is FALSE
    assert bounds_gate(add_index(I, index_const(1)), 5) is TRUE


def test_a_condition_is_divided_by_its_common_factor() -> None:
    assert text(less_index(scale_index(J, 4), index_const(10))) == "r1 < 3"
    assert text(less_index(index_const(9), scale_index(J, 4))) == "(r1 * -1) < -2"


def test_gates_join_without_repeats() -> None:
    first, second = less_index(I, index_const(2)), less_index(J, index_const(2))
    both = and_gates(first, second)
    assert gate_parts(both) == [first, second]
    assert and_gates(both, first, TRUE) is both
    assert and_gates(both, FALSE) is FALSE
    assert and_gates() is TRUE


# ---- rebuilding ----


def test_plain_arithmetic_becomes_normal() -> None:
    assert normalize_index((I * 6 + J) // 6) is I
    assert normalize_index(-(-I)) is I
    assert normalize_index((I + 1).alu(Op.MAX, index_const(0))) is add_index(I, index_const(1))


def test_a_copy_of_a_statement_is_simplified_again() -> None:
    memory = UOp(Op.PARAM, dtypes.float32, (), ParamArg(0, 24, "CPU"))
    place = scaled((I, 6), (J, 1), plus=-1)
    gate = bounds_gate(place, 24)
    address = UOp(Op.INDEX, dtypes.index, (memory, place))
    load = UOp(Op.LOAD, dtypes.float32, (address, gate))
    inside = replace_ranges(load, {I: index_const(1)})
    assert len(inside.src) == 1
    assert text(inside.src[0].src[1]) == "r1 + 5"
    padding = replace_ranges(load, {I: ZERO, J: ZERO})
    assert padding is UOp.const(0.0, dtypes.float32)


def test_copies_keep_what_does_not_move() -> None:
    i, j = loop(0, 4), loop(1, 8)
    memory = UOp(Op.PARAM, dtypes.float32, (), ParamArg(0, 64, "CPU"))
    still = load_at(memory, j)
    moving = load_at(memory, add_index(scale_index(i, 8), j))
    first, second = copies_of(still + moving, [{i: index_const(n)} for n in (0, 3)])
    assert first is still + still
    assert second is still + load_at(memory, add_index(j, index_const(24)))


@pytest.mark.parametrize("seed", range(40))
def test_replaced_loops_leave_the_normal_form(seed: int) -> None:
    choose = random.Random(seed)
    a, b, c = (loop(number, size) for number, size in enumerate((4, 6, 5)))
    index = ZERO
    for _ in range(6):
        step = scale_index(choose.choice((a, b, c)), choose.choice((-3, 1, 2, 7)))
        index = add_index(index, step)
        change = choose.choice((divide_index, modulo_index, scale_index, add_index))
        index = change(index, choose.randrange(1, 9)) if change is not add_index else index
    for other in (index_const(2), c, add_index(scale_index(c, 2), index_const(1))):
        assert substitute_index(index, {a: other}) is rebuilt(index, {a: other})


def rebuilt(node: UOp, mapping: dict[UOp, UOp]) -> UOp:
    """The index written down anew, every step of it."""
    return division._rebuild(node, dict(mapping))


def load_at(memory: UOp, index: UOp) -> UOp:
    return UOp(Op.LOAD, dtypes.float32, (UOp(Op.INDEX, dtypes.index, (memory, index)),))


def test_a_choice_whose_condition_is_known_is_made() -> None:
    x, y = UOp.const(1.0, dtypes.float32), UOp.const(2.0, dtypes.float32)
    choice = less_index(I, index_const(2)).where(x, y)
    assert rebuild(choice, (TRUE, x, y)) is x
    assert rebuild(choice, (FALSE, x, y)) is y


# ---- extremes ----

BLOCK, ROW, COLUMN = loop(0, 4), loop(1, 8), loop(2, 40)
OUTER = frozenset({BLOCK})
PLACE = add_index(scale_index(BLOCK, 8), ROW)


@pytest.mark.parametrize(
    ("index", "least", "greatest"),
    [
        (PLACE, "r0 * 8", "(r0 * 8) + 7"),
        (scale_index(PLACE, -1), "(r0 * -8) + -7", "r0 * -8"),
        (
            divide_index(add_index(PLACE, BLOCK), 5),
            "(r0 * 2) + ((r0 * -1) // 5)",
            "((r0 * 2) + (((r0 * -1) + 2) // 5)) + 1",
        ),
        (modulo_index(PLACE, 5), "0", "4"),
        (minimum_index(scale_index(ROW, 8), index_const(50)), "0", "50"),
        (maximum_index(ROW, BLOCK), "r0", "7"),
    ],
    ids=["sum", "negative", "quotient", "remainder", "overlap", "maximum"],
)
def test_inner_loops_stand_at_their_ends(index: UOp, least: str, greatest: str) -> None:
    assert show_expression(extreme(index, OUTER, greatest=False)) == least
    assert show_expression(extreme(index, OUTER)) == greatest


def test_a_loop_that_ends_early_goes_as_far_as_its_size_may() -> None:
    short = COLUMN.replace(src=(add_index(PLACE, index_const(1)),))
    assert show_expression(extreme(short, OUTER)) == "(r0 * 8) + 7"


def test_quotients_and_maxima_of_variable_loops_stay_below_their_ends() -> None:
    along = loop(1, N)
    end = add_index(N, index_const(-1))
    assert less_index(divide_index(along, 2), divide_index(add_index(N, index_const(1)), 2)) is TRUE
    assert less_index(maximum_index(along, ZERO), N) is TRUE
    assert less_index(along, end) not in (TRUE, FALSE)
