"""Whole-graph helpers are right, share work, and do not recurse."""

from kernelet.base.dtype import dtypes
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp
from kernelet.graph.walk import (
    VIEWS,
    apply_view,
    base_of,
    binds_in,
    consumers_of,
    only_below,
    reachable,
    rebuild,
    sizes_of,
    split_view,
    substitute,
    toposort_with_sizes,
    with_bound_values,
    with_free_variables,
)

F32 = dtypes.float32


def test_substitute_replaces_every_use_and_keeps_the_rest() -> None:
    x, y, z = (UOp.variable(name, 0, 9) for name in "xyz")
    kept = y * 2
    assert substitute((x + kept) * x, {x: z}) is (z + kept) * z
    assert substitute(kept, {x: z}) is kept


def test_substitute_takes_a_replacement_as_it_is() -> None:
    x, y = UOp.variable("x", 0, 9), UOp.variable("y", 0, 9)
    assert substitute(x + y, {x: y, y: x}) is y + x
    assert substitute(x + 1, {x: x * 2}) is x * 2 + 1
    assert substitute(x, {x: y}) is y


def test_substitute_reaches_symbolic_sizes() -> None:
    n = UOp.variable("n", 1, 8)
    bound = n.bind(3)
    buffer = UOp.buffer(8, F32, "CPU")
    part = UOp(Op.SHRINK, F32, (buffer,), ((0, bound + 1),))
    freed = substitute(part, {bound: n})
    assert freed.arg == ((0, n + 1),)
    assert substitute(part, {bound + 1: UOp.const(4, dtypes.index)}).arg == ((0, 4),)


def test_substitute_does_not_recurse_and_visits_shared_nodes_once() -> None:
    x, y = UOp.variable("x", 0, 9), UOp.variable("y", 0, 9)
    chain = x
    for _ in range(20_000):
        chain = chain + 1
    assert len(substitute(chain, {x: y}).toposort()) == 20_002
    doubled, expected = x, y
    for _ in range(200):
        doubled, expected = doubled + doubled, expected + expected
    assert substitute(doubled, {x: y}) is expected


def test_sizes_are_found_and_mapped() -> None:
    n = UOp.variable("n", 1, 8)
    buffer = UOp.buffer(8, F32, "CPU")
    padded = UOp(Op.PAD, F32, (buffer,), ((n, 0),))
    assert list(sizes_of(padded)) == [n]
    assert substitute(padded, {n: n + 1}).arg == ((n + 1, 0),)
    assert list(toposort_with_sizes(padded)) == [buffer, n, padded]


def test_consumers_are_listed_once_each() -> None:
    x = UOp.variable("x", 0, 9)
    square, plus = x * x, x + 1
    root = UOp.sink(square, plus)
    consumers = consumers_of(root)
    assert consumers[x] == [square, plus]
    assert consumers[square] == [root]
    assert consumers[root] == []


def test_bound_values_take_the_place_of_variables_in_sizes() -> None:
    variable = UOp.variable("n", 1, 8)
    bound = variable.bind(3)
    memory = UOp.buffer(8, dtypes.float32, "CPU")
    part = UOp(Op.SHRINK, dtypes.float32, (memory,), ((0, bound),))
    assert with_bound_values(part).shape == (3,)
    assert with_bound_values(memory) is memory
    assert binds_in(part) == [bound]
    free = with_free_variables(part)
    assert free.shape == (variable,)
    assert with_free_variables(free) is free


def test_a_rebuilt_graph_is_the_same_where_nothing_changes() -> None:
    x = UOp.variable("x", 0, 7)
    graph = (x + 1) * 2
    assert rebuild(graph, lambda _, made: made) is graph
    doubled = rebuild(graph, lambda node, made: made * 2 if node is x else made)
    assert doubled is (x * 2 + 1) * 2


def test_movements_are_taken_off_and_put_back() -> None:
    memory = UOp.buffer(6, F32, "CPU")
    square = UOp(Op.RESHAPE, F32, (memory,), (2, 3))
    turned = UOp(Op.PERMUTE, F32, (UOp(Op.DETACH, F32, (square,)),), (1, 0))
    chain, base = split_view(turned)
    assert ([step.op for step in chain], base) == ([Op.PERMUTE, Op.RESHAPE], memory)
    assert apply_view(chain, base) is UOp(Op.PERMUTE, F32, (square,), (1, 0))
    assert base_of(turned).op is Op.DETACH
    assert base_of(turned, VIEWS) is memory


def test_a_walk_meets_each_node_once_and_stops_where_it_is_told() -> None:
    x = UOp.variable("x", 0, 9)
    y = x + 1
    z = y * y
    assert sorted(reachable([z, y]), key=id) == sorted(z.toposort(), key=id)
    assert set(reachable([z], lambda node: () if node is y else node.src)) == {z, y}


def test_what_movements_show_to_one_reader_alone_is_found() -> None:
    x = UOp.variable("x", 0, 9).cast(F32)
    total = x * 2.0
    row = UOp(Op.RESHAPE, F32, (total,), (1,))
    flipped = UOp(Op.FLIP, F32, (row,), (0,))
    shown = flipped.alu(Op.NEG)
    assert only_below(shown, consumers_of(shown)) is total
    wide = UOp(Op.EXPAND, F32, (row,), (3,)).alu(Op.NEG)
    assert only_below(wide, consumers_of(wide)) is wide.src[0]
    both = UOp.sink(shown, row.alu(Op.EXP2))
    assert only_below(shown, consumers_of(both)) is None
