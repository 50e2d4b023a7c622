import os

os.environ["MY_STEPS"] = "12"
os.environ["DEV"] = "CPU"

from tinygrad import Device, Tensor, getenv  # noqa: E402

print(getenv("MY_STEPS", 5), getenv("MY_STEPS", ""), getenv("MY_STEPS", 1.0), getenv("MY_OTHER", 3))
print(Device.DEFAULT, Tensor([1]).device)
