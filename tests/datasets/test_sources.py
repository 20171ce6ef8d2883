"""The real data sets, read from tiny files in the format of their publishers that the tests write."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import tarfile
import wave
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torch
from PIL import Image
from plain_torchvision import import_torchvision

from fl_core.datasets import Splits, all_sources, emnist, photographs, speech_commands
from fl_core.datasets.speech_commands import mfcc
from fl_core.errors import DataError

SOURCES = {name: source for name, source in all_sources().items() if not source.embedded}
RNG = np.random.default_rng(0)


def write_tar(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def write_zip(path: Path, files: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def jpeg(pixels: np.ndarray) -> bytes:
    """Return an image ``[h, w]`` or ``[h, w, 3]`` as JPEG, nearly without loss."""
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=100, subsampling=0)
    return stream.getvalue()


def wav(samples: np.ndarray, rate: int = 16_000) -> bytes:
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.astype("<i2").tobytes())
    return stream.getvalue()


# --- writers of each format; images, labels and so on are module data so that the tests know what must come back ---

IMAGES = RNG.integers(0, 256, (12, 3, 32, 32), np.uint8)
LABELS = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8])


def write_cifar10(folder: Path) -> None:
    records = [bytes([label]) + image.tobytes() for label, image in zip(LABELS, IMAGES, strict=True)]
    root = "cifar-10-batches-bin"
    files = {f"{root}/data_batch_{i}.bin": b"".join(records[2 * i - 2 : 2 * i]) for i in (5, 4, 3, 2, 1)}
    files |= {f"{root}/test_batch.bin": b"".join(records[10:]), f"{root}/batches.meta.txt": b"airplane\n"}
    write_tar(folder / "cifar-10-binary.tar.gz", files)


def write_cifar100(folder: Path) -> None:
    records = [bytes([label, 7 * label]) + image.tobytes() for label, image in zip(LABELS, IMAGES, strict=True)]
    files = {"train.bin": b"".join(records[:10]), "test.bin": b"".join(records[10:])}
    write_tar(folder / "cifar-100-binary.tar.gz", {f"cifar-100-binary/{name}": files[name] for name in files})


DIGITS = RNG.integers(0, 256, (12, 28, 28), np.uint8)  # upright
WRITERS = np.array([30, 10, 30, 20, 10, 10, 30, 40, 20, 10, 20, 10])


def write_emnist_gzip(folder: Path, split: str) -> None:
    files = {}
    for part, some in (("train", slice(0, 9)), ("test", slice(9, None))):
        turned = DIGITS[some].transpose(0, 2, 1)
        images = b"\0\0\x08\x03" + np.array(turned.shape, ">u4").tobytes() + turned.tobytes()
        labels = b"\0\0\x08\x01" + np.array(len(turned), ">u4").tobytes() + LABELS[some].astype(np.uint8).tobytes()
        files[f"gzip/emnist-{split}-{part}-images-idx3-ubyte.gz"] = gzip.compress(images)
        files[f"gzip/emnist-{split}-{part}-labels-idx1-ubyte.gz"] = gzip.compress(labels)
    write_zip(folder / "gzip.zip", files)


def write_emnist_matlab(folder: Path) -> None:
    parts = {
        part: {
            "images": DIGITS[some]
            .reshape(-1, 784, order="C")
            .reshape(-1, 28, 28)
            .transpose(0, 2, 1)
            .reshape(-1, 784),
            "labels": 5 * LABELS[some, None].astype(np.uint8),
            "writers": WRITERS[some, None].astype(np.uint16),
        }
        for part, some in (("train", slice(0, 9)), ("test", slice(9, None)))
    }
    stream = io.BytesIO()
    mapping = np.array([[label, ord(name)] for label, name in enumerate(emnist.CHARACTERS)], np.uint8)
    scipy.io.savemat(stream, {"dataset": parts | {"mapping": mapping}}, do_compression=True)
    write_zip(folder / "matlab.zip", {"matlab/emnist-byclass.mat": stream.getvalue()})


def write_tiny_imagenet(folder: Path) -> None:
    """Three classes whose images are of one colour: 10 x class + number, in red; one is grey."""
    root, files = "tiny-imagenet-200", {}
    wnids = ["n02", "n03", "n01"]
    files["wnids.txt"] = "\n".join(wnids).encode()
    for wnid in wnids:
        for number in (0, 1, 10, 2):
            colour = np.array([10 * int(wnid[1:]) + number, 0, 0], np.uint8)
            pixels = np.full((64, 64), 77, np.uint8) if (wnid, number) == ("n02", 2) else np.tile(colour, (64, 64, 1))
            files[f"train/{wnid}/images/{wnid}_{number}.JPEG"] = jpeg(pixels)
        files[f"train/{wnid}/{wnid}_boxes.txt"] = b"..."
    for number in range(2):
        files[f"val/images/val_{number}.JPEG"] = jpeg(np.full((64, 64, 3), 100 + number, np.uint8))
    files["val/val_annotations.txt"] = b"val_1.JPEG\tn01\t0\t0\t63\t63\nval_0.JPEG\tn03\t0\t0\t63\t63\n"
    files["test/images/test_0.JPEG"] = jpeg(np.zeros((64, 64, 3), np.uint8))
    write_zip(folder / "tiny-imagenet-200.zip", {f"{root}/{name}": content for name, content in files.items()})


def write_femnist(folder: Path) -> None:
    def text(some: dict[str, list[int]]) -> str:
        data = {
            user: {"x": [(DIGITS[i].ravel() / 255).tolist() for i in own], "y": [int(LABELS[i]) for i in own]}
            for user, own in some.items()
        }
        return json.dumps(
            {"users": list(some), "num_samples": [len(own) for own in some.values()], "user_data": data}
        )

    for part, file, some in (
        ("train", "all_data_1_niid_1_keep_0_train_9.json", {"f0003_41": [4, 5]}),
        ("train", "all_data_0_niid_1_keep_0_train_9.json", {"f0001_10": [0], "f0000_14": [1, 2, 3]}),
        ("test", "all_data_0_niid_1_keep_0_test_9.json", {"f0000_14": [6], "f9999_01": [7]}),
    ):
        (folder / part).mkdir(exist_ok=True)
        (folder / part / file).write_text(text(some))


CELEBRITIES = [7, 5, 7, 5, 9, 7, 5, 7, 5, 7, 5, 9, 7, 7, 7, 7, 7]  # by image: 7 has ten, 5 has five, 9 has two


def write_celeba(folder: Path) -> None:
    """Image i is of the one colour 10 i, dark above the middle; every third celebrity's image smiles."""
    names = [f"{i + 1:06d}.jpg" for i in range(len(CELEBRITIES))]
    pixels = [np.full((218, 178, 3), 10 * i, np.uint8) for i in range(len(names))]
    for image in pixels:
        image[:109] = 0
    write_zip(
        folder / "img_align_celeba.zip",
        {f"img_align_celeba/{n}": jpeg(p) for n, p in zip(names, pixels, strict=False)},
    )
    identities = "".join(f"{name} {who}\n" for name, who in zip(names, CELEBRITIES, strict=True))
    (folder / "identity_CelebA.txt").write_text(identities)
    lines = [f"{name} -1 {1 if i % 3 == 0 else -1:2d}  1" for i, name in enumerate(names)]
    (folder / "list_attr_celeba.txt").write_text("\n".join([str(len(names)), "Male Smiling Young", *lines]) + "\n")


