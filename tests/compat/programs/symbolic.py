from tinygrad import Tensor, TinyJit, UOp, Variable
from tinygrad.uop.ops import resolve, sym_infer

a, b = Variable("a", 1, 10), Variable("b", 1, 4)
print((a + 1).vmin, (a * 2 + b).vmax, (a + 1).render(), a.bind(3).unbind()[1])
print(sym_infer(a * 2 + b, {"a": 3, "b": 2}), resolve(a < 20), resolve(a < 0), resolve(a < 5, False))
print([v.expr for v in (a * 2 + b).variables()])
x = Tensor.arange(20).reshape(10, 2).clone().realize()
vi = a.bind(4)
y = x[:vi]
print(y.shape[0] is vi or isinstance(y.shape[0], UOp), y.sum().item())
f = TinyJit(lambda t: t.sum(0).realize())
for i in range(1, 6):
    print(f(x[: a.bind(i)]).tolist())
print(x.shrink((None, (0, 1)))[:vi].reshape(vi, 1).sum().item())
print((x[:vi] @ Tensor.ones(2, 3).cast("int")).sum().item())
