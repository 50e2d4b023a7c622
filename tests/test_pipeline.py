"""Every pass leaves what its spec says, and whatever is spoiled in its result is noticed."""

import importlib
import subprocess
import sys
from collections.abc import Iterator, Sequence

import pytest

from kernelet import Tensor, engine, pipeline
from kernelet.base.config import Context
from kernelet.base.dtype import dtypes
from kernelet.base.errors import InternalError
from kernelet.base.target import Target
from kernelet.graph.ops import MOVEMENT, Op
from kernelet.graph.spec import Spec, verify
from kernelet.graph.uop import ParamArg, ReduceArg, UOp
from kernelet.graph.walk import substitute

F32 = dtypes.float32
TARGET = Target("TEST", vector_bytes=32, threads=2, operations=frozenset({"SUB", "FDIV"}))
Result = tuple[str, Spec, UOp | Sequence[UOp]]


def matrix(slot: int, rows: int, columns: int) -> UOp:
    memory = UOp(Op.PARAM, F32, (), ParamArg(slot, rows * columns, "PYTHON"))
    return UOp(Op.RESHAPE, F32, (memory,), (rows, columns))


def reduced(op: Op, x: UOp, axis: int) -> UOp:
    return UOp(Op.EXPAND, F32, (UOp(Op.REDUCE, F32, (x,), ReduceArg(op, (axis,))),), x.shape)


def example() -> UOp:
    """A softmax of a padded matrix, and a write over a part of memory."""
    x = UOp(Op.PAD, F32, (matrix(0, 6, 30),), ((0, 0), (1, 1)))
    powers = (x - reduced(Op.MAX, x, 1)).alu(Op.EXP2)
    softmax = powers * reduced(Op.ADD, powers, 1).alu(Op.RECIPROCAL)
    storage = UOp(Op.PARAM, F32, (), ParamArg(1, 12, "PYTHON"))
    view = UOp(Op.FLIP, F32, (UOp(Op.SHRINK, F32, (storage,), ((2, 8),)),), (0,))
    value = UOp(Op.SHRINK, F32, (UOp(Op.PERMUTE, F32, (softmax,), (1, 0)),), ((3, 9), (0, 1)))
    write = UOp(Op.ASSIGN, F32, (view, UOp(Op.RESHAPE, F32, (value,), (6,))))
    return UOp.sink(softmax, UOp(Op.AFTER, F32, (storage, write)))


def results() -> list[Result]:
    """What each pass made of the example, with the spec that it was checked against."""
    found: list[Result] = []

    def remember(graph: UOp | Sequence[UOp], spec: Spec, name: str) -> None:
        verify(graph, spec, name)
        found.append((name, spec, graph))

    with pytest.MonkeyPatch.context() as patch, Context(VERIFY=1):
        patch.setattr(pipeline, "verify", remember)
        for kernel in pipeline.schedule(example(), "PYTHON").kernels:
            pipeline.lower(kernel, TARGET)
    return found


RESULTS = results()


def spoiled(node: UOp) -> Iterator[UOp]:
    """The node with one field wrong."""
    if node.op is not Op.INDEX:  # an address has no dtype to speak of
        yield node.replace(dtype=dtypes.int16 if node.dtype is not dtypes.int16 else F32)
    if node.src and node.op not in (Op.SINK, Op.BLOCK, Op.LOOP):
        yield node.replace(src=node.src[1:])
        yield node.replace(src=(*node.src, node.src[0], node.src[0]))
    yield node.replace(op=Op.END, src=())
    if node.op in MOVEMENT:
        yield node.replace(arg=(-7,))
    if node.op in (Op.PARAM, Op.SCRATCH, Op.RANGE, Op.REDUCE):
        yield node.replace(arg="nonsense")


def identify(result: Result) -> str:
    return result[0]


def test_every_pass_is_run_and_checked() -> None:
    names = {step.name for step in (*pipeline.KERNELIZE, *pipeline.LOWER)}
    assert names <= {name for name, _, _ in RESULTS}
    assert {"the frontend", "cut into kernels", "write loops", "linearize"} <= set(
        map(identify, RESULTS)
    )


