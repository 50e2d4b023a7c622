"""Nodes stand for memory only as long as it holds their value."""

import struct
import threading
import time

import pytest

from kernelet import backends, engine, holdings
from kernelet.base.dtype import dtypes
from kernelet.graph.ops import Op
from kernelet.graph.uop import UOp


def floats(*values: float) -> UOp:
    data = struct.pack(f"<{len(values)}f", *values)
    return holdings.new_buffer(data, len(values), dtypes.float32, backends.default_device())


def test_memory_and_views_of_it_are_known_without_being_computed() -> None:
    node = floats(1, 2, 3)
    view = UOp(Op.FLIP, dtypes.float32, (node,), (0,))
    assert holdings.realized(node) is node
    assert holdings.realized(view) is view
    assert engine.contents(view) == struct.pack("<3f", 3, 2, 1)


def test_a_computed_node_is_known_until_it_dies() -> None:
    node = floats(1, 2)
    double = node + node
    assert holdings.realized(double) is None
    engine.realize([double])
    found = holdings.realized(double)
    assert found is not None
    assert engine.contents(found) == struct.pack("<2f", 2, 4)
    count = len(holdings.memories)
    del double, found
    assert len(holdings.memories) == count - 1


def test_a_renamed_node_stands_for_nothing_any_longer() -> None:
    node = floats(5)
    fresh = holdings.rename(node)
    assert holdings.realized(node) is None
    assert holdings.memories.get(node) is None
    assert engine.contents(fresh) == struct.pack("<f", 5)


def test_writes_below_a_node_are_found() -> None:
    node, other = floats(1, 2), floats(3, 4)
    write = UOp(Op.ASSIGN, dtypes.float32, (node, other))
    after = UOp(Op.AFTER, dtypes.float32, (node, write))
    assert holdings.overwritten([after + other]) == {node}
    blocks = {id(holdings.memories[node].whole)}
    assert holdings.concerns(node * 2.0, blocks, set())
    assert not holdings.concerns(other * 2.0, blocks, set())
    assert holdings.lies_in(node, blocks)


def test_a_recorder_sees_what_runs_inside_its_block() -> None:
    recorder = holdings.Recorder()
    node = floats(1, 2)
    with holdings.recording(recorder):
        assert holdings.current_recorder.get() is recorder
        result = node + 1.0
        engine.realize([result])
    assert holdings.current_recorder.get() is None
    assert len(recorder.steps) == 1
    found = holdings.realized(result)
    assert found is not None
    assert recorder.changes(holdings.memories[holdings.base_of_view(found)])
    assert not recorder.changes(holdings.memories[node])


@pytest.mark.parametrize("size", [1, 3])
def test_memory_has_one_node(size: int) -> None:
    node = floats(*range(size))
    assert holdings.node_over(holdings.memories[node], size, dtypes.float32) is node


def test_an_exclusive_function_runs_in_one_thread_at_a_time() -> None:
    inside: list[int] = []

    @holdings.exclusively
    def work(number: int) -> int:
        inside.append(number)
        time.sleep(0.001)
        assert inside == [number]
        return inside.pop()

    found: list[int] = []
    threads = [threading.Thread(target=lambda n=n: found.append(work(n))) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(8))
