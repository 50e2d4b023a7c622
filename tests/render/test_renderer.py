"""What every language must do with the same linear program."""

from __future__ import annotations

import math
import struct

import pytest

from kernelet.base.dtype import DType, dtypes, round_to
from kernelet.graph.ops import OP_TABLE, Op
from kernelet.graph.rewrite import graph_rewrite
from kernelet.graph.uop import UOp
from kernelet.lower.formats import CODED_FLOATS
from kernelet.render.renderer import gate_of, outline, safe_divisor
from tests.render.linear_programs import (
    Builder,
    Case,
    Run,
    check_cases,
    constant,
    decode,
    encode,
    extract,
    lanes_of,
    matmul_tile,
    row_maximum,
    samples,
    splat,
    vector_add,
)

COMPUTED = tuple(dtype for dtype in dtypes.all if not dtype.is_float or dtype.itemsize > 2)
LANES = pytest.mark.parametrize("lanes", [1, 16])
INTEGERS_AND_BOOL = (dtypes.bool, *dtypes.ints)


def float_case(op: Op, dtype: DType) -> bool:
    return dtype.is_float or op not in (Op.SQRT, Op.RECIPROCAL, Op.FDIV)


def binary_cases(op: Op, kinds: tuple[DType, ...]) -> list[Case]:
    cases = []
    for dtype in kinds:
        target = dtypes.bool if op in (Op.CMPLT, Op.CMPNE) else dtype
        meaning = OP_TABLE[op].meaning
        cases.append(
            Case(
                f"{op.name} {dtype.name}",
                (dtype, dtype),
                target,
                lambda x, y: x.alu(op, y),
                meaning,
            )
        )
    return cases


@LANES
def test_arithmetic_wraps_and_rounds_as_the_op_table_says(machine: Run, lanes: int) -> None:
    cases = []
    for op in (Op.ADD, Op.MUL, Op.SUB, Op.MAX, Op.CMPLT, Op.CMPNE):
        cases += binary_cases(op, COMPUTED)
    for op in (Op.AND, Op.OR, Op.XOR):
        cases += binary_cases(op, INTEGERS_AND_BOOL)
    cases += binary_cases(Op.FDIV, (dtypes.float32, dtypes.float64))
    check_cases(machine, cases, lanes)


@LANES
def test_unary_ops_follow_the_op_table(machine: Run, lanes: int) -> None:
    cases = [
        Case(f"{op.name} {dtype.name}", (dtype,), dtype, lambda x, op=op: x.alu(op), meaning)
        for op in (Op.NEG, Op.TRUNC, Op.SQRT, Op.RECIPROCAL)
        for dtype in COMPUTED
        for meaning in [OP_TABLE[op].meaning]
        if float_case(op, dtype)
    ]
    check_cases(machine, cases, lanes)


@LANES
def test_integer_division_rounds_to_zero_and_never_traps(machine: Run, lanes: int) -> None:
    cases = [case for op in (Op.TRUNCDIV, Op.TRUNCMOD) for case in binary_cases(op, dtypes.ints)]
    check_cases(machine, cases, lanes)


@LANES
def test_division_by_a_constant_equals_division_by_a_value(machine: Run, lanes: int) -> None:
    cases = [
        Case(
            f"{op.name} {dtype.name} {divisor}",
            (dtype,),
            dtype,
            lambda x, op=op, divisor=divisor: x.alu(op, constant(divisor, x.dtype)),
            lambda x, op=op, divisor=divisor: OP_TABLE[op].meaning(x, divisor),
        )
        for op in (Op.TRUNCDIV, Op.TRUNCMOD)
        for dtype in dtypes.ints
        for divisor in (1, 3, 100)
    ]
    check_cases(machine, cases, lanes)


@LANES
def test_shifts_keep_the_sign_of_signed_integers(machine: Run, lanes: int) -> None:
    cases = []
    for dtype in dtypes.ints:
        bits = dtype.itemsize * 8
        values = samples(dtype)
        amounts = [index % bits for index in range(len(values))]
        for op in (Op.SHL, Op.SHR):
            cases.append(
                Case(
                    f"{op.name} {dtype.name}",
                    (dtype, dtype),
                    dtype,
                    lambda x, y, op=op: x.alu(op, y),
                    OP_TABLE[op].meaning,
                    (values, amounts),
                )
            )
    check_cases(machine, cases, lanes)


