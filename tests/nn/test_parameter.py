from kernelet import GlobalCounters, Tensor, dtypes
from kernelet.nn import parameter


def test_a_filled_tensor_needs_no_kernel():
    start = GlobalCounters.kernel_count
    ones = parameter.filled(1, 2, 3, dtype=dtypes.float16).realize()
    assert ones.tolist() == [[1.0] * 3] * 2
    assert ones.dtype is dtypes.float16
    assert GlobalCounters.kernel_count == start


def test_gradients_end_at_parameters():
    for value in (parameter.filled(1, 3), parameter.uniform(0.5, 3)):
        (value * 2).sum().backward()
        assert value.grad.tolist() == [2.0, 2.0, 2.0]


def test_two_parameters_of_one_value_are_two():
    left, right = parameter.filled(1, 2), parameter.filled(1, 2)
    left.assign(Tensor([5.0, 5.0])).realize()
    assert right.tolist() == [1.0, 1.0]


def test_a_layer_without_inputs_starts_at_zero():
    assert parameter.fan_in_bound(0) == 0.0
    assert parameter.fan_in_bound(4) == 0.5


def test_normal_parameters_have_mean_0_and_deviation_1():
    Tensor.manual_seed(1)
    values = parameter.normal(100, 100)
    assert abs(values.mean().item()) < 0.05
    assert abs(values.std().item() - 1) < 0.05
