from tinygrad import Tensor, nn
from tinygrad.nn import BatchNorm2d, Conv2d, Embedding, GroupNorm, InstanceNorm, LayerNorm, LayerNorm2d, Linear, LSTMCell, RMSNorm
from tinygrad.nn.state import get_parameters, get_state_dict

x = Tensor.arange(2 * 4 * 6 * 6).reshape(2, 4, 6, 6).float() / 100
for layer in (Conv2d(4, 3, 3), Conv2d(4, 8, 3, stride=2, padding=1, bias=False), Conv2d(4, 4, (3, 1), groups=4, padding="same"), BatchNorm2d(4), GroupNorm(2, 4), InstanceNorm(4), LayerNorm2d(4), nn.ConvTranspose2d(4, 2, 3, stride=2)):
    print(type(layer).__name__, layer(x).shape, sorted(get_state_dict(layer)))
print(nn.Conv1d(4, 2, 3)(x.reshape(2, 4, 36)).shape, LayerNorm(6)(x).std().item() > 0.9, [round(v, 3) for v in RMSNorm(6)(x)[0, 0, 0].tolist()])
print(Embedding(10, 3)(Tensor([[1, 2], [3, 4]])).shape, Linear(6, 2)(x).shape, Linear(3, 2, bias=False).bias)
h, c = LSTMCell(6, 5)(x[:, 0, 0], None)
print(h.shape, c.shape)
print([round(v, 3) for v in GroupNorm(2, 4, affine=False)(x)[0, 0, 0].tolist()], len(get_parameters([Linear(2, 2), Linear(2, 2)])))
print(x.sequential([Tensor.relu, lambda t: t.mean((2, 3)), Linear(4, 2)]).shape)
