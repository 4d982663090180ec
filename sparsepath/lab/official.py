"""The published files of CIFAR-10, CIFAR-100 and SVHN: where they are, and their checksums."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from sparsepath.errors import BadInput


@dataclass(frozen=True)
class Source:
    """One published file: its address and its MD5."""

    url: str
    md5: str

    @property
    def name(self) -> str:
        """What it is called on disk."""
        return self.url.rpartition("/")[2]


_CIFAR = "https://www.cs.toronto.edu/~kriz"
_SVHN = "http://ufldl.stanford.edu/housenumbers"
SOURCES: Mapping[str, tuple[Source, ...]] = MappingProxyType(
    {
        "cifar10": (
            Source(f"{_CIFAR}/cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"),
        ),
        "cifar100": (
            Source(f"{_CIFAR}/cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"),
        ),
        "svhn": (
            Source(f"{_SVHN}/train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),
            Source(f"{_SVHN}/test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),
        ),
    }
)
"""By data set; each checksum is also what lets an unencrypted download be trusted."""

ARCHIVES = tuple(source.name for name in ("cifar10", "cifar100") for source in SOURCES[name])
"""CIFAR's archives, which are read as they are."""

_IN_ARCHIVES: Mapping[str, str] = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
    "train": "16019d7e3df5f24257cddd939b257f8d",
    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
}
_MD5 = {s.name: s.md5 for sources in SOURCES.values() for s in sources} | dict(_IN_ARCHIVES)
_IMAGES = {
    **dict.fromkeys(_IN_ARCHIVES, 10_000),
    "train": 50_000,
    "train_32x32.mat": 73_257,
    "test_32x32.mat": 26_032,
}


def md5_of(content: Path | bytes) -> str:
    """The MD5 of a file or of bytes."""
    if isinstance(content, bytes):
        return hashlib.md5(content, usedforsecurity=False).hexdigest()
    with content.open("rb") as file:
        return hashlib.file_digest(file, _md5).hexdigest()


def _md5() -> "hashlib._Hash":
    return hashlib.md5(usedforsecurity=False)


def compared(path: Path, content: Path | bytes) -> str:
    """Both checksums of a file that has a published name, as part of a sentence; else nothing."""
    published = _MD5.get(path.name)
    if published is None or (isinstance(content, Path) and not content.is_file()):
        return ""
    found = md5_of(content)
    return "" if found == published else f" (its MD5 is {found}, the published file's {published})"


def check_published(path: Path, content: Path | bytes, *, images: int) -> None:
    """Refuse a file with the name and the image count of a published one, but not its checksum.

    With another count it is somebody's own data set in the same format.
    """
    if _IMAGES.get(path.name) == images and (difference := compared(path, content)):
        raise BadInput(
            f"{str(path)!r} is damaged or not the published file{difference}; fetch it again, "
            "or store images of your own as .npz."
        )