REVIEWS = {
    "train/pos/2_9.txt": "Great, GREAT fun!<br /><br />It's great.",
    "train/pos/10_10.txt": "fun " * 300,
    "train/neg/0_1.txt": "It's a bad, bad film... a 'bad' café",
    "train/unsup/0_0.txt": "ignored ignored",
    "test/neg/5_2.txt": "bad unseen film",
    "test/pos/1_8.txt": "",
    "test/urls_pos.txt": "http://",
}


def write_imdb(folder: Path) -> None:
    write_tar(folder / "aclImdb_v1.tar.gz", {f"aclImdb/{name}": text.encode() for name, text in REVIEWS.items()})


def clip(word: str, number: int, length: int = 16_000) -> np.ndarray:
    return np.random.default_rng([speech_commands.WORDS.index(word), number]).normal(0, 2000, length).round()


def write_speech_commands(folder: Path) -> None:
    """Per word, in the order of names: a clip, one too short, one a little short, two clips; reversed in the tar."""
    files = {"./README.md": b"...", "./bed/aa_nohash_0.wav": b"not read", "./_background_noise_/a.wav": b"not read"}
    for word in speech_commands.WORDS:
        for number, (name, length) in enumerate(
            [("aa_nohash_0", 16_000), ("aa_nohash_1", 15_920), ("bb_nohash_0", 15_921), ("cc_nohash_0", 16_000)]
        ):
            files[f"./{word}/{name}.wav"] = wav(clip(word, number, length))
        files[f"./{word}/dd_nohash_0.wav"] = wav(clip(word, 4))
    write_tar(folder / "speech_commands_v0.02.tar.gz", dict(reversed(files.items())))


