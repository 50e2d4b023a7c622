"""Memory is shared, freed and never aliased; schedules are reused; kernels show before they run."""

import gc

import numpy as np
import pytest

from kernelet import Context, GlobalCounters, Tensor, Variable, engine, holdings, pipeline
from kernelet.base import trace
from kernelet.graph.walk import split_view


@pytest.fixture(autouse=True)
def reference_device():
    with Context(DEV="PYTHON"):
        yield


def memory(tensor):
    node = holdings.realized(tensor.uop)
    return holdings.memories[split_view(node)[1]].whole


def kernels_of(function):
    before = GlobalCounters.kernel_count
    function()
    return GlobalCounters.kernel_count - before


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.T,
        lambda x: x[1:],
        lambda x: x[:, ::2],
        lambda x: x.flip(1),
        lambda x: x.pad(((1, 1), (0, 2))),
        lambda x: x[:1].expand(5, 4),
        lambda x: x.reshape(2, 6).permute(1, 0)[2:4].flip(0),
        lambda x: x[2],
        lambda x: x.unsqueeze(1).detach(),
    ],
)
def test_movement_launches_nothing_and_shares_memory(view):
    x = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4)).realize()
    made = []
    used = GlobalCounters.mem_used
    assert kernels_of(lambda: made.append(view(x).realize())) == 0
    assert GlobalCounters.mem_used == used
    assert memory(made[0]) is memory(x)


def test_numpy_arrays_are_copies():
    x = Tensor([1.0, 2.0]).realize()
    array, raw = x.numpy(), bytes(x.data())
    x.assign(x * 10).realize()
    assert array.tolist() == [1.0, 2.0]
    assert bytes(x.data()) != raw
    array[0] = 50
    assert x.tolist() == [10.0, 20.0]
    source = np.ones(3, dtype=np.float32)
    y = Tensor(source)
    source[:] = 7
    assert y.tolist() == [1.0] * 3


def test_kernels_show_without_running():
    x = Tensor.ones(4, 4).contiguous()
    y = (x @ x).relu()
    before = GlobalCounters.kernel_count
    assert y.kernelize() is y
    plan = engine.schedule([y.uop])
    assert GlobalCounters.kernel_count == before
    assert len(plan.kernels) == 2
    assert "REDUCE" in repr(plan.kernels[-1])
    seen = []
    with trace.reading(seen.append, "kernel"):
        y.kernelize()
    assert [event.text for event in seen] == ["is scheduled"] * 2
    assert GlobalCounters.kernel_count == before
    assert holdings.realized(y.uop) is None


def test_a_computed_value_has_nothing_left_to_schedule():
    x = Tensor([1.0]).realize()
    assert engine.schedule([x.uop]).calls == ()
    assert kernels_of(x.realize) == 0


def test_the_same_step_is_scheduled_once(monkeypatch):
    made = []
    schedule = pipeline.schedule
    monkeypatch.setattr(pipeline, "schedule", lambda *args: made.append(1) or schedule(*args))
    weight = Tensor.zeros(5).contiguous().realize()
    counts = []
    for n in range(4):
        x = Tensor([float(n)] * 5)
        weight.assign(weight + (x * 2).sum() + Tensor.full((5,), 3.0)).realize()
        counts.append(len(made))
    assert counts[1] == counts[3]


