"""Run the kernels of a graph in plain Python or as machine code, beside the reference evaluator."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kernelet import backends, pipeline
from kernelet.base.dtype import FORMATS, DType, Scalar, float_from_bits, float_to_bits
from kernelet.base.scalars import NAMESPACE
from kernelet.base.target import Target
from kernelet.graph.ops import Op
from kernelet.graph.uop import ParamArg, UOp
from kernelet.kernelize.schedule import Schedule
from kernelet.lower.transforms import Plan
from kernelet.pipeline import Lowered
from kernelet.render import python
from kernelet.runtime import device
from kernelet.runtime.buffer import Buffer
from tests.reference.evaluate import evaluate, evaluate_all

Values = list[Scalar]
Machine = Callable[[Lowered, list[bytearray], Sequence[int]], None]
ChoosePlan = Callable[[UOp, Target], Plan | None]

# Lanes and threads as on a CPU, with Python to execute them.
VECTORS = Target(
    "PYTHON",
    vector_bytes=32,
    threads=2,
    operations=frozenset(
        ("EXP2", "LOG2", "SIN", "IDIV", "MOD", "SUB", "FDIV", "TRUNCDIV", "TRUNCMOD")
    ),
)


def encode(dtype: DType, values: Sequence[Scalar]) -> bytearray:
    """The bytes of elements in memory."""
    if dtype.name in FORMATS:
        values = [float_to_bits(dtype, float(value)) for value in values]
    return bytearray(struct.pack(f"<{len(values)}{dtype.code}", *values))


def decode(dtype: DType, data: bytes | bytearray) -> Values:
    """The elements in memory."""
    count = len(data) // dtype.itemsize
    code = "B" if dtype.is_bool else dtype.code
    values = list(struct.unpack(f"<{count}{code}", data[: count * dtype.itemsize]))
    return [float_from_bits(dtype, bits) for bits in values] if dtype.name in FORMATS else values


# ---- machines ----


def in_python(lowered: Lowered, memories: list[bytearray], values: Sequence[int]) -> None:
    """Execute a linear program with the interpreter; the chunks of threads in reverse order."""
    scope = dict(NAMESPACE)
    exec(python.render(lowered.program, "kernel"), scope)
    views = [memoryview(memory) for memory in memories]
    middle = lowered.thread_size // 2
    chunks = [(middle, lowered.thread_size), (0, middle)] if middle else [(0, lowered.thread_size)]
    for begin, end in chunks:
        scope["kernel"](views, values, begin, end)


def on_device(name: str) -> Machine:
    """Compile and launch linear programs on a device."""
    driver = device.driver(name)
    render = backends.renderer(backends.kind_of(name))

    def run(lowered: Lowered, memories: list[bytearray], values: Sequence[int]) -> None:
        source = render(lowered.program, "kernel")
        binary = driver.compile(source, "kernel")
        launcher = driver.load(binary, "kernel", lowered.slots, len(lowered.variables))
        buffers = [Buffer(name, len(memory)) for memory in memories]
        for buffer, memory in zip(buffers, memories, strict=True):
            buffer.copy_in(memory)
        launcher([buffer.address for buffer in buffers], values, 0, lowered.thread_size)
        for buffer, memory in zip(buffers, memories, strict=True):
            memory[:] = buffer.copy_out()

    return run


# ---- a problem and its answer ----


@dataclass
class Problem:
    """Nodes to compute over PARAM leaves, the data of the leaves, the values of variables."""

    asked: list[UOp]
    data: dict[UOp, Values] = field(default_factory=dict)
    values: dict[UOp, int] = field(default_factory=dict)

    def leaf(self, dtype: DType, elements: Sequence[Scalar]) -> UOp:
        """A new memory argument that holds `elements`."""
        arg = ParamArg(len(self.data), len(elements), "CPU")
        node = UOp(Op.PARAM, dtype, (), arg)
        self.data[node] = list(elements)
        return node

    def expected(self) -> list[Values]:
        """What the reference evaluator gives."""
        return evaluate_all(self.asked, {**self.data, **self.values})

    def schedule(self) -> Schedule:
        """The kernels."""
        return pipeline.schedule(UOp.sink(*self.asked), "CPU")


def heuristic(kernel: UOp, target: Target) -> Plan | None:
    """Let the compiler choose."""
    return None


def run_problem(
    problem: Problem,
    machine: Machine = in_python,
    target: Target = VECTORS,
    choose: ChoosePlan = heuristic,
) -> list[Values]:
    """The asked values as the compiled kernels give them."""
    schedule = problem.schedule()
    memory = _memories(problem, schedule)
    named = {node.arg.name: value for node, value in problem.values.items()}
    for call in schedule.calls:
        assert call.kernel is not None
        lowered = pipeline.lower(call.kernel, target, choose(call.kernel, target))
        given = [named[name] for name in lowered.variables]
        machine(lowered, [memory[slot] for slot in call.slots], given)
    found = []
    for result in schedule.results:
        params = [node for node in result.toposort() if node.op is Op.PARAM]
        held = {node: decode(node.dtype, memory[node.arg.slot]) for node in params}
        found.append(evaluate(result, {**held, **problem.values}))
    return found


def _memories(problem: Problem, schedule: Schedule) -> list[bytearray]:
    given = {node.arg.slot: encode(node.dtype, held) for node, held in problem.data.items()}
    sizes: dict[int, int] = {}
    for slot in schedule.slots:
        if slot.arena is not None:
            sizes[slot.arena] = max(sizes.get(slot.arena, 0), slot.nbytes)
    # Memory that nobody has written: bytes that are no bool, and numbers nobody expects.
    blocks = {arena: bytearray(b"\xb7" * size) for arena, size in sizes.items()}
    memories = []
    for number, slot in enumerate(schedule.slots):
        if number < schedule.given:
            memories.append(given.get(number, bytearray()))
        elif slot.arena is None:
            memories.append(bytearray(b"\xb7" * slot.nbytes))
        else:
            memories.append(blocks[slot.arena])
    return memories


# ---- comparing ----


def difference(
    dtype: DType, expected: Sequence[Scalar], found: Sequence[Scalar], tolerance: float
) -> str | None:
    """Where two lists of elements differ by more than rounding; None where they do not."""
    if len(expected) != len(found):
        return f"{len(found)} elements, not {len(expected)}"
    finite = [abs(v) for v in expected if math.isfinite(v)]
    allowed = tolerance * max([1.0, *finite]) if dtype.is_float else 0.0
    for place, (left, right) in enumerate(zip(expected, found, strict=True)):
        if left != left or right != right:
            if (left != left) != (right != right):
                return f"element {place} is {right}, not {left}"
        elif left != right and not abs(left - right) <= allowed:
            return f"element {place} is {right}, not {left}"
    return None


TOLERANCES: Mapping[str, float] = {"float16": 2e-2, "bfloat16": 6e-2, "float32": 1e-3}


def disagreement(problem: Problem, found: Sequence[Values]) -> str | None:
    """What differs from the reference evaluator."""
    for node, left, right in zip(problem.asked, problem.expected(), found, strict=True):
        below = {part.dtype.name for part in node.toposort()}
        tolerance = max(TOLERANCES.get(name, 1e-9) for name in below)
        problem_text = difference(node.dtype, left, right, tolerance)
        if problem_text is not None:
            return f"{problem_text}:\n{node!r}"
    return None


def check(
    problem: Problem,
    machine: Machine = in_python,
    target: Target = VECTORS,
    choose: ChoosePlan = heuristic,
) -> None:
    """Assert that kernels and reference agree."""
    found = disagreement(problem, run_problem(problem, machine, target, choose))
    assert found is None, found
