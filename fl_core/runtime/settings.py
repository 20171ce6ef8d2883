"""What a run is asked to do, besides the algorithm: local training, budget, evaluation."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fl_core.config import Seconds


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LocalTraining(_Settings):
    """How a device trains unless its algorithm says otherwise; the same for all methods of one comparison.

    Attributes
    ----------
    lr : float
        Step size of local SGD, > 0.
    lr_decay : float
        Factor of the step size, in (0, 1], after every `lr_decay_versions` versions (FedASMU, A06). A task keeps the
        one of the version with which it was triggered.
    lr_decay_versions : int
        How many versions a step size lasts.
    batch_size : int
        Samples per mini-batch; the last one of an epoch may be smaller.
    epochs : int
        Passes over the device's data per task, when `steps` is None.
    steps : int or None
        Mini-batches per task instead of whole passes.
    weight_decay : float
        Added to the gradient as ``weight_decay * x``.
    momentum : float
        Part m of its velocity that a step keeps: v <- m v + gradient, x <- x - lr v.
    momentum_reset : bool
        Whether every task begins with velocity 0; if not, a device goes on with that of its last task, which it keeps
        as ``device.state["velocity"]`` (FedLuck, A1).
    order : str
        ``"shuffled"``: each epoch of a task is a new permutation of the device's samples; ``"cyclic"``: always the
        same order, in which a task goes on where the last one ended (FedLuck, A2), ``device.state["cursor"]``
        mini-batches after the first. A task that is not finished leaves both as they were.
    """

    lr: float = Field(0.03, gt=0, allow_inf_nan=False)
    batch_size: int = Field(50, ge=1)
    epochs: int = Field(1, ge=1)
    steps: int | None = Field(None, ge=1)
    weight_decay: float = Field(0.0, ge=0, allow_inf_nan=False)
    momentum: float = Field(0.0, ge=0, lt=1)
    momentum_reset: bool = True
    order: Literal["shuffled", "cyclic"] = "shuffled"
    lr_decay: float = Field(1.0, gt=0, le=1)
    lr_decay_versions: int = Field(10, ge=1)

    def lr_at(self, version: int) -> float:
        """Return the step size of a task that is triggered with `version`."""
        return self.lr if self.lr_decay == 1 else self.lr * self.lr_decay ** (version // self.lr_decay_versions)


class Warmup(_Settings):
    """Training of the initial model on device 0's data before version 0 (FedAsync specification, A11).

    It is shared by all methods of a comparison and counts neither as gradients nor as virtual time.

    Attributes
    ----------
    epochs : int
        Passes over device 0's data; 0: none.
    lr : float
        Step size, > 0.
    """

    epochs: int = Field(0, ge=0)
    lr: float = Field(0.01, gt=0, allow_inf_nan=False)


class Budget(_Settings):
    """When a run ends: at the first bound that is reached.

    Attributes
    ----------
    updates : int or None
        Global model versions.
    gradients : int or None
        Mini-batch gradients applied to the global model.
    seconds : float or None
        Virtual time.
    accuracy : float or None
        Test accuracy that an evaluation finds: a run that only asks when it is reached needs no more. As it may never
        be, it stands beside another bound.
    uploads : int or None
        Uploads that were applied or discarded: where too stale ones count as rounds (FedASMU, E05).
    """

    updates: int | None = Field(None, ge=1)
    gradients: int | None = Field(None, ge=1)
    seconds: float | None = Field(None, gt=0, allow_inf_nan=False)
    accuracy: float | None = Field(None, gt=0, le=1)
    uploads: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _bounded(self) -> Budget:
        if self.updates is None and self.gradients is None and self.seconds is None and self.uploads is None:
            raise ValueError("a budget needs at least one of updates, gradients, seconds, uploads")
        return self


class Evaluation(_Settings):
    """When and on what the global model is measured; always also at the start and at the end.

    Attributes
    ----------
    every_updates : int or None
        Period in versions.
    every_seconds : float or None
        Period in virtual time.
    test_samples : int
        Test samples of a periodic evaluation, spread evenly over the test set (0: all of it). The evaluations at the
        start, at the end and `at_seconds` always use all.
    at_seconds : tuple of float
        Further virtual times of an evaluation.
    train_samples : int
        Training samples that the training loss is averaged over (0: not measured).
    """

    every_updates: int | None = Field(100, ge=1)
    every_seconds: float | None = Field(None, gt=0, allow_inf_nan=False)
    test_samples: int = Field(0, ge=0)
    at_seconds: tuple[Seconds, ...] = ()
    train_samples: int = Field(0, ge=0)
