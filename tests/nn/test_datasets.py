import gzip
import io
import os
import re
import shutil
import struct
import tarfile
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from kernelet.base import config
from kernelet.base.config import Context
from kernelet.base.errors import DataError, DownloadError
from kernelet.nn import datasets

# Nothing listens on the port that is reserved for discarding.
NO_SERVER = "http://127.0.0.1:9/"


def idx(values):
    return (
        struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.tobytes()
    )


def digits(count, seed):
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (count, 28, 28)).astype(np.uint8)
    return images, rng.integers(0, 10, count).astype(np.uint8)


def write_mnist(folder, pack=True):
    folder.mkdir(parents=True, exist_ok=True)
    made = [digits(5, 0), digits(3, 1)]
    for (images, labels), name in zip(made, ("train", "t10k"), strict=True):
        for kind, values in (("images-idx3", images), ("labels-idx1", labels)):
            data = idx(values)
            path = folder / f"{name}-{kind}-ubyte{'.gz' if pack else ''}"
            path.write_bytes(gzip.compress(data) if pack else data)
    return made


@pytest.fixture
def folder(tmp_path):
    with Context(KERNELET_DATA=str(tmp_path)):
        yield tmp_path


@pytest.mark.parametrize("pack", [True, False])
def test_a_supplied_folder_is_read_as_it_is(folder, pack):
    made = write_mnist(folder / "mnist", pack)
    images, labels, test_images, test_labels = datasets.mnist(base_url=NO_SERVER)
    np.testing.assert_array_equal(images.numpy(), made[0][0][:, None])
    np.testing.assert_array_equal(labels.numpy(), made[0][1])
    assert test_images.shape == (3, 1, 28, 28)
    np.testing.assert_array_equal(test_labels.numpy(), made[1][1])


def test_clothes_are_read_from_their_own_folder(folder):
    made = write_mnist(folder / "fashion-mnist")
    for found in (datasets.fashion_mnist(base_url=NO_SERVER), datasets.mnist(fashion=True)):
        np.testing.assert_array_equal(found[0].numpy(), made[0][0][:, None])
        np.testing.assert_array_equal(found[3].numpy(), made[1][1])


def test_packed_clothes_are_checked_as_they_come(folder, serve, monkeypatch):
    write_mnist(folder / "published")
    sums = {
        path.name.removesuffix(".gz"): sha256(path.read_bytes()).hexdigest()
        for path in (folder / "published").iterdir()
    }
    files = {name: sums[name] for name in datasets._FASHION_FILES}
    monkeypatch.setattr(datasets, "_FASHION_FILES", files)
    with serve(folder / "published") as url:
        assert datasets.fashion_mnist(base_url=url)[0].shape == (5, 1, 28, 28)


@pytest.mark.parametrize("pack", [True, False])
def test_plays_are_read_packed_or_not(folder, pack):
    data = gzip.compress(b"O Romeo") if pack else b"O Romeo"
    (folder / f"tinyshakespeare.txt{'.gz' if pack else ''}").write_bytes(data)
    assert datasets.tiny_shakespeare(base_url=NO_SERVER) == "O Romeo"


def test_missing_plays_are_downloaded_once(folder, serve, monkeypatch):
    (folder / "published").mkdir()
    (folder / "published" / "input.txt").write_bytes(b"O Romeo")
    monkeypatch.setattr(datasets, "_SHAKESPEARE_SHA256", sha256(b"O Romeo").hexdigest())
    with serve(folder / "published") as url:
        assert datasets.tiny_shakespeare(base_url=url) == "O Romeo"
    assert datasets.tiny_shakespeare(base_url=NO_SERVER) == "O Romeo"


def test_missing_digits_are_downloaded_once(folder, serve):
    write_mnist(folder / "published")
    files = {}
    for path in (folder / "published").iterdir():
        files[path.name.removesuffix(".gz")] = sha256(gzip.decompress(path.read_bytes()))
    patched = {name: digest.hexdigest() for name, digest in sorted(files.items(), reverse=True)}
    with serve(folder / "published") as url, pytest.MonkeyPatch.context() as patch:
        order = list(datasets._MNIST_FILES)
        patch.setattr(datasets, "_MNIST_FILES", {name: patched[name] for name in order})
        first = datasets.mnist(base_url=url)
    again = datasets.mnist(base_url=NO_SERVER)
    assert len(os.listdir(folder / "mnist")) == 4
    assert [part.tolist() for part in first] == [part.tolist() for part in again]


def test_digits_that_are_not_the_published_ones_are_refused(folder, serve):
    write_mnist(folder / "published")
    with serve(folder / "published") as url, pytest.raises(DownloadError, match="sha256"):
        datasets.mnist(base_url=url)
    assert not (folder / "mnist").exists()


def test_without_network_files_that_are_put_where_the_error_says_are_read(folder):
    write_mnist(folder / "elsewhere")
    for _ in range(4):
        with pytest.raises(DownloadError, match="put it there") as caught:
            datasets.mnist(base_url=NO_SERVER)
        path = re.search(r"downloaded to (.*?\.gz): ", str(caught.value))[1]
        os.makedirs(os.path.dirname(path), exist_ok=True)
        shutil.copy(next((folder / "elsewhere").glob(f"**/{os.path.basename(path)}")), path)
    assert datasets.mnist(base_url=NO_SERVER)[0].shape[1:] == (1, 28, 28)


