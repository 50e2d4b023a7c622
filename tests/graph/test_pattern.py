"""Patterns say what they fit, and rules check what they ask for."""

import pytest

from kernelet.base.dtype import dtypes
from kernelet.base.errors import ArgumentError
from kernelet.graph.ops import Op
from kernelet.graph.pattern import (
    EVERY,
    INTEGERS,
    Rule,
    UPat,
    constants,
    equation,
    rule,
    variables,
)
from kernelet.graph.uop import UOp

x, y = variables("x", "y")
(c,) = constants("c")


def test_operators_on_patterns_build_patterns() -> None:
    pattern = UPat.var("x") + 0
    assert pattern.op is Op.ADD
    assert isinstance(pattern.src, list)
    assert isinstance((UPat.var("x") // 2).src, tuple)
    assert (UPat.var("x").cast(dtypes.int32, name="n")).names() == {"x", "n"}


def test_a_rule_is_named_after_its_function() -> None:
    @rule(UPat(Op.NEG, name="node"))
    def negation_stays(node: UOp) -> UOp | None:
        return None

    assert negation_stays.name == "negation_stays"
    assert repr(negation_stays) == "Rule(negation_stays)"
    assert negation_stays.parameters == ("node",)


def test_a_rule_asking_for_an_unknown_name_is_refused() -> None:
    with pytest.raises(ArgumentError, match="asks for 'other'"):
        Rule.of(UPat.var("x") + 0, lambda other: other)


def test_a_parameter_with_a_default_need_not_be_in_the_pattern() -> None:
    assert Rule.of(UPat.var("x") + 0, lambda x, ctx, scale=3: x).parameters == ("x", "ctx")


def test_an_equation_is_named_by_its_text() -> None:
    assert equation((x + c) * y, x * y + c * y, dtypes=INTEGERS).name == (
        "(x + c) * y -> (x * y) + (c * y)"
    )


def test_an_equation_with_a_name_only_on_the_right_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"\['y'\] occur on the right side only"):
        equation(x + 0, y, dtypes=INTEGERS)


def test_only_one_node_of_an_equation_carries_the_dtype_test() -> None:
    (p,) = variables("p", dtype=dtypes.bool)
    pattern = equation(p.where(x, x), x, dtypes=EVERY).pattern
    assert pattern.dtype == EVERY
    assert pattern.sources[1].dtype is None
    assert equation(x < x, x < x, dtypes=INTEGERS).pattern.sources[0].dtype == INTEGERS
