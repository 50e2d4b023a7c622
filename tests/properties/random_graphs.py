"""Random tensor graphs with data: every op, many shapes, reductions in reductions, writes.

Floats are small multiples of 1/4 at first; a value that rounding may have touched is `rough` and
is never compared, truncated or cast to a whole number, so that a difference in the last bit stays
one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

from kernelet.base.dtype import DType, Scalar, dtypes, round_to
from kernelet.graph.infer import Shape
from kernelet.graph.ops import MOVEMENT, OP_TABLE, Op
from kernelet.graph.uop import ReduceArg, UOp
from tests.properties.graph_runs import Problem, Values
from tests.reference.evaluate import Evaluator

SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17, 19, 24, 31, 32, 33, 37, 64, 67, 100)
DTYPES = (
    *(dtypes.float32,) * 6,
    *(dtypes.int32,) * 3,
    *(dtypes.bool, dtypes.uint8, dtypes.int64, dtypes.float64, dtypes.float16, dtypes.bfloat16),
    *(dtypes.int8, dtypes.uint16, dtypes.uint32, dtypes.uint64),
)
INTEGER_OPS = (Op.ADD, Op.MUL, Op.MAX, Op.IDIV, Op.MOD, Op.AND, Op.OR, Op.XOR)
BOOL_OPS = (Op.AND, Op.OR, Op.XOR, Op.MAX, Op.MUL, Op.ADD)
EXACT_LIMIT = {"float16": 2.0**8, "bfloat16": 2.0**5, "float32": 2.0**20, "float64": 2.0**40}


class RandomGraph:
    """Grows a graph node by node, with the value of each."""

    def __init__(self, seed: int, most: int = 1500) -> None:
        self.random = random.Random(seed)
        self.most = most
        self.problem = Problem([])
        self.evaluator = Evaluator({})
        self.nodes: list[UOp] = []
        self.rough: set[UOp] = set()
        # The newest state of written memory; older states are read, but not written again.
        self.newest: dict[UOp, UOp] = {}
        self.float_only = self.random.random() < 0.4

    # ---- leaves ----

    def dtype(self) -> DType:
        return dtypes.float32 if self.float_only else self.random.choice(DTYPES)

    def shape(self) -> tuple[int, ...]:
        while True:
            shape = tuple(
                self.random.choice(SIZES)
                for _ in range(self.random.choice((0, 1, 1, 2, 2, 2, 3, 4)))
            )
            if math.prod(shape) <= self.most:
                return shape

    def element(self, dtype: DType) -> Scalar:
        choose = self.random
        if dtype.is_bool:
            return choose.random() < 0.5
        if dtype.is_float:
            return choose.randrange(-8, 9) / 4
        if choose.random() < 0.1:
            return int(choose.choice((dtype.min, dtype.max)))
        return round_to(dtype, choose.randrange(-5, 12))

    def leaf(self, dtype: DType | None = None, shape: Sequence[int] | None = None) -> UOp:
        dtype = dtype or self.dtype()
        shape = self.shape() if shape is None else tuple(shape)
        kind = self.random.random()
        if kind < 0.1:
            node = UOp.const(self.element(dtype), dtype)
            return self.keep(node.broadcast_to(shape) if shape else node)
        if kind < 0.2 and dtype.is_integer and shape:
            count = UOp(Op.ARANGE, dtypes.int32, (), (math.prod(shape),)).cast(dtype)
            return self.keep(UOp(Op.RESHAPE, dtype, (count,), shape))
        elements = [self.element(dtype) for _ in range(math.prod(shape))]
        node = self.problem.leaf(dtype, elements)
        self.evaluator.known[node] = elements
        self.newest[node] = node
        if shape != (len(elements),):
            node = UOp(Op.RESHAPE, dtype, (node,), shape)
        return self.keep(node)

    def value(self, node: UOp) -> Values:
        """The elements of a node; each node is evaluated once."""
        return self.evaluator.value(node)

    def keep(self, node: UOp) -> UOp:
        """Note a node and whether rounding may have touched it."""
        for below in node.toposort():
            if (
                below not in self.rough
                and below.dtype.is_float
                and below.op is not Op.CONST
                and self._is_rough(below)
            ):
                self.rough.add(below)
        self.nodes.append(node)
        return node

    def _is_rough(self, node: UOp) -> bool:
        if any(source in self.rough for source in node.src):
            return True
        if node.op in (*MOVEMENT, Op.PARAM, Op.GATHER, Op.MAX, Op.WHERE, Op.NEG, Op.TRUNC):
            return False
        values = self.value(node)
        limit = EXACT_LIMIT[node.dtype.name]
        if any(v != v or abs(v) > limit or v * 64 % 1 for v in values):
            return True
        if node.op is Op.CAST:
            return [float(v) for v in self.value(node.src[0])] != values
        if node.op in (Op.ADD, Op.MUL):
            meaning = OP_TABLE[node.op].meaning
            return list(map(meaning, *[self.value(source) for source in node.src])) != values
        if node.op is Op.REDUCE:
            if node.arg.op is Op.MUL or node.dtype.itemsize < 4:
                return node.arg.op is not Op.MAX
            return sum(abs(v) for v in self.value(node.src[0])) > limit
        return node.op not in (Op.CONTIGUOUS, Op.DETACH, Op.AFTER, Op.ASSIGN)

    # ---- picking ----

    def pick(self, dtype: DType | None = None) -> UOp:
        known = [n for n in self.nodes if dtype is None or n.dtype is dtype]
        known = known or [self.leaf(dtype)]
        return known[-1] if self.random.random() < 0.45 else self.random.choice(known)

    def exact(self, dtype: DType) -> UOp:
        """A value of some dtype that no rounding has touched."""
        known = [n for n in self.nodes if n.dtype is dtype and n not in self.rough]
        return self.random.choice(known) if known else self.leaf(dtype)

    def like(self, node: UOp, dtype: DType | None = None, exact: bool = False) -> UOp:
        """A value of the shape of `node`: known, broadcast, or cut and padded to size."""
        dtype = dtype or node.dtype
        known = [n for n in self.nodes if n.dtype is dtype and not (exact and n in self.rough)]
        same = [n for n in known if n.shape == node.shape]
        if same and self.random.random() < 0.6:
            return self.random.choice(same)
        spread = [n for n in known if _broadcasts(n.shape, node.shape)]
        if spread and self.random.random() < 0.6:
            return broadcast(self.random.choice(spread), node.shape)
        if known and self.random.random() < 0.5:
            return fit(self.random.choice(known), node.shape)
        shape = [1 if self.random.random() < 0.4 else size for size in node.shape]
        return broadcast(self.leaf(dtype, shape), node.shape)

    # ---- growing ----

    def grow(self) -> None:
        """Add one more value."""
        steps: tuple[tuple[int, Callable[[], UOp | None]], ...] = (
            (10, self.unary),
            (22, self.binary),
            (6, self.choice),
            (6, self.cast),
            (24, self.move),
            (16, self.reduce),
            (4, self.softmax),
            (4, self.normalized),
            (6, self.contraction),
            (5, self.windows),
            (3, self.running),
            (5, self.picked),
            (4, self.stored),
            (5, self.written),
            (3, self.leaf),
        )
        weights = [weight for weight, _ in steps]
        (_, step) = self.random.choices(steps, weights)[0]
        node = step()
        if node is None or math.prod(node.shape) > self.most:
            return
        values = self.value(node)
        if node.dtype.is_float and any(abs(v) > 1e6 and math.isfinite(v) for v in values):
            return
        if node.dtype is dtypes.float16 and any(abs(v) > 1e3 for v in values):
            return
        self.keep(node)

    def unary(self) -> UOp | None:
        x = self.pick()
        if not x.dtype.is_float:
            return x.logical_not() if x.dtype.is_bool else -x
        op = self.random.choice(
            (Op.NEG, Op.SQRT, Op.RECIPROCAL, Op.EXP2, Op.LOG2, Op.SIN, Op.TRUNC)
        )
        values = self.value(x)
        rough = x in self.rough
        steep = {
            Op.SQRT: lambda v: v >= 0.1,
            Op.RECIPROCAL: lambda v: abs(v) >= 0.25,
            Op.EXP2: lambda v: abs(v) <= 8,
            Op.LOG2: lambda v: v >= 0.25,
            Op.SIN: lambda v: abs(v) <= 50,
        }
        if op is Op.TRUNC and rough:
            return None
        if op in steep and rough and not all(map(steep[op], values)):
            return None
        return x.alu(op)

    def binary(self) -> UOp | None:
        x = self.pick()
        if self.random.random() < 0.2:
            x = self.exact(x.dtype)
            y = self.like(x, exact=True)
            return x.alu(self.random.choice((Op.CMPLT, Op.CMPNE)), y)
        y = self.like(x)
        if x.dtype.is_bool:
            return x.alu(self.random.choice(BOOL_OPS), y)
        if x.dtype.is_float:
            return x.alu(self.random.choice((Op.ADD, Op.ADD, Op.MUL, Op.MUL, Op.MAX)), y)
        if self.random.random() < 0.15:
            amount = y & (x.dtype.itemsize * 8 - 1)
            return x.alu(self.random.choice((Op.SHL, Op.SHR)), amount)
        return x.alu(self.random.choice(INTEGER_OPS), y)

    def choice(self) -> UOp:
        x = self.pick()
        return self.like(x, dtypes.bool).where(x, self.like(x))

    def cast(self) -> UOp:
        dtype = self.dtype()
        x = self.pick()
        if x in self.rough and not dtype.is_float:
            x = self.exact(x.dtype)
        return x.cast(dtype)

    def move(self) -> UOp:
        x = self.pick()
        for _ in range(self.random.choice((1, 1, 2, 3, 5))):
            x = random_movement(self.random, x, self.most)
        return x

    def axes(self, shape: Shape) -> tuple[int, ...]:
        count = self.random.choice((1, 1, 1, 2, len(shape)))
        return tuple(sorted(self.random.sample(range(len(shape)), min(count, len(shape)))))

    def reduce(self) -> UOp | None:
        x = self.pick()
        if not x.shape:
            return None
        ops = (Op.MAX,) if x.dtype.is_bool else (Op.ADD, Op.ADD, Op.ADD, Op.MAX, Op.MUL)
        op = self.random.choice(ops)
        if op is Op.MUL and x.dtype.is_float:
            # A product may overflow on the way, in one order and not in another.
            sizes = [abs(math.log2(abs(v))) for v in self.value(x) if v and math.isfinite(v)]
            if sum(sizes) > 20:
                return None
        is_narrow = op is Op.ADD and x.dtype.is_float and x.dtype.itemsize == 2
        # Sums in sums are added up at once, so that they are rounded less often.
        if is_narrow and not sum(map(abs, self.value(x))) <= EXACT_LIMIT[x.dtype.name]:
            return None
        node = reduce(x, op, self.axes(x.shape))
        return drop(node) if self.random.random() < 0.5 else node

    def softmax(self) -> UOp | None:
        x = self.pick(dtypes.float32)
        if not x.shape or any(not abs(v) < 30 for v in self.value(x)):
            return None
        axes = self.axes(x.shape)
        top = reduce(x, Op.MAX, axes)
        power = (x - broadcast(top, x.shape)).alu(Op.EXP2)
        total = reduce(power, Op.ADD, axes)
        return power * broadcast(total, x.shape).alu(Op.RECIPROCAL)

    def normalized(self) -> UOp | None:
        x = self.pick(dtypes.float32)
        if not x.shape or any(not abs(v) < 1e3 for v in self.value(x)):
            return None
        axes = self.axes(x.shape)
        share = 1 / math.prod(x.shape[axis] for axis in axes)
        apart = x - broadcast(reduce(x, Op.ADD, axes) * share, x.shape)
        variance = reduce(apart * apart, Op.ADD, axes) * share
        scale = (variance + 1.0).alu(Op.SQRT).alu(Op.RECIPROCAL)
        return apart * broadcast(scale, x.shape)

    def contraction(self) -> UOp | None:
        dtype = self.random.choice((dtypes.float32, dtypes.float32, dtypes.int32))
        known = [n for n in self.nodes if n.dtype is dtype and len(n.shape) == 2]
        x = self.random.choice(known) if known else self.leaf(dtype, (self.size(), self.size()))
        rows, inner = x.shape
        known = [n for n in known if n.shape[0] == inner]
        y = self.random.choice(known) if known else self.leaf(dtype, (inner, self.size()))
        columns = y.shape[1]
        if rows * inner * columns > 8 * self.most:
            return None
        left = expand(reshape(x, (rows, 1, inner)), (rows, columns, inner))
        right = expand(reshape(permute(y, (1, 0)), (1, columns, inner)), (rows, columns, inner))
        return drop(reduce(left * right, Op.ADD, (2,)))

    def size(self) -> int:
        return self.random.choice((1, 2, 3, 5, 8, 13, 16, 17, 24, 33))

    def windows(self) -> UOp | None:
        x = self.pick(dtypes.float32)
        if not x.shape or x.shape[-1] < 2:
            return None
        size, count = x.shape[-1], self.random.randrange(2, min(5, x.shape[-1]) + 1)
        if math.prod(x.shape) * count > 4 * self.most:
            return None
        if self.random.random() < 0.5:
            x = pad(x, (*((0, 0),) * (len(x.shape) - 1), (1, 1)))
            size += 2
        seen = sliding(x, count, self.random.choice((1, 1, 2)))
        if seen is None:
            return None
        if self.random.random() < 0.5:
            return drop(reduce(seen, self.random.choice((Op.ADD, Op.MAX)), (len(seen.shape) - 2,)))
        weight = self.leaf(dtypes.float32, (count, 1))
        return drop(reduce(seen * broadcast(weight, seen.shape), Op.ADD, (len(seen.shape) - 2,)))

    def running(self) -> UOp | None:
        x = self.pick()
        if not x.shape or x.dtype.is_bool or math.prod(x.shape) * x.shape[-1] > 4 * self.most:
            return None
        size = x.shape[-1]
        padded = pad(x, (*((0, 0),) * (len(x.shape) - 1), (size - 1, 0)))
        seen = sliding(padded, size, 1) if size > 1 else reshape(padded, (*x.shape[:-1], 1, 1))
        assert seen is not None
        op = self.random.choice((Op.ADD, Op.ADD, Op.MAX))
        return drop(reduce(seen, op, (len(seen.shape) - 2,)))

    def picked(self) -> UOp | None:
        """Elements at places that are computed; 0 where there is no such place."""
        x = self.pick()
        if not x.shape:
            return None
        axis, count = self.random.randrange(len(x.shape)), self.random.choice((1, 3, 8, 17))
        if math.prod(x.shape) * count > 8 * self.most:
            return None
        shape = (*x.shape, count)
        values = expand(reshape(x, (*x.shape, 1)), shape)
        dtype = self.random.choice((dtypes.int32, dtypes.int32, dtypes.uint8, dtypes.int64))
        thin = tuple(1 if at == axis else size for at, size in enumerate(shape))
        wanted = self.like(UOp.const(0, dtype).broadcast_to(thin))
        if self.random.random() < 0.3:
            return UOp(Op.GATHER, x.dtype, (values, wanted), axis)
        size = x.shape[axis]
        place = UOp(Op.ARANGE, dtypes.int32, (), (size,)).cast(dtype)
        places = reshape(place, tuple(size if at == axis else 1 for at in range(len(shape))))
        differs = expand(places, shape).not_equal(expand(wanted, shape))
        chosen = differs.where(values.const_like(0), values)
        return drop(reduce(chosen, Op.ADD, (axis,)))

    def stored(self) -> UOp:
        x = self.pick()
        if self.random.random() < 0.3:
            return UOp(Op.DETACH, x.dtype, (x,))
        node = UOp(Op.CONTIGUOUS, x.dtype, (x,))
        self.newest.setdefault(node, node)
        return node

    def written(self) -> UOp | None:
        """Memory after a write to a part of it."""
        old, storage = self.random.choice(list(self.newest.items()) or [(None, None)])
        if storage is None or not math.prod(storage.shape):
            return None
        view = random_view(self.random, storage)
        value = self.like(view, view.dtype)
        if self.random.random() < 0.4:
            # In place, or from other elements of the same memory.
            other = view if self.random.random() < 0.5 else fit(storage, view.shape)
            value = other.alu(Op.MAX if view.dtype.is_bool else Op.ADD, value)
        if any(abs(v) > 1e6 and math.isfinite(v) for v in self.value(value) if view.dtype.is_float):
            return None
        after = UOp(Op.AFTER, storage.dtype, (storage, UOp(Op.ASSIGN, view.dtype, (view, value))))
        self.newest[old] = after
        return after

    # ---- the whole ----

    def ask(self, steps: int) -> Problem:
        """Grow, then ask for the last value and some others."""
        for _ in range(steps):
            self.grow()
        count = self.random.choice((1, 1, 2, 3, 5))
        asked = [self.nodes[-1], *self.random.sample(self.nodes, min(count, len(self.nodes)))]
        asked += [
            n for old, n in self.newest.items() if n is not old and self.random.random() < 0.5
        ]
        self.problem.asked = list(dict.fromkeys(asked))
        return self.problem


# ---- building blocks ----


def reshape(x: UOp, shape: Sequence[int]) -> UOp:
    return x if x.shape == tuple(shape) else UOp(Op.RESHAPE, x.dtype, (x,), tuple(shape))


def permute(x: UOp, order: Sequence[int]) -> UOp:
    return UOp(Op.PERMUTE, x.dtype, (x,), tuple(order))


def expand(x: UOp, shape: Shape) -> UOp:
    return x if x.shape == tuple(shape) else UOp(Op.EXPAND, x.dtype, (x,), tuple(shape))


def pad(x: UOp, pairs: Sequence[tuple[int, int]]) -> UOp:
    return UOp(Op.PAD, x.dtype, (x,), tuple(pairs))


def shrink(x: UOp, pairs: Sequence[tuple[int, int]]) -> UOp:
    return UOp(Op.SHRINK, x.dtype, (x,), tuple(pairs))


def reduce(x: UOp, op: Op, axes: Sequence[int]) -> UOp:
    return UOp(Op.REDUCE, x.dtype, (x,), ReduceArg(op, tuple(axes)))


def drop(node: UOp) -> UOp:
    """A reduction without the axes that it leaves behind."""
    kept = [size for axis, size in enumerate(node.shape) if axis not in node.arg.axes]
    return reshape(node, kept)


def _broadcasts(small: Shape, large: Shape) -> bool:
    pairs = zip(reversed(small), reversed(large), strict=False)
    return len(small) <= len(large) and all(a in (1, b) for a, b in pairs)


def broadcast(x: UOp, shape: Shape) -> UOp:
    return expand(reshape(x, ((1,) * (len(shape) - len(x.shape)) + x.shape)), shape)


def fit(x: UOp, shape: Shape) -> UOp:
    """The elements of `x` in order, cut or padded to another shape."""
    flat = reshape(x, (math.prod(x.shape),))
    have, want = flat.shape[0], math.prod(shape)
    if want < have:
        flat = shrink(flat, ((have - want, have),))
    elif want > have:
        flat = pad(flat, ((0, want - have),))
    return reshape(flat, shape)


def sliding(x: UOp, count: int, dilation: int) -> UOp | None:
    """Windows of the last axis: (..., size) -> (..., count, size - dilation * (count - 1))."""
    *rest, size = x.shape
    out = size - dilation * (count - 1)
    if out < 1:
        return None
    copies = expand(reshape(x, (*rest, 1, size)), (*rest, count, size))
    flat = reshape(copies, (*rest, count * size))
    longer = pad(flat, (*((0, 0),) * len(rest), (0, count * dilation)))
    rows = reshape(longer, (*rest, count, size + dilation))
    whole = tuple((0, n) for n in rest)
    return shrink(rows, (*whole, (0, count), (0, out)))


def random_movement(choose: random.Random, x: UOp, most: int) -> UOp:
    """One movement op that fits."""
    shape = x.shape
    kind = choose.choice(
        (Op.RESHAPE, Op.RESHAPE, Op.PERMUTE, Op.EXPAND, Op.PAD, Op.SHRINK, Op.FLIP)
    )
    axes = range(len(shape))
    if kind is Op.RESHAPE:
        return reshape(x, random_factors(choose, math.prod(shape)))
    if kind is Op.PERMUTE and len(shape) > 1:
        return permute(x, choose.sample(axes, len(shape)))
    if kind is Op.EXPAND:
        at = choose.randrange(len(shape) + 1)
        wide = reshape(x, (*shape[:at], 1, *shape[at:]))
        size = choose.choice((2, 3, 5, 16, 17))
        sizes = (*shape[:at], size, *shape[at:])
        return expand(wide, sizes) if math.prod(sizes) <= most else x
    if kind is Op.PAD and shape:
        pairs = [(choose.choice((0, 0, 1, 3)), choose.choice((0, 0, 1, 2))) for _ in axes]
        grown = math.prod(size + sum(pair) for size, pair in zip(shape, pairs, strict=True))
        return pad(x, pairs) if grown <= most and any(map(sum, pairs)) else x
    if kind is Op.SHRINK and shape:
        pairs = []
        for size in shape:
            begin = choose.randrange(size) if choose.random() < 0.5 else 0
            pairs.append((begin, choose.randrange(begin + 1, size + 1)))
        return shrink(x, pairs)
    if kind is Op.FLIP and shape:
        return UOp(
            Op.FLIP,
            x.dtype,
            (x,),
            tuple(sorted(choose.sample(axes, choose.randrange(1, len(shape) + 1)))),
        )
    return x


def random_factors(choose: random.Random, count: int) -> tuple[int, ...]:
    """Sizes with a given product."""
    factors = []
    while count > 1 and len(factors) < 4:
        options = [n for n in range(1, count + 1) if count % n == 0]
        factors.append(choose.choice(options))
        count //= factors[-1]
    factors.insert(choose.randrange(len(factors) + 1), count)
    return tuple(factors)


def random_view(choose: random.Random, storage: UOp) -> UOp:
    """A part of memory that can be written."""
    view = storage
    for _ in range(choose.randrange(4)):
        moved = random_movement(choose, view, math.prod(storage.shape))
        if moved is not view and moved.src == (view,) and moved.op not in (Op.EXPAND, Op.PAD):
            view = moved
    return view
