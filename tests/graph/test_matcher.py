"""Compiled matchers fit exactly what their patterns say."""

import pytest

from kernelet.base.dtype import dtypes
from kernelet.base.errors import ArgumentError
from kernelet.graph.matcher import compile_matcher, matcher_source
from kernelet.graph.ops import Op
from kernelet.graph.pattern import INTEGERS, Rule, UPat, constants, equation, variables
from kernelet.graph.uop import RangeArg, UOp

A, B = UOp.variable("a", 0, 9), UOp.variable("b", 0, 9)
HIT = UOp.const(77, dtypes.index)
F32 = dtypes.float32


def fits(pattern: UPat, node: UOp) -> bool:
    matcher = compile_matcher(node.op, [Rule.of(pattern, lambda: HIT)])
    return matcher is not None and matcher(node, None) is HIT


def test_the_op_must_fit() -> None:
    assert fits(UPat(Op.ADD), A + B)
    assert fits(UPat((Op.MUL, Op.ADD)), A + B)
    assert fits(UPat(), A + B)
    assert not fits(UPat(Op.MUL), A + B)
    assert fits(UPat(Op.ADD, src=(UPat((Op.MUL, Op.NEG)), UPat())), A * B + B)
    assert not fits(UPat(Op.ADD, src=(UPat(Op.NEG), UPat())), A * B + B)


def test_the_dtype_must_fit_and_vectors_fit_their_scalar() -> None:
    vector = UOp(Op.VECTORIZE, F32.vec(2), (UOp.const(1, F32),) * 2)
    assert fits(UPat(dtype=F32), vector)
    assert fits(UPat(dtype=F32.vec(2)), vector)
    assert not fits(UPat(dtype=F32.vec(4)), vector)
    assert fits(UPat(dtype=(dtypes.int32, F32)), vector)
    assert not fits(UPat(dtype=dtypes.ints), vector)
    assert fits(UPat(dtype=lambda dtype: dtype.lanes == 2), vector)


def test_the_payload_must_fit() -> None:
    loop = UOp(Op.RANGE, dtypes.index, (UOp.const(4, dtypes.index),), RangeArg(0, "loop"))
    assert fits(UPat(Op.RANGE, arg=RangeArg(0, "loop")), loop)
    assert not fits(UPat(Op.RANGE, arg=RangeArg(1, "loop")), loop)
    assert fits(UPat(Op.RANGE, arg=lambda arg: arg.kind == "loop"), loop)
    assert fits(UPat.const(F32, -0.0), UOp.const(-0.0, F32))
    assert not fits(UPat.const(F32, -0.0), UOp.const(0.0, F32))


def test_a_tuple_of_sources_is_in_order_and_a_list_in_any_order() -> None:
    mul, var = UPat(Op.MUL), UPat(Op.VARIABLE)
    assert fits(UPat(Op.ADD, src=(mul, var)), A * B + B)
    assert not fits(UPat(Op.ADD, src=(var, mul)), A * B + B)
    assert fits(UPat(Op.ADD, src=[var, mul]), A * B + B)
    chosen = (A < B).where(A * B, B)
    assert fits(UPat(Op.WHERE, src=[var, mul, UPat(Op.CMPLT)]), chosen)
    assert fits(UPat(Op.NEG, src=(UPat(Op.ADD, src=[var, mul]),)), -(A * B + B))


def test_the_number_of_sources_must_fit() -> None:
    sink = UOp.sink(A, B, A * B)
    assert not fits(UPat(Op.SINK, src=(UPat(), UPat())), sink)
    assert fits(UPat(Op.SINK, src=(UPat(), UPat(), UPat())), sink)
    assert fits(UPat(Op.SINK, src=()), UOp.sink())
    assert not fits(UPat(src=(UPat(),)), A + B)


def test_one_pattern_can_stand_for_every_source() -> None:
    assert fits(UPat(Op.SINK, src=UPat((Op.VARIABLE, Op.MUL))), UOp.sink(A, B, A * B))
    assert not fits(UPat(Op.SINK, src=UPat(Op.VARIABLE)), UOp.sink(A, B, A * B))
    variables = UPat(Op.VARIABLE, arg=A.arg)
    assert fits(UPat(Op.ADD, src=variables), A + A)
    assert not fits(UPat(Op.ADD, src=variables), A + B)


