"""Measured worlds: speeds and links of phones, links whose speed changes every second, and files of such traces.

Two small tables come with the package: the AI-Benchmark scores of 307 phones and the mean speeds of 19 phones' links
from FLASH (Yang et al., 2021; BSD 2-Clause), and 59 fixed lines that the FCC measured in 2016 (public; mean of each
second). The other sets of links lie in one file, ``network-traces.jsonl.gz``, on the search path of data.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from math import inf
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field, ValidationError, model_validator

from fl_core.config import Seconds
from fl_core.datasets.registry import datasets_folder, search_path
from fl_core.errors import DataError, SpecError, unknown
from fl_core.world.availability import TraceAvailability
from fl_core.world.compute import Compute, TraceCompute
from fl_core.world.network import Bandwidth, Network, Positive, Spread
from fl_core.world.world import NamedWorld, World

KIBIBYTES = 8 * 1024
"""Bits in what FLASH's program counts a link's speed in, per second."""


class LinkSet(NamedTuple):
    """Measured links, each the mean speeds of whole seconds."""

    size: int
    about: str
    licence: str
    sha256: str  # of the speeds, as :func:`_digest` takes it


SETS = {
    "fcc-2016": LinkSet(59, "fixed lines, United States (FCC, 2016)", "public",
        "353505f82665361475a707a64b0b5d5579cc48f902d2fe98966f9239490c61df"),
    "hsdpa-norway": LinkSet(80, "3G on the way, Oslo (Riiser et al., 2013)", "research use",
        "a2ae00b8c918779c6fe84fa25e6d319d07639e9e7b373b87e9e3a4b3b2c71c95"),
    "oboe": LinkSet(428, "wired, WiFi and cellular clients (Akhtar et al., 2018)", "not stated",
        "c25b5e2924d3ea418529085144ee6c704174c9d7142c58177bf8a626a9bea2d7"),
    "mahimahi": LinkSet(7, "cellular, driving, United States (Netravali et al., 2015)", "GPL-3",
        "850a391212db46f2d626892d4d7eafeee5a09d070c4b04c3bcaf35c9efa29272"),
    "5g-ireland": LinkSet(21, "5G, at rest and driving (Raca et al., 2020)", "GPL-3",
        "3895ec840d769c9b353ec491f2501e2ce55ca6ed9585270e6520e28bd577e089"),
}  # fmt: skip
FILE = "network-traces.jsonl.gz"
LARGEST = 1 << 26  # bytes of a file of traces
SetName = Literal["fcc-2016", "hsdpa-norway", "oboe", "mahimahi", "5g-ireland"]


@dataclass(frozen=True, eq=False)
class Trace:
    """A link whose speed is given for every step of time, again and again, from a place of its own."""

    capacity: np.ndarray  # [n + 1]: bits that it has carried after each step of one round
    step: float  # seconds
    offset: float = 0.0  # seconds into the trace at time 0

    @classmethod
    def of(cls, bits_per_second: Sequence[float], step: float = 1.0) -> Trace:
        """Return the trace of these speeds, one for each `step` of seconds."""
        return cls(np.concatenate([[0.0], np.cumsum(np.array(bits_per_second, float) * step)]), step)

    @property
    def mean(self) -> float:
        """Mean speed in bits per second."""
        return float(self.capacity[-1] / (self.step * (len(self.capacity) - 1)))

    def carried(self, until: float) -> float:
        """Return how many bits the link can carry from time 0 to `until`."""
        return self._total(until + self.offset) - self._total(self.offset)

    def seconds(self, bits: float, start: float) -> float:
        """Return how long `bits` take that are sent from `start` on, alone: what the link can carry by then."""
        begin, whole = start + self.offset, self.step * (len(self.capacity) - 1)
        rounds, rest = divmod(self._total(begin) + bits, float(self.capacity[-1]))
        place = int(np.searchsorted(self.capacity, rest, side="left"))
        if place == 0:  # exactly at the end of a round: when its last bit was carried
            rounds, place = rounds - 1, int(np.searchsorted(self.capacity, self.capacity[-1], side="left"))
            rest = float(self.capacity[-1])
        below, above = self.capacity[place - 1], self.capacity[place]
        return max(0.0, rounds * whole + self.step * (place - 1 + (rest - below) / (above - below)) - begin)

    def _total(self, time: float) -> float:
        rounds, rest = divmod(time, self.step * (len(self.capacity) - 1))
        places = np.arange(len(self.capacity)) * self.step
        return float(rounds * self.capacity[-1] + np.interp(rest, places, self.capacity))


class MeasuredBandwidth(Spread):
    """Measured links: each device gets one of a set, drawn uniformly, and begins at a random second of it."""

    kind: Literal["measured"] = "measured"
    set: SetName = "fcc-2016"
    """Which links; only the first set comes with the package."""
    scale: Positive = 1.0
    """Factor of all speeds."""

    def links(self, devices: int, rng: np.random.Generator, direction: str) -> list[Trace]:
        known = [Trace.of([1e6 * self.scale * speed for speed in speeds]) for speeds in measured(self.set, direction)]
        chosen, places = rng.integers(len(known), size=devices), rng.random(devices)
        return [
            Trace(t.capacity, t.step, float(np.floor(place * (len(t.capacity) - 1))) * t.step)
            for t, place in ((known[number], place) for number, place in zip(chosen, places, strict=True))
        ]


class TraceBandwidth(Spread):
    """Links given by their speeds, of each device or of all; after its end a trace begins again."""

    kind: Literal["trace"] = "trace"
    bits_per_second: tuple[tuple[float, ...], ...]
    """One list of speeds, or one for each device; none is negative, and not all of a list are 0."""
    step_seconds: Seconds = 1.0
    """How long each speed lasts."""

    @model_validator(mode="after")
    def _carry(self) -> TraceBandwidth:
        for number, speeds in enumerate(self.bits_per_second):
            if not speeds or min(speeds) < 0 or not 0 < sum(speeds) < inf:
                raise ValueError(f"trace {number} must have speeds >= 0 bits per second, and one above 0")
        return self

    def check(self, devices: int) -> None:
        if len(self.bits_per_second) not in (1, devices):
            raise ValueError(f"bandwidth trace has {len(self.bits_per_second)} entries for devices = {devices}")

    def links(self, devices: int, rng: np.random.Generator, direction: str) -> list[Trace]:
        known = [Trace.of(speeds, self.step_seconds) for speeds in self.bits_per_second]
        return known if len(known) == devices else known * devices


class PhoneBandwidth(Spread):
    """The mean speed of one of 19 phones' links (FLASH), drawn once per device, the same one up and down."""

    kind: Literal["phones"] = "phones"

    def draw(self, devices: int, rng: np.random.Generator, direction: str = "down") -> np.ndarray:
        speeds = np.array(phones()["networks"])[:, 0 if direction == "down" else 2]
        return KIBIBYTES * speeds[rng.integers(len(speeds), size=devices)]


