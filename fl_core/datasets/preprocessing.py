"""From stored samples to what a network reads: resizing, cropping, scaling, augmentation; wrong labels on purpose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import BeforeValidator, Field, field_validator, model_validator
from torch import Tensor

from fl_core.config import Config
from fl_core.datasets.base import Dataset, Split, channels_last
from fl_core.datasets.own import OwnData
from fl_core.errors import SpecError, unknown

READY_BYTES = 50_000_000
"""Images that take no more memory than this as float32 are scaled once; larger sets stay uint8, four times smaller,
and each mini-batch is scaled by the same two operations, so the numbers are the same. A run takes 0.5 % longer for it
(LeNet-5), and a worker half the memory (Fashion-MNIST)."""
CHUNK = 5000
Step = TypeVar("Step", bound=Callable[[np.ndarray], Any])
STEPS: dict[str, Callable[[np.ndarray], Any]] = {}
"""Steps of one's own that have been registered here, by name."""


def register_preprocessing(step: Step) -> Step:
    """Make a step of one's own known by its function's name, ``preprocessing="edges"``; a second one replaces it.

    It takes the stored inputs of a split, ``[n, ...]`` (images are bytes ``[n, c, h, w]``), and returns what is read
    instead: images, features or tokens, as in :func:`~fl_core.datasets.register_dataset`.
    """
    if step.__name__ in PRESETS:
        raise SpecError(f"the preprocessing {step.__name__!r} is there already; choose another name")
    STEPS[step.__name__] = step
    return step


class Preprocessing(Config):
    """What happens to images before the network reads them; tokens and features pass unchanged, but for a step `own`.

    In this order: own, invert, resize, crop, augment (training only), scale.
    """

    own: str | None = None
    """Name of a step of one's own (:func:`register_preprocessing`)."""
    invert: bool = False
    """Whether every pixel v becomes (256 - v) mod 256: a slip in FedLuck's authors' program (E19)."""

    resize: int | None = Field(None, ge=1, le=1024)
    """Side in pixels; bilinear interpolation as image libraries do it, rounded to whole grey levels."""
    crop: int | None = Field(None, ge=1)
    """Side in pixels of the centre that is kept."""
    scale: Literal["standard", "unit", "raw", "pixel_mean"] = "standard"
    """``"standard"``: pixels from 0 to 1, minus mean, divided by standard deviation of the channel; ``"unit"``: from
    0 to 1; ``"raw"``: from 0 to 255; ``"pixel_mean"``: minus the mean over the training images at that pixel, divided
    by 128."""
    mean: tuple[float, ...] | None = None
    """For ``"standard"``: one number per channel instead of those of the training images."""
    std: tuple[Annotated[float, Field(gt=0)], ...] | None = None
    """For ``"standard"``: one number per channel instead of those of the training images."""
    shift: int = Field(0, ge=0)
    """Augmentation: black margin in pixels around the image, of which a window of the old size is cut at random."""
    flip: bool = False
    """Augmentation: mirrored left to right with probability 1/2."""

    @field_validator("own")
    @classmethod
    def _known_step(cls, name: str | None) -> str | None:
        if name is not None and name not in STEPS:
            raise unknown("step", name, STEPS)
        return name

    @model_validator(mode="after")
    def _constants_belong_together(self) -> Self:
        if (self.mean is None) != (self.std is None) or len(self.mean or ()) != len(self.std or ()):
            raise ValueError(
                f"mean = {self.mean} and std = {self.std} must be given together, one number per channel"
            )
        if self.mean is not None and self.scale != "standard":
            raise ValueError(f"mean and std belong to scale = 'standard', not to {self.scale!r}")
        return self

    def apply(self, dataset: Dataset) -> tuple[Samples, Samples]:
        """Return the training and the test samples of `dataset`, ready to learn from."""
        dataset = dataset if self.own is None else _after(STEPS[self.own], dataset)
        splits = (dataset.train, dataset.test)
        if dataset.train.inputs.dtype != torch.uint8:
            if self != Preprocessing(own=self.own):
                raise SpecError(f"data set {dataset.name!r} holds no images: it takes no preprocessing")
            train, test = (Samples(split.inputs, split.labels) for split in splits)
            return train, test
        stored = [split.inputs.neg() if self.invert else split.inputs for split in splits]
        images = [self._resized(inputs, dataset.name) for inputs in stored]
        scale = self._scale(images[0], dataset)
        train, test = (Samples(part, split.labels, scale) for part, split in zip(images, splits, strict=True))
        if self.shift or self.flip:
            return replace(train, augmentation=Augmentation(self.shift, self.flip)), test.ready()
        return train.ready(), test.ready()

    def _resized(self, images: Tensor, name: str) -> Tensor:
        if self.resize is not None and tuple(images.shape[2:]) != (self.resize, self.resize):
            images = torch.cat([resized(part, self.resize) for part in images.split(CHUNK)])
        if self.crop is not None:
            height, width = images.shape[2:]
            if self.crop > (most := min(height, width)):
                what = f"preprocessing.crop = {self.crop} is larger than the images of {name!r}"
                raise SpecError(f"{what} ({height} x {width} pixels); it should be at most {most}")
            top, left = (height - self.crop) // 2, (width - self.crop) // 2
            images = images[:, :, top : top + self.crop, left : left + self.crop].contiguous()
        return images

    def _scale(self, train: Tensor, dataset: Dataset) -> Scale:
        """Return the two numbers, per channel or pixel, of ``x * factor - offset``."""
        channels = train.shape[1]
        if self.scale == "pixel_mean":
            total = sum(part.sum(0, dtype=torch.int64) for part in train.split(CHUNK))
            assert isinstance(total, Tensor)
            return Scale(torch.tensor(1 / 128), (total.double() / (128 * len(train))).float())
        if self.scale != "standard":
            return Scale(torch.tensor(1 / 255 if self.scale == "unit" else 1.0), torch.tensor(0.0))
        mean, std = (self.mean, self.std) if self.mean and self.std else (dataset.mean, dataset.std)
        if len(mean) != channels:
            have = f"the images of {dataset.name!r} have {channels} channels"
            raise SpecError(f"preprocessing.mean has {len(mean)} numbers; {have}")
        if 0.0 in std:
            what = f"channel {std.index(0.0)} of all images of {dataset.name!r} has one value"
            raise SpecError(f"{what}, which cannot be scaled by its deviation; take preprocessing.scale = 'unit'")
        pairs = list(zip(mean, std, strict=True))
        factor = torch.tensor([1 / (255 * s) for _, s in pairs]).view(channels, 1, 1)
        return Scale(factor, torch.tensor([m / s for m, s in pairs]).view(channels, 1, 1))


