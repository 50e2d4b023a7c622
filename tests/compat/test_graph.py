"""Nodes, patterns and rules as tinygrad programs write them."""

import pytest

from kernelet.base.dtype import dtypes
from kernelet.base.errors import ArgumentError
from kernelet.compat import graph as compat
from kernelet.compat.graph import PatternMatcher, UOp, UPat, graph_rewrite
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp as Node
from tests.compat.runs import printed

x, y = UOp.variable("x", 0, 10), UOp.variable("y", 0, 10)


def test_constants_come_in_both_orders():
    three = Node.const(3, dtypes.int32)
    assert UOp.const(3, dtypes.int32) is UOp.const(dtypes.int32, 3) is three
    assert UOp.const(2.5).dtype is dtypes.float32
    for wrong in ((dtypes.int32, dtypes.int32), (1, 2), (dtypes.int32,)):
        with pytest.raises(ArgumentError, match="a number and a dtype"):
            UOp.const(*wrong)


def test_nodes_are_kernelets():
    assert isinstance(x, UOp)
    assert not isinstance(3, UOp)
    assert UOp(Op.ADD, src=(x, y)) is x + y
    assert UOp(Op.CMPLT, src=(x, y)).dtype is dtypes.bool
    assert UOp.sink(x).op is Op.SINK


def test_a_pattern_fits_one_of_several():
    rules = PatternMatcher([(UPat.any(UPat.var("a") + 0, UPat.var("a") * 1), lambda a: a)])
    assert rules.rewrite(x + 0) is x
    assert rules.rewrite(x * 1) is x
    assert rules.rewrite(x * 2) is None


def test_a_cast_may_be_looked_through():
    rules = PatternMatcher([(UPat.var("a").or_casted() + UPat.cvar(), lambda a: a)])
    assert rules.rewrite(x.cast(dtypes.int32) + 1) is x.cast(dtypes.int32)
    assert rules.rewrite(x + 1) is x
    named = PatternMatcher([(UPat(Op.VARIABLE).or_casted("b") + 1, lambda b: b)])
    assert named.rewrite(x.cast(dtypes.int32) + 1) is x.cast(dtypes.int32)


def test_more_sources_may_follow():
    rules = PatternMatcher([(UPat(Op.SINK, src=(UPat.var("a"),), allow_any_len=True), lambda a: a)])
    assert rules.rewrite(UOp.sink(x)) is x
    assert rules.rewrite(UOp.sink(y, x, x)) is y
    assert rules.rewrite(UOp.sink()) is None


def test_parts_of_a_pattern_restrict_it():
    kinds = PatternMatcher([(UPat({Op.ADD, Op.MUL}, {dtypes.index}, name="n"), lambda n: x)])
    assert kinds.rewrite(x + y) is x
    assert kinds.rewrite((x + y).cast(dtypes.int32) + 1) is None
    number = PatternMatcher([(UPat.const(dtypes.index, 3).named("c"), lambda c: x)])
    assert number.rewrite(x.const_like(3)) is x
    assert number.rewrite(x.const_like(4)) is None
    every = PatternMatcher([(UPat(Op.ADD, src=UPat(Op.VARIABLE), name="n"), lambda n: x)])
    assert every.rewrite(x + y) is x
    assert every.rewrite(x + 1) is None


@pytest.mark.parametrize(
    ("pattern", "node"),
    [
        (UPat.var("a") - UPat.var("b"), x - y),
        (-UPat.var("a") * UPat.var("b"), -x * y),
        (UPat.var("a") // 2 + UPat.var("b") % 3, x // 2 + y % 3),
        ((UPat.var("a") < UPat.var("b")).where(1, UPat.var("b")), (x < y).where(1, y)),
        (UPat.var("a").alu(Op.MAX, UPat.var("b")), x.maximum(y)),
        (UPat.var("a").ne(UPat.var("b")), x.not_equal(y)),
        (UPat.var("a").cast(dtypes.float32).f(Op.SQRT), x.cast(dtypes.float32).alu(Op.SQRT)),
    ],
)
def test_operators_describe_what_they_make(pattern, node):
    assert PatternMatcher([(pattern, lambda a, b=None: a)]).rewrite(node) is x


def test_a_node_may_be_rewritten_before_its_sources():
    seen = []
    rules = PatternMatcher([(UPat((Op.ADD, Op.MUL), name="n"), lambda ctx, n: ctx.append(n.op))])
    graph_rewrite((x + 1) * y, rules, ctx=seen)
    graph_rewrite((x + 1) * y, rules, ctx=seen, bottom_up=True)
    assert seen == [Op.ADD, Op.MUL, Op.MUL, Op.ADD]
    lower = PatternMatcher([(UPat.var("a") * 2, lambda a: a + a)])
    assert graph_rewrite((x + 1) * 2, lower, bottom_up=True) is (x + 1) + (x + 1)


def test_symbolic_numbers_are_computed_where_they_are_known():
    assert compat.sym_infer(x * 2 + y, {"x": 3, "y": 2}) == 8
    assert compat.sym_infer(x * 2, {x: 4}) == 8
    assert compat.sym_infer(5, {}) == 5
    assert (compat.resolve(x < 20), compat.resolve(x < 5), compat.resolve(x < 5, False)) == (
        *(True, True),
        False,
    )
    assert compat.ssimplify(x.const_like(2) + 3) == 5
    assert compat.smax(1, 5, 3) == 5
    assert compat.smin([4, 2]) == 2
    assert compat.smax(x, 3).bounds == (3, 10)
    assert compat.smin(x, 3).bounds == (0, 3)


def test_nodes_have_tinygrads_members():
    code = "from tinygrad import Variable, Tensor\nfrom tinygrad.uop.ops import Ops\n"
    code += "a, b = Variable('a', 1, 9), Variable('b', 0, 3)\n"
    code += "print((a + 1).vmin, (a * b).vmax, (a + 1).render(), a.expr, a.bind(4).val)\n"
    code += "print(Ops.ADD, (a + 0).simplify() is a, a.minimum(b).vmax, a.eq(b).vmin)\n"
    code += "print([v.expr for v in (b + a).variables()], (a + b).substitute({b: a}).vmax)\n"
    code += "t = Tensor([1.0]); u = (t + 1).realize().uop\n"
    code += "print(t.uop.is_realized, u.base.realized is not None, (t + 1).uop.is_realized)\n"
    code += "print(t.lazydata is t.uop, Ops.DEFINE_VAR is Ops.VARIABLE, len((a + b).toposort()))"
    assert printed(code) == [
        "2 27 (a+1) a 4",
        "Ops.ADD True 3 False",
        "['a', 'b'] 18",
        "True True False",
        "True True 3",
    ]