@pytest.mark.parametrize("result", RESULTS, ids=identify)
def test_whatever_is_spoiled_in_a_result_is_noticed(result: Result) -> None:
    name, spec, graph = result
    nodes = list(graph.toposort()) if isinstance(graph, UOp) else list(graph)
    step = max(1, len(nodes) // 60)
    for node in nodes[::step]:
        for wrong in spoiled(node):
            if isinstance(graph, UOp):
                changed: UOp | list[UOp] = substitute(graph, {node: wrong})
            else:
                changed = [substitute(other, {node: wrong}) for other in graph]
            with pytest.raises(InternalError, match=f"{name}: the result breaks the spec"):
                verify(changed, spec, name)


@pytest.mark.parametrize("result", [r for r in RESULTS if not isinstance(r[2], UOp)], ids=identify)
def test_a_program_with_a_node_moved_or_gone_is_noticed(result: Result) -> None:
    name, spec, graph = result
    program = list(graph) if not isinstance(graph, UOp) else []
    used = {source for node in program for source in node.src}
    for place, node in enumerate(program[:-1]):
        # A node that nothing uses may go, and one that is there again later too.
        if (node in used and program.count(node) == 1) or node.op is Op.END:
            with pytest.raises(InternalError, match=name):
                verify([*program[:place], *program[place + 1 :]], spec, name)
            with pytest.raises(InternalError, match=name):
                verify([*program[:place], *program[place + 1 :], node], spec, name)


def test_without_verification_nothing_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(pipeline, "verify", refuse)
    with Context(VERIFY=0):
        pipeline.lower(pipeline.schedule(example(), "PYTHON").kernels[0], TARGET)


def test_the_pipeline_prints_itself() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kernelet.pipeline"], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == pipeline.table().splitlines()
    rows = [line.split() for line in pipeline.table().splitlines()]
    assert [rows[0][0], rows[-1][0]] == ["kernelize", "lower"]
    assert "linear program" in pipeline.table().splitlines()[-1]


def test_operations_are_counted_by_trips_and_lanes() -> None:
    (kernel,) = pipeline.schedule(UOp.sink(matrix(0, 8, 16) * 2.0 + 1.0), "PYTHON").kernels
    assert pipeline.lower(kernel, TARGET).estimates.operations == 8 * 16 * 2
    assert pipeline.lower(kernel, TARGET).estimates.nbytes == 2 * 8 * 16 * 4


def chain(length):
    """A kernel of many elementwise ops one over the other."""
    x = Tensor.zeros(64, 64).contiguous().realize()
    value = x
    for number in range(length):
        value = (value * x + number).maximum(x)
    return value


def wide(length):
    """A kernel with many arguments, padded and shifted."""
    parts = [Tensor.zeros(64, 64).contiguous().realize() for _ in range(length)]
    padded = [part.pad(((1, 0), (0, 0))).shrink(((0, 64), (0, 64))) for part in parts]
    return sum(padded[1:], padded[0])


def rows(length):
    """A kernel with many reductions."""
    x = Tensor.zeros(64, 64).contiguous().realize()
    value = x
    for number in range(length):
        value = value * 2 + (x * (number + 1)).max(1, keepdim=True)
    return value


def steps_of(run, *given):
    """How many functions are called."""
    count = 0

    def note(*_):
        nonlocal count
        count += 1

    sys.setprofile(note)
    try:
        result = run(*given)
    finally:
        sys.setprofile(None)
    return count, result


def steps_by_pass(tensor):
    """How many functions each pass calls for the only kernel of a tensor, and rendering."""
    target = Target("CPU", vector_bytes=32, threads=2)
    prepared = engine.prepare([tensor.uop])
    counts, graph = {}, prepared.sink
    for step in pipeline.KERNELIZE:
        counts[step.name], graph = steps_of(step.run, graph, target)
    cut = pipeline.cut_into_kernels
    counts["cut"], plan = steps_of(cut, graph, "CPU", len(prepared.buffers))
    (kernel,) = plan.kernels
    counts["plan"], found = steps_of(pipeline.plan_kernel, kernel, target)
    counts["loops"], block = steps_of(pipeline.write_nest, kernel, found)
    for step in pipeline.LOWER:
        counts[step.name], block = steps_of(step.run, block, target)
    counts["linearize"], program = steps_of(pipeline.linearize, block, [])
    for language in ("c", "llvm"):
        render = importlib.import_module(f"kernelet.render.{language}").render
        counts[language], _ = steps_of(render, program, "kernel")
    return counts


@pytest.mark.parametrize("make, length", [(chain, 30), (wide, 16), (rows, 6)])
def test_every_pass_is_linear_in_the_graph(make, length):
    with Context(VERIFY=0):
        steps_by_pass(make(length))  # what is kept for later is made
        once, twice = steps_by_pass(make(length)), steps_by_pass(make(2 * length))
    growth = {name: twice[name] / count for name, count in once.items()}
    assert max(growth.values()) < 2.5, growth