PRESETS: dict[str, dict[str, Any]] = {
    "fedasync": {"crop": 24, "scale": "pixel_mean"},
    "wkafl": {"scale": "raw"},
    "fedluck-grey": {"resize": 32, "mean": (0.1307,), "std": (0.3081,)},
    "fedluck-colour": {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2023, 0.1994, 0.2010), "shift": 4, "flip": True},
}
"""What the papers do: FedAsync A13, WKAFL E36, FedLuck A22. SD-FEEL (A-07) and FedASMU use the defaults."""


def _from_name(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value not in PRESETS | STEPS:
        raise unknown("preprocessing", value, PRESETS | STEPS)
    return PRESETS.get(value, {"own": value})


def _after(step: Callable[[np.ndarray], Any], dataset: Dataset) -> Dataset:
    """Return `dataset` as a step of one's own leaves it, checked as data of one's own is, with means of that."""

    def stepped(split: Split) -> tuple[Any, ...]:
        owners = () if split.owners is None else (split.owners.numpy(),)
        return (step(split.inputs.numpy().copy()), split.labels.numpy(), *owners)

    def load() -> tuple[Any, Any]:
        return stepped(dataset.train), stepped(dataset.test)

    made = OwnData(f"{dataset.name}, {step.__name__}", load, dataset.classes).dataset
    return replace(dataset, train=made.train, test=made.test, mean=made.mean, std=made.std)


NamedPreprocessing = Annotated[Preprocessing, BeforeValidator(_from_name)]
"""A :class:`Preprocessing`, its fields, or the name of one of :data:`PRESETS` or :data:`STEPS`."""


@dataclass(frozen=True)
class Scale:
    """``x * factor - offset``; both broadcast over ``[n, c, h, w]``."""

    factor: Tensor
    offset: Tensor

    def __call__(self, images: Tensor) -> Tensor:
        """Return `images` as float32, scaled."""
        return images.float().mul_(self.factor).sub_(self.offset)


@dataclass(frozen=True)
class Augmentation:
    """Random shift and mirror of training images ``[n, c, h, w]``."""

    shift: int  # largest in pixels, in each direction; what comes in is black
    flip: bool

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Return, for each of `count` images, the window's row and column and whether it is mirrored: ``[n, 3]``."""
        window = torch.randint(0, 2 * self.shift + 1, (count, 2), generator=generator)
        mirrored = torch.randint(0, 2 if self.flip else 1, (count, 1), generator=generator)
        return torch.cat([window, mirrored], 1)

    def __call__(self, images: Tensor, drawn: Tensor) -> Tensor:
        """Return the shifted and mirrored images."""
        count, _, height, width = images.shape
        place = images.device
        row, column, mirrored = drawn.to(place).unbind(1)
        rows = row[:, None] + torch.arange(height, device=place)
        columns = torch.arange(width, device=place).expand(count, width)
        columns = torch.where(mirrored[:, None] == 1, width - 1 - columns, columns) + column[:, None]
        padded = F.pad(images, (self.shift,) * 4)
        image = torch.arange(count, device=place)[:, None, None]
        return padded.permute(0, 2, 3, 1)[image, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


@dataclass(frozen=True)
class Samples:
    """A split that mini-batches are taken from."""

    inputs: Tensor
    """As in :class:`fl_core.datasets.base.Split`; images are scaled already if `scale` is None."""
    labels: Tensor
    scale: Scale | None = None  # applied to each mini-batch
    augmentation: Augmentation | None = None  # applied to each mini-batch for which it has been drawn

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.inputs.shape[1:])

    def ready(self, most: float | None = None) -> Samples:
        """Return the same samples, scaled now if the result has at most `most` bytes (:data:`READY_BYTES`)."""
        if self.scale is None or 4 * self.inputs.numel() > (READY_BYTES if most is None else most):
            return self
        return Samples(self.scale(self.inputs), self.labels)

    def to(self, place: torch.device) -> Samples:
        """Return the same samples on `place`."""
        scale = self.scale and Scale(self.scale.factor.to(place), self.scale.offset.to(place))
        return replace(self, inputs=self.inputs.to(place), labels=self.labels.to(place), scale=scale)

    def select(self, index: Tensor, drawn: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the mini-batch of `index` ``[b]``, augmented as `drawn` ``[b, 3]`` says."""
        inputs = self.inputs.index_select(0, index)
        if drawn is not None and self.augmentation is not None:
            inputs = self.augmentation(inputs, drawn)
        return self._finished(inputs), self.labels.index_select(0, index)

    def slice(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Return the samples `start` to `stop` as a mini-batch, without a copy where the layout allows it."""
        return self._finished(self.inputs[start:stop]), self.labels[start:stop]

    def _finished(self, inputs: Tensor) -> Tensor:
        """Scale, and lay images out as convolutions run fastest."""
        if self.scale is not None:
            inputs = self.scale(inputs)
        return channels_last(inputs) if inputs.dim() == 4 else inputs


def resized(images: Tensor, side: int) -> Tensor:
    """Return uint8 images ``[n, c, side, side]``: bilinear, with the antialiasing that image libraries apply."""
    wide = F.interpolate(images.float(), size=(side, side), mode="bilinear", align_corners=False, antialias=True)
    return wide.round_().clamp_(0, 255).to(torch.uint8)


def with_label_noise(labels: np.ndarray, classes: int, share: float, rng: np.random.Generator) -> np.ndarray:
    """Return a copy of `labels` ``[n]``, of which ``round(share * n)``, drawn uniformly, are any other class."""
    noisy = labels.copy()
    if classes > 1:
        wrong = rng.choice(len(labels), round(share * len(labels)), replace=False)
        noisy[wrong] = (noisy[wrong] + rng.integers(1, classes, len(wrong))) % classes
    return noisy