def test_without_network_the_error_says_what_to_do(folder):
    with pytest.raises(DownloadError, match=r"train-images.*cannot be downloaded.*KERNELET_DATA"):
        datasets.mnist(base_url=NO_SERVER)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (gzip.compress(idx(np.zeros((2, 28, 28), np.uint8))[:-1]), "not a whole IDX file"),
        (gzip.compress(b"text"), "not a whole IDX file"),
        (gzip.compress(b""), "not a whole IDX file"),
        (gzip.compress(idx(np.zeros((2, 28, 28), np.uint8)))[:-9], "damaged"),
        (gzip.compress(idx(np.zeros((2, 28, 28), np.uint8))), "2 images and 5 labels"),
    ],
    ids=["short", "no IDX", "empty", "cut off", "too few"],
)
def test_damaged_digits_are_named(folder, data, found):
    write_mnist(folder / "mnist")
    (folder / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(data)
    with pytest.raises(DataError, match=rf"mnist.*{found}"):
        datasets.mnist(base_url=NO_SERVER)


def photographs(count, seed):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, 3073)).astype(np.uint8)


def test_a_part_of_the_photographs_is_enough(folder):
    batches = folder / "cifar-10-batches-bin"
    batches.mkdir()
    training, test = photographs(4, 0), photographs(2, 1)
    (batches / "data_batch_3.bin.gz").write_bytes(gzip.compress(training.tobytes()))
    (batches / "test_batch.bin").write_bytes(test.tobytes())
    images, labels, test_images, test_labels = datasets.cifar(base_url=NO_SERVER)
    np.testing.assert_array_equal(images.numpy().reshape(4, -1), training[:, 1:])
    np.testing.assert_array_equal(labels.numpy(), training[:, 0])
    assert test_images.shape == (2, 3, 32, 32)
    np.testing.assert_array_equal(test_labels.numpy(), test[:, 0])


def test_missing_photographs_are_downloaded_and_unpacked_once(folder, serve):
    published = folder / "published"
    published.mkdir()
    with tarfile.open(published / "cifar-10-binary.tar.gz", "w:gz") as packed:
        names = [f"data_batch_{number}.bin" for number in range(1, 6)] + ["test_batch.bin"]
        for seed, name in enumerate(names):
            data = photographs(2, seed).tobytes()
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(data)
            packed.addfile(member, io.BytesIO(data))
    checksum = sha256((published / "cifar-10-binary.tar.gz").read_bytes()).hexdigest()
    with serve(published) as url:
        images, *_ = datasets.cifar(base_url=url, checksum=checksum)
    assert images.shape == (10, 3, 32, 32)
    again, *_ = datasets.cifar(base_url=NO_SERVER)
    assert again.tolist() == images.tolist()


def test_damaged_photographs_are_named(folder):
    batches = folder / "cifar-10-batches-bin"
    batches.mkdir()
    (batches / "data_batch_1.bin").write_bytes(bytes(3072))
    (batches / "test_batch.bin").write_bytes(bytes(3073))
    with pytest.raises(DataError, match=r"data_batch_1\.bin.*3072 bytes.*CIFAR-10"):
        datasets.cifar(base_url=NO_SERVER)
    (batches / "test_batch.bin").unlink()
    (folder / "cifar-10-binary.tar.gz").write_bytes(b"not an archive")
    with pytest.raises(DataError, match=r"cifar-10-binary\.tar\.gz: CIFAR-10 archive"):
        datasets.cifar(base_url=NO_SERVER)


def test_the_folder_is_yours_or_one_in_the_cache(tmp_path):
    with Context(KERNELET_DATA="", KERNELET_CACHE=str(tmp_path)):
        assert datasets.data_folder() == str(tmp_path / "data")


def test_only_the_batches_are_taken_out_of_an_archive(folder):
    with tarfile.open(folder / "cifar-10-binary.tar.gz", "w:gz") as packed:
        names = [*[f"data_batch_{number}.bin" for number in range(1, 6)], "test_batch.bin"]
        for name in (*names, "../../outside", "readme.html"):
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = 3073
            packed.addfile(member, io.BytesIO(bytes(3073)))
    assert len(datasets.cifar(base_url=NO_SERVER)[0]) == 5
    assert sorted(os.listdir(folder / "cifar-10-batches-bin")) == names


def test_an_archive_without_a_batch_is_named(folder):
    with tarfile.open(folder / "cifar-10-binary.tar.gz", "w:gz"):
        pass
    with pytest.raises(DataError, match=r"cifar-10-binary\.tar\.gz: CIFAR-10 archive"):
        datasets.cifar(base_url=NO_SERVER)


def real_folder(name):
    data = config.current().data_folder
    if not data or not (Path(data) / name).is_dir():
        pytest.skip(f"KERNELET_DATA holds no {name} folder")
    return Path(data) / name


def test_the_published_digits_pass_the_check(tmp_path, serve):
    published = real_folder("mnist")
    if not all((published / f"{name}.gz").exists() for name in datasets._MNIST_FILES):
        pytest.skip("KERNELET_DATA holds a part of MNIST")
    with serve(published) as url, Context(KERNELET_DATA=str(tmp_path)):
        images, labels, test_images, test_labels = datasets.mnist(base_url=url)
    assert images.shape == (60000, 1, 28, 28)
    assert test_images.shape == (10000, 1, 28, 28)
    assert labels.data()[:5] == bytes([5, 0, 4, 1, 9])
    assert test_labels.data()[:5] == bytes([7, 2, 1, 0, 4])


def test_the_real_photographs_have_ten_classes():
    real_folder("cifar-10-batches-bin")
    images, labels, test_images, test_labels = datasets.cifar()
    assert images.shape == (len(labels), 3, 32, 32)
    assert test_images.shape == (len(test_labels), 3, 32, 32)
    assert set(labels.data()) == set(test_labels.data()) == set(range(10))
