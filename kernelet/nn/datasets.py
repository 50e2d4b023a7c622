"""Data sets that examples and tests train on.

In:  files in the data folder, downloaded once where they are missing.
Out: tensors of bytes: training images and labels, test images and labels.

The data folder is KERNELET_DATA, else a folder in the cache. What a folder already holds is read
as it is, packed or not, and may be a part of the set.
"""

from __future__ import annotations

import gzip
import io
import os
import struct
import tarfile
import zlib
from collections.abc import Mapping

from kernelet.base import config
from kernelet.base.dtype import dtypes
from kernelet.base.errors import DataError
from kernelet.frontend.tensor import Tensor
from kernelet.nn.download import Unpack, fetch
from kernelet.nn.files import replacing

Split = tuple[Tensor, Tensor, Tensor, Tensor]

MNIST_URL = "https://storage.googleapis.com/cvdf-datasets/mnist/"
FASHION_URL = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion"
SHAKESPEARE_URL = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare"
CIFAR_URL = "https://www.cs.toronto.edu/~kriz/"

# Each file and the sha256 of what is packed in it.
_MNIST_FILES = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
# The same names; here the sha256 is that of the packed file.
_FASHION_FILES = {
    "train-images-idx3-ubyte": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    "train-labels-idx1-ubyte": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    "t10k-images-idx3-ubyte": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    "t10k-labels-idx1-ubyte": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
}
_SHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
_CIFAR_ARCHIVE = "cifar-10-binary.tar.gz"
_CIFAR_SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
_CIFAR_FOLDER = "cifar-10-batches-bin"
_CIFAR_TRAINING = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
_CIFAR_TEST = "test_batch.bin"
_CIFAR_ROW = 1 + 3 * 32 * 32


def data_folder() -> str:
    """Where data sets are kept."""
    settings = config.current()
    return settings.data_folder or os.path.join(settings.cache_folder, "data")


def mnist(device: str | None = None, fashion: bool = False, base_url: str = MNIST_URL) -> Split:
    """60000 and 10000 handwritten digits, (count, 1, 28, 28), and which digits they are."""
    if fashion:
        return fashion_mnist(device)
    return _read_images("mnist", base_url, _MNIST_FILES, _unpacked, device)


def fashion_mnist(device: str | None = None, base_url: str = FASHION_URL) -> Split:
    """60000 and 10000 pictures of clothes, (count, 1, 28, 28), and their classes."""
    return _read_images("fashion-mnist", base_url, _FASHION_FILES, bytes, device)


def _read_images(
    name: str, base_url: str, files: Mapping[str, str], unpack: Unpack, device: str | None
) -> Split:
    folder = os.path.join(data_folder(), name)
    parts = []
    for file, checksum in files.items():
        path = _present(folder, file)
        if path is None:
            path = os.path.join(folder, f"{file}.gz")
            fetch(f"{base_url.rstrip('/')}/{file}.gz", path, checksum, unpack)
        parts.append(_read_idx(path, device))
    for images, labels in (parts[:2], parts[2:]):
        if len(images) != len(labels):
            raise DataError(f"{folder}: {name} has {len(images)} images and {len(labels)} labels.")
    train_images, train_labels, test_images, test_labels = parts
    return train_images.unsqueeze(1), train_labels, test_images.unsqueeze(1), test_labels


def cifar(
    device: str | None = None, base_url: str = CIFAR_URL, checksum: str = _CIFAR_SHA256
) -> Split:
    """CIFAR-10: 50000 and 10000 small photographs, (count, 3, 32, 32), and their classes."""
    folder = os.path.join(data_folder(), _CIFAR_FOLDER)
    training, test = _cifar_files(folder)
    if not training or not test:
        archive = os.path.join(data_folder(), _CIFAR_ARCHIVE)
        if not os.path.exists(archive):
            fetch(f"{base_url.rstrip('/')}/{_CIFAR_ARCHIVE}", archive, checksum)
        _extract(archive, folder)
        training, test = _cifar_files(folder)
    return (*_read_cifar(training, device), *_read_cifar(test, device))


def tiny_shakespeare(base_url: str = SHAKESPEARE_URL) -> str:
    """A million characters of plays."""
    path = _present(data_folder(), "tinyshakespeare.txt")
    if path is None:
        path = os.path.join(data_folder(), "tinyshakespeare.txt")
        fetch(f"{base_url.rstrip('/')}/input.txt", path, _SHAKESPEARE_SHA256)
    return _read(path).decode()


def _present(folder: str, name: str) -> str | None:
    """The path of a file, packed or not, where there is one."""
    paths = [os.path.join(folder, name + ending) for ending in (".gz", "")]
    return next((path for path in paths if os.path.exists(path)), None)


def _unpacked(data: bytes) -> bytes:
    try:
        return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"the packed file is damaged: {error}") from None


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        data = file.read()
    try:
        return _unpacked(data)
    except ValueError as error:
        raise DataError(f"{path}: {error}. Delete it and run again.") from None


def _read_idx(path: str, device: str | None) -> Tensor:
    """The bytes of an IDX file: 0, 0, the type 8, the number of axes, their sizes, the elements."""
    data = _read(path)
    axes = data[3] if len(data) > 3 and data[:3] == b"\0\0\x08" else 0
    start = 4 + 4 * axes
    shape = struct.unpack(f">{axes}I", data[4:start]) if axes and len(data) >= start else ()
    count = len(data) - start
    size = 1
    for dim in shape:
        size *= dim
    if not shape or size != count:
        raise DataError(
            f"{path}: not a whole IDX file of bytes (MNIST's format): its header asks for "
            f"{shape or 'nothing'} and {max(count, 0)} bytes are there. Delete it and run again."
        )
    return Tensor(data[start:], device=device, dtype=dtypes.uint8).reshape(shape)


def _cifar_files(folder: str) -> tuple[list[str], list[str]]:
    training = [_present(folder, name) for name in _CIFAR_TRAINING]
    test = _present(folder, _CIFAR_TEST)
    return [path for path in training if path], [test] if test else []


def _extract(archive: str, folder: str) -> None:
    """Take the batches out of the published archive, by name: nothing else is written."""
    os.makedirs(folder, exist_ok=True)
    try:
        with open(archive, "rb") as file, tarfile.open(fileobj=io.BytesIO(file.read())) as packed:
            for name in (*_CIFAR_TRAINING, _CIFAR_TEST):
                member = packed.extractfile(f"{_CIFAR_FOLDER}/{name}")
                if member is not None:
                    with replacing(os.path.join(folder, name)) as target:
                        target.write(member.read())
    except (tarfile.TarError, KeyError, EOFError, zlib.error) as error:
        raise DataError(f"{archive}: CIFAR-10 archive: {error}. Delete it and run again.") from None


def _read_cifar(paths: list[str], device: str | None) -> tuple[Tensor, Tensor]:
    """Rows of a label and the three colour planes of an image."""
    data = b"".join(_read(path) for path in paths)
    if not data or len(data) % _CIFAR_ROW:
        raise DataError(
            f"{', '.join(paths)}: {len(data)} bytes are no whole number of CIFAR-10's rows of "
            f"{_CIFAR_ROW}. Delete the files and run again."
        )
    labels = data[::_CIFAR_ROW]
    rows = range(0, len(data), _CIFAR_ROW)
    images = b"".join(data[row + 1 : row + _CIFAR_ROW] for row in rows)
    return (
        Tensor(images, device=device, dtype=dtypes.uint8).reshape(-1, 3, 32, 32),
        Tensor(labels, device=device, dtype=dtypes.uint8),
    )
