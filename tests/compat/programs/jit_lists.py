from tinygrad import Tensor, TinyJit
from tinygrad.engine.jit import JitError, TinyJit as Again


@TinyJit
def split(x: Tensor, ys: list[Tensor]):
    return [(x + y).realize() for y in ys]


for i in range(4):
    out = split(Tensor([i, i + 1]).realize(), [Tensor([1, 2]).realize(), Tensor([10 * i, 5]).realize()])
    print([o.tolist() for o in out])


class Counter:
    def __init__(self):
        self.total = Tensor.zeros(2).contiguous().realize()

    @TinyJit
    def add(self, x: Tensor):
        self.total.assign(self.total + x).realize()
        return (self.total * 2).realize()


c = Counter()
for i in range(5):
    r = c.add(Tensor([i, 1.0]).realize())
print(c.total.tolist(), r.tolist(), Again is TinyJit, issubclass(JitError, Exception))
cut = TinyJit(lambda a, b: (a * b).realize())
for _ in range(3):
    res = cut(Tensor([2.0, 3]).realize(), Tensor([4.0, 5]).realize())
print(res.tolist(), cut.captured is not None)
cut.reset()
print(cut.captured is None)
