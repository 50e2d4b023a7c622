import time

from tinygrad import Context, Tensor, TinyJit, nn
from tinygrad.helpers import GlobalCounters, Timing, colored, trange

Tensor.manual_seed(0)
xs = Tensor.uniform(64, 3, low=-1.0, high=1.0).realize()
true_w = Tensor([[1.0], [-2.0], [0.5]])
ys = (xs @ true_w + 0.25).realize()


class Regression:
    def __init__(self):
        self.w = Tensor.zeros(3, 1).contiguous()
        self.b = Tensor.zeros(1).contiguous()
        self.w.requires_grad = self.b.requires_grad = True

    def forward(self, x):
        return x.matmul(self.w) + self.b


model = Regression()


def loss_fn():
    return (model.forward(xs) - ys).square().mean()


for _ in range(200):
    for p in (model.w, model.b):
        p.grad = None
    loss_fn().backward()
    for p in (model.w, model.b):
        p.assign(p.detach() - 0.3 * p.grad).realize()
print([round(v, 2) for v in model.w.flatten().tolist()], round(model.b.item(), 2))
opt = nn.optim.AdamW([model.w, model.b], lr=0.01, weight_decay=0.0)
Tensor.training = True
for i in (t := trange(5, disable=True)):
    opt.zero_grad()
    loss = loss_fn()
    loss.backward()
    opt.step()
    t.set_description(f"loss {loss.item():.3f}")
Tensor.training = False
print(colored("done", "green"), loss.item() < 0.1)
with Timing("", enabled=False) as st:
    time.sleep(0.001)
GlobalCounters.reset()
(xs + 1).realize()
print(GlobalCounters.kernel_count)
g = (model.w * 2).sum().gradient(model.w)[0]
print(g.tolist())
with Context(DEBUG=0):
    print((xs.square().sum() * 0).item())
