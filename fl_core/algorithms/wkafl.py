"""WKAFL: K-asynchronous federated learning that selects gradients by their direction (Zhou et al., 2022)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from fl_core.algorithms.base import register
from fl_core.algorithms.kasync import KAsynchronous, descend, stacked
from fl_core.formulas import wkafl as formulas
from fl_core.formulas.wkafl import DECAY, Aggregation

if TYPE_CHECKING:
    from fl_core.runtime import ServerHandle, Upload


@register
class WKAFL(KAsynchronous):
    """Algorithms 1 to 3: estimate the global gradient from fresh gradients, keep those that agree with it.

    ``without`` removes one of the three components (2.6). The authors' ablations also drop the first clipping, which
    ``clip_bound=None`` does here.
    """

    momentum_alpha: float = Field(0.1, ge=0, lt=1)
    """Weight alpha of the last update's gradient, which is added to every new one (Eq. 4)."""
    momentum_source: Literal["estimated", "aggregated"] = "estimated"
    """That gradient: the "estimated" one (printed), or the "aggregated" one, which is what the theorems and the
    authors' programs use (E2)."""
    clip_bound: float | None = Field(100.0, gt=0, allow_inf_nan=False)
    """Longest norm CB of a gradient with momentum; None: no limit."""
    sim_beta: float = Field(10.0, ge=0, allow_inf_nan=False)
    """How sharply the selection prefers gradients that agree with the estimate (Eq. 7)."""
    sim_min: float = Field(0.3, ge=0, le=1)
    """Cosine with the estimate below which a gradient is thrown away (Eq. 7)."""
    selection_score: Literal["similarity", "similarity_times_staleness"] = "similarity"
    """``"similarity"`` (Eq. 7), or "similarity_times_staleness": two of the authors' programs (E33)."""
    lr_staleness_factor: float = Field(0.1, ge=0, lt=1)
    """gamma: the learning rate is divided by 1 + gamma times the least staleness (Eq. 10)."""
    staleness_offset: Literal[0, 1] = 0
    """1: in Eq. 10 a fresh gradient counts as one update old, as in the authors' programs (E7)."""
    stage2_clip_factor: float = Field(10.0, gt=0, allow_inf_nan=False)
    """In the second stage no gradient is longer than B times the estimate (Eq. 9)."""
    stage_rule: Literal["mean_loss", "sum_loss", "iteration"] = "mean_loss"
    """The second stage begins, for good, when the "mean_loss" (text) or the "sum_loss" (listing, E4) of K
    mini-batches has fallen to `stage_threshold`, or with that "iteration" (the authors' programs, E32)."""
    stage_threshold: float | None = Field(None, ge=0, allow_inf_nan=False)
    """A loss, or the number of an update (from 1); None: there is no second stage (the paper gives no value, A3)."""
    stage_loss_window: int = Field(1, ge=1)
    """The loss is averaged over so many updates (A4)."""
    without: Literal["selection", "staleness", "non_iidness"] | None = None
    """``"selection"``: the estimate is applied, in one stage; "staleness": no weights by staleness, and a constant
    learning rate; "non_iidness": no momentum."""

    @model_validator(mode="after")
    def _window_is_of_losses(self) -> WKAFL:
        if self.stage_rule == "iteration" and self.stage_loss_window > 1:
            raise ValueError("stage_loss_window averages losses; with stage_rule = 'iteration' leave it at 1")
        return self

    async def updater(self, server: ServerHandle) -> None:
        uploads = await server.receive(self.num_aggregated)
        self._update_stage(server, uploads)
        staleness = torch.tensor([upload.staleness for upload in uploads], dtype=torch.float64)
        made = self.combine(stacked(uploads), staleness, server.state.get("momentum"), server.state["stage"])
        server.state["momentum"] = made.estimate if self.momentum_source == "estimated" else made.gradient
        descend(server, made.gradient, self.rate(float(staleness.min())), made.weights)

    def combine(self, gradients: Tensor, staleness: Tensor, momentum: Tensor | None, stage: int) -> Aggregation:
        """Return what becomes of the gradients ``[K, p]``: Eqs. 4 to 9."""
        alpha = 0.0 if self.without == "non_iidness" else self.momentum_alpha
        accumulated = formulas.accumulate_momentum(gradients, momentum, alpha)
        clipped = accumulated if self.clip_bound is None else formulas.clip(accumulated, self.clip_bound)
        weights = formulas.estimation_weights(staleness, 0.0 if self.without == "staleness" else DECAY)
        if self.without == "selection":
            mean = formulas.estimate(clipped, weights)
            return Aggregation(mean, mean, formulas.similarities(clipped, mean), weights)
        return formulas.aggregate(
            clipped, weights, sim_beta=self.sim_beta, sim_min=self.sim_min,
            stage2_clip_factor=self.stage2_clip_factor if stage == 2 else None,
            log_prior=None if self.selection_score == "similarity" else -DECAY * staleness,
        )  # fmt: skip

    def rate(self, min_staleness: float) -> float:
        """Return the learning rate where the freshest gradient has missed `min_staleness` updates, Eq. 10."""
        factor = 0.0 if self.without == "staleness" else self.lr_staleness_factor
        return formulas.learning_rate(self.lr, min_staleness, factor, self.staleness_offset)

    def _update_stage(self, server: ServerHandle, uploads: list[Upload]) -> None:
        """Set ``server.state["stage"]``; the update in which the second stage begins belongs to it."""
        state = server.state
        if state.setdefault("stage", 1) == 2 or self.stage_threshold is None:
            return
        if self.stage_rule == "iteration":
            begins = server.version + 1 >= self.stage_threshold
        else:
            loss = formulas.stage_loss([upload.loss for upload in uploads], self.stage_rule)
            state["losses"] = [*state.get("losses", ()), loss][-self.stage_loss_window :]
            begins = formulas.enters_stage2(state["losses"], self.stage_threshold)
        if begins:
            state["stage"], state["stage2_from"] = 2, server.version + 1
