import gzip
import http.server
import pathlib
import tempfile
import threading

from tinygrad import Tensor, fetch
from tinygrad.helpers import diskcache, diskcache_get, diskcache_put, fetch as helper_fetch

folder = pathlib.Path(tempfile.mkdtemp())
(folder / "data.bin").write_bytes(bytes(range(10)))
(folder / "packed.gz").write_bytes(gzip.compress(b"hello"))
name = f"fetched-{folder.name}"
path = fetch(f"file://{folder}/data.bin", name=name)
print(path.read_bytes() == bytes(range(10)), isinstance(path, pathlib.Path), helper_fetch is fetch)
(folder / "data.bin").write_bytes(b"other")
print(fetch(f"file://{folder}/data.bin", name=name).read_bytes() == bytes(range(10)))
print(fetch(f"file://{folder}/data.bin", name=name, allow_caching=False).read_bytes())
print(fetch(str(folder / "data.bin")) == folder / "data.bin")


class Handler(http.server.SimpleHTTPRequestHandler):
    def __init__(self, *args):
        super().__init__(*args, directory=str(folder))

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
print(fetch(f"{url}/packed.gz", name=name + "-gz", gunzip=True).read_bytes())
print(bytes(Tensor.from_url(f"{url}/data.bin").tolist()))
try:
    fetch(f"{url}/missing", allow_caching=False)
except Exception as e:
    print("cannot be fetched")
server.shutdown()
print(diskcache_put("compat_table", "key", {"a": [1, 2]}), diskcache_get("compat_table", "key"), diskcache_get("compat_table", name))
calls = []


@diskcache
def square(x, key):
    calls.append(x)
    return x * x


print(square(3, name), square(3, name), len(calls))
