from tinygrad import Context, Tensor, nn
from tinygrad.helpers import BEAM, DEBUG, JIT, TRAINING, Context as HelperContext

print(DEBUG.value, BEAM.value, bool(JIT))
with Context(DEBUG=0, BEAM=0):
    with Context(BEAM=1):
        print(BEAM.value)
    print(BEAM.value)


@Context(TRAINING=1)
def trained():
    return bool(Tensor.training), bool(TRAINING)


print(trained(), bool(Tensor.training), HelperContext is Context)
with Tensor.train():
    print(bool(Tensor.training), bool(TRAINING))
    with Tensor.train(False):
        print(bool(Tensor.training))
Tensor.training = True
print(TRAINING.value == 1)
Tensor.training = False
x = Tensor.ones(1000)
print(x.dropout(0.5).sum().item())
with Context(TRAINING=1):
    kept = (x.dropout(0.5) != 0).sum().item()
    print(300 < kept < 700)
bn = nn.BatchNorm2d(2)
with Tensor.train():
    bn(Tensor.arange(16).reshape(2, 2, 2, 2).float()).realize()
    Tensor.realize(bn.running_mean, bn.running_var, bn.num_batches_tracked)
print([round(v, 4) for v in bn.running_mean.tolist()], [round(v, 4) for v in bn.running_var.tolist()], bn.num_batches_tracked.item())
try:
    with Context(NO_SUCH_SETTING=1):
        pass
except Exception as e:
    print("unknown setting")
