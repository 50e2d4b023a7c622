from tinygrad import Tensor, nn
from tinygrad.helpers import trange

Tensor.manual_seed(5)


class LinearGen:
    def __init__(self):
        self.l1, self.l2 = Tensor.scaled_uniform(8, 16), Tensor.scaled_uniform(16, 4)

    def forward(self, x):
        return x.dot(self.l1).leaky_relu(0.2).dot(self.l2).tanh()


class LinearDisc:
    def __init__(self):
        self.l1, self.l2 = Tensor.scaled_uniform(4, 16), Tensor.scaled_uniform(16, 2)

    def forward(self, x):
        x = x.dot(self.l1).leaky_relu(0.2).dropout(0.3)
        return x.dot(self.l2).log_softmax()


def make_labels(bs, col, val=-2.0):
    y = Tensor.zeros(bs, 2).contiguous()
    y[:, col] = val
    return y


def step(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.numpy()


g, d = LinearGen(), LinearDisc()
opt_g = nn.optim.Adam([g.l1, g.l2], lr=0.02, b1=0.5)
opt_d = nn.optim.Adam([d.l1, d.l2], lr=0.02, b1=0.5)
with Tensor.train():
    for _ in trange(3):
        fake = g.forward(Tensor.randn(16, 8)).detach()
        real = Tensor.uniform(16, 4, low=0.5, high=1.0)
        loss_d = step(opt_d, (d.forward(real) * make_labels(16, 1)).mean() + (d.forward(fake) * make_labels(16, 0)).mean())
        loss_g = step(opt_g, (d.forward(g.forward(Tensor.randn(16, 8))) * make_labels(16, 1)).mean())
print(loss_d.shape, float(loss_g) > 0)
