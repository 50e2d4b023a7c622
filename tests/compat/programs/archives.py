import io
import tarfile
import zipfile

from tinygrad import Tensor
from tinygrad.nn.state import tar_extract, zip_extract

buffer = io.BytesIO()
with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
    for name, data in (("a.txt", b"hello"), ("dir/b.bin", bytes(5))):
        info = tarfile.TarInfo(name)
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
found = tar_extract(Tensor(buffer.getvalue()))
print({k: bytes(v.tolist()) for k, v in found.items()})
buffer = io.BytesIO()
with zipfile.ZipFile(buffer, "w") as z:
    z.writestr("x/y.txt", "zipped")
print({k: bytes(v.tolist()) for k, v in zip_extract(Tensor(buffer.getvalue())).items()})
