"""Equal keys mean that the same launches do the work."""

import pytest

from kernelet import Tensor, Variable, holdings
from kernelet.base.errors import JitError
from kernelet.frontend.signature import form_of, read_inputs


def key(*arguments, **named):
    return read_inputs(None, arguments, named).key


def matrix(rows=3, columns=4):
    return Tensor.zeros(rows, columns).contiguous().realize()


def test_tensors_of_one_form_have_one_key():
    assert key(matrix()) == key(matrix())
    assert key(matrix()) != key(matrix(4, 3))
    assert key(matrix().T) == key(matrix().T)
    assert key(matrix().T) != key(matrix(4, 3))


def test_rows_have_one_key_wherever_they_begin():
    data = matrix(10)
    assert key(data[0:3]) == key(data[5:8]) == key(matrix())


def test_columns_have_a_key_for_each_place():
    data = matrix()
    assert key(data[:, 0:2]) != key(data[:, 2:4])


def test_the_order_of_named_arguments_does_not_count():
    x, y = matrix(), matrix(1, 1)
    assert key(a=x, b=y) == key(b=y, a=x)
    assert key(a=x, b=y) != key(a=y, b=x)


def test_memory_that_is_given_twice_counts():
    x, y = matrix(), matrix()
    assert key(x, x) == key(y, y)
    assert key(x, x) != key(x, y)
    tokens = Tensor.zeros(9).contiguous().realize()
    assert key(tokens[:4], tokens[1:5]) == key(tokens[2:6], tokens[3:7])
    assert read_inputs(None, (tokens[:4], tokens[1:5]), {}).overlapping == {0, 1}
    assert not read_inputs(None, (tokens[:4], tokens[4:8]), {}).overlapping


def test_a_form_says_where_the_elements_lie():
    data = matrix(10)
    part, column = form_of(data[2:5].uop), form_of(data[:, 1].uop)
    assert (part.start, part.nbytes, part.size) == (2 * 16, 3 * 16, 12)
    assert (column.start, column.nbytes) == (0, 160)
    assert part.base is column.base
    inputs = read_inputs(None, (data, data[2:5]), {})
    assert inputs.memory_node(0) is part.base
    assert inputs.memory_node(1).shape == (12,)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[2:5],
        lambda x: x[2:5].reshape(4, 3)[1:2],
        lambda x: x.reshape(2, 5, 4)[1:2, 1:3],
        lambda x: x[4],
        lambda x: x[4:5, 1:3],
        lambda x: x.reshape(40)[7:11],
    ],
)
def test_neighbouring_rows_are_a_part_of_their_memory(view):
    data = Tensor([float(n) for n in range(40)]).reshape(10, 4).realize()
    tensor = view(data)
    form = form_of(tensor.uop)
    memory = holdings.memories[form.base].view(form.start, form.nbytes)
    values = memoryview(bytes(memory.copy_out())).cast("f").tolist()
    assert values == tensor.flatten().tolist()
    assert form.over(tensor.uop.__class__.buffer(form.size, tensor.dtype, "PYTHON")).shape == (
        tensor.shape
    )


def test_bound_variables_count_by_name():
    n, m = Variable("n", 1, 5), Variable("m", 1, 5)
    assert key(n.bind(2)) == key(n.bind(3)) != key(m.bind(2))
    assert key(n.bind(2) + 1) == key(n.bind(3) + 1) != key(n.bind(2))
    inputs = read_inputs(None, (matrix(5)[: n.bind(2)], n.bind(2)), {})
    assert inputs.variables == {n: 2}
    assert inputs.binds == {n: n.bind(2)}


def test_objects_count_by_identity():
    class Model:
        pass

    first, second = Model(), Model()
    assert key(first) == key(first) != key(second)
    assert read_inputs(first, (), {}).objects == [first]


def test_ranges_and_types_count_by_value():
    assert key(range(3)) == key(range(3)) != key(range(4))
    assert key(1) != key(True) != key(1.0)
    assert key({"a": 1}) != key({"b": 1})
    assert key([1, 2]) != key((1, 2))


def test_a_variable_needs_a_value():
    with pytest.raises(JitError, match="jit.*Bind it"):
        key([Variable("n", 1, 5)])
