import math

from tinygrad.dtype import dtypes, float_to_fp8, fp8_to_float

values = [0.0, -0.0, 1.0, -2.3, 448.0, 449.0, 464.0, 465.0, 1e9, 0.001, 2**-9, 2**-10, 2**-10 * 1.01, 57344.0, 2**-16, 2**-17, 0.3, 17.5, 18.5]
for dt in (dtypes.fp8e4m3, dtypes.fp8e5m2):
    print([float_to_fp8(v, dt) for v in values], float_to_fp8(math.inf, dt), float_to_fp8(-math.inf, dt), float_to_fp8(math.nan, dt))
    print([fp8_to_float(i, dt) for i in range(256) if not math.isnan(fp8_to_float(i, dt))])
    print(all(float_to_fp8(fp8_to_float(i, dt), dt) == i for i in range(256) if not math.isnan(fp8_to_float(i, dt))))