def read_speech_commands(folder: Path) -> Splits:
    return speech_commands.read(folder, train=2, test=1)


CASES: dict[str, tuple[Callable[[Path], None], Callable[[Path], Splits], str]] = {
    "cifar10": (write_cifar10, SOURCES["cifar10"].read, "cifar-10-binary.tar.gz"),
    "cifar100": (write_cifar100, SOURCES["cifar100"].read, "cifar-100-binary.tar.gz"),
    "emnist-digits": (lambda f: write_emnist_gzip(f, "digits"), SOURCES["emnist-digits"].read, "gzip.zip"),
    "emnist-mnist": (lambda f: write_emnist_gzip(f, "mnist"), SOURCES["emnist-mnist"].read, "gzip.zip"),
    "emnist-byclass": (write_emnist_matlab, SOURCES["emnist-byclass"].read, "matlab.zip"),
    "tiny-imagenet": (write_tiny_imagenet, SOURCES["tiny-imagenet"].read, "tiny-imagenet-200.zip"),
    "femnist": (write_femnist, SOURCES["femnist"].read, "train/all_data_0_niid_1_keep_0_train_9.json"),
    "celeba": (write_celeba, SOURCES["celeba"].read, "img_align_celeba.zip"),
    "imdb": (write_imdb, SOURCES["imdb"].read, "aclImdb_v1.tar.gz"),
    "speech-commands": (write_speech_commands, read_speech_commands, "speech_commands_v0.02.tar.gz"),
}


@pytest.fixture
def read(tmp_path: Path) -> Callable[[str], Splits]:
    def write_and_read(name: str) -> Splits:
        write, reader, _ = CASES[name]
        write(tmp_path)
        return reader(tmp_path)

    return write_and_read


# --- what all of them promise ---


@pytest.mark.parametrize("name", CASES)
def test_a_truncated_archive_gives_one_error_that_names_it_and_the_remedy(name: str, tmp_path: Path) -> None:
    write, reader, file = CASES[name]
    write(tmp_path)
    path = tmp_path / file
    whole = path.read_bytes()
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match=f"{path} is damaged .*'fl-core data get {name} --again'"):
            reader(tmp_path)


@pytest.mark.parametrize("name", [name for name in CASES if name != "femnist"])  # JSON has no checksum of its own
def test_a_flipped_bit_gives_one_error_or_does_no_harm(name: str, tmp_path: Path) -> None:
    write, reader, file = CASES[name]
    write(tmp_path)
    right = reader(tmp_path)
    path = tmp_path / file
    whole = path.read_bytes()
    noticed = 0
    for place in np.random.default_rng(1).integers(0, len(whole), 12):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            for split, expected in zip(reader(tmp_path), right, strict=True):
                assert torch.equal(split.inputs, expected.inputs)
                assert torch.equal(split.labels, expected.labels)
        except DataError:
            noticed += 1
    assert noticed


def test_names_are_known_and_no_checksum_is_made_up() -> None:
    for name, source in SOURCES.items():
        assert source.name == name
        assert len(set(source.classes)) == len(source.classes) > 1
        for archive in source.archives:
            kind, digest = archive.checksum.split(":")
            assert len(bytes.fromhex(digest)) == {"md5": 16, "sha256": 32}[kind]
            assert archive.url.startswith("http") or source.by_hand