READERS = {
    "times zero": lambda x: x * 0,
    "no rest": lambda x: x % 1,
    "itself": lambda x: x - x,
    "not chosen": lambda x: Tensor.full((2, 3), False).where(x, 7),
    "nothing": lambda x: x[0:0],
    "a sum of nothing": lambda x: x[:, :0] @ x[:0],
    "another part": lambda x: x[1],
}
WRITES = {
    "an element": lambda x: x.__setitem__((0, 0), 50),
    "all": lambda x: x.__setitem__(slice(None), x + 50),
    "two writes": lambda x: (x.__setitem__(0, 50), x.__setitem__((slice(None), 0), 60)),
    "a mask": lambda x: x.__setitem__(x > 3, 50),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("computed", [False, True])
def test_a_write_happens_though_its_reader_does_not_need_it(reader, write, computed):
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    x = Tensor(array.copy())
    x = (x * 1).realize() if computed else x
    WRITES[write](x), WRITES[write](array)
    wanted = array.tolist()
    found = READERS[reader](x).realize()
    assert x.tolist() == wanted
    assert found.tolist() == READERS[reader](Tensor(wanted, dtype="int32")).tolist()


def test_values_without_a_user_are_forgotten():
    gc.collect()
    before = GlobalCounters.mem_used
    for n in range(5):
        x = Tensor.full((1000,), float(n)).contiguous().realize()
        y = (Tensor.arange(1000) + n).realize()
        del x, y
    gc.collect()
    assert GlobalCounters.mem_used == before


def test_constants_are_found_while_they_are_used():
    x = Tensor.arange(100).realize()
    assert kernels_of(lambda: Tensor.arange(100).realize()) == 0
    assert memory(Tensor.arange(100)) is memory(x)


def test_values_of_no_device_are_computed_where_they_are_used():
    x = Tensor.arange(3).realize()
    with Context(DEV="NULL"):
        assert holdings.realized(Tensor.arange(3).uop) is None
        assert Tensor.arange(3).realize().device == "NULL"
    assert x.tolist() == [0, 1, 2]


def test_an_expression_that_was_overwritten_is_computed_again():
    x = Tensor.arange(4).realize()
    x.assign(x + 1).realize()
    y = Tensor.arange(4).realize()
    assert (x.tolist(), y.tolist()) == ([1, 2, 3, 4], [0, 1, 2, 3])


@pytest.mark.parametrize("name", ["layernorm", "softmax", "log_softmax"])
def test_norms_hold_no_second_value_of_their_size(name):
    x = Tensor.ones(64, 256).contiguous().realize()
    gc.collect()
    GlobalCounters.reset()
    y = getattr(x, name)().realize()
    assert GlobalCounters.kernel_count == 1
    assert GlobalCounters.peak_mem - GlobalCounters.mem_used < y.nbytes() // 4
    assert GlobalCounters.mem_used >= 2 * y.nbytes()


def test_freed_memory_is_used_again_inside_a_schedule():
    x = Tensor.ones(1000).contiguous().realize()
    gc.collect()
    GlobalCounters.reset()
    before = GlobalCounters.mem_used
    y = x
    for _ in range(10):
        y = (y + 1).contiguous()
    y.realize()
    assert GlobalCounters.peak_mem - before <= 3 * 4000


def test_a_variable_has_one_value_in_one_computation():

    length = Variable("n", 1, 4)
    x = Tensor([1.0, 2.0, 3.0, 4.0]).realize()
    with pytest.raises(ValueError, match="bound to"):
        (x[: length.bind(2)].sum() + x[: length.bind(3)].sum()).realize()


def test_values_of_bound_sizes_are_read_wherever_the_size_is():
    length, table = Variable("n", 1, 6), np.arange(12, dtype=np.float32).reshape(6, 2)
    x = Tensor(table).realize()
    for n in (3, 1, 6, 2):
        rows = x[: length.bind(n)]
        np.testing.assert_array_equal((rows.T + 1).numpy(), table[:n].T + 1)
        wide = rows.unsqueeze(0).expand(3, *rows.shape) * 2
        np.testing.assert_array_equal(wide.numpy(), np.stack([table[:n] * 2] * 3))


def test_batches_of_a_data_set_share_their_kernels(monkeypatch):
    made = []
    schedule = pipeline.schedule
    monkeypatch.setattr(pipeline, "schedule", lambda *args: made.append(1) or schedule(*args))
    data = np.arange(60, dtype=np.float32).reshape(20, 3)
    x = Tensor(data).realize()
    for at in range(0, 16, 3):
        found = (x[at : at + 4] * 2 + x[at].sum()).sum(1)
        assert found.tolist() == (data[at : at + 4] * 2 + data[at].sum()).sum(1).tolist()
    assert len(made) == 1


def test_a_part_and_the_whole_of_written_memory_are_one_memory():
    x = Tensor([1.0, 2.0, 3.0, 4.0]).realize()
    part = x[1:3] * 10
    x[0:2] = x[2:4] + x[1:3]
    assert x.tolist() == [5.0, 7.0, 3.0, 4.0]
    assert part.tolist() == [20.0, 30.0]
    assert (x[1:3] + x.sum()).tolist() == [26.0, 22.0]