def test_a_pattern_for_every_source_is_refused_when_it_names_or_looks_deeper() -> None:
    with pytest.raises(ArgumentError, match="cannot name"):
        fits(UPat(Op.ADD, src=UPat.var("x")), A + B)
    with pytest.raises(ArgumentError, match="or look at their sources"):
        fits(UPat(Op.ADD, src=UPat(Op.NEG, src=(UPat(),))), A + B)


def test_a_name_used_twice_is_the_same_node_twice() -> None:
    twice = UPat.var("x") + UPat.var("x")
    assert fits(twice, A + A)
    assert not fits(twice, A + B)
    distributed = UPat.var("x") * UPat.var("y") + UPat.var("x")
    assert all(fits(distributed, node) for node in (A * B + A, A * B + B, B + A * B))
    assert not fits(distributed, A * B + A * A)


def test_context_is_handed_on_and_none_means_the_next_rule() -> None:
    first = Rule.of(UPat(Op.ADD, name="x"), lambda x, ctx: None)
    second = Rule.of(UPat(Op.ADD, name="x"), lambda x, ctx: x.const_like(ctx))
    same = Rule.of(UPat(Op.ADD, name="x"), lambda x: x)
    matcher = compile_matcher(Op.ADD, [first, same, second])
    assert matcher is not None
    assert matcher(A + B, 5) is UOp.const(5, dtypes.index)


def test_no_rule_for_an_op_gives_no_matcher() -> None:
    assert compile_matcher(Op.MUL, [Rule.of(UPat(Op.ADD), lambda: HIT)]) is None


def test_equations_see_constants_through_views_and_fold_the_right_side() -> None:
    x, (c, d) = variables("x")[0], constants("c", "d")
    rules = [equation((x + c) + d, x + (c + d), dtypes=INTEGERS)]
    matcher = compile_matcher(Op.ADD, rules)
    assert matcher is not None
    tensor = UOp(Op.RESHAPE, dtypes.int8, (UOp.buffer(6, dtypes.int8, "CPU"),), (2, 3))
    assert matcher((100 + tensor) + 100, None) is tensor + -56
    assert matcher((tensor + 1) + tensor, None) is None
    assert matcher(tensor.cast(F32) + 1 + 1, None) is None
    vector = UOp(Op.VECTORIZE, dtypes.int32.vec(2), (A.cast(dtypes.int32),) * 2)
    assert matcher(vector + 1 + 2, None) is vector + 3


def test_nodes_of_an_equation_on_either_side_of_a_comparison_are_of_one_dtype() -> None:
    x, y = variables("x", "y")
    flips = equation(x.logical_not().not_equal(y), x.not_equal(y), dtypes=(dtypes.bool,))
    matcher = compile_matcher(Op.CMPNE, [flips])
    assert matcher is not None
    truth = A < B
    real = A.cast(F32)
    assert matcher(truth.logical_not().not_equal(A < 3), None) is truth.not_equal(A < 3)
    assert matcher(real.not_equal(1.0).not_equal(A < 3), None) is None
    mixed = compile_matcher(Op.AND, [equation((x < x) & (y < y), x < y, dtypes=INTEGERS)])
    assert mixed is not None
    assert mixed((A < A) & (B < B), None) is (A < B)
    short = B.cast(dtypes.int8)
    assert mixed((A < A) & (short < short), None) is None


def test_a_comparison_made_on_the_right_side_is_bool() -> None:
    x, (c, d) = variables("x")[0], constants("c", "d")
    rules = [equation((x * c) < d, (c < d).where(x < c, d < x), dtypes=INTEGERS)]
    matcher = compile_matcher(Op.CMPLT, rules)
    assert matcher is not None
    made = matcher(A * 2 < 3, None)
    assert made is UOp.const(True, dtypes.bool).where(A < 2, UOp.const(3, dtypes.index) < A)


def test_the_text_names_the_rules() -> None:
    (x,) = variables("x")
    text = matcher_source(Op.ADD, [equation(x + 0, x, dtypes=INTEGERS)])
    assert text.splitlines()[0] == "def rewrite_ADD(node, ctx):"
    assert "# x + 0 -> x" in text
