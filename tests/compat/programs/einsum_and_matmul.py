from tinygrad import Tensor

x, y = Tensor([[1, 2], [3, 4]]), Tensor([[5, 6], [7, 8]])
print(Tensor.einsum("ij,ij->", x, y).numpy(), Tensor.einsum("ij,jk->ik", x, y).tolist(), Tensor.einsum("ij->ji", x).tolist(), Tensor.einsum("i,j->ij", x[0], y[0]).tolist(), Tensor.einsum("...ij,jk", x, y).tolist())
print((x @ y).tolist(), x.dot(y).tolist(), x.matmul(y).tolist(), x.linear(y, Tensor([1, 1])).tolist())
print(x.T.tolist(), x.transpose().tolist(), Tensor.stack(x, y, dim=1).shape, Tensor.cat(x, y, dim=1).tolist(), x.repeat(2, 1).shape)
print([t.tolist() for t in x.split(1)], [t.tolist() for t in Tensor.arange(7).chunk(3)], x.pad(((1, 0), (0, 1))).tolist(), x.pad((1, 0), value=-1).tolist())
print(x.sum(0).tolist(), x.mean().item(), x.max(1).tolist(), x.argmax().item(), x.float().softmax(-1).numpy().round(3).tolist(), x.cumsum(0).tolist(), x.prod().item())
print(Tensor.arange(9).reshape(3, 3).tril().tolist(), Tensor.arange(9).reshape(3, 3).triu(1).tolist(), Tensor.meshgrid(Tensor([1, 2]), Tensor([3, 4]))[0].tolist())
print(x.float().layernorm().numpy().round(3).tolist(), (x > 2).where(x, 0).tolist(), x.one_hot(5).shape, x.gather(1, Tensor([[0], [1]])).tolist())
print(Tensor.arange(4).reshape(1, 1, 2, 2).float().interpolate((4, 4), mode="nearest").tolist(), x.sort(1, descending=True)[0].tolist(), x.flatten().topk(2)[0].tolist())
a = Tensor.arange(16).reshape(1, 1, 4, 4).float()
print(a.max_pool2d().tolist(), a.avg_pool2d((2, 2), stride=2).tolist(), a.conv2d(Tensor.ones(1, 1, 2, 2)).shape, a.conv2d(Tensor.ones(1, 1, 3, 3), padding=1).sum().item())
