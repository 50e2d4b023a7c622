"""Returned values keep their structure, whatever tensors are in them."""

import dataclasses
from collections import OrderedDict, namedtuple

from kernelet import Tensor, Variable
from kernelet.frontend.results import Slot, exchanged, filled, mapped, tensors_in
from kernelet.frontend.signature import read_inputs

Pair = namedtuple("Pair", "first second")


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: object
    name: str = "a"


def test_containers_keep_their_types():
    assert mapped([1, 2], str) == ["1", "2"]
    assert mapped((1, 2), str) == ("1", "2")
    assert mapped(Pair(1, 2), str) == Pair("1", "2")
    assert mapped(Frozen(1), str) == Frozen("1")
    ordered = mapped(OrderedDict(b=1, a=2), str)
    assert isinstance(ordered, OrderedDict)
    assert list(ordered.items()) == [("b", "1"), ("a", "2")]
    assert mapped("text", list) == "text"
    assert mapped(Frozen, str) is Frozen


def test_tensors_are_found_as_often_as_they_are_returned():
    x, y = Tensor([1]), Tensor([2])
    found = tensors_in({"a": [x, (y,)], "b": Frozen(Pair(x, 3))})
    assert [id(each) for each in found] == [id(x), id(y), id(x)]


def test_slots_are_filled_with_tensors_and_variables_with_values():
    x, y, length = Tensor([1]), Tensor([2]), Variable("n", 1, 8)
    structure = exchanged({"a": [x, 3], "n": length.bind(5) + 1}, {id(x): Slot(1)})
    found = filled(structure, [x, y], read_inputs(None, [length.bind(2)], {}))
    assert found["a"][0] is y
    assert found["a"][1] == 3
    assert found["n"] is length.bind(2) + 1