@LANES
def test_where_picks_by_lane_whatever_made_the_condition(machine: Run, lanes: int) -> None:
    cases = []
    for dtype in COMPUTED:
        cases.append(
            Case(
                f"where bool {dtype.name}",
                (dtypes.bool, dtype, dtype),
                dtype,
                lambda c, x, y: c.where(x, y),
                lambda c, x, y: x if c else y,
            )
        )
        for other in (dtypes.int8, dtypes.float32, dtypes.float64):
            cases.append(
                Case(
                    f"where {other.name} < {dtype.name}",
                    (other, other, dtype, dtype),
                    dtype,
                    lambda a, b, x, y: (a < b).where(x, y),
                    lambda a, b, x, y: x if a < b else y,
                )
            )
    check_cases(machine, cases, lanes)


@LANES
def test_bools_of_different_widths_combine(machine: Run, lanes: int) -> None:
    def build(a: UOp, b: UOp, x: UOp, y: UOp, flag: UOp) -> UOp:
        either = (a < b) | x.not_equal(y).logical_not()
        return (either ^ flag) & (flag < (a < b)).where(flag, constant(True, flag.dtype))

    def meaning(a: float, b: float, x: float, y: float, flag: bool) -> bool:
        either = (a < b) | (x == y)
        return (either ^ flag) & (flag if flag < (a < b) else True)

    sources = (dtypes.float64, dtypes.float64, dtypes.int16, dtypes.int16, dtypes.bool)
    check_cases(machine, [Case("bools", sources, dtypes.bool, build, meaning)], lanes)


@LANES
def test_every_cast_gives_the_nearest_or_saturated_value(machine: Run, lanes: int) -> None:
    cases = [
        Case(
            f"{source.name} to {target.name}",
            (source,),
            target,
            lambda x, target=target: graph_rewrite(x.cast(target.vec(x.dtype.lanes)), CODED_FLOATS),
            lambda x: x,
        )
        for source in dtypes.all
        for target in dtypes.all
    ]
    check_cases(machine, cases, lanes)


def test_double_to_half_rounds_only_once(machine: Run) -> None:
    # Rounded to float first, each would be a tie and could go the other way.
    values = [1 + 2.0**-11 + 2.0**-40, 1 + 3 * 2.0**-11 - 2.0**-40, 2.0**-25 + 2.0**-60, 1e300]
    half = dtypes.float16
    case = Case("half", (dtypes.float64,), half, lambda x: x.cast(half), lambda x: x, (values,))
    check_cases(machine, [case], 1)


@LANES
def test_bitcast_keeps_the_bits(machine: Run, lanes: int) -> None:
    pairs = [
        (dtypes.float32, dtypes.int32, "<f", "<i"),
        (dtypes.uint32, dtypes.float32, "<I", "<f"),
        (dtypes.float64, dtypes.uint64, "<d", "<Q"),
        (dtypes.int64, dtypes.float64, "<q", "<d"),
        (dtypes.float16, dtypes.int16, "<e", "<h"),
        (dtypes.int8, dtypes.uint8, "<b", "<B"),
        (dtypes.bool, dtypes.uint8, "<?", "<B"),
        (dtypes.int32, dtypes.uint32, "<i", "<I"),
    ]
    cases = [
        Case(
            f"{source.name} bits to {target.name}",
            (source,),
            target,
            lambda x, target=target: x.bitcast(target.vec(x.dtype.lanes)),
            lambda x, a=before, b=after: struct.unpack(b, struct.pack(a, x))[0],
        )
        for source, target, before, after in pairs
    ]
    check_cases(machine, cases, lanes)


@LANES
def test_multiply_add_rounds_once(machine: Run, lanes: int) -> None:
    x = round_to(dtypes.float32, 1 + 2.0**-12)
    y = -1.0 - 2.0**-11
    make = Builder()
    out, factor, addend = (make.parameter(slot, dtypes.float32) for slot in range(3))
    square = make.load(factor, 0, lanes)
    total = UOp(Op.MULACC, square.dtype, (square, square, make.load(addend, 0, lanes)))
    make.store(out, 0, total)
    memories = [
        bytes(4 * lanes),
        encode(dtypes.float32, [x] * lanes),
        encode(dtypes.float32, [y] * lanes),
    ]
    found = decode(dtypes.float32, machine(make.program, memories)[0])
    assert found == [2.0**-24] * lanes


