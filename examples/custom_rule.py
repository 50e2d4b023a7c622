"""Teach the graph a rule of your own: `python examples/custom_rule.py`.

In:  a tensor's lazy graph, and two rules.
Out: the graph before and after, and the values of both.

exp(log(x)) is x for every x above 0. The compiler cannot know that yours are, so it must not assume
it; you can.
"""

from kernelet import Ops, PatternMatcher, Tensor, UOp, UPat, graph_rewrite

x = UPat.var("x")


def exponential_undoes_logarithm(x: UOp) -> UOp:
    """2 ** log2(x) -> x"""
    return x


def product_of_inverses_is_one(x: UOp, factor: float, inverse: float) -> UOp | None:
    """x * factor * inverse -> x where factor * inverse is 1"""
    return x if abs(factor * inverse - 1) < 1e-6 else None


MY_RULES = PatternMatcher(
    [
        (UPat(Ops.EXP2, src=(UPat(Ops.LOG2, src=(x,)),)), exponential_undoes_logarithm),
        (
            x * UPat(constant=True, name="factor") * UPat(constant=True, name="inverse"),
            product_of_inverses_is_one,
        ),
    ]
)


def main() -> None:
    """Build a graph, rewrite it, run both."""
    values = Tensor([1.0, 2.0, 3.0])
    written = (values.log().exp() + 1).uop
    rewritten = graph_rewrite(written, MY_RULES)
    print(f"before: {len(written.toposort())} nodes")
    print(written)
    print(f"after: {len(rewritten.toposort())} nodes")
    print(rewritten)
    before, after = Tensor(written).tolist(), Tensor(rewritten).tolist()
    print("values:", before, after)
    assert after == [2.0, 3.0, 4.0]


if __name__ == "__main__":
    main()