def test_checksums_and_classes_are_those_of_torchvision_where_it_has_them() -> None:
    import_torchvision()
    from torchvision.datasets import CIFAR10, CIFAR100, EMNIST, MNIST, QMNIST, CelebA
    from torchvision.models._meta import _IMAGENET_CATEGORIES

    assert emnist.GZIP.checksum == f"md5:{EMNIST.md5}"
    assert emnist.GZIP.url == EMNIST.url
    known = {file: f"md5:{md5}" for _, md5, file in CelebA.file_list}
    known |= {file: f"md5:{md5}" for file, md5 in MNIST.resources}
    known |= {url.split("/")[-1]: f"md5:{md5}" for split in QMNIST.resources.values() for url, md5 in split}
    for kind in (CIFAR10, CIFAR100):
        known |= {f"{kind.base_folder}/{file}": f"md5:{md5}" for file, md5 in [*kind.train_list, *kind.test_list]}
        known[kind.filename] = f"md5:{kind.tgz_md5}"
    pickles = [form.archives for name in ("cifar10", "cifar100") for form in SOURCES[name].copies]
    pickles = [archive for archives in pickles for archive in archives if archive.checksum]
    assert len(pickles) == 10
    for archive in (*SOURCES["celeba"].archives, *SOURCES["mnist-writers"].archives, *pickles):
        assert archive.checksum == known[archive.file]
    # Both lists follow the WordNet numbers, so the classes of Tiny ImageNet are a subsequence of ImageNet's.
    remaining = iter(_IMAGENET_CATEGORIES)
    assert all(name in remaining for name in photographs.TINY_IMAGENET)
    assert len(photographs.TINY_IMAGENET) == 200


# --- one by one ---


@pytest.mark.parametrize(("name", "factor"), [("cifar10", 1), ("cifar100", 7)])
def test_cifar_keeps_images_fine_labels_and_their_order(
    name: str, factor: int, read: Callable[[str], Splits]
) -> None:
    train, test = read(name)
    assert torch.equal(train.inputs, torch.from_numpy(IMAGES[:10]))
    assert torch.equal(test.inputs, torch.from_numpy(IMAGES[10:]))
    assert train.labels.tolist() == (factor * LABELS[:10]).tolist()
    assert test.labels.tolist() == (factor * LABELS[10:]).tolist()
    assert train.owners is None


def test_a_pickle_in_place_of_records_is_refused_and_does_not_run(tmp_path: Path) -> None:
    class Harm:
        def __reduce__(self) -> tuple:
            return os.mkdir, (str(tmp_path / "harm"),)

    content = pickle.dumps({b"data": Harm(), b"labels": [0]})
    names = [f"cifar-10-batches-bin/data_batch_{i}.bin" for i in range(1, 6)]
    write_tar(
        tmp_path / "cifar-10-binary.tar.gz", dict.fromkeys([*names, "cifar-10-batches-bin/test_batch.bin"], content)
    )
    with pytest.raises(DataError, match="cifar-10-binary.tar.gz is damaged or not what it should be"):
        SOURCES["cifar10"].read(tmp_path)
    assert not (tmp_path / "harm").exists()
    pickle.loads(content)  # it would have
    assert (tmp_path / "harm").exists()


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_a_label_beyond_the_classes_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.LABELS", np.full(12, 20))
    write, reader, _ = CASES[name]
    write(tmp_path)
    with pytest.raises(DataError, match="labels are not from 0 to"):
        reader(tmp_path)


@pytest.mark.parametrize("name", ["emnist-digits", "emnist-mnist", "emnist-byclass"])
def test_emnist_characters_stand_upright(name: str, read: Callable[[str], Splits]) -> None:
    train, test = read(name)
    assert torch.equal(torch.cat([train.inputs, test.inputs]), torch.from_numpy(DIGITS).unsqueeze(1))
    factor = 5 if name == "emnist-byclass" else 1
    assert torch.cat([train.labels, test.labels]).tolist() == (factor * LABELS).tolist()


