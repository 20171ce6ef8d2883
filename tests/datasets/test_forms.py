"""The same data from every form in which it is handed on; forms that mean harm; where data is looked for."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import pickle
import struct
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from fl_core.cli import app
from fl_core.datasets import archives, prepared, registry
from fl_core.datasets.cifar import BATCHES
from fl_core.errors import DataError
from fl_core.experiments.run import run
from fl_core.experiments.spec import RunSpec

pytestmark = pytest.mark.filterwarnings("ignore::fl_core.datasets.registry.PreparationNotice")
RNG = np.random.default_rng(0)
IMAGES, LABELS = RNG.integers(0, 256, (30, 3, 32, 32), np.uint8), RNG.integers(0, 10, 30).astype(np.uint8)
DIGITS = RNG.integers(0, 256, (30, 28, 28), np.uint8)
WRITERS = np.array([500 + 7 * (n % 5) for n in range(20)] + [9000 + n % 3 for n in range(10)], np.int32)
TRAIN, TEST = slice(0, 20), slice(20, 30)
REVIEWS = [
    (split, opinion, f"{n}_{n}.txt", f"a {opinion} film, no. {n}")
    for split in ("train", "test")
    for opinion in ("neg", "pos")
    for n in range(3)
]


def tar(path: Path, files: dict[str, bytes], mode: str = "w", **special: bytes) -> None:
    """Write an archive; `special` are kinds of members that no data set has, by name."""
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for name, kind in special.items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)


def picture(images: np.ndarray, form: str = "WEBP") -> bytes:
    stream = io.BytesIO()
    Image.fromarray(images.transpose(0, 2, 3, 1).reshape(-1, 32, 3)).save(stream, form, lossless=True)
    return stream.getvalue()


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def batch(labels: np.ndarray, images: np.ndarray) -> bytes:
    """Return what the publisher's Python 2 wrote: strings of bytes, a list of small numbers, an array."""

    def text(value: bytes) -> bytes:
        return (b"U" + bytes([len(value)]) if len(value) < 256 else b"T" + struct.pack("<I", len(value))) + value

    row = b"K" + bytes([len(images)]) + b"M\x00\x0c\x86"  # (n, 3072)
    kind = (
        b"cnumpy\ndtype\n"
        + text(b"u1")
        + b"K\x00K\x01\x87R(K\x03"
        + text(b"|")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
    array += b"(K\x01" + row + kind + b"\x89" + text(images.tobytes()) + b"tb"
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    names = b"](" + b"".join(text(b"leptodactylus_%d.png" % n) for n in range(len(labels))) + b"e"
    parts = (
        text(b"batch_label"),
        text(b"a batch"),
        text(b"labels"),
        numbers,
        text(b"data"),
        array,
        text(b"filenames"),
        names,
    )
    return b"\x80\x02}(" + b"".join(parts) + b"u."


PARTS = dict(zip(BATCHES, [*(slice(4 * i, 4 * i + 4) for i in range(5)), TEST], strict=True))


def records(part: slice) -> bytes:
    return b"".join(bytes([y]) + x.tobytes() for y, x in zip(LABELS[part], IMAGES[part], strict=True))


def cifar_binary(folder: Path) -> None:
    (folder / "cifar10").mkdir()
    files = {f"cifar-10-batches-bin/{name}.bin": records(part) for name, part in PARTS.items()}
    tar(folder / "cifar10/cifar-10-binary.tar.gz", files, "w:gz")


def cifar_unpacked(folder: Path) -> None:
    (folder / "cifar-10-batches-bin").mkdir()
    for name, part in PARTS.items():
        (folder / f"cifar-10-batches-bin/{name}.bin").write_bytes(records(part))


def cifar_torchvision(folder: Path) -> None:
    (folder / "cifar-10-batches-py").mkdir()
    for name, part in PARTS.items():
        (folder / "cifar-10-batches-py" / name).write_bytes(batch(LABELS[part], IMAGES[part]))


def cifar_packed(folder: Path) -> None:
    files = {f"cifar-10-batches-py/{name}": batch(LABELS[part], IMAGES[part]) for name, part in PARTS.items()}
    tar(folder / "cifar-10-python.tar.gz", files | {"cifar-10-batches-py/batches.meta": b"not read"}, "w:gz")


def cifar_pictures(folder: Path, **more: bytes) -> None:
    files = {"train-000.webp": picture(IMAGES[:15]), "train-001.webp": picture(IMAGES[15:20])}
    files |= {
        "test-000.webp": picture(IMAGES[TEST]),
        "train_y.npy": npy(LABELS[TRAIN]),
        "test_y.npy": npy(LABELS[TEST]),
    }
    tar(folder / "cifar10.tar", {"classes.txt": b"...", **files, **more})


def idx(array: np.ndarray, kind: int = 8) -> bytes:
    body = array.astype(">i4").tobytes() if kind == 12 else array.tobytes()
    return gzip.compress(bytes([0, 0, kind, array.ndim]) + np.array(array.shape, ">u4").tobytes() + body)


def mnist_idx(folder: Path, place: str = "mnist-writers/", other: str = "mnist-writers/") -> None:
    for name in (place, other):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for part, stem, of in ((TRAIN, "train", "train"), (TEST, "t10k", "test")):
        (folder / f"{place}{stem}-images-idx3-ubyte.gz").write_bytes(idx(DIGITS[part]))
        (folder / f"{place}{stem}-labels-idx1-ubyte.gz").write_bytes(idx(LABELS[part]))
        rows = np.zeros((len(LABELS[part]) + 2, 8), np.int32)  # QMNIST has more test digits than MNIST
        rows[:-2, 0], rows[:-2, 2] = LABELS[part], WRITERS[part]
        (folder / f"{other}qmnist-{of}-labels-idx2-int.gz").write_bytes(idx(rows, 12))


def mnist_arrays(folder: Path, **changed: np.ndarray) -> None:
    parts = {"train": TRAIN, "test": TEST}
    arrays = {f"{name}_{key}": of[part] for name, part in parts.items() for key, of in (("x", DIGITS), ("y", LABELS))}
    arrays |= {f"{name}_writer": WRITERS[part] for name, part in parts.items()}
    np.savez(folder / "mnist-writers.npz", **(arrays | changed))


def imdb_archive(folder: Path) -> None:
    (folder / "imdb").mkdir()
    files = {f"aclImdb/{split}/{opinion}/{name}": text.encode() for split, opinion, name, text in REVIEWS}
    tar(folder / "imdb/aclImdb_v1.tar.gz", files, "w:gz")


def imdb_unpacked(folder: Path) -> None:
    for split, opinion, name, text in REVIEWS:
        path = folder / "aclImdb" / split / opinion / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "aclImdb/imdb.vocab").write_text("a")