class PhoneCompute(Compute):
    """Each device is one of 307 phones, drawn uniformly; time is inverse to its AI-Benchmark score (FLASH).

    That a step of training takes time in inverse proportion to the score is an assumption: FLASH measured training on
    three phones and gives every other one the time of the one of them that is nearest in score.
    """

    kind: Literal["phones"] = "phones"
    median: Seconds = 1.0
    """Seconds of the phone with the median score."""

    def draw(self, devices: int, rng: np.random.Generator) -> np.ndarray:
        scores = np.array(phones()["scores"], float)
        return self.median * np.median(scores) / scores[rng.integers(len(scores), size=devices)]


class Phones(NamedWorld):
    """Phones of FLASH: 307 models by their AI-Benchmark score, with the mean speeds of 19 measured links."""

    name = "phones"
    median: Seconds = 1.0
    """Seconds per local step of the median phone."""

    def world(self) -> World:
        link = PhoneBandwidth()
        network = Network(down_bits_per_second=link, up_bits_per_second=link)
        return World(devices=self.devices, compute=PhoneCompute(median=self.median), network=network)


class MeasuredLinks(NamedWorld):
    """Equal devices behind measured links whose speed changes every second; the way up has a constant speed."""

    name = "measured-links"
    links: SetName = "fcc-2016"
    """The set of links; only the first one comes with the package."""
    up_bits_per_second: Bandwidth = Field(1e6)
    """Nearly all sets measured downloads only."""

    def world(self) -> World:
        down = MeasuredBandwidth(set=self.links)
        network = Network(down_bits_per_second=down, up_bits_per_second=self.up_bits_per_second)
        return World(devices=self.devices, network=network)


@cache
def phones() -> dict[str, Any]:
    """Return FLASH's table: ``scores`` and ``models``, ``networks`` as means and deviations, down and up."""
    found: dict[str, Any] = json.loads(Path(__file__).with_name("phones.json").read_text(encoding="utf-8"))
    return found


def measured(name: str, direction: str) -> list[list[float]]:
    """Return the speeds of a set of links in megabits per second, one a second; other speeds are a DataError."""
    path = place(name)
    if path is None:
        raise DataError(f"the links of {name!r} are not on this machine; 'fl-core data import {FILE}' takes them")
    found = [link[direction] for link in _verified(path, name) if link.get(direction)]
    if not found:
        raise DataError(f"the set {name!r} has no speeds {direction}; give {direction}_bits_per_second otherwise")
    return found


def place(name: str) -> Path | None:
    """Return the file that has the links of a set: in the package, the user's own folder or on the search path."""
    own = Path(__file__).with_name(f"{name}.jsonl.gz")
    places = [own, *(folder / FILE for folder in (datasets_folder(), *search_path()))]
    return next((place for place in places if place.is_file()), None)


def take_in(path: Path) -> Path:
    """Verify a file with all sets of links, keep a copy of it, and return where."""
    for name in SETS:
        _verified(path, name)
    kept = datasets_folder() / FILE
    kept.parent.mkdir(parents=True, exist_ok=True)
    if not kept.exists() or not kept.samefile(path):
        shutil.copyfile(path, kept)
    return kept


