"""Devices have tinygrad's names and tell their element types."""

from kernelet.base.dtype import dtypes
from kernelet.compat.device import Renderer, is_dtype_supported
from tests.compat.runs import printed


def test_every_device_has_all_types():
    assert is_dtype_supported(dtypes.float16)
    assert is_dtype_supported(dtypes.int64, "PYTHON")
    assert Renderer("CPU").supported_dtypes() == set(dtypes.all)


def test_devices_answer_to_former_names():
    code = "from tinygrad import Device, Tensor\nfrom tinygrad.device import canonicalize_device\n"
    code += "print(Device.canonicalize('CLANG:1'), canonicalize_device(('CPU', 'CPU:1')))\n"
    code += "print(Device.canonicalize('GPU:0') in Device.get_available_devices())\n"
    code += "print(Device.default.device == Device.DEFAULT, Device['CPU'].renderer.device)\n"
    code += "try: Device['AMD']\nexcept RuntimeError as error: print('AMD' in str(error))"
    first, *rest = printed(code)
    assert first == "CPU:1 ('CPU', 'CPU:1')"
    assert rest == ["True", "True CPU", "True"]
