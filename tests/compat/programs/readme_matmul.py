from tinygrad import Tensor

x = Tensor.eye(3)
y = Tensor([[2.0, 0, -2.0]])
x.requires_grad = y.requires_grad = True
z = y.matmul(x).sum()
z.backward()
print(x.grad.tolist())
print(y.grad.tolist())
N = 64
a, b = Tensor.ones(N, N), Tensor.ones(N, N)
c = (a.reshape(N, 1, N) * b.T.reshape(1, N, N)).sum(axis=2)
print((c.numpy() - (a.numpy() @ b.numpy())).sum(), c.shape, c.dtype == a.dtype)
