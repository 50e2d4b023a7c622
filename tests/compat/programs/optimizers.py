from tinygrad import Context, Tensor, nn
from tinygrad.nn.optim import LAMB, SGD, Adam, AdamW, OptimizerGroup


def run(make):
    w = Tensor([[1.0, -2.0], [0.5, 3.0]]).contiguous()
    b = Tensor([0.1, 0.2]).contiguous()
    opt = make([w, b])
    with Context(TRAINING=1):
        for _ in range(3):
            opt.zero_grad()
            ((Tensor([[1.0, 2.0]]) @ w + b).square().sum()).backward()
            opt.step()
    return [round(v, 4) for v in w.flatten().tolist() + b.tolist()]


print(run(lambda p: SGD(p, lr=0.01)))
print(run(lambda p: SGD(p, lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.1)))
print(run(lambda p: Adam(p, lr=0.1)))
print(run(lambda p: AdamW(p, lr=0.1, b1=0.8, b2=0.99, weight_decay=0.1)))
print(run(lambda p: LAMB(p, lr=0.1)))
print(run(lambda p: OptimizerGroup(SGD(p[:1], lr=0.1), Adam(p[1:], lr=0.1))))
opt = Adam([Tensor([1.0])], lr=0.5)
print(opt.lr.item(), len(opt.params))
opt.lr.assign(opt.lr * 0.5).realize()
print(opt.lr.numpy().tolist())