def test_emnist_byclass_numbers_the_writers_of_both_splits_alike(read: Callable[[str], Splits]) -> None:
    train, test = read("emnist-byclass")
    assert train.owners.tolist() == [2, 0, 2, 1, 0, 0, 2, 3, 1]
    assert test.owners.tolist() == [0, 1, 0]


def test_tiny_imagenet_sorts_classes_and_numbers_and_follows_its_annotations(read: Callable[[str], Splits]) -> None:
    train, test = read("tiny-imagenet")
    assert train.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    red = train.inputs[:, 0].double().mean((1, 2))
    expected = torch.tensor([10, 11, 12, 20, 20, 21, 77, 30, 30, 31, 32, 40], dtype=torch.float64)
    torch.testing.assert_close(red, expected, rtol=0, atol=1.5)  # JPEG rounds
    torch.testing.assert_close(train.inputs[6].double().mean((1, 2)), torch.full((3,), 77.0, dtype=torch.float64))
    assert test.labels.tolist() == [0, 2]
    torch.testing.assert_close(
        test.inputs.double().mean((1, 2, 3)), torch.tensor([101.0, 100.0], dtype=torch.float64), rtol=0, atol=1.5
    )


def test_a_missing_image_of_tiny_imagenet_is_noticed(tmp_path: Path) -> None:
    write_tiny_imagenet(tmp_path)
    path = tmp_path / "tiny-imagenet-200.zip"
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if "n01_10" not in name}
    write_zip(path, files)
    with pytest.raises(DataError, match="not as many training images of each class"):
        photographs.read_tiny_imagenet(tmp_path)


@pytest.mark.parametrize(("name", "image"), [("tiny-imagenet", "tiny-imagenet-200/val/images/val_0.JPEG"),
                                             ("celeba", "img_align_celeba/000001.jpg")])  # fmt: skip
def test_a_photograph_of_another_size_is_refused(name: str, image: str, tmp_path: Path) -> None:
    write, reader, file = CASES[name]
    write(tmp_path)
    with zipfile.ZipFile(tmp_path / file) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    write_zip(tmp_path / file, files | {image: jpeg(np.zeros((30, 40, 3), np.uint8))})
    with pytest.raises(DataError, match=f"{image} has 40 x 30 pixels"):
        reader(tmp_path)


def test_femnist_gives_bytes_again_and_numbers_writers_across_files_and_splits(read: Callable[[str], Splits]) -> None:
    train, test = read("femnist")
    assert torch.equal(train.inputs, torch.from_numpy(DIGITS[:6]).unsqueeze(1))
    assert train.labels.tolist() == LABELS[:6].tolist()
    assert train.owners.tolist() == [0, 1, 1, 1, 2, 2]
    assert torch.equal(test.inputs, torch.from_numpy(DIGITS[6:8]).unsqueeze(1))
    assert test.owners.tolist() == [1, 3]


def test_femnist_is_present_once_both_folders_hold_data(tmp_path: Path) -> None:
    present = SOURCES["femnist"].present
    assert present is not None
    assert not present(tmp_path)
    with pytest.raises(DataError, match="no data in .*train; clone https://github.com/TalwalkarLab/leaf"):
        emnist.read_femnist(tmp_path)
    write_femnist(tmp_path)
    assert present(tmp_path)


@pytest.mark.parametrize(("pixel", "label"), [(1.5, 0), (-0.5, 0), (float("nan"), 0), (0.5, 62), (0.5, -1)])
def test_femnist_refuses_pixels_and_labels_out_of_range(tmp_path: Path, pixel: float, label: int) -> None:
    (tmp_path / "train").mkdir()
    data = {"users": ["a"], "num_samples": [1], "user_data": {"a": {"x": [[pixel] * 784], "y": [label]}}}
    (tmp_path / "train" / "all_data_0.json").write_text(json.dumps(data))
    with pytest.raises(DataError, match="all_data_0.json is damaged .*writer 'a'"):
        emnist.read_femnist(tmp_path)


