"""Every equation is true for every dtype it states; no equation has a test of its own."""

import math
from dataclasses import replace
from types import ModuleType

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kernelet.base.dtype import DType, Scalar, dtypes, round_to
from kernelet.graph import algebra
from kernelet.graph.pattern import ANY_DTYPE, Equation, equation, variables
from kernelet.graph.rewrite import RuleSet
from kernelet.graph.uop import UOp
from kernelet.graph.walk import substitute
from kernelet.lower import decompose
from tests.reference.evaluate import evaluate
from tests.reference.instances import placeholders_of, written_out


def equations_of(module: ModuleType, *sums: RuleSet) -> list[Equation]:
    """The equations of a module's rule sets, but for those that are sums of others."""
    groups = [group for group in vars(module).values() if isinstance(group, RuleSet)]
    rules = [rule for group in groups if group not in sums for rule in group.rules]
    return [rule for rule in rules if isinstance(rule, Equation)]


ALGEBRA = equations_of(algebra, algebra.ALGEBRA)
ALL_EQUATIONS = [*ALGEBRA, *equations_of(decompose, decompose.FOR_ALL)]
EXAMPLES = 40


def elements(dtype: DType) -> st.SearchStrategy[Scalar]:
    """Values of a dtype, extremes and special ones often."""
    if dtype.is_bool:
        return st.booleans()
    if dtype.is_float:
        special = [0.0, -0.0, 1.0, -1.0, 0.5, 3.0, math.inf, -math.inf, math.nan, 1e-40, 6e4, 3e38]
        strange = st.sampled_from([math.nan, -0.0, math.inf])
        chosen = st.sampled_from(special) | strange | st.floats()
        return chosen.map(lambda value: round_to(dtype, value))
    low, high = int(dtype.min), int(dtype.max)
    near = st.integers(max(low, -4), 4)
    return near | st.sampled_from([low, low + 1, high - 1, high]) | st.integers(low, high)


def same(left: Scalar, right: Scalar) -> bool:
    """Whether two values are equal bit by bit; one NaN is like another."""
    if left != left or right != right:
        return left != left and right != right
    return left == right and math.copysign(1, left) == math.copysign(1, right)


@st.composite
def bindings(draw: st.DrawFn, rule: Equation) -> tuple[DType, dict[str, Scalar]]:
    """A dtype that the equation states, and a value of it for each placeholder."""
    dtype = draw(st.sampled_from(rule.dtypes))
    values = {}
    for place in placeholders_of(rule):
        own = dtype if place.dtype is ANY_DTYPE else place.dtype
        values[place.arg.name] = draw(elements(own))
    return dtype, values


def check(rule: Equation, dtype: DType, values: dict[str, Scalar]) -> None:
    """Both sides agree, and the compiled rule makes the one of the other."""
    left, right, places = written_out(rule, dtype)
    bound = {node: values[node.arg.name] for node in places}
    (expected,) = evaluate(left, bound)
    (found,) = evaluate(right, bound)
    assert same(expected, found), f"{expected} != {found} for {values} of {dtype}"
    fixed = {place.arg.name for place in placeholders_of(rule) if place.arg.constant}
    known = {
        node: UOp.const(values[node.arg.name], node.dtype)
        for node in places
        if node.arg.name in fixed
    }
    made = RuleSet("one", rule).rewrite(substitute(left, known))
    assert made is not None, f"{rule.name} does not fit its own left side"
    (found,) = evaluate(made, bound)
    assert made.dtype is left.dtype
    assert same(expected, found), f"compiled: {expected} != {found} for {values} of {dtype}"


def examples_of(rule: Equation) -> None:
    """Try the equation on many values; the seed is fixed by its name."""

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
    )
    @given(drawn=bindings(rule))
    def both_sides_agree(drawn: tuple[DType, dict[str, Scalar]]) -> None:
        check(rule, *drawn)

    both_sides_agree()


def corrupt(rule: Equation) -> Equation:
    """The equation with a wrong right side."""
    right = rule.right.logical_not() if rule.right.dtype is dtypes.bool else rule.right + 1
    if rule.dtypes == algebra.BOOLEAN:
        right = rule.right.not_equal(rule.right.const_like(True))
    return replace(rule, right=right)


@pytest.mark.parametrize("rule", ALL_EQUATIONS, ids=lambda rule: rule.name)
def test_both_sides_agree(rule: Equation) -> None:
    examples_of(rule)


@pytest.mark.parametrize("rule", ALL_EQUATIONS, ids=lambda rule: rule.name)
def test_a_wrong_right_side_is_caught(rule: Equation) -> None:
    with pytest.raises(AssertionError):
        examples_of(corrupt(rule))


def test_every_equation_of_the_module_is_in_the_algebra() -> None:
    assert len(ALL_EQUATIONS) == len(set(ALL_EQUATIONS)) > 50
    assert set(ALGEBRA) <= set(algebra.ALGEBRA.rules)


@pytest.mark.parametrize(
    "false", ["x * 0 -> 0", "x + 0.0 -> x", "(x + y) + (-y) -> x", "x != x -> False"]
)
def test_what_is_false_for_floats_is_caught(false: str) -> None:
    x, y = variables("x", "y")
    zero = UOp.const(0, ANY_DTYPE)
    claims = {
        "x * 0 -> 0": (x * 0, zero),
        "x + 0.0 -> x": (x + 0.0, x),
        "(x + y) + (-y) -> x": ((x + y) + -y, x),
        "x != x -> False": (x.not_equal(x), UOp.const(False, dtypes.bool)),
    }
    with pytest.raises(AssertionError):
        examples_of(equation(*claims[false], dtypes=dtypes.floats))