@LANES
def test_a_product_and_a_sum_are_rounded_twice(machine: Run, lanes: int) -> None:
    x, y = 1 + 2.0**-12, -1.0 - 2.0**-11
    make = Builder()
    out, factor, addend = (make.parameter(slot, dtypes.float32) for slot in range(3))
    square = make.load(factor, 0, lanes)
    make.store(out, 0, square * square + make.load(addend, 0, lanes))
    memories = [
        bytes(4 * lanes),
        encode(dtypes.float32, [x] * lanes),
        encode(dtypes.float32, [y] * lanes),
    ]
    assert decode(dtypes.float32, machine(make.program, memories)[0]) == [0.0] * lanes


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda dtype: dtype.name)
def test_constants_are_exact(machine: Run, dtype: DType) -> None:
    make = Builder()
    out = make.parameter(0, dtype)
    values = [round_to(dtype, value) for value in (*samples(dtype), 0.1, 1 / 3)]
    for place, value in enumerate(values):
        make.store(out, place, constant(value, dtype))
    make.store(out, len(values), constant(values[3], dtype.vec(16)))
    size = (len(values) + 16) * dtype.itemsize
    found = machine(make.program, [bytes(size)])[0]
    assert found == encode(dtype, values + [values[3]] * 16) or any(map(_is_nan, values))
    for value, wanted in zip(decode(dtype, found), values, strict=False):
        assert value == wanted or (_is_nan(value) and _is_nan(wanted))
        assert math.copysign(1, value) == math.copysign(1, wanted) or _is_nan(wanted)


def _is_nan(value: float) -> bool:
    return value != value


# ---- the outline ----


def test_names_are_readable_and_each_is_given_once() -> None:
    make = Builder()
    out, memory = make.parameter(0, dtypes.float32), make.parameter(1, dtypes.float32)
    first, second = make.variable("a b"), make.variable("a-b")
    loop = make.loop(first + second, "reduce")
    make.store(out, loop, make.load(memory, loop))
    make.end(loop)
    names = outline(make.program).names
    assert [names[node] for node in (out, memory, loop)] == ["out0", "in1", "r0"]
    assert [names[node] for node in (first, second)] == ["n_a_b", "n_a_b_2"]


def test_uses_are_counted_from_one_computation_to_the_next() -> None:
    make = Builder()
    out = make.parameter(0, dtypes.int32)
    make.store(out, 1, make.load(out, 0))
    make.store(out, 2, make.load(out, 0))
    loads = [place for place, node in enumerate(make.program) if node.op is Op.LOAD]
    uses = outline(make.program).uses
    assert [uses[place] for place in loads] == [1, 1]


def test_a_gate_that_is_always_true_is_no_gate() -> None:
    make = Builder()
    out = make.parameter(0, dtypes.int32)
    always = constant(True, dtypes.bool)
    assert gate_of(make.load(out, 0, gate=always)) is None
    assert gate_of(make.load(out, 0, gate=constant(False, dtypes.bool))) is not None


def test_a_divisor_is_safe_when_its_bounds_exclude_zero_and_minus_one() -> None:
    assert safe_divisor(constant(3, dtypes.int32))
    assert safe_divisor(constant(-2, dtypes.int32))
    assert not safe_divisor(constant(-1, dtypes.int32))
    assert not safe_divisor(UOp.variable("n", 0, 5))


# ---- memory and loops ----


@LANES
def test_vector_add_runs_only_the_thread_range_it_is_given(machine: Run, lanes: int) -> None:
    left = [float(index) for index in range(8 * lanes)]
    right = [index / 4 for index in range(8 * lanes)]
    memories = [bytes(32 * lanes), encode(dtypes.float32, left), encode(dtypes.float32, right)]
    found = decode(dtypes.float32, machine(vector_add(lanes), memories, (), range(2, 5))[0])
    inside = range(2 * lanes, 5 * lanes)
    wanted = [
        x + y if place in inside else 0.0
        for place, (x, y) in enumerate(zip(left, right, strict=True))
    ]
    assert found == wanted


