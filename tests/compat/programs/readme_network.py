from tinygrad import Tensor, nn


class LinearNet:
    def __init__(self):
        self.l1 = Tensor.kaiming_uniform(784, 128)
        self.l2 = Tensor.kaiming_uniform(128, 10)

    def __call__(self, x: Tensor) -> Tensor:
        return x.flatten(1).dot(self.l1).relu().dot(self.l2)


Tensor.manual_seed(7)
model = LinearNet()
optim = nn.optim.Adam([model.l1, model.l2], lr=0.001)
x, y = Tensor.rand(4, 1, 28, 28), Tensor([2, 4, 3, 7])
losses = []
with Tensor.train():
    for i in range(10):
        optim.zero_grad()
        loss = model(x).sparse_categorical_crossentropy(y).backward()
        optim.step()
        losses.append(loss.item())
print(len(losses), losses[-1] < losses[0] * 0.5)
print(sorted(nn.state.get_state_dict(model)), len(nn.state.get_parameters(model)))
