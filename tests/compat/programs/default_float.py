from tinygrad import Tensor, dtypes, nn

dtypes.default_float = dtypes.half
print(Tensor([1.0]).dtype is dtypes.half, Tensor.ones(2).dtype is dtypes.half)
dtypes.default_float = dtypes.float32
dtypes.default_float = dtypes.bfloat16
layer = nn.Linear(3, 2)
print(layer.weight.dtype is dtypes.bfloat16, layer(Tensor.ones(1, 3)).dtype is dtypes.bfloat16)
