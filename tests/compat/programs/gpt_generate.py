import math

from tinygrad import Tensor, TinyJit, UOp, Variable, dtypes, nn
from tinygrad.helpers import getenv

MAX_CONTEXT = 16


class Attention:
    def __init__(self, dim, n_heads):
        self.c_attn, self.c_proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.n_heads, self.dim, self.head_dim = n_heads, dim, dim // n_heads

    def __call__(self, x: Tensor, start_pos, mask: Tensor | None) -> Tensor:
        bsz, seqlen, _ = x.shape
        xqkv = self.c_attn(x)
        xq, xk, xv = [
            xqkv.shrink((None, None, (i * self.dim, (i + 1) * self.dim))).reshape(bsz, seqlen, self.n_heads, self.head_dim)
            for i in range(3)
        ]
        if not hasattr(self, "cache_kv"):
            self.cache_kv = (
                Tensor.zeros(2, bsz, MAX_CONTEXT, self.n_heads, self.head_dim, dtype=x.dtype).contiguous().realize()
            )
        self.cache_kv.shrink((None, None, (start_pos, start_pos + seqlen), None, None)).assign(Tensor.stack(xk, xv)).realize()
        keys = self.cache_kv[0].shrink((None, (0, start_pos + seqlen), None, None))
        values = self.cache_kv[1].shrink((None, (0, start_pos + seqlen), None, None))
        xq, keys, values = xq.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2)
        out = xq.scaled_dot_product_attention(keys, values, mask).transpose(1, 2)
        return self.c_proj(out.reshape(bsz, seqlen, self.dim))


class Block:
    def __init__(self, dim, n_heads):
        self.attn, self.ln_1, self.ln_2 = Attention(dim, n_heads), nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.fc, self.proj = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def __call__(self, x, start_pos, mask):
        h = x + self.attn(self.ln_1(x), start_pos, mask).float()
        return h + self.proj(self.fc(self.ln_2(h)).gelu())


class Transformer:
    def __init__(self, dim=16, n_heads=2, n_layers=2, vocab_size=50):
        self.wte, self.wpe = nn.Embedding(vocab_size, dim), nn.Embedding(MAX_CONTEXT, dim)
        self.h = [Block(dim, n_heads) for _ in range(n_layers)]
        self.ln_f, self.lm_head = nn.LayerNorm(dim), nn.Linear(dim, vocab_size, bias=False)
        self.forward_jit = TinyJit(self.forward)

    def forward(self, tokens: Tensor, start_pos) -> Tensor:
        if not hasattr(self, "allpos"):
            self.allpos = Tensor.arange(0, MAX_CONTEXT).reshape(1, -1).realize()
        seqlen = tokens.shape[1]
        pos = self.allpos.shrink((None, (start_pos, start_pos + seqlen)))
        h = self.wte(tokens) + self.wpe(pos)
        mask = (
            Tensor.full((1, 1, seqlen, start_pos + seqlen), float("-inf"), dtype=h.dtype).triu(start_pos + 1)
            if seqlen > 1
            else None
        )
        for hi in self.h:
            h = hi(h, start_pos, mask)
        return self.lm_head(self.ln_f(h))[:, -1, :].argmax(-1).flatten().realize()

    def __call__(self, tokens, start_pos):
        forward = self.forward_jit if tokens.shape[1] == 1 and getenv("JIT", 1) else self.forward
        return forward(tokens, start_pos)


Tensor.manual_seed(3)
model = Transformer()
for t in nn.state.get_parameters(model):
    n = math.prod(t.shape)
    t.assign(((Tensor.arange(n) * 37 % 101 * 53 % 97).cast(dtypes.float) / 97 - 0.5).reshape(t.shape)).realize()
toks, start_pos = [7, 3, 11], 0
v = Variable("start_pos", 1, MAX_CONTEXT - 1)
while len(toks) < 12:
    if start_pos == 0:
        nxt = model(Tensor([toks]), 0)
    else:
        nxt = model(Tensor([toks[start_pos:]]), v.bind(start_pos))
    start_pos = len(toks)
    toks.append(int(nxt.item()))
print(toks)
for block in model.h:
    del block.attn.cache_kv
print(int(model.forward(Tensor([toks[:-1]]), 0).item()) == toks[-1], isinstance(v, UOp), v.vmin, v.vmax)
