from tinygrad import Device, Tensor, dtypes
from tinygrad.dtype import (
    DTYPES_DICT, DType, can_lossless_cast, float_to_bf16, float_to_fp16, least_upper_dtype, least_upper_float,
    to_dtype, truncate,
)

print(isinstance(dtypes.float, DType), dtypes.float is dtypes.float32, to_dtype("half") is dtypes.float16)
print(dtypes.is_float(dtypes.half), dtypes.is_int(dtypes.bool), dtypes.is_unsigned(dtypes.uint8), dtypes.finfo(dtypes.bfloat16))
print(dtypes.int.itemsize, dtypes.long.bitsize, dtypes.int8.fmt, dtypes.float.fmt, DTYPES_DICT["uchar"] is dtypes.uint8)
print(least_upper_dtype(dtypes.int8, dtypes.uint8) is dtypes.int16, least_upper_dtype(dtypes.int, dtypes.half) is dtypes.half, least_upper_float(dtypes.half) is dtypes.half)
names = ["bool", "int8", "uint8", "int16", "int32", "int64", "uint64", "float16", "float32", "float64"]
for n in names:
    print(n, "".join("x" if can_lossless_cast(DTYPES_DICT[n], DTYPES_DICT[m]) else "." for m in names))
print(float_to_fp16(0.1), float_to_fp16(1e6), float_to_bf16(3.01), truncate[dtypes.int8](200), truncate[dtypes.uint16](-1), truncate[dtypes.half](0.1))
supported = Device[Device.DEFAULT].renderer.supported_dtypes()
print(dtypes.half in supported, dtypes.float in supported, dtypes.int64 in supported)
print(Tensor([1, 2]).dtype is dtypes.int, Tensor([1.5]).dtype is dtypes.float, Tensor([True]).dtype is dtypes.bool)
print((Tensor([1], dtype="int8") + Tensor([1.0], dtype=dtypes.half)).dtype is dtypes.half)
print(Tensor([300]).cast(dtypes.uint8).tolist(), Tensor([1.9, -1.9]).int().tolist(), Tensor([1.0]).bitcast(dtypes.uint32).item())
