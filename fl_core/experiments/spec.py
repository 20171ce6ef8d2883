"""The run specification: everything that determines the numbers of a run, and nothing else."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

import torch
from pydantic import BaseModel, Field, SerializeAsAny, ValidationError, field_validator, model_validator

from fl_core import datasets
from fl_core.algorithms import ALGORITHMS, Algorithm, make_algorithm
from fl_core.config import Config, read_named
from fl_core.datasets import IID, NamedPreprocessing, Partition, Preprocessing, load_dataset
from fl_core.errors import SpecError, known, nearest
from fl_core.experiments.explain import dotted_names, explain
from fl_core.models import INITIALISATIONS, canonical
from fl_core.plugins import load_plugins
from fl_core.runtime import Budget, Evaluation, LocalTraining, Simulation, Warmup
from fl_core.streams import stream
from fl_core.tasks import Classification
from fl_core.world import World

FORMAT = 1
"""Part of every hash: raised when the same specification would give other numbers, e.g. a default was changed."""

MOST_EVALUATIONS = 10**6
"""Periodic ones of a run."""


B = TypeVar("B", Algorithm, type[Algorithm])


def registered(algorithm: B) -> B:
    """Return an algorithm or its class, if its name does not mean another one: records and grids go by the name."""
    own = algorithm if isinstance(algorithm, type) else type(algorithm)
    known = ALGORITHMS.get(algorithm.name, own)
    if (known.__module__, known.__qualname__) != (own.__module__, own.__qualname__):
        raise SpecError(f"{own.__name__} would go by the name of {known.__name__}: put @register above the class")
    return algorithm


class RunSpec(Config):
    """One run, frozen and strict: an unknown field or a value out of range is an error that names what is valid."""

    dataset: str = "fashion-mnist"
    """Name of a data set (``fl-core data``). Where a real one is not at hand, its surrogate is used."""
    partition: Partition = IID()
    """How its training samples are divided among the devices."""
    label_noise: float = Field(0.0, ge=0, le=1)
    """Part of the training labels that is replaced by another class, drawn uniformly; test labels stay right."""
    preprocessing: NamedPreprocessing = Preprocessing()
    """What happens to images before the network reads them; also a name (``fl-core list preprocessing``)."""
    model: str = "lenet5"
    """Name of a network (``fl-core list models``), with options in brackets: ``resnet18(width=0.25)``."""
    initialisation: str = "glorot"
    """How initial weights are drawn: ``"glorot"`` or ``"pytorch"``."""
    world: World = World()
    """Devices, their speeds, and the network."""
    algorithm: SerializeAsAny[Algorithm]
    """Given as an object, as a name, or as ``{"name": ..., parameter: value, ...}``."""
    training: LocalTraining = LocalTraining()
    """Local training, unless the algorithm decides otherwise."""
    warmup: Warmup = Warmup()
    """Training of the initial model."""
    budget: Budget = Budget(updates=300)
    """When the run ends."""
    evaluation: Evaluation = Evaluation()
    """When the global model is measured."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Determines every random number."""
    strict_data: bool = False
    """Refuse to run on a surrogate."""

    def __init__(self, /, **fields: Any) -> None:
        if fields.get("algorithm") is None:
            raise SpecError(f"a run needs an algorithm (valid: {', '.join(sorted(ALGORITHMS))})")
        try:
            super().__init__(**fields)
        except ValidationError as error:
            parameters = (f"algorithm.{name}" for cls in ALGORITHMS.values() for name in cls.model_fields)
            raise SpecError(explain(error, type(self), more_names=parameters)) from None

    @field_validator("dataset")
    @classmethod
    def _known_dataset(cls, name: str) -> str:
        return known("data set", name, datasets.names())

    @field_validator("model")
    @classmethod
    def _known_model(cls, text: str) -> str:
        return canonical(text)

    @field_validator("initialisation")
    @classmethod
    def _known_initialisation(cls, name: str) -> str:
        return known("initialisation", name, INITIALISATIONS)

    @field_validator("algorithm", mode="before")
    @classmethod
    def _build_algorithm(cls, value: Any) -> Any:
        if isinstance(value, Algorithm):
            return value
        if isinstance(value, type) and issubclass(value, Algorithm):
            value = registered(value).name
        parameters = dict(value) if isinstance(value, dict) else {"name": value}
        name = parameters.pop("name", None)
        if not isinstance(name, str):
            raise ValueError(f"an algorithm needs a name (valid: {', '.join(sorted(ALGORITHMS))})")
        try:
            return make_algorithm(name, **parameters)
        except ValidationError as error:
            raise SpecError(explain(error, ALGORITHMS[name], owner=name)) from None

    @model_validator(mode="after")
    def _parts_fit(self) -> RunSpec:
        need, there = self.algorithm.most_in_flight(), self.world.devices
        if need is not None and need > there:
            wants = f"{self.algorithm.name} wants {need} devices in flight"
            raise ValueError(f"{wants}, but the world has devices = {there}; choose at most {there}")
        period, seconds = self.evaluation.every_seconds, self.budget.seconds
        if period and seconds and seconds > MOST_EVALUATIONS * period:
            many, least = seconds / period, seconds / MOST_EVALUATIONS
            text = f"evaluation.every_seconds = {period:g} makes {many:.0e} evaluations; choose at least {least:g}"
            raise ValueError(text)
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; the algorithm carries its name."""
        data = self.model_dump(mode="json")
        data["algorithm"] = {"name": self.algorithm.name, **data["algorithm"]}
        return data

    def to_json(self) -> str:
        """Return canonical JSON: sorted keys, no spaces; equal specifications give equal text."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str, **replaced: Any) -> RunSpec:
        """Read what :meth:`to_json` wrote, or a hand-written part of it; `replaced` fields win over the text."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise SpecError(f"not valid JSON: {error}") from None
        if not isinstance(data, dict):
            raise SpecError(f"a run specification is a JSON object, not {type(data).__name__}")
        return cls(**(data | replaced))

    @property
    def hash(self) -> str:
        """16 hexadecimal digits that name this run in the store.

        Only what differs from the defaults counts, so that a field added later leaves the names of old runs alone.
        """
        text = json.dumps(essential(self), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(f"{FORMAT}:{text}".encode()).hexdigest()[:16]

    def changed(self, **settings: Any) -> RunSpec:
        """Return a copy with changed fields; a dotted name reaches inside: ``changed(**{"world.devices": 10})``.

        A part that has a kind is also changed by text, ``partition="dirichlet(alpha=0.3)"``; its fields, like an
        algorithm's parameters, start from their defaults when the kind (the name) becomes another one.
        """
        data = self.to_dict()
        outer_first = sorted(settings, key=lambda name: (name.count("."), not name.endswith((".kind", ".name"))))
        for name in outer_first:
            value = settings[name]
            target: dict[str, Any] = data
            path = name.split(".")
            for part in path[:-1]:
                if part not in target:
                    close = nearest(name, dotted_names(RunSpec))
                    raise SpecError(f"unknown field {name!r}{close} (valid instead of {part!r}: {', '.join(target)})")
                if not isinstance(target[part], dict):
                    raise SpecError(f"unknown field {name!r}: {part} = {target[part]!r} has no fields")
                target = target[part]
            old = target.get(path[-1])
            if path[-1] in ("kind", "name") and value != old:
                target.clear()
            if isinstance(old, dict) and "kind" in old and isinstance(value, str):
                kind, inner = read_named(value, f"{name} = ")
                value = {"kind": kind, **inner}
            target[path[-1]] = value
        return RunSpec(**data)

    def resolved(self) -> RunSpec:
        """Return the specification of what really runs here: with the data set that is used, real or surrogate.

        Results are stored under this one, so that numbers from surrogate data never pass for real ones. Missing data
        is a DataError, and so is a surrogate if `strict_data` is set.
        """
        used = datasets.actual(self.dataset, self.strict_data)
        return self.model_copy(update={"dataset": used, "strict_data": False})

    def task(self) -> Classification:
        """Load the data and divide it among the devices."""
        dataset = load_dataset(self.dataset, self.strict_data)
        owned = (dataset.train.owners, dataset.test.owners)
        owners, test_owners = (own if own is None else own.numpy() for own in owned)
        devices, labels = self.world.devices, dataset.train.labels.numpy()
        parts = self.partition.split(labels, devices, stream(self.seed, "partition"), owners)
        if self.label_noise:
            draws, classes = stream(self.seed, "label-noise"), len(dataset.classes)
            noisy = datasets.with_label_noise(labels, classes, self.label_noise, draws)
            dataset = replace(dataset, train=replace(dataset.train, labels=torch.from_numpy(noisy)))
        measured = self.partition.test_samples(devices, owners, test_owners)
        if measured is not None:
            dataset = replace(dataset, test=dataset.test.take(torch.from_numpy(measured)))
        return Classification(dataset, parts, self.model, self.preprocessing, self.initialisation)

    def simulation(self, trace: bool = False) -> Simulation:
        """Build the simulation of this run."""
        names = ("budget", "training", "evaluation", "warmup", "seed")
        settings = {name: getattr(self, name) for name in names}
        return Simulation(self.task(), self.world, self.algorithm, **settings, trace=trace)


def essential(model: BaseModel) -> dict[str, Any]:
    """Return the fields of `model` that differ from their defaults, and always what says which class it is."""
    kept: dict[str, Any] = {"name": model.name} if isinstance(model, Algorithm) else {}
    for name, default in _defaults(type(model)).items():
        value = getattr(model, name)
        if name == "kind" or value != default:
            kept[name] = _essential_value(value)
    return kept


@cache
def _defaults(model: type[BaseModel]) -> dict[str, Any]:
    return {name: field.get_default(call_default_factory=True) for name, field in model.model_fields.items()}


def _essential_value(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return essential(value)
    return [_essential_value(item) for item in value] if isinstance(value, tuple) else value


load_plugins()  # so that a specification, wherever it is read, finds what they define
