import numpy as np
import pytest

from kernelet import Tensor, engine
from kernelet.graph.ops import Op

TABLE = np.arange(60, dtype=np.float32).reshape(5, 12)


def ops_of(tensor: Tensor) -> list[Op]:
    return [
        node.op for kernel in engine.schedule([tensor.uop]).kernels for node in kernel.toposort()
    ]


@pytest.mark.parametrize("picks", [[3, 0, -1], [0], [4, 4]])
def test_indexing_by_a_tensor_reads_and_does_not_search(picks: list[int]) -> None:
    found = Tensor(TABLE)[Tensor(picks)]
    assert Op.GATHER in ops_of(found)
    assert Op.REDUCE not in ops_of(found)
    np.testing.assert_array_equal(found.numpy(), TABLE[picks])


def test_two_index_tensors_read_one_element_each() -> None:
    found = Tensor(TABLE)[Tensor([1, 4, 2]), Tensor([11, 0, -2])]
    assert Op.REDUCE not in ops_of(found)
    np.testing.assert_array_equal(found.numpy(), TABLE[[1, 4, 2], [11, 0, -2]])


def test_picks_from_a_computed_value_are_right() -> None:
    table = Tensor(TABLE)
    shares = (table / 10).softmax(1)
    found = shares.gather(1, Tensor([[3], [0], [11], [5], [7]]))
    exact = np.exp(TABLE / 10) / np.exp(TABLE / 10).sum(1, keepdims=True)
    picked = np.take_along_axis(exact, np.array([[3], [0], [11], [5], [7]]), 1)
    np.testing.assert_allclose(found.numpy(), picked, rtol=1e-5)


def test_picks_from_a_matrix_product_compute_it_once() -> None:
    product = Tensor(TABLE) @ Tensor(TABLE.T)
    found = product[Tensor([2, 2, 0, 1])]
    np.testing.assert_allclose(found.numpy(), (TABLE @ TABLE.T)[[2, 2, 0, 1]])


def test_an_index_outside_reads_nothing() -> None:
    places = Tensor.arange(5).reshape(1, 5)
    wanted = Tensor([7, 2, -3]).reshape(3, 1)
    column = Tensor(TABLE[:, 0].copy()).reshape(1, 5)
    found = (places != wanted).where(0, column).sum(1)
    assert Op.GATHER in ops_of(found)
    assert found.tolist() == [0, 24, 0]


def test_the_gradient_of_picks_adds_up() -> None:
    table = Tensor(TABLE)
    found = table[Tensor([1, 1, 3])].sum().gradient(table)[0].numpy()
    np.testing.assert_array_equal(found[:, 0], [0, 2, 0, 1, 0])


def test_positions_that_wrap_are_searched() -> None:
    wide = Tensor(np.arange(300, dtype=np.float32))
    place = Tensor.arange(300).cast("uint8")
    found = (place == Tensor([5], dtype="uint8")).where(wide, 0).sum()
    assert Op.GATHER not in ops_of(found)
    assert found.item() == 5 + 261


def test_the_gradient_of_a_picked_loss_does_not_search() -> None:
    scores, labels = Tensor(TABLE).realize(), Tensor([3, 0, 11, 5, 7]).realize()
    (gradient,) = scores.sparse_categorical_crossentropy(labels).gradient(scores)
    sums = [
        node
        for kernel in engine.schedule([gradient.uop]).kernels
        for node in kernel.toposort()
        if node.op is Op.REDUCE and Op.CMPNE in {below.op for below in node.src[0].toposort()}
    ]
    assert [node for node in sums if node.shape == (5, 1) and node.arg.op is Op.ADD] == []
    exact = np.exp(TABLE) / np.exp(TABLE).sum(1, keepdims=True)
    exact[np.arange(5), [3, 0, 11, 5, 7]] -= 1
    np.testing.assert_allclose(gradient.numpy(), exact / 5, rtol=1e-4, atol=1e-7)
