from tinygrad import dtypes
from tinygrad.uop.ops import GroupOp, Ops, PatternMatcher, UOp, UPat, graph_rewrite

x, y = UOp.variable("x", 0, 10), UOp.variable("y", 0, 10)
simple = PatternMatcher(
    [
        (UPat.var("a") * 0, lambda a: a.const_like(0)),
        (UPat.var("a") + 0, lambda a: a),
        (UPat.var("a") * 1, lambda a: a),
        ((UPat.var("a") + UPat.cvar("c1")) + UPat.cvar("c2"), lambda a, c1, c2: a + (c1.arg + c2.arg)),
    ]
)
print(graph_rewrite(x * 1 + 0, simple) is x)
print(graph_rewrite((x + 2) + 3, simple).render(), graph_rewrite(x * 0, simple).arg)
seen = []
count = PatternMatcher(
    [(UPat(GroupOp.ALU, name="u"), lambda ctx, u: ctx.append(u.op) if u.op not in ctx else None)]
)
graph_rewrite((x + 1) * (y + 1), count, ctx=seen)
print([op.name for op in seen])
named = PatternMatcher([(UPat(Ops.ADD, src=(UPat.var("l"), UPat.var("r")), name="add"), lambda add, l, r: l * r)])
print(graph_rewrite(x + y, named).render())
both = simple + named
print(both.rewrite(x * 1) is x, both.rewrite(x + y).op is Ops.MUL)
either = PatternMatcher([(UPat((Ops.ADD, Ops.MUL), src=(UPat.any(UPat.cvar("c"), UPat.var("v")), UPat.var("w"))), lambda w, c=None, v=None: w)])
print(either.rewrite(x + y) is y)
anylen = PatternMatcher([(UPat(Ops.SINK, src=(UPat.var("first"),), allow_any_len=True), lambda first: first)])
print(anylen.rewrite(UOp.sink(x, y, x + y)) is x)
print(UOp.const(3, dtypes.int).arg, UOp.const(2, dtypes.float).arg, x.op in (Ops.VARIABLE, ) if hasattr(Ops, "VARIABLE") else True, Ops.ADD, str((x + y).op), len((x + y).toposort()) >= 3)
folded = graph_rewrite(UOp.const(2, dtypes.int) + UOp.const(3, dtypes.int), PatternMatcher([(UPat(Ops.ADD, src=(UPat.cvar("a"), UPat.cvar("b"))), lambda a, b: a.const_like(a.arg + b.arg))]))
print(folded.arg)
