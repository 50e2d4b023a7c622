from tinygrad import Device, Tensor, TinyJit, dtypes, nn
from tinygrad.helpers import BEAM, Context, ContextVar, WINO, getenv
from tinygrad.nn import optim
from tinygrad.nn.optim import OptimizerGroup
from tinygrad.nn.state import get_state_dict

cifar_mean = [0.4913997551666284, 0.48215855929893703, 0.4465309133731618]
cifar_std = [0.24703225141799082, 0.24348516474564, 0.26158783926049628]
BS, STEPS = getenv("BS", 16), getenv("STEPS", 4)
HALF = ContextVar("HALF", 0)
if HALF:
    dtypes.default_float = dtypes.float16


class UnsyncedBatchNorm:
    def __init__(self, sz: int, eps=1e-5, momentum=0.1):
        self.eps, self.momentum = eps, momentum
        self.weight = Tensor.ones(sz, dtype=dtypes.float32)
        self.bias = Tensor.zeros(sz, dtype=dtypes.float32)
        self.running_mean = Tensor.zeros(sz, dtype=dtypes.float32, requires_grad=False)
        self.running_var = Tensor.ones(sz, dtype=dtypes.float32, requires_grad=False)
        self.num_batches_tracked = Tensor.zeros(1, dtype=dtypes.int, requires_grad=False)

    def __call__(self, x: Tensor):
        shape = (1, -1, 1, 1)
        if Tensor.training:
            batch_mean = x.mean(axis=(0, 2, 3))
            y = x - batch_mean.detach().reshape(shape=shape)
            batch_var = (y * y).mean(axis=(0, 2, 3))
            batch_invstd = batch_var.add(self.eps).pow(-0.5)
            self.running_mean.assign(
                (1 - self.momentum) * self.running_mean + self.momentum * batch_mean.detach()
            )
            self.running_var.assign(
                (1 - self.momentum) * self.running_var + self.momentum * batch_var.detach()
            )
            self.num_batches_tracked += 1
        else:
            batch_mean = self.running_mean
            batch_invstd = self.running_var.reshape(shape).expand(x.shape).add(self.eps).rsqrt()
        return x.batchnorm(self.weight, self.bias, batch_mean, batch_invstd)


class ConvGroup:
    def __init__(self, channels_in, channels_out):
        self.conv1 = nn.Conv2d(channels_in, channels_out, kernel_size=3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(channels_out, channels_out, kernel_size=3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(channels_out), UnsyncedBatchNorm(channels_out)

    def __call__(self, x):
        x = self.norm1(self.conv1(x).max_pool2d(2).float()).cast(dtypes.default_float).quick_gelu()
        return self.norm2(self.conv2(x).float()).cast(dtypes.default_float).quick_gelu() + x


class SpeedyResNet:
    def __init__(self):
        self.net = [
            nn.Conv2d(3, 8, kernel_size=1),
            lambda x: x.quick_gelu(),
            ConvGroup(8, 8),
            ConvGroup(8, 16),
            lambda x: x.max((2, 3)),
            nn.Linear(16, 10, bias=False),
            lambda x: x / 9.0,
        ]

    def __call__(self, x, training=True):
        forward = lambda x: x.sequential(self.net)
        return forward(x) if training else (forward(x) + forward(x[..., ::-1])) / 2.0


Tensor.manual_seed(getenv("SEED", 209))
model = SpeedyResNet()
X = (Tensor.rand(BS, 3, 16, 16) - Tensor(cifar_mean).reshape(1, -1, 1, 1)) / Tensor(cifar_std).reshape(1, -1, 1, 1)
Y = Tensor.randint(BS, low=0, high=10).one_hot(10).float().realize()
X.realize()
params_bias = [x for name, x in get_state_dict(model).items() if "bias" in name]
params_non_bias = [x for name, x in get_state_dict(model).items() if "bias" not in name and "running" not in name and "num_batches" not in name]
opt = OptimizerGroup(
    optim.SGD(params_bias, lr=0.05, momentum=0.85, nesterov=True, weight_decay=0.0),
    optim.SGD(params_non_bias, lr=0.05, momentum=0.85, nesterov=True, weight_decay=0.001),
)


@TinyJit
def train_step(x: Tensor, y: Tensor) -> Tensor:
    with Context(TRAINING=1):
        out = model(x)
        loss = out.cross_entropy(y, reduction="none", label_smoothing=0.2).sum().div(BS)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.realize()


with Context(BEAM=0, WINO=getenv("WINO", 1)):
    losses = [train_step(X, Y).item() for _ in range(STEPS)]
print(len(losses), losses[-1] < losses[0], BEAM.value, WINO.value, bool(HALF))
print(model(X, training=False).shape, Device.DEFAULT == Tensor([1]).device)
print(sorted(name for name in get_state_dict(model) if "norm2" in name and "net.2" in name))
