"""Rewriting reaches the fixed point, shares work, does not recurse, and says when it cannot end."""

import pytest

from kernelet.base.dtype import dtypes
from kernelet.base.errors import ArgumentError, InternalError
from kernelet.graph.ops import Op
from kernelet.graph.pattern import INTEGERS, Rule, UPat, equation, rule, variables
from kernelet.graph.rewrite import PatternMatcher, RuleSet, graph_rewrite
from kernelet.graph.show import show
from kernelet.graph.uop import UOp

x, y = variables("x", "y")
A, B = UOp.variable("a", 0, 9), UOp.variable("b", 0, 9)
NO_ZERO = RuleSet("no zero", equation(x + 0, x, dtypes=INTEGERS))
NO_DOUBLE = RuleSet("no double", equation(x + x, x * 2, dtypes=INTEGERS))


def test_a_rewritten_graph_reads_as_expected() -> None:
    assert show(graph_rewrite((A + 0) * (0 + B) + 0, NO_ZERO)).splitlines() == [
        "%0 = VARIABLE index a=0..9",
        "%1 = VARIABLE index b=0..9",
        "%2 = MUL index %0 %1",
    ]


def test_what_a_rule_makes_is_rewritten_too() -> None:
    both = NO_ZERO + NO_DOUBLE
    assert graph_rewrite((A + 0) + A, both) is A * 2


def test_a_graph_that_no_rule_fits_is_the_same_graph() -> None:
    root = (A + B) * 3
    assert graph_rewrite(root, NO_ZERO) is root
    assert graph_rewrite(root, RuleSet("nothing")) is root


def test_sums_of_rule_sets_try_the_left_one_first_and_are_compiled_once() -> None:
    one = RuleSet("one", Rule.of(UPat(Op.ADD), lambda: A))
    two = RuleSet("two", Rule.of(UPat(Op.ADD), lambda: B))
    assert graph_rewrite(A + B, one + two) is A
    assert graph_rewrite(A + B, two + one) is B
    assert one + two is one + two
    assert repr(one + two) == "RuleSet('one + two', 2 rules)"


def test_user_rules_are_pairs_of_pattern_and_function() -> None:
    rules = PatternMatcher(
        [
            (UPat.var("x") * UPat.const(None, 1), lambda x: x),
            (UPat(Op.ADD, name="sum", src=(UPat.cvar("k"), UPat())), lambda sum, k: sum.src[1] + k),
        ]
    )
    assert graph_rewrite((1 + A) * 1, rules) is A + 1
    assert rules.rewrite(A * 1) is A
    assert rules.rewrite(A * 2) is None
    assert rules.rewrite(-A) is None


def test_every_node_is_offered_once_sources_first() -> None:
    seen: list[UOp] = []

    @rule(UPat(name="node"))
    def looks(node: UOp, ctx: list[UOp]) -> UOp | None:
        ctx.append(node)
        return None

    shared = A + B
    root = shared * shared + shared
    graph_rewrite(root, RuleSet("looks", looks), ctx=seen)
    assert len(seen) == len(set(seen)) == 5
    assert seen.index(shared) < seen.index(shared * shared) < seen.index(root)


def test_deep_graphs_do_not_recurse() -> None:
    deep, expected = A, A
    for _ in range(20_000):
        deep, expected = (deep + 0) * B, expected * B
    assert graph_rewrite(deep, NO_ZERO) is expected


def test_deep_replacements_do_not_recurse() -> None:
    @rule(UPat(Op.MUL, src=(UPat.var("x"), UPat.cvar("k")), name="node"))
    def unrolled(node: UOp, x: UOp, k: UOp) -> UOp | None:
        return x if k.arg == 1 else x * (k.arg - 1) + x

    made = graph_rewrite(A * 5_000, RuleSet("unroll", unrolled))
    assert len(made.toposort()) == 5_000


def test_shared_graphs_take_linear_time() -> None:
    doubled, expected = A, A
    for _ in range(300):
        doubled = (doubled + 0) * (doubled + 0)
        expected = expected * expected
    assert graph_rewrite(doubled, NO_ZERO) is expected


def test_rules_that_undo_each_other_are_found_out() -> None:
    swap = RuleSet(
        "swap", Rule.of(UPat(Op.ADD, src=(UPat.var("x"), UPat.var("y"))), lambda x, y: y + x)
    )
    with pytest.raises(InternalError, match="swap: the rules never come to an end"):
        graph_rewrite((A + B) * 2, swap)


def test_rules_that_grow_without_end_are_found_out() -> None:
    around = RuleSet("around", Rule.of(UPat(Op.NEG, name="node"), lambda node: node * 2))
    with pytest.raises(InternalError, match="part of its own replacement"):
        graph_rewrite(-A, around)
    longer = RuleSet(
        "longer", Rule.of(UPat.var("x") + UPat.cvar("k"), lambda x, k: x + (k.arg + 1))
    )
    with pytest.raises(InternalError, match="pass 7: the rules never"):
        graph_rewrite(A + 1, longer, name="pass 7")


def test_a_rule_that_returns_no_node_is_named() -> None:
    wrong = RuleSet("wrong", Rule.of(UPat(Op.ADD), lambda: True))  # type: ignore[arg-type,return-value]
    with pytest.raises(ArgumentError, match="wrong: a rule made True of ADD"):
        graph_rewrite(A + B, wrong)


def test_the_compiled_text_can_be_read() -> None:
    assert "# x + x -> x * 2" in (NO_ZERO + NO_DOUBLE).source(Op.ADD)


def test_vectors_keep_their_lanes() -> None:
    vector = UOp(Op.VECTORIZE, dtypes.int32.vec(2), (A.cast(dtypes.int32), B.cast(dtypes.int32)))
    assert graph_rewrite(vector + 0, NO_ZERO) is vector
    assert graph_rewrite(vector + vector, NO_DOUBLE) is vector * 2
