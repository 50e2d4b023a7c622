"""A language model's decode step with a KV cache: one capture serves every position."""

import numpy as np
import pytest

from kernelet import Context, GlobalCounters, Tensor, TinyJit, Variable, nn
from kernelet.frontend.capture import Capture

TOKENS, WIDTH, HEADS, LAYERS, LENGTH = 11, 16, 2, 2, 12


class Block:
    def __init__(self):
        self.attention = [nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4)]
        self.up, self.down = nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)
        self.norms = [nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)]
        shape = (1, HEADS, LENGTH, WIDTH // HEADS)
        self.cache = [Tensor.zeros(*shape).contiguous().realize() for _ in range(2)]

    def __call__(self, x, position):
        part = self.norms[0](x)
        query, key, value = (
            layer(part).reshape(1, 1, HEADS, -1).transpose(1, 2) for layer in self.attention[:3]
        )
        self.cache[0][:, :, position : position + 1].assign(key)
        self.cache[1][:, :, position : position + 1].assign(value)
        keys, values = (each[:, :, : position + 1] for each in self.cache)
        found = query.scaled_dot_product_attention(keys, values)
        x = x + self.attention[3](found.transpose(1, 2).reshape(1, 1, WIDTH))
        return x + self.down(self.up(self.norms[1](x)).relu())


class Model:
    def __init__(self):
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.blocks = [Block() for _ in range(LAYERS)]
        self.head = nn.Linear(WIDTH, TOKENS)

    def __call__(self, token, position):
        x = self.embedding(token)
        for block in self.blocks:
            x = block(x, position)
        return self.head(x).reshape(TOKENS)


def rms_norm(x, norm):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + norm.eps) * norm.weight.numpy()


def linear(x, layer):
    bias = 0 if layer.bias is None else layer.bias.numpy()
    return x @ layer.weight.numpy().T + bias


def whole_sequence(model, tokens):
    """All logits at once, in numpy, without a cache."""
    x = model.embedding.weight.numpy()[tokens]
    for block in model.blocks:
        part = rms_norm(x, block.norms[0])
        query, key, value = (
            linear(part, layer).reshape(len(tokens), HEADS, -1).transpose(1, 0, 2)
            for layer in block.attention[:3]
        )
        scores = query @ key.transpose(0, 2, 1) / np.sqrt(WIDTH // HEADS)
        scores = np.where(np.tri(len(tokens), dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        found = (weights @ value).transpose(1, 0, 2).reshape(len(tokens), WIDTH)
        x = x + linear(found, block.attention[3])
        hidden = np.maximum(linear(rms_norm(x, block.norms[1]), block.up), 0)
        x = x + linear(hidden, block.down)
    return linear(x, model.head)


@pytest.fixture
def model():
    Tensor.manual_seed(1)
    found = Model()
    Tensor.realize(*nn.state.get_parameters(found))
    return found


@pytest.mark.parametrize("enabled", [0, 1])
def test_decoding_step_by_step_gives_the_logits_of_the_whole_sequence(model, enabled):
    step, position = TinyJit(model), Variable("position", 0, LENGTH - 1)
    tokens = np.random.default_rng(0).integers(0, TOKENS, LENGTH)
    wanted = whole_sequence(model, tokens)
    counts = []
    with Context(JIT=enabled):
        for at, token in enumerate(tokens):
            before = GlobalCounters.kernel_count
            found = step(Tensor([[int(token)]]), position.bind(at))
            counts.append(GlobalCounters.kernel_count - before)
            assert np.allclose(found.numpy(), wanted[at], atol=1e-4), at
    assert sum(isinstance(known, Capture) for known in step.captures.values()) == enabled
    assert len(set(counts[1:])) == 1


def test_decoding_starts_anew_in_the_same_cache(model):
    step, position = TinyJit(model), Variable("position", 0, LENGTH - 1)
    for start in ([3, 1, 4, 1, 5], [2, 7, 1, 8], [9, 9]):
        wanted = whole_sequence(model, np.array(start))
        for at, token in enumerate(start):
            found = step(Tensor([[token]]), position.bind(at))
            assert np.allclose(found.numpy(), wanted[at], atol=1e-4)


def test_greedy_decoding_feeds_results_back(model):
    def choose(token, position):
        return model(token, position).argmax().reshape(1, 1)

    step, position = TinyJit(choose), Variable("position", 0, LENGTH - 1)
    token, tokens = Tensor([[5]]), [5]
    for at in range(LENGTH - 1):
        token = step(token, position.bind(at))
        tokens.append(token.item())
    logits = whole_sequence(model, np.array(tokens[:-1]))
    assert tokens[1:] == logits.argmax(-1).tolist()