def test_celeba_follows_the_rules_of_leaf(read: Callable[[str], Splits]) -> None:
    train, test = read("celeba")
    # Celebrity 7 comes first (owner 0, ten images: 9 + 1), then 5 (five: 4 + 1); 9 has too few.
    assert train.owners.tolist() == [0] * 9 + [1] * 4
    assert test.owners.tolist() == [0, 1]
    # The lower half of an image says which it is: 10 x its place.
    images = [
        (split.inputs[:, :, 50:].double().mean((1, 2, 3)) / 10).round().long().tolist() for split in (train, test)
    ]
    for owner, celebrity in ((0, 7), (1, 5)):
        own = [i for i, who in enumerate(CELEBRITIES) if who == celebrity]
        kept = [i for i, who in zip(images[0], train.owners.tolist(), strict=True) if who == owner]
        assert kept == sorted(kept)
        assert sorted([*kept, images[1][owner]]) == own
    for split, places in zip((train, test), images, strict=True):
        assert split.labels.tolist() == [int(i % 3 == 0) for i in places]
    assert train.inputs[:, :, :34].max() < 20  # dark above: not turned upside down


def test_celeba_reads_only_as_many_celebrities_as_asked_for(tmp_path: Path) -> None:
    write_celeba(tmp_path)
    train, test = photographs.read_celeba(tmp_path, celebrities=1)
    assert train.owners.tolist() == [0] * 9
    assert torch.equal(train.inputs, photographs.read_celeba(tmp_path, celebrities=None)[0].inputs[:9])
    assert test.owners.tolist() == [0]


def test_imdb_numbers_words_by_frequency_then_alphabet(read: Callable[[str], Splits]) -> None:
    train, test = read("imdb")
    # Frequencies: fun 301, bad 3, great 3, a 2, it's 2, café 1, film 1.
    number = {word: i for i, word in enumerate(["fun", "bad", "great", "a", "it's", "café", "film"], start=2)}
    assert train.labels.tolist() == [0, 1, 1]
    rows = [
        [number[word] for word in ("it's", "a", "bad", "bad", "film", "a", "bad", "café")],
        [number[word] for word in ("great", "great", "fun", "it's", "great")],
        [number["fun"]] * 256,
    ]
    for row, expected in zip(train.inputs.tolist(), rows, strict=True):
        assert row == expected + [0] * (256 - len(expected))
    assert test.labels.tolist() == [0, 1]
    assert test.inputs[0, :4].tolist() == [number["bad"], 1, number["film"], 0]
    assert not test.inputs[1].any()


def test_speech_commands_takes_long_enough_clips_in_the_order_of_their_names(read: Callable[[str], Splits]) -> None:
    train, test = read("speech-commands")
    words = speech_commands.WORDS
    assert train.labels.tolist() == [label for label in range(10) for _ in range(2)]
    assert test.labels.tolist() == list(range(10))
    assert train.owners.tolist() == [0, 1] * 10  # aa, bb; the second clip of aa is too short
    assert test.owners.tolist() == [2] * 10  # cc
    for label, word in enumerate(words):
        waves = [clip(word, 0), np.pad(clip(word, 2, 15_921), (0, 79)), clip(word, 3)]
        numbers = mfcc(torch.from_numpy(np.stack(waves)).float()).flatten(1)[:, :1024].view(-1, 1, 32, 32)
        found = torch.cat([train.inputs[2 * label : 2 * label + 2], test.inputs[label : label + 1]])
        torch.testing.assert_close(found, numbers, rtol=1e-4, atol=1e-4)


def test_too_few_clips_of_a_word_are_reported(tmp_path: Path) -> None:
    write_speech_commands(tmp_path)
    with pytest.raises(DataError, match="4 clips of the word 'five', 5 are needed"):
        speech_commands.read(tmp_path, train=3, test=2)


def test_a_clip_of_another_rate_is_refused(tmp_path: Path) -> None:
    write_tar(tmp_path / "speech_commands_v0.02.tar.gz", {"./yes/a_nohash_0.wav": wav(np.zeros(8000), rate=8000)})
    with pytest.raises(DataError, match="a clip is not one channel of 16 bits at 16000 Hz"):
        read_speech_commands(tmp_path)
