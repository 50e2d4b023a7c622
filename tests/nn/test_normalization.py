import numpy as np
import pytest

from kernelet import Tensor, TinyJit, nn
from kernelet.base.errors import ShapeError

IMAGES = (np.random.default_rng(9).standard_normal((4, 6, 5, 5)) * 2 + 1).astype(np.float32)


def normal(values, axes):
    away = values - values.mean(axes, keepdims=True)
    return away / np.sqrt(values.var(axes, keepdims=True) + 1e-5)


def test_batch_norm_in_training_uses_the_batch_and_moves_the_running_statistics():
    layer = nn.BatchNorm(6)
    with Tensor.train():
        found = layer(Tensor(IMAGES)).numpy()
    np.testing.assert_allclose(found, normal(IMAGES, (0, 2, 3)), rtol=1e-3, atol=1e-4)
    want_mean, want_var = IMAGES.mean((0, 2, 3)), IMAGES.var((0, 2, 3), ddof=1)
    np.testing.assert_allclose(layer.running_mean.numpy(), 0.1 * want_mean, rtol=1e-4)
    np.testing.assert_allclose(layer.running_var.numpy(), 0.9 + 0.1 * want_var, rtol=1e-4)
    assert layer.num_batches_tracked.item() == 1


def test_batch_norm_in_use_reads_the_running_statistics_and_leaves_them():
    layer = nn.BatchNorm(6)
    layer.running_mean = Tensor([1.0] * 6, requires_grad=False)
    layer.running_var = Tensor([4.0] * 6, requires_grad=False)
    found = layer(Tensor(IMAGES)).numpy()
    np.testing.assert_allclose(found, (IMAGES - 1) / np.sqrt(4 + 1e-5), rtol=1e-4, atol=1e-5)
    assert layer.running_mean.tolist() == [1.0] * 6
    assert layer.num_batches_tracked.item() == 0


def test_batch_norm_without_running_statistics_always_uses_the_batch():
    layer = nn.BatchNorm(6, track_running_stats=False)
    found = layer(Tensor(IMAGES)).numpy()
    np.testing.assert_allclose(found, normal(IMAGES, (0, 2, 3)), rtol=1e-3, atol=1e-4)
    assert list(nn.state.get_state_dict(layer)) == ["weight", "bias"]


def test_batch_norm_takes_rows_and_signals_too():
    for shape in ((8, 6), (4, 6, 3), (2, 6, 2, 2, 2)):
        with Tensor.train():
            assert nn.BatchNorm2d(6)(Tensor.randn(*shape)).shape == shape


def test_one_element_a_channel_keeps_the_running_variance_finite():
    layer = nn.BatchNorm(6)
    with Tensor.train():
        layer(Tensor.ones(1, 6)).realize()
    assert np.isfinite(layer.running_var.numpy()).all()


def test_the_gradient_of_batch_norm_goes_through_the_statistics():
    layer, x = nn.BatchNorm(6), Tensor(IMAGES, requires_grad=True)
    with Tensor.train():
        layer(x).sum().backward()
    # The sum of a normalised batch does not change with its elements.
    assert np.abs(x.grad.numpy()).max() < 1e-4
    np.testing.assert_allclose(layer.bias.grad.numpy(), [100.0] * 6, rtol=1e-4)


def test_running_statistics_move_in_a_captured_step():
    layer, free = nn.BatchNorm(6), nn.BatchNorm(6)

    @TinyJit
    def step(x):
        return layer(x).sum().realize(layer.running_mean, layer.running_var)

    with Tensor.train():
        for number in range(4):
            batch = Tensor(IMAGES + number).realize()
            step(batch)
            free(batch).realize()
    np.testing.assert_allclose(layer.running_mean.numpy(), free.running_mean.numpy(), rtol=1e-4)
    np.testing.assert_allclose(layer.running_var.numpy(), free.running_var.numpy(), rtol=1e-4)


def test_a_wrong_number_of_channels_is_named():
    with pytest.raises(ShapeError, match=r"BatchNorm\(3\).*\(4, 6, 5, 5\)"):
        nn.BatchNorm(3)(Tensor(IMAGES))


