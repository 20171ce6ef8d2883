"""FedASMU on the device: the newest global model in mid-training, when it is asked for, and how it is blended in."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field
from torch import Tensor

from fl_core.algorithms.base import Algorithm
from fl_core.errors import RunError
from fl_core.formulas import fedasmu as formulas
from fl_core.formulas.fedasmu import FreshControls

if TYPE_CHECKING:
    from fl_core.runtime import DeviceHandle, ServerHandle, Snapshot, Upload

Slot = Literal["learned", "uniform", "first", "middle", "last", "none"] | int
Rate = Field(1e-4, ge=0, allow_inf_nan=False)


class Choice(NamedTuple):
    """When a device asks: the slot, and the action in the Q-table that led to it (None: it was not that)."""

    slot: int
    action: int | None = None


class FreshMerge(Algorithm):
    """Algorithm 2: train, ask once for the newest model, blend it in, train on."""

    slot: Slot = "learned"
    """After how many local epochs a device asks: "learned", until its first merge by the server's meta-model and then
    by its own Q-table; "uniform", drawn; "first", "middle", "last": 1, floor(E / 2), E - 1; a number; or "none":
    never. With a single epoch nobody asks."""
    slot_semantics: Literal["after_epoch", "before_epoch"] = "after_epoch"
    """``"after_epoch"``: slot k is after epoch k; "before_epoch": before it, as Algorithm 2 is printed (E12)."""
    gamma_0: float = Field(29.66013673, ge=0, allow_inf_nan=False)
    """Initial gamma, like the server's lambda_0 (A04)."""
    upsilon_0: float = Field(1.0, ge=0, le=2**0.5)
    """Initial upsilon (A04); with 1 a model that is not newer would have no weight (D10)."""
    lr_gamma: float = Rate
    """Learning rate of gamma."""
    lr_upsilon: float = Rate
    """Learning rate of upsilon."""
    mu_beta: float = Field(1.0, gt=0, allow_inf_nan=False)
    """Scale of beta."""
    sqrt_offset_device: Literal[0, 1] = 0
    """What is added to g under the root; 0 as printed, or 1."""
    project: bool = True
    """Whether control parameters are kept in the range in which weights are in [0, 1) (A08)."""
    epsilon: float = Field(0.1, ge=0, le=1)
    """Part of the choices that are made at random."""
    q_lr: float = Field(0.1, ge=0, le=1)
    """Step size of the Q-table."""
    q_discount: float = Field(0.9, ge=0, le=1)
    """Its discount."""
    lr_rl: float = Field(0.001, ge=0, allow_inf_nan=False)
    """Learning rate of the meta-model."""
    baseline_rate: float = Field(0.1, ge=0, le=1)
    """Rate of its moving baseline."""
    meta_records: tuple[tuple[int, float], ...] = ()
    """Slots and rewards of an earlier run, on which the meta-model is trained beforehand (A10)."""
    merge_correction: bool = False
    """Whether a device also sends w^a - w^b, so that the server can take the merge out of the update (E09). That
    doubles the bytes of an upload with a merge."""

    async def device(self, device: DeviceHandle) -> None:
        """Train (4) with at most one merge, and upload the model with what the server has to know about it."""
        choice = await self.choose(device)
        start = await device.download()
        report: dict[str, Any] = {"start": start, "lr": device.lr, "epochs": device.training.epochs}
        if choice is None:
            trained = await device.train(start.model)
        else:
            done = choice.slot - (self.slot_semantics == "before_epoch")
            model = (await device.train(start.model, epochs=done)).model if done else start.model
            fresh = await device.download_newer(start)
            if fresh is not None:
                model = await self.merge(device, choice, model, start, fresh, report)
            trained = await device.train(model, epochs=device.training.epochs - done)
        await device.upload(model=trained.model, based_on=start, **report)

    async def choose(self, device: DeviceHandle) -> Choice | None:
        """Return when `device` asks in this task; None: never."""
        if self.slot == "none":
            return None
        if device.training.steps is not None:
            what = f"{self.name} counts local training in epochs, but the run has steps = {device.training.steps}"
            raise RunError(f"{what}; set training.epochs and leave training.steps empty")
        epochs = device.training.epochs
        if epochs < 2:
            return None
        count = self.num_slots(epochs)
        if isinstance(self.slot, int):
            if not 1 <= self.slot <= count:
                raise RunError(f"slot = {self.slot} is not valid: with {epochs} local epochs it is 1..{count}")
            return Choice(self.slot)
        if self.slot == "uniform":
            return Choice(1 + int(device.rng.integers(count)))
        if self.slot != "learned":
            return Choice(formulas.fixed_slot(self.slot, epochs))
        if "last_slot" not in device.state:
            return Choice(await device.ask(count))
        last = device.state["last_slot"]
        action = formulas.epsilon_greedy(device.state["q_table"][last - 1], self.epsilon, device.rng)
        return Choice(formulas.next_slot(last, action, count), action)

    async def merge(
        self, device: DeviceHandle, choice: Choice, before: Tensor, start: Snapshot, fresh: Snapshot,
        report: dict[str, Any],
    ) -> Tensor:  # fmt: skip
        """Return the merged model w^a ``[d]`` (7), and learn from the next mini-batch (6, 9); fill in `report`."""
        state, versions = device.state, (fresh.version, start.version)
        controls = FreshControls(*state.get("controls", (self.gamma_0, self.upsilon_0)))
        after, weight = self.blended(before, fresh.model, *versions, controls)
        seen = await device.peek(after, others=(before,))
        gained = formulas.reward(seen.losses[1], seen.losses[0])
        trained = slice(device.num_parameters)
        slope = formulas.fresh_slope(seen.gradient, fresh.model[trained], before[trained], after[trained])
        if not isfinite(gained + slope):  # training diverges: there is nothing to learn from that
            return after
        state["controls"] = tuple(self.learned(controls, *versions, slope))
        report |= {"slot": choice.slot, "fresh_weight": weight, "reward": gained}
        report |= dict(zip(FreshControls._fields, state["controls"], strict=True))
        if self.merge_correction:
            report["jump"] = (after - before)[trained]
        if self.slot == "learned":
            self._learn_slot(state, choice, gained, report, self.num_slots(device.training.epochs))
        return after

    def blended(
        self, before: Tensor, fresh: Tensor, fresh_version: int, origin_version: int, controls: FreshControls
    ) -> tuple[Tensor, float]:
        """Return w^a ``[d]`` and the weight beta of the fresh model in it (7, 8)."""
        versions, offset = (fresh_version, origin_version), self.sqrt_offset_device
        weight = formulas.fresh_weight(*versions, controls, self.mu_beta, sqrt_offset=offset)
        return formulas.blend(before, fresh, weight), weight

    def learned(
        self, controls: FreshControls, fresh_version: int, origin_version: int, slope: float
    ) -> FreshControls:
        """Return the controls after one step (9), where the loss has the derivative `slope` by beta."""
        versions, offset = (fresh_version, origin_version), self.sqrt_offset_device
        gradient = formulas.fresh_weight_gradient(*versions, controls, self.mu_beta, sqrt_offset=offset)
        moved = formulas.fresh_descend(controls, gradient, FreshControls(self.lr_gamma, self.lr_upsilon), slope)
        return formulas.fresh_project(moved) if self.project else moved

    def _learn_slot(
        self, state: dict[str, Any], choice: Choice, gained: float, report: dict[str, Any], count: int
    ) -> None:
        """Update the Q-table (6), or after the first merge leave it to the server to update the meta-model (5)."""
        if choice.action is None:
            state["q_table"] = np.zeros((count, len(formulas.ACTIONS)))
            report["num_slots"] = count
        else:
            step = state["last_slot"], choice.action, choice.slot, gained
            learned = formulas.q_update(state["q_table"], *step, self.q_lr, self.q_discount)
            if np.isfinite(learned).all():  # training that diverges may overflow it
                state["q_table"] = learned
        state["last_slot"] = choice.slot

    def answer(self, server: ServerHandle, device: DeviceHandle, question: Any) -> int:
        """Return the slot, of as many as `question` says, that the meta-model chooses for a device's first merge."""
        logits = formulas.meta_logits(self._meta(server, question), question)
        rng = server.stream("slot", device.id, device.trigger)
        return 1 + formulas.epsilon_greedy(formulas.log_probabilities(logits).numpy(), self.epsilon, rng)

    def learn_meta(self, server: ServerHandle, upload: Upload) -> None:
        """Update the baseline and then the meta-model (5) if `upload` brings the reward of a first merge."""
        payload = upload.payload
        if "num_slots" not in payload:
            return
        state, count = server.state, payload["num_slots"]
        reward, before = payload["reward"], state.get("baseline", 0.0)
        state["baseline"] = formulas.moving_baseline(before, reward, self.baseline_rate)
        advantage = reward - state["baseline"]
        learned = formulas.reinforce(self._meta(server, count), payload["slot"], count, advantage, self.lr_rl)
        if formulas.log_probabilities(formulas.meta_logits(learned, count)).isfinite().all():  # the same
            state["meta"] = learned

    def num_slots(self, epochs: int) -> int:
        """Return K_s."""
        return epochs - (self.slot_semantics == "after_epoch")

    def _meta(self, server: ServerHandle, count: int) -> Tensor:
        if "meta" not in server.state:
            new = formulas.initial_meta(server.stream("meta-model"))
            server.state["meta"] = formulas.pretrain_meta(new, self.meta_records, count) if self.meta_records else new
        meta: Tensor = server.state["meta"]
        return meta
