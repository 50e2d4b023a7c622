import numpy as np
import pytest

from kernelet import Tensor, nn
from kernelet.base.errors import ArgumentError

DRAW = np.random.default_rng(5)
QUERY, KEY, VALUE = (
    DRAW.standard_normal((3, time, 8)).astype(np.float32) for time in (4, 5, 5)
)  # (batch, time, features)
HIDDEN = np.zeros((3, 5), bool)
HIDDEN[1, 3:] = True
LATER = np.triu(np.ones((4, 5), bool), 2)
ADDED = DRAW.standard_normal((6, 4, 5)).astype(np.float32)


def projected(layer, x, at):
    weight = layer.in_proj_weight.numpy()[8 * at : 8 * at + 8]
    bias = 0 if layer.in_proj_bias is None else layer.in_proj_bias.numpy()[8 * at : 8 * at + 8]
    return (x @ weight.T + bias).reshape(*x.shape[:2], 2, 4).swapaxes(1, 2)


def attention(layer, added):
    """Result and weights in numpy; `added` broadcasts to (batch, heads, queries, keys)."""
    query, key, value = (projected(layer, x, at) for at, x in enumerate((QUERY, KEY, VALUE)))
    scores = query @ key.swapaxes(-1, -2) / 2 + added
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    mixed = (weights @ value).swapaxes(1, 2).reshape(3, 4, 8)
    bias = 0 if layer.out_proj.bias is None else layer.out_proj.bias.numpy()
    return mixed @ layer.out_proj.weight.numpy().T + bias, weights


def minus_infinity(mask):
    return np.where(mask, -np.inf, 0.0)


CASES = {
    "no mask": ({}, 0.0),
    "later": ({"attn_mask": LATER}, minus_infinity(LATER)),
    "each head": ({"attn_mask": ADDED}, ADDED.reshape(3, 2, 4, 5)),
    "padding": ({"key_padding_mask": HIDDEN}, minus_infinity(HIDDEN)[:, None, None]),
    "both": (
        {"attn_mask": LATER, "key_padding_mask": HIDDEN},
        minus_infinity(LATER) + minus_infinity(HIDDEN)[:, None, None],
    ),
    "causal": ({"is_causal": True}, minus_infinity(np.triu(np.ones((4, 5), bool), 1))),
}


@pytest.mark.parametrize("name", CASES)
def test_attention_follows_its_formula(name):
    options, added = CASES[name]
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    layer.in_proj_bias.assign(np.arange(24) / 24)
    given = {key: Tensor(each) if key != "is_causal" else each for key, each in options.items()}
    found, weights = layer(Tensor(QUERY), Tensor(KEY), Tensor(VALUE), **given)
    want, wanted_weights = attention(layer, added)
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(weights.numpy(), wanted_weights.mean(1), rtol=1e-4, atol=1e-5)
    options = {**given, "average_attn_weights": False}
    each = layer(Tensor(QUERY), Tensor(KEY), Tensor(VALUE), **options)[1]
    np.testing.assert_allclose(each.numpy(), wanted_weights, rtol=1e-4, atol=1e-5)


def test_time_comes_first_and_a_batch_may_be_missing():
    layer = nn.MultiheadAttention(8, 2, bias=False)
    want, weights = attention(layer, 0.0)
    turned = [Tensor(each.swapaxes(0, 1).copy()) for each in (QUERY, KEY, VALUE)]
    np.testing.assert_allclose(layer(*turned)[0].numpy(), want.swapaxes(0, 1), rtol=1e-4, atol=1e-5)
    found, seen = layer(*(Tensor(each[0].copy()) for each in (QUERY, KEY, VALUE)))
    np.testing.assert_allclose(found.numpy(), want[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(seen.numpy(), weights[0].mean(0), rtol=1e-4, atol=1e-5)
    assert layer(*turned, need_weights=False)[1] is None


def test_a_query_that_may_see_nothing_gets_zeros():
    layer = nn.MultiheadAttention(8, 2, batch_first=True, bias=False)
    mask = Tensor(np.arange(4)[:, None].repeat(5, 1) == 2)
    found, weights = layer(Tensor(QUERY), Tensor(KEY), Tensor(VALUE), attn_mask=mask)
    assert np.isfinite(found.numpy()).all()
    assert not found.numpy()[:, 2].any()
    assert not weights.numpy()[:, 2].any()


def test_keys_and_values_may_have_other_widths():
    layer = nn.MultiheadAttention(8, 2, kdim=3, vdim=6, batch_first=True)
    found, _ = layer(Tensor(QUERY), Tensor.ones(3, 5, 3), Tensor.ones(3, 5, 6))
    assert found.shape == (3, 4, 8)
    names = list(nn.state.get_state_dict(layer))
    assert names[:3] == ["q_proj_weight", "k_proj_weight", "v_proj_weight"]


def test_dropout_acts_in_training_on_the_values_alone():
    layer = nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True)
    given = Tensor(QUERY), Tensor(KEY), Tensor(VALUE)
    found, weights = layer(*given)
    with Tensor.train():
        noisy, same = layer(*given)
        assert not np.allclose(noisy.numpy(), found.numpy())
        np.testing.assert_allclose(same.numpy(), weights.numpy(), rtol=1e-5)


def test_heads_must_divide_the_features():
    with pytest.raises(ArgumentError, match="8 features do not share out to 3 heads"):
        nn.MultiheadAttention(8, 3)


def test_attention_is_that_of_torch():
    torch = pytest.importorskip("torch")
    theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    state = {name: Tensor(each.numpy()) for name, each in theirs.state_dict().items()}
    nn.state.load_state_dict(layer, state)
    query = torch.tensor(QUERY, requires_grad=True)
    want, weights = theirs(query, torch.tensor(KEY), torch.tensor(VALUE))
    (want * want).sum().backward()
    mine = Tensor(QUERY, requires_grad=True)
    found, seen = layer(mine, Tensor(KEY), Tensor(VALUE))
    (found * found).sum().backward()
    np.testing.assert_allclose(found.numpy(), want.detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(seen.numpy(), weights.detach().numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(mine.grad.numpy(), query.grad.numpy(), rtol=1e-4, atol=1e-5)
    slope = theirs.in_proj_weight.grad.numpy()
    np.testing.assert_allclose(layer.in_proj_weight.grad.numpy(), slope, rtol=1e-4, atol=1e-5)