@pytest.mark.parametrize(
    ("layer", "want"),
    [
        (nn.LayerNorm(5), normal(IMAGES, -1)),
        (nn.LayerNorm((6, 5, 5)), normal(IMAGES, (1, 2, 3))),
        (nn.LayerNorm(5, elementwise_affine=False), normal(IMAGES, -1)),
        (nn.LayerNorm2d(6), normal(IMAGES, 1)),
        (nn.InstanceNorm(6), normal(IMAGES, (2, 3))),
        (nn.GroupNorm(6, 6, affine=False), normal(IMAGES, (2, 3))),
        (
            nn.GroupNorm(2, 6),
            normal(IMAGES.reshape(4, 2, 3, 5, 5), (2, 3, 4)).reshape(IMAGES.shape),
        ),
        (nn.RMSNorm(5), IMAGES / np.sqrt((IMAGES**2).mean(-1, keepdims=True) + 1e-6)),
    ],
    ids=["layer", "axes", "plain", "layer2d", "instance", "channel", "group", "rms"],
)
def test_norms_follow_their_formulas(layer, want):
    np.testing.assert_allclose(layer(Tensor(IMAGES)).numpy(), want, rtol=1e-3, atol=1e-4)


def test_weights_scale_and_biases_shift():
    layer = nn.LayerNorm(5)
    layer.weight, layer.bias = Tensor([2.0] * 5), Tensor([1.0] * 5)
    want = normal(IMAGES, -1) * 2 + 1
    np.testing.assert_allclose(layer(Tensor(IMAGES)).numpy(), want, rtol=1e-3, atol=1e-4)


def test_batch_norm_without_momentum_keeps_the_mean_of_all_batches():
    layer = nn.BatchNorm(6, momentum=None, affine=False)
    with Tensor.train():
        for factor in (1, 3):
            layer(Tensor(IMAGES * factor)).realize()
    want = IMAGES.mean((0, 2, 3)) * 2
    np.testing.assert_allclose(layer.running_mean.numpy(), want, rtol=1e-4, atol=1e-5)
    want = IMAGES.var((0, 2, 3), ddof=1) * 5
    np.testing.assert_allclose(layer.running_var.numpy(), want, rtol=1e-4)


def test_groups_of_channels_are_scaled_by_channel():
    layer = nn.GroupNorm(3, 6)
    layer.weight, layer.bias = Tensor(np.arange(6.0, dtype=np.float32)), Tensor([1.0] * 6)
    plain = normal(IMAGES.reshape(4, 3, 2, 5, 5), (2, 3, 4)).reshape(IMAGES.shape)
    want = plain * np.arange(6.0).reshape(6, 1, 1) + 1
    np.testing.assert_allclose(layer(Tensor(IMAGES)).numpy(), want, rtol=1e-3, atol=1e-4)


def test_rms_norm_scales_by_its_weight():
    layer = nn.RMSNorm(5)
    layer.weight = Tensor([2.0] * 5)
    want = 2 * IMAGES / np.sqrt((IMAGES**2).mean(-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(layer(Tensor(IMAGES)).numpy(), want, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_no_eps_of_rms_norm_is_the_one_of_its_type(kind):
    x = Tensor([[1e-4, 0.0]], dtype=kind)
    wide = np.promote_types(kind, "float32")
    square = x.numpy().astype(np.float64) ** 2
    wanted = x.numpy() / np.sqrt(square.mean() + np.finfo(wide).eps)
    found = nn.RMSNorm(2, eps=None)(x)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=2e-3 if kind == "float16" else 1e-6)


def test_sixteen_bits_stay_sixteen_bits():
    half = Tensor(IMAGES).half()
    for layer in (nn.RMSNorm(5), nn.LayerNorm(5), nn.GroupNorm(2, 6), nn.LayerNorm2d(6)):
        assert layer(half).dtype is half.dtype


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(ShapeError, match=r"LayerNorm\(\(2,\)\).*\(2, 3\)"):
        nn.LayerNorm(2)(Tensor.ones(2, 3))
    with pytest.raises(ShapeError, match=r"RMSNorm.*\(2, 3\)"):
        nn.RMSNorm(2)(Tensor.ones(2, 3))
    with pytest.raises(ShapeError, match=r"GroupNorm\(4\).*\(2, 6\)"):
        nn.GroupNorm(4, 8)(Tensor.ones(2, 6))
