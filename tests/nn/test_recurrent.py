import numpy as np
import pytest

from kernelet import Tensor, TinyJit, nn
from kernelet.base.errors import ArgumentError, ShapeError

X = np.random.default_rng(2).standard_normal((4, 2, 3)).astype(np.float32)
START = np.random.default_rng(3).standard_normal((4, 2, 5)).astype(np.float32)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def weights(layer, suffix=""):
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    found = [getattr(layer, name + suffix) for name in names]
    return [0 if each is None else each.numpy().T for each in found]


def step(kind, x, state, parameters):
    """One step in numpy; `state` is (hidden,) or (hidden, cell)."""
    into, keep, bias, kept_bias = parameters
    entering, kept = x @ into + bias, state[0] @ keep + kept_bias
    if kind in ("tanh", "relu"):
        total = entering + kept
        return (np.tanh(total) if kind == "tanh" else np.maximum(total, 0),)
    if kind == "LSTM":
        enter, hold, value, leave = np.split(entering + kept, 4, -1)
        cell = sigmoid(hold) * state[1] + sigmoid(enter) * np.tanh(value)
        return sigmoid(leave) * np.tanh(cell), cell
    (reset, update, value), (a, b, c) = np.split(entering, 3, -1), np.split(kept, 3, -1)
    share = sigmoid(update + b)
    value = np.tanh(value + sigmoid(reset + a) * c)
    return ((1 - share) * value + share * state[0],)


CELLS = {
    "tanh": (lambda bias: nn.RNNCell(3, 5, bias), 1),
    "relu": (lambda bias: nn.RNNCell(3, 5, bias, "relu"), 1),
    "GRU": (lambda bias: nn.GRUCell(3, 5, bias), 1),
    "LSTM": (lambda bias: nn.LSTMCell(3, 5, bias), 2),
}
LAYERS = {
    "tanh": nn.RNN,
    "relu": lambda *sizes, **options: nn.RNN(*sizes, nonlinearity="relu", **options),
    "GRU": nn.GRU,
    "LSTM": nn.LSTM,
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", CELLS)
def test_a_cell_follows_its_formula(kind, bias):
    make, parts = CELLS[kind]
    cell = make(bias)
    for given in (None, [Tensor(each) for each in START[:parts]]):
        state = [np.zeros((2, 5))] * parts if given is None else START[:parts]
        want = step(kind, X[0], state, weights(cell))
        started = given if given is None or parts == 2 else given[0]
        found = cell(Tensor(X[0]), started)
        for got, values in zip(found if parts == 2 else [found], want, strict=True):
            np.testing.assert_allclose(got.numpy(), values, rtol=1e-4, atol=1e-5)


def sequence(kind, layer, x, start, layers, suffixes):
    """All hidden states and the last state of each layer and direction, in numpy."""
    finals = []
    for number in range(layers):
        sides = []
        for suffix in suffixes:
            state = [part[len(finals)] for part in start]
            found = []
            for row in x[::-1] if suffix else x:
                state = step(kind, row, state, weights(layer, f"_l{number}{suffix}"))
                found.append(state[0])
            sides.append(np.stack(found[::-1] if suffix else found))
            finals.append(state)
        x = np.concatenate(sides, -1)
    return x, [np.stack(parts) for parts in zip(*finals, strict=True)]


@pytest.mark.parametrize(
    ("layers", "batch_first", "both", "bias"),
    [(1, False, False, True), (2, True, True, True), (2, False, False, False)],
)
@pytest.mark.parametrize("kind", LAYERS)
def test_a_layer_steps_over_the_sequence(kind, layers, batch_first, both, bias):
    options = {"num_layers": layers, "batch_first": batch_first, "bidirectional": both}
    layer = LAYERS[kind](3, 5, bias=bias, **options)
    parts, rows = CELLS[kind][1], layers * (2 if both else 1)
    start = [START[:rows], START[::-1][:rows]][:parts]
    suffixes = ["", "_reverse"] if both else [""]
    want, last = sequence(kind, layer, X, start, layers, suffixes)
    given = [Tensor(each.copy()) for each in start]
    x = Tensor(X.swapaxes(0, 1).copy() if batch_first else X)
    found, state = layer(x, tuple(given) if parts == 2 else given[0])
    got = found.numpy().swapaxes(0, 1) if batch_first else found.numpy()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    for mine, values in zip(state if parts == 2 else [state], last, strict=True):
        np.testing.assert_allclose(mine.numpy(), values, rtol=1e-4, atol=1e-5)


def test_a_sequence_without_batch_and_state_starts_at_zero():
    layer = nn.GRU(3, 5)
    want, last = sequence("GRU", layer, X[:, 0], [np.zeros((1, 5))], 1, [""])
    found, state = layer(Tensor(X[:, 0].copy()))
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(state.numpy(), last[0], rtol=1e-4, atol=1e-5)


def test_a_layer_learns_to_remember_the_first_number():
    Tensor.manual_seed(3)
    layer, head = nn.LSTM(1, 8), nn.Linear(8, 1)
    optimizer = nn.optim.Adam(nn.state.get_parameters([layer, head]), lr=0.03)
    x = Tensor.randn(4, 16, 1).realize()

    @TinyJit
    def learn():
        optimizer.zero_grad()
        loss = (head(layer(x)[0][-1]) - x[0]).square().mean().backward()
        return loss.realize(*optimizer.schedule_step())

    with Tensor.train():
        losses = [learn().item() for _ in range(60)]
    assert losses[-1] < losses[0] / 3


def test_dropout_between_layers_acts_in_training():
    layer = nn.RNN(3, 5, num_layers=2, dropout=0.9)
    x = Tensor(X)
    calm = layer(x)[0].numpy()
    np.testing.assert_array_equal(calm, layer(x)[0].numpy())
    with Tensor.train():
        assert not np.array_equal(calm, layer(x)[0].numpy())


def test_parameters_have_the_names_of_torch():
    names = list(nn.state.get_state_dict(nn.LSTM(3, 5, num_layers=2, bidirectional=True)))
    parts = ["weight_ih", "weight_hh", "bias_ih", "bias_hh"]
    suffixes = ["_l0", "_l0_reverse", "_l1", "_l1_reverse"]
    assert names == [part + suffix for suffix in suffixes for part in parts]
    assert list(nn.state.get_state_dict(nn.GRU(3, 5, bias=False))) == [
        "weight_ih_l0",
        "weight_hh_l0",
    ]


def test_what_does_not_fit_is_named():
    with pytest.raises(ShapeError, match=r"LSTM: .*\(4, 2, 7\).*3 features"):
        nn.LSTM(3, 5)(Tensor.ones(4, 2, 7))
    with pytest.raises(ArgumentError, match="nonlinearity='sine'.*one of 'tanh', 'relu'"):
        nn.RNNCell(3, 5, nonlinearity="sine")
