from tinygrad import Tensor, TinyJit, function, nn


@function
def scaled(x: Tensor, y: Tensor) -> Tensor:
    return (x * 2 + y).relu()


@function(precompile=True)
def mean_square(x: Tensor) -> Tensor:
    return x.square().mean()


a, b = Tensor([1.0, -2.0, 3.0]), Tensor([0.5, 1.0, -10.0])
a.requires_grad = True
print(scaled(a, b).tolist(), round(mean_square(a).item(), 4))
scaled(a, b).sum().backward()
print(a.grad.tolist())
jitted = TinyJit(lambda x, y: scaled(x, y).realize())
for i in range(3):
    print(jitted(Tensor([float(i)]).realize(), Tensor([1.0]).realize()).tolist())


@TinyJit(prune=True)
def pruned(x):
    return (x + 1).realize()


print([pruned(Tensor([i]).realize()).item() for i in range(4)])
