import os
import tempfile

from tinygrad import Tensor, dtypes, nn
from tinygrad.nn.state import get_parameters, get_state_dict, load_state_dict, safe_load, safe_load_metadata, safe_save


class Net:
    def __init__(self):
        self.layers = [nn.Linear(3, 4), nn.BatchNorm(4)]
        self.head = {"out": nn.Linear(4, 2, bias=False)}


a, b = Net(), Net()
with tempfile.TemporaryDirectory() as folder:
    fn = os.path.join(folder, "net.safetensors")
    safe_save(get_state_dict(a), fn)
    state = safe_load(fn)
    print(sorted(state))
    load_state_dict(b, state, verbose=False)
    print(all((get_state_dict(a)[k] == v).all().item() for k, v in get_state_dict(b).items()))
    safe_save({"x": Tensor([[1, 2], [3, 4]], dtype=dtypes.int16)}, fn, metadata={"made": "here"})
    raw, start, meta = safe_load_metadata(fn)
    print(meta["x"]["dtype"], meta["x"]["shape"], meta["__metadata__"], raw.dtype == dtypes.uint8)
    print(safe_load(fn)["x"].tolist())
try:
    load_state_dict(a, {}, verbose=False)
except Exception as e:
    print("strict", isinstance(e, Exception))
print(len(get_parameters(a)))
