"""Scratch becomes registers when every address is a constant, and only then."""

from kernelet.base.dtype import dtypes
from kernelet.graph.ops import Op
from kernelet.graph.uop import ScratchArg, UOp
from kernelet.lower.memory import scratch_to_registers
from tests.lower.pseudocode import F32, around, block, load, loop, memory, store, written

SUMS = UOp(Op.SCRATCH, F32, (), ScratchArg(1, 8))
IN, OUT = memory(1, 64), memory(0, 64)
I = loop(0, 4)
ZEROS = UOp(Op.CONST, F32.vec(4), (), 0.0)


def test_each_vector_of_an_accumulator_is_a_register() -> None:
    program = block(
        store(SUMS, 0, ZEROS),
        store(SUMS, 4, ZEROS),
        around(I, store(SUMS, 4, load(SUMS, 4, 4) + load(IN, I * 4, 4))),
        store(OUT, 0, load(SUMS, 4, 4)),
    )
    assert written(scratch_to_registers(program)) == (
        "g1[0] = 0.0x4\n"
        "g1[1] = 0.0x4\n"
        "for r0 in 4:\n"
        "  g1[1] = (g1[1] + p1[r0 * 4:+4])\n"
        "p0[0:+4] = g1[1]"
    )


def test_one_number_of_a_register_is_a_lane() -> None:
    program = block(store(SUMS, 0, ZEROS), store(OUT, 0, load(SUMS, 0) + load(SUMS, 3)))
    assert written(scratch_to_registers(program)) == "g1[0] = 0.0x4\np0[0] = (g1[0].0 + g1[0].3)"


def test_an_address_that_varies_needs_memory() -> None:
    program = block(around(I, store(SUMS, I, load(IN, I))), store(OUT, 0, load(SUMS, 2)))
    assert scratch_to_registers(program) is program


def test_a_vector_from_the_middle_of_one_register_ends_in_the_next() -> None:
    program = block(store(SUMS, 0, ZEROS), store(SUMS, 4, ZEROS), store(OUT, 0, load(SUMS, 1, 4)))
    assert written(scratch_to_registers(program)).splitlines()[-1] == (
        "p0[0:+4] = (g1[0].1, g1[0].2, g1[0].3, g1[1].0)"
    )


def test_vectors_written_inside_others_need_memory() -> None:
    program = block(store(SUMS, 0, ZEROS), store(SUMS, 2, ZEROS), store(OUT, 0, load(SUMS, 0, 4)))
    assert scratch_to_registers(program) is program


def test_a_number_written_into_a_vector_needs_memory() -> None:
    one = UOp.const(1.0, F32)
    program = block(store(SUMS, 0, ZEROS), store(SUMS, 1, one), store(OUT, 0, load(SUMS, 0, 4)))
    assert scratch_to_registers(program) is program


def test_a_gate_needs_memory() -> None:
    gate = (I < 3).replace(dtype=dtypes.bool)
    program = block(
        store(SUMS, 0, UOp.const(1.0, F32)), around(I, store(OUT, I, load(SUMS, 0, 1, [gate])))
    )
    assert scratch_to_registers(program) is program


def test_arguments_stay_memory() -> None:
    program = block(store(OUT, 0, load(IN, 0)))
    assert scratch_to_registers(program) is program