def imdb_list(folder: Path, *lines: bytes) -> None:
    content = b"".join(json.dumps(review).encode() + b"\n" for review in REVIEWS)
    (folder / "imdb.jsonl.xz").write_bytes(lzma.compress(b"".join(lines) or content))


FORMS: dict[str, list[Callable[[Path], None]]] = {
    "cifar10": [cifar_binary, cifar_unpacked, cifar_torchvision, cifar_packed, cifar_pictures],
    "mnist-writers": [mnist_idx, lambda folder: mnist_idx(folder, "MNIST/raw/", "QMNIST/raw/"), mnist_arrays],
    "imdb": [imdb_archive, imdb_unpacked],
}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's own folder, and sets of a few samples whose archives nobody has published."""
    small = {"cifar10": (20, 10), "mnist-writers": (20, 10), "mnist": (20, 10), "imdb": (6, 6), "imdb-49996": (6, 6)}
    sources = dict(registry.all_sources())
    for name, sizes in small.items():
        forms = [
            replace(f, archives=tuple(replace(a, bytes=0, checksum="") for a in f.archives))
            for f in sources[name].copies
        ]
        archives = tuple(replace(archive, bytes=0, checksum="") for archive in sources[name].archives)
        sources[name] = replace(sources[name], sizes=sizes, sha256="", archives=archives, copies=tuple(forms))
    folder = tmp_path / "own"
    monkeypatch.setenv(registry.FOLDER, str(folder))
    monkeypatch.delenv(registry.SEARCH, raising=False)
    monkeypatch.setattr(registry, "all_sources", lambda: sources)
    registry._load.cache_clear()
    yield folder
    registry._load.cache_clear()


