"""Returned values keep their structure; what else refers to a tensor is noticed."""

import dataclasses
from collections import OrderedDict, namedtuple

from kernelet import Tensor
from kernelet.frontend.results import held_elsewhere, mapped, tensors_in

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


def test_a_tensor_that_only_the_result_holds_is_nobody_elses():
    kept = Tensor([1])
    result = {"own": Tensor([2]), "kept": kept, "again": [Tensor([3])] * 2}
    assert held_elsewhere(tensors_in(result)) == {id(kept)}
    bare = Tensor([4])
    assert held_elsewhere(tensors_in(bare)) == set()
    other = bare
    assert held_elsewhere(tensors_in(other)) == {id(bare)}
