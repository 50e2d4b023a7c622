from tinygrad import Tensor, dtypes

Tensor.manual_seed(42)
a = Tensor.randn(3, 4)
Tensor.manual_seed(42)
b = Tensor.randn(3, 4)
print((a == b).all().item(), a.shape, a.dtype == dtypes.float)
n = 5000
print(abs(Tensor.randn(n).mean().item()) < 0.1, abs(Tensor.randn(n).std().item() - 1) < 0.1, abs(Tensor.rand(n).mean().item() - 0.5) < 0.05)
u = Tensor.uniform(n, low=2, high=4)
print(2 <= u.min().item() and u.max().item() <= 4, abs(u.mean().item() - 3) < 0.1)
r = Tensor.randint(n, low=-3, high=3)
print(r.min().item(), r.max().item(), r.dtype == dtypes.int)
print(abs(Tensor.normal(n, mean=10, std=2).mean().item() - 10) < 0.2, sorted(Tensor.randperm(8).tolist()))
for f in (Tensor.glorot_uniform, Tensor.kaiming_uniform, Tensor.kaiming_normal, Tensor.scaled_uniform):
    print(f(16, 8).shape, f(16, 8).std().item() < 1)
m = Tensor([0.0, 1.0, 0.0]).multinomial(4, replacement=True)
print(m.tolist(), a.rand_like().shape, a.randn_like(dtype=dtypes.half).dtype == dtypes.half, Tensor.rand(2, dtype=dtypes.half).dtype == dtypes.half)