@pytest.mark.parametrize("name", FORMS)
def test_every_form_gives_the_same_samples_and_the_same_run_bit_for_bit(
    name: str, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"algorithm": "fedavg", "world": {"devices": 2}, "budget": {"updates": 3}, "training": {"batch_size": 4}}
    model = "textcnn" if name == "imdb" else "linear"
    spec = RunSpec(dataset=name, model=model, **fields | {"algorithm": {"name": "fedavg", "clients_per_round": 2}})
    histories, digests = [], []
    for number, write in enumerate(FORMS[name]):
        folder = tmp_path / str(number)
        folder.mkdir()
        write(folder)
        before = sorted(folder.rglob("*"))
        monkeypatch.setenv(registry.FOLDER, str(tmp_path / f"own{number}"))
        monkeypatch.setenv(registry.SEARCH, f"{tmp_path}/nowhere:{folder}")
        result = run(spec, executor="sequential")
        histories.append(result.history.to_dict())
        digests.append(result.provenance["data_sha256"])
        assert result.provenance["data"] == "real"
        assert sorted(folder.rglob("*")) == before  # only read
    assert len(set(digests)) == 1
    assert all(history == histories[0] for history in histories)


@pytest.mark.parametrize("name", FORMS)
def test_import_takes_files_and_folders_and_keeps_one_form(name: str, own: Path, tmp_path: Path) -> None:
    kept = set()
    for number, write in enumerate(FORMS[name]):
        folder = tmp_path / str(number)
        folder.mkdir()
        write(folder)
        path = next(file for file in sorted(folder.rglob("*")) if file.is_file()) if name == "cifar10" else folder
        found = CliRunner().invoke(app, ["data", "import", str(path)])
        assert found.exit_code == 0, found.output
        assert f"{name}: real data" in found.output
        kept.add(prepared.read(own / f"prepared/{name}-v1.safetensors", name, "real", ()).sha256)
    assert len(kept) == 1


def test_a_copy_that_lacks_some_or_is_encoded_anew_has_its_own_name_and_says_so(own: Path, tmp_path: Path) -> None:
    imdb_list(tmp_path)
    found = CliRunner().invoke(app, ["data", "import", str(tmp_path / "imdb.jsonl.xz")])
    assert "imdb-49996: partial data, 6 + 6 counted" in found.output
    assert registry.kind_of("imdb-49996") == "partial"
    assert (registry.stands_for("imdb-49996"), registry.stands_for("cifar100-jpeg90")) == ("imdb", "cifar100")
    assert "49,996 of IMDb's 50,000" in registry.differs("imdb-49996")
    assert registry.differs("cifar10") == ""
    for source in registry.all_sources().values():
        assert bool(source.differs) == bool(source.of) == (source.kind != "real")


def test_pictures_in_folders_have_an_order_that_no_name_of_a_file_decides(own: Path, tmp_path: Path) -> None:
    sums, source = [], registry.all_sources()["cifar100-by-class"]
    for turn in (1, -1):
        folder = tmp_path / str(turn)
        for part in ("train", "test"):
            for name in source.classes:
                (folder / part / name).mkdir(parents=True)
            for number, image in enumerate(IMAGES[::turn]):
                label = int(np.sum(IMAGES[0] != image) % 2)  # of the picture, not of its place
                (folder / part / source.classes[3 + label] / f"{number}.png").write_bytes(picture(image[None], "PNG"))
        assert source.present(folder)
        splits = source.read(folder)
        assert splits[0].labels.tolist() == sorted(splits[0].labels.tolist())
        assert set(splits[0].labels.tolist()) == {3, 4}
        sums.append(prepared.digest(prepared.tensors_of(*splits)))
    assert sums[0] == sums[1]
    (folder / "test/apple/x.png").write_bytes(picture(IMAGES[:2], "PNG"))
    line = refused(folder)
    assert "apple/x.png is damaged" in line
    assert "a picture has 32 x 64 pixels" in line