@pytest.mark.parametrize(("rows", "lanes", "vectors"), [(8, 16, 2), (4, 8, 2), (2, 1, 4)])
def test_matmul_by_register_tiles_is_exact_on_small_integers(
    machine: Run, rows: int, lanes: int, vectors: int
) -> None:
    size = 32
    left = [[(3 * i + 5 * j) % 11 - 5 for j in range(size)] for i in range(size)]
    right = [[(7 * i + 2 * j) % 13 - 6 for j in range(size)] for i in range(size)]
    memories = [bytes(4 * size * size)]
    memories += [encode(dtypes.float32, [x for row in m for x in row]) for m in (left, right)]
    program = matmul_tile(size, rows, lanes, vectors)
    found = decode(dtypes.float32, machine(program, memories, (), range(size // rows))[0])
    wanted = [
        float(sum(left[i][k] * right[k][j] for k in range(size)))
        for i in range(size)
        for j in range(size)
    ]
    assert found == wanted


def test_row_maximum_is_nan_where_a_row_has_nan(machine: Run) -> None:
    rows, columns = 3, 32
    values = [float((i * 7919) % 101) for i in range(rows * columns)]
    values[columns + 5] = math.nan
    memories = [bytes(4 * rows), encode(dtypes.float32, values)]
    found = decode(
        dtypes.float32, machine(row_maximum(rows, columns, 16), memories, (), range(3))[0]
    )
    assert found[0] == max(values[:columns])
    assert math.isnan(found[1])
    assert found[2] == max(values[2 * columns :])


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda dtype: dtype.name)
def test_a_gated_load_never_touches_what_is_outside(machine: Run, dtype: DType) -> None:
    """Addresses below are far outside: reading them would crash."""
    make = Builder()
    out, memory = make.parameter(0, dtype), make.parameter(1, dtype)
    loop = make.loop(8)
    inside = loop < 4
    far = inside.where(loop, constant(1 << 40, dtypes.index))
    make.store(out, loop, make.load(memory, far, gate=inside))
    make.end(loop)
    values = samples(dtype)[8:12]
    memories = [bytes(8 * dtype.itemsize), encode(dtype, values)]
    wanted = encode(dtype, [*values, *[round_to(dtype, 0)] * 4])
    assert machine(make.program, memories)[0] == wanted


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda dtype: dtype.name)
def test_lanes_are_loaded_and_stored_under_their_own_gates(machine: Run, dtype: DType) -> None:
    lanes = 8
    make = Builder()
    out, memory = make.parameter(0, dtype), make.parameter(1, dtype)
    numbers = lanes_of(*(constant(lane, dtypes.int32) for lane in range(lanes)))
    read = numbers < constant(5, numbers.dtype)
    write = constant(1, numbers.dtype) < numbers
    make.store(out, 0, make.load(memory, 0, lanes, gate=read), gate=write)
    values, before = samples(dtype)[4:12], samples(dtype)[12:20]
    found = machine(make.program, [encode(dtype, before), encode(dtype, values)])[0]
    wanted = [*before[:2], *values[2:5], *[round_to(dtype, 0)] * 3]
    assert found == encode(dtype, wanted)


def test_one_gate_for_all_lanes_skips_the_whole_access(machine: Run) -> None:
    make = Builder()
    out, memory = make.parameter(0, dtypes.float32), make.parameter(1, dtypes.float32)
    loop = make.loop(4)
    inside = loop < 2
    far = inside.where(loop * 8, constant(1 << 40, dtypes.index))
    make.store(out, loop * 8, make.load(memory, far, 8, gate=splat(inside, 8)))
    make.end(loop)
    again = make.loop(4)
    outside = constant(2, dtypes.index) < again
    make.store(out, again * 8, constant(9.0, dtypes.float32.vec(8)), gate=outside)
    make.end(again)
    values = [float(index) for index in range(16)]
    found = machine(make.program, [bytes(128), encode(dtypes.float32, values)])[0]
    assert decode(dtypes.float32, found) == [*values, *[0.0] * 8, *[9.0] * 8]


def test_a_load_sees_the_stores_before_it_and_none_after(machine: Run) -> None:
    make = Builder()
    out = make.parameter(0, dtypes.int32)
    first = make.load(out, 0)
    make.store(out, 0, first + constant(5, dtypes.int32))
    second = make.load(out, 0)
    make.store(out, 1, second * constant(10, dtypes.int32))
    make.store(out, 0, constant(0, dtypes.int32))
    make.store(out, 2, second)
    found = machine(make.program, [encode(dtypes.int32, [1, 0, 0])])[0]
    assert decode(dtypes.int32, found) == [0, 60, 6]


@pytest.mark.parametrize("elements", [64, 1 << 19])
def test_scratch_keeps_what_one_loop_writes_for_the_next(machine: Run, elements: int) -> None:
    make = Builder()
    out, memory = make.parameter(0, dtypes.float32), make.parameter(1, dtypes.float32)
    array = make.scratch(dtypes.float32, elements)
    wide = make.scratch(dtypes.float32.vec(8), elements // 8)
    fill = make.loop(8)
    make.store(array, fill * 8, make.load(memory, fill * 8, 8))
    make.store(
        wide, fill * 8, make.load(memory, fill * 8, 8) + constant(1.0, dtypes.float32.vec(8))
    )
    make.end(fill)
    turn = make.loop(64)
    back = constant(63, dtypes.index) - turn
    make.store(
        out,
        turn,
        make.load(array, back) + make.load(UOp(wide.op, wide.dtype, (), wide.arg), turn, 1),
    )
    make.end(turn)
    values = [float(index) for index in range(64)]
    found = machine(make.program, [bytes(256), encode(dtypes.float32, values)])[0]
    assert decode(dtypes.float32, found) == [64.0] * 64


def test_variables_bound_loops_and_shift_addresses(machine: Run) -> None:
    make = Builder()
    out = make.parameter(0, dtypes.int64)
    start, count = make.variable("start_pos"), make.variable("int")
    loop = make.loop(count)
    make.store(out, start + loop, (loop * start).cast(dtypes.int64))
    make.end(loop)
    found = machine(make.program, [bytes(80)], (3, 4))[0]
    assert decode(dtypes.int64, found) == [0, 0, 0, 0, 3, 6, 9, 0, 0, 0]


def test_a_slot_that_is_not_used_keeps_its_place(machine: Run) -> None:
    make = Builder()
    out, last = make.parameter(0, dtypes.int32), make.parameter(2, dtypes.int32)
    make.store(out, 0, make.load(last, 0))
    memories = [encode(dtypes.int32, [value]) for value in (0, 1, 2)]
    assert decode(dtypes.int32, machine(make.program, memories)[0]) == [2]


def test_an_empty_loop_does_nothing(machine: Run) -> None:
    make = Builder()
    out = make.parameter(0, dtypes.int32)
    count = make.variable("n")
    total = make.scratch(dtypes.int32, 1, register=True)
    make.store(total, 0, constant(7, dtypes.int32))
    loop = make.loop(count, "reduce")
    make.store(total, 0, make.load(total, 0) + constant(1, dtypes.int32))
    make.end(loop)
    make.store(out, 0, make.load(total, 0))
    assert decode(dtypes.int32, machine(make.program, [bytes(4)], (0,))[0]) == [7]
    assert decode(dtypes.int32, machine(make.program, [bytes(4)], (5,))[0]) == [12]


def test_bool_registers_hold_lanes(machine: Run) -> None:
    make = Builder()
    out, memory = make.parameter(0, dtypes.bool), make.parameter(1, dtypes.float32)
    every = make.scratch(dtypes.bool.vec(8), 1, register=True)
    make.store(every, 0, constant(True, every.dtype))
    loop = make.loop(4, "reduce")
    block = make.load(memory, loop * 8, 8)
    make.store(every, 0, make.load(every, 0) & (block < constant(30.0, block.dtype)))
    make.end(loop)
    make.store(out, 0, make.load(every, 0))
    last = make.load(every, 0)
    make.store(out, 8, extract(last, 7))
    values = [float(index) for index in range(32)]
    found = machine(make.program, [bytes(9), encode(dtypes.float32, values)])[0]
    assert decode(dtypes.bool, found) == [True] * 6 + [False] * 3


def test_lanes_are_built_and_taken_apart(machine: Run) -> None:
    make = Builder()
    out, memory = make.parameter(0, dtypes.float32), make.parameter(1, dtypes.float32)
    vector = make.load(memory, 0, 4)
    make.store(out, 0, lanes_of(*(extract(vector, 3 - lane) for lane in range(4))))
    make.store(out, 4, splat(extract(vector, 2), 4))
    make.store(out, 8, extract(vector + vector, 1))
    found = machine(make.program, [bytes(36), encode(dtypes.float32, [1.0, 2.0, 3.0, 4.0])])[0]
    assert decode(dtypes.float32, found) == [4.0, 3.0, 2.0, 1.0, 3.0, 3.0, 3.0, 3.0, 4.0]


@pytest.mark.parametrize("widths", [(4, 4), (8, 8), (4, 8), (8, 4), (1, 4), (1, 1), (16, 2)])
@pytest.mark.parametrize("count", [2, 4, 8])
def test_lanes_of_two_vectors_are_put_together(
    machine: Run, widths: tuple[int, int], count: int
) -> None:
    make = Builder()
    out = make.parameter(0, dtypes.float32)
    memory = make.parameter(1, dtypes.float32)
    starts = (0, 16)
    vectors = [make.load(memory, at, n) for at, n in zip(starts, widths, strict=True)]
    picks = [(lane % 2, (lane * 3 + 1) % widths[lane % 2]) for lane in range(count)]
    lanes = [make.add(extract(vectors[which], lane)) for which, lane in picks]
    make.store(out, 0, make.add(lanes_of(*lanes)))
    given = [float(n) for n in range(32)]
    memories = [bytes(4 * count), encode(dtypes.float32, given)]
    found = decode(dtypes.float32, machine(make.program, memories)[0])
    assert found == [given[starts[which] + lane] for which, lane in picks]
