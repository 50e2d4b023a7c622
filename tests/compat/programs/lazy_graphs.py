from tinygrad import GlobalCounters, Tensor, dtypes
from tinygrad.uop.ops import Ops

x = Tensor([1.0, 2.0, 3.0])
y = x + 1
print(y.uop.op is Ops.ADD, y.uop.dtype is dtypes.float, y.uop.shape)
y.realize()
print(y.uop.is_realized, y.tolist())
GlobalCounters.reset()
a = Tensor.rand(8, 8).realize()
b = Tensor.rand(8, 8).realize()
GlobalCounters.reset()
c = ((a * b).sum(axis=1) + 3).relu()
c.realize()
print(GlobalCounters.kernel_count, GlobalCounters.global_ops > 0, GlobalCounters.global_mem > 0, GlobalCounters.mem_used > 0)
print(c.clone().shape, c.contiguous().shape, c.detach().shape, c.nbytes(), c.numel(), c.element_size())
z = Tensor.zeros(4).contiguous()
z[1:3] = 5
print(z.tolist())
z += 1
print(z.tolist())
w = Tensor.arange(6).reshape(2, 3)
print(w[:, ::-1].tolist(), w[1].tolist(), w[..., None].shape, w[Tensor([1, 0])].tolist(), w.flip(0).tolist())
print(Tensor.full((2, 2), 7).tolist(), Tensor.linspace(0, 1, 5).tolist(), Tensor.eye(2).tolist())
print(memoryview(x.data()).nbytes, x.item() if x.numel() == 1 else "many")
Tensor.realize(a, b)
print(len(Tensor(b"abc").tolist()), Tensor(3).shape, Tensor([]).shape)