def test_writers_of_training_and_test_digits_are_numbered_together(own: Path, tmp_path: Path) -> None:
    mnist_arrays(tmp_path)
    registry.take_in(*registry.recognise(tmp_path)[1])
    data = registry.load_dataset("mnist-writers")
    assert set(data.train.owners.tolist()) == {0, 1, 2, 3, 4}
    assert set(data.test.owners.tolist()) == {5, 6, 7}


def test_the_users_own_folder_comes_before_the_search_path(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own.mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    cifar_pictures(elsewhere)
    monkeypatch.setenv(registry.SEARCH, str(elsewhere))
    source = registry.all_sources()["cifar10"]
    assert registry.place(source)[0] == elsewhere
    cifar_unpacked(own)
    assert registry.place(source)[0] == own


def test_samples_are_verified_whatever_the_archive_is(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = replace(registry.all_sources()["cifar10"], sha256="0" * 64)
    monkeypatch.setattr(registry, "all_sources", lambda: {"cifar10": right})
    cifar_pictures(tmp_path)
    assert "does not hold cifar10: its samples have SHA-256" in refused(tmp_path)
    assert "holds no data set by the names of its files" in refused(tmp_path / "own")


def refused(path: Path) -> str:
    """Import and return the one line of the refusal."""
    path.mkdir(exist_ok=True) if not path.exists() else None
    found = CliRunner().invoke(app, ["data", "import", str(path)])
    assert found.exit_code != 0
    assert isinstance(found.exception, SystemExit), found.exception
    return " ".join(found.output.split())


class Harm:
    def __reduce__(self) -> tuple:
        return exec, ("raise KeyboardInterrupt('code of an archive ran')",)


def torchvision_with(content: bytes) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        cifar_torchvision(folder)
        (folder / "cifar-10-batches-py/data_batch_3").write_bytes(content)

    return write


def tall(height: int, width: int = 32) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (width, height)).save(stream, "WEBP", lossless=True)
    return stream.getvalue()


def bomb(path: Path, size: int, after: int) -> None:
    """Write the beginning of a member that nobody asks for, or zeros after the end."""
    info = tarfile.TarInfo("zeros")
    info.size = size
    path.write_bytes(gzip.compress((info.tobuf() if size else bytes(1024)) + bytes(after)))


HOSTILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a name that leaves": (lambda f: cifar_pictures(f, **{"../../train-002.webp": b""}), "would leave the folder"),
    "an absolute name": (lambda f: cifar_pictures(f, **{"/tmp/x": b""}), "would leave the folder"),
    "a link": (lambda f: tar(f / "cifar10.tar", {}, link=tarfile.SYMTYPE), "is a link or a device"),
    "a hard link": (lambda f: tar(f / "cifar10.tar", {}, link=tarfile.LNKTYPE), "is a link or a device"),
    "a device": (lambda f: tar(f / "cifar10.tar", {}, device=tarfile.CHRTYPE), "is a link or a device"),
    "a large member": (lambda f: cifar_pictures(f, **{"train-002.webp": bytes(1 << 23)}), "at most"),
    "a bomb": (lambda f: bomb(f / "cifar10.tar", 1 << 40, 0), "unpacks to more than"),
    "a bomb behind the end": (lambda f: bomb(f / "cifar10.tar", 0, 1 << 22), "unpacks to more than"),
    "a large picture": (lambda f: cifar_pictures(f, **{"train-002.webp": tall(16_001)}), "a picture has 32 x 16001"),
    "a wide picture": (lambda f: cifar_pictures(f, **{"train-002.webp": tall(32, 64)}), "a picture has 64 x 32"),
    "another format": (lambda f: cifar_pictures(f, **{"train-002.webp": b"GIF89a" + bytes(99)}), "damaged"),
    "labels as objects": (lambda f: cifar_pictures(f, **{"test_y.npy": npy(np.array([Harm()]))}), "damaged"),
    "labels as floats": (lambda f: cifar_pictures(f, **{"test_y.npy": npy(np.zeros(10))}), "labels are float64 [10]"),
    "labels too large": (lambda f: cifar_pictures(f, **{"test_y.npy": npy(LABELS[TEST] + 9)}), "not from 0 to 9"),
    "too few labels": (lambda f: cifar_pictures(f, **{"test_y.npy": npy(LABELS[:3])}), "10 images; labels"),
    "too few images": (lambda f: cifar_pictures(f, **{"train-001.webp": picture(IMAGES[:3])}), "18 images"),
    "code in a pickle": (torchvision_with(pickle.dumps({"labels": [1], "data": Harm()}, 2)), "is not read"),
    "another pickle": (torchvision_with(pickle.dumps({"labels": [1], "data": b"x"}, 4)), "is not read"),
    "half a pickle": (torchvision_with(batch(LABELS[:4], IMAGES[:4])[:5000]), "damaged"),
    "no images": (torchvision_with(batch(LABELS[:4], IMAGES[:0])), "0 images"),
    "arrays of objects": (lambda f: mnist_arrays(f, train_y=np.array([Harm()])), "damaged"),
    "another dtype": (lambda f: mnist_arrays(f, train_x=DIGITS.astype("f4")), "float32 [30, 28, 28], not u1"),
    "another shape": (lambda f: mnist_arrays(f, train_x=DIGITS[:, 1:]), "uint8 [30, 27, 28], not u1"),
    "fewer writers": (lambda f: mnist_arrays(f, test_writer=WRITERS[:3]), "damaged"),
    "a line without end": (lambda f: imdb_list(f, b'["' + b"x" * (1 << 21)), "damaged"),
    "brackets without end": (lambda f: imdb_list(f, b"[" * 100_000 + b"\n"), "damaged"),
    "another name": (lambda f: imdb_list(f, b'["train", "pos", "../x.txt", "a"]\n'), "is not the name of a review"),
    "no text": (lambda f: imdb_list(f, b'["train", "pos", "0_1.txt", 7]\n'), "damaged"),
    "too many reviews": (lambda f: imdb_list(f, *[b'["test", "pos", "0_1.txt", ""]\n'] * 50_001), "more than 50,000"),
    "no reviews": (lambda f: imdb_list(f, b"\n"), "damaged"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_means_harm_is_refused_in_one_line(
    case: str, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, words = HOSTILE[case]
    if case == "a bomb behind the end":
        monkeypatch.setattr(archives, "LARGEST_ARRAY", 1 << 20)
    folder = tmp_path / "given"
    folder.mkdir()
    write(folder)
    line = refused(folder)
    assert words in line, line
    assert "Traceback" not in line
    intact = {"mnist-v1.safetensors"} if case == "fewer writers" else set()
    assert {path.name for path in own.rglob("*.safetensors")} == intact


def test_writers_of_other_digits_are_refused(own: Path, tmp_path: Path) -> None:
    mnist_idx(tmp_path)
    file = tmp_path / "mnist-writers/qmnist-test-labels-idx2-int.gz"
    file.write_bytes(idx(np.full((10, 8), 11, np.int32), 12))
    [[source, folder, form]] = registry.recognise(tmp_path / "mnist-writers")[1:]
    with pytest.raises(DataError, match="the writers are not those of these digits.*get mnist-writers"):
        registry.take_in(source, folder, form)