@cache
def _verified(path: Path, name: str) -> list[dict[str, Any]]:
    links = [link for link in _links(path) if link.get("set", name) == name]
    if len(links) != SETS[name].size:
        raise DataError(f"{path} has {len(links)} links of {name!r} instead of {SETS[name].size}")
    if (sha256 := _digest(links)) != SETS[name].sha256:
        raise DataError(f"{path} does not hold the links of {name!r}: their speeds have SHA-256 {sha256}")
    return links


def _digest(links: list[dict[str, Any]]) -> str:
    parts = [np.array(link.get(way) or [], "<f8").tobytes() + b"|" for link in links for way in ("down", "up")]
    return hashlib.sha256(b"".join(parts)).hexdigest()


@cache
def _links(path: Path) -> list[dict[str, Any]]:
    with _decoding(path), gzip.open(path) as file:
        links = [json.loads(line) for line in file.read(LARGEST).splitlines()]
        for link in links:
            for direction in {"down", "up"} & link.keys():
                _checked(link[direction], 0.0)
        return [link for link in links if "name" in link]


def read_throughput(path: Path | str, unit_bits: float = 1e6, step_seconds: float = 1.0) -> TraceBandwidth:
    """Read a CSV of a link: a speed a line (the last column, in `unit_bits` per second), one every `step_seconds`."""
    _positive(unit_bits=unit_bits, step_seconds=step_seconds)
    with _decoding(path):
        speeds = _checked([number * unit_bits for number in _column(path)], 0.0)
        return TraceBandwidth(bits_per_second=(tuple(speeds),), step_seconds=step_seconds)


def read_compute(path: Path | str, per: Literal["step", "epoch"] = "step") -> TraceCompute:
    """Read the seconds of each device's step or epoch from a CSV, one device a line (the last column).

    From JSON, as FLASH has it, a benchmark's score of each phone: time is inverse to it, one second at the median.
    """
    if per not in ("step", "epoch"):
        raise unknown("unit", per, ("step", "epoch"))
    with _decoding(path):
        if str(path).endswith(".json"):
            scores = _checked(list(json.loads(_text(path)).values()), 1e-12)
            seconds = [float(np.median(scores) / score) for score in scores]
        else:
            seconds = _checked(_column(path), 1e-12)
    return TraceCompute(seconds_per_step=tuple(seconds), per=per)


def read_bandwidth(path: Path | str) -> Network:
    """Read the mean speeds of each device's link, down and up, from JSON as FLASH has it."""
    with _decoding(path):
        links = list(json.loads(_text(path)).values())
        down, up = (_checked([KIBIBYTES * link[f"{way}_u"] for link in links], 1e-12) for way in ("down", "up"))
    return Network(down_bits_per_second=tuple(down), up_bits_per_second=tuple(up))


def read_availability(path: Path | str, devices: int) -> TraceAvailability:
    """Read when devices are there, as FedScale has it, from JSON: for each its times ``active`` and ``inactive``.

    Every device also has ``finish_time``, after which its windows repeat; the period of all is the longest one.
    Devices are taken in the order of the file, again from its beginning if there are too few.
    """
    _positive(devices=devices)
    with _decoding(path):
        users = list(json.loads(_text(path)).values())
        if not users:
            raise ValueError("it has no device")
        windows = [tuple(zip(user["active"], user["inactive"], strict=True)) for user in users]
        chosen = tuple(windows[number % len(windows)] for number in range(devices))
        return TraceAvailability(windows=chosen, period_seconds=max(user["finish_time"] for user in users))


def _positive(**arguments: float) -> None:
    for name, value in arguments.items():
        if not 0 < value < inf:
            raise SpecError(f"{name} = {value!r} is not valid: it should be a number > 0")


def _column(path: Path | str) -> list[float]:
    """Return the last column of a CSV, numbers; the first line may be a heading."""
    text = _text(path)
    if ";" in text or "\t" in text:
        raise ValueError("columns are separated by commas, and a decimal point is a point")
    last = [row[-1] for row in csv.reader(text.splitlines()) if row]
    with suppress(ValueError):
        return [float(number) for number in last]
    return [float(number) for number in last[1:]]


def _text(path: Path | str) -> str:
    path = Path(path)
    if path.stat().st_size > LARGEST:
        raise ValueError(f"it has more than {LARGEST} bytes")
    return path.read_text(encoding="utf-8-sig")


def _checked(numbers: list[float], least: float) -> list[float]:
    """Return `numbers` if there are some, and all are finite and at least `least`."""
    if not numbers or not all(isinstance(n, int | float) and least <= n < inf for n in numbers):
        raise ValueError(f"a trace is a list of numbers >= {least:g}, at least one")
    return numbers


@contextmanager
def _decoding(path: Path | str) -> Iterator[None]:
    """Make of whatever goes wrong one line that names `path`."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"there is no {path}") from None
    except SpecError:
        raise
    except ValidationError as error:
        raise DataError(f"{path} is not a readable trace: {error.errors()[0]['msg']}") from None
    except Exception as error:  # on damaged bytes, decoders raise anything
        cause = " ".join(str(error).split())[:300]
        raise DataError(f"{path} is not a readable trace ({type(error).__name__}: {cause})") from None
