"""FedASMU's system in time (Figure 1), and the paper's setting beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from fl_core.algorithms import FedASMU
from fl_core.datasets import load_dataset
from fl_core.experiments.study import Study
from fl_core.formulas.fedasmu import matched_lambda
from fl_core.runtime import Budget, LocalTraining, Simulation
from fl_core.tasks import Quadratic
from fl_core.world import Network, World
from fl_core.world.triggers import Timed
from fl_papers.fedasmu.columns import COLUMNS
from fl_papers.fedasmu.curves import target_of
from fl_papers.fedasmu.grid import BATCH, IN_FLIGHT, LR_DECAY, Maker, Options
from fl_papers.fedasmu.methods import BUFFER
from fl_papers.fedasmu.scales import SCALES

DEVICES, SECONDS, EPOCHS, SIZE = 5, 1400.0, 5, 10
INITIAL = {"pytorch": "PyTorch's", "glorot": "Glorot's"}
"""Whose rule initial values follow."""


def five_devices(study: Study) -> pd.DataFrame:
    """Return what five devices do under FedASMU, on quadratic losses: Figure 1 as a timetable.

    Three train at a time, and a transfer takes 12 s, so that it can be seen.

    Returns
    -------
    DataFrame
        ``device``, ``activity`` (``"download"``, ``"fresh model"``, ``"train"`` or ``"upload"``), ``start``, ``end``
        (seconds), ``version`` of the model that a download brings; and ``made`` and ``staleness`` of an upload (NaN
        if the run is over before).
    """
    rng = np.random.default_rng(0)
    task = Quadratic(np.ones((DEVICES, SIZE)), rng.normal(size=(DEVICES, SIZE)), np.zeros(SIZE))
    bits = 64 * SIZE / 12.0  # this task computes with 64-bit numbers
    world = World.named(
        "fedasmu",
        devices=DEVICES,
        network=Network(down_bits_per_second=bits, up_bits_per_second=bits),
        trigger=Timed(period_seconds=10.0, per_tick=1, concurrency=3),
    )
    training = LocalTraining(lr=0.05, epochs=EPOCHS)
    algorithm = FedASMU(slot="uniform", lambda_0=matched_lambda(30, 3))
    run = Simulation(task, world, algorithm, budget=Budget(seconds=SECONDS), training=training, seed=1, trace=True)
    history = run.run("sequential")
    updates, spans = history.updates, history.spans
    made = {
        (device, round(seconds, 6)): (version, staleness + 1)
        for seconds, device, version, staleness in zip(
            *(updates[name] for name in ("seconds", "device", "version", "staleness")), strict=True
        )
    }
    rows, seen = [], set[int]()
    for number, what, device, start, end, base in zip(
        *(spans[name] for name in ("task", "activity", "device", "start", "end", "base_version")), strict=True
    ):
        activity = "fresh model" if what == "download" and number in seen else what
        seen.add(number)
        version, staleness = (
            made.get((device, round(end, 6)), (np.nan, np.nan)) if what == "upload" else (np.nan,) * 2
        )
        rows.append(
            {"device": device, "activity": activity, "start": start, "end": end, "version": base, "made": version,
             "staleness": staleness}
        )  # fmt: skip
    frame = pd.DataFrame(rows)
    for place in frame.index[frame["activity"] == "fresh model"]:  # a span knows with what its task began
        frame.loc[place, "version"] = frame.loc[frame["end"] <= frame.loc[place, "start"], "made"].max()
    return frame


def paper_setting(
    profile: str, dataset: str = "fashion-mnist", seeds: Sequence[int] | None = None, **overrides: Any
) -> pd.DataFrame:
    """Return the paper's setting beside ours, one row per quantity, for the first column of the data set."""
    chosen = Options.of(**overrides)
    make, scale = Maker(profile, dataset, seeds, chosen), SCALES[profile]
    name = make.columns[0]
    column, spec = COLUMNS[name], make.entry("FedASMU", name, 0).spec
    data = load_dataset(spec.dataset)
    uploads, algorithm = make.uploads(name), spec.algorithm
    assert isinstance(algorithm, FedASMU)
    share = spec.partition.train_fraction
    measured = f"{scale.test_samples:,} of {len(data.test):,}" if scale.test_samples else f"all {len(data.test):,}"
    rates = ", ".join(f"{rate:g}" for rate in column.rates)

    def value(method: str, field: str) -> Any:
        return getattr(make.entry(method, name, 0).spec.algorithm, field)

    rows = [
        ("data", column.data, f"{data.name} ({data.kind})"),
        ("network; initial values", f"{column.model}; not stated", f"{spec.model}; {INITIAL[spec.initialisation]}"),
        ("devices; at work at a time", "100; at most 10 %", f"100; {100 // IN_FLIGHT}"),
        ("trigger", "10 devices every 10 s (tables); one every 5 s (text)",
         {"tables": "up to 10 every 10 s", "text": "one every 5 s"}[chosen.ticks]),
        ("slowest to fastest", "5 times", f"{chosen.ratio:g} times, 100 s to {100 * chosen.ratio:g} s a task"),
        ("transfer of a model", "not stated", f"{chosen.slower_network:g} s"),
        ("labels", "Dirichlet, concentration not stated", f"Dirichlet, {chosen.dirichlet:g}"),
        ("samples of a device", f"{column.samples} on average", f"{column.samples * share:.0f} on average"),
        ("rounds", "500 synchronous, 5,000 asynchronous", f"{uploads // 10:,} synchronous, {uploads:,} asynchronous"),
        ("local epochs E; batch", "not stated", f"{chosen.epochs}; {BATCH}"),
        ("local rate η_i", f"{column.lr:g}, decaying", f"{spec.training.lr:g}, times {LR_DECAY:g} after ten uploads"),
        ("rates of λ, σ, ι, γ, υ", rates, rates),
        ("λ, σ, ι; γ, υ at the start", "not stated",
         f"{algorithm.lambda_0:.4g}, {algorithm.sigma_0:g}, {algorithm.iota_0:g}; {algorithm.gamma_0:.4g}, "
         f"{algorithm.upsilon_0:g}"),
        ("staleness bound τ", "99", f"{chosen.staleness_bound}"),
        ("rate of the meta-model", "0.001", f"{algorithm.lr_rl:g}"),
        ("FedProx μ; MOON μ, temperature; FedDyn α", "tuned, not stated", "0.01; 1, 0.5; 0.01"),
        ("FedAsync", "polynomial, values not stated", "α = 0.6, exponent 0.5"),
        ("FedBuff; PORT", "not stated", f"buffers of {BUFFER}; at least {BUFFER} uploads, bound 10"),
        ("ASO-Fed", "tuned, not stated",
         f"pull {value('ASO-Fed', 'rho'):g}, memory {value('ASO-Fed', 'beta'):g}, without feature learning"),
        ("FedSA", "tuned, not stated",
         f"α = {value('FedSA', 'alpha_initial'):g} for the first {value('FedSA', 'initial_versions'):,} uploads, "
         f"then {value('FedSA', 'alpha_convergence'):g}; exponent {value('FedSA', 'a'):g}"),
        ("FedDelay; SyncDrop; AsyncPart", "not stated",
         f"server step {value('FedDelay', 'global_lr'):g}, less beyond staleness {value('FedDelay', 'concurrency')}; "
         f"α = {value('SyncDrop', 'alpha'):g}, {value('SyncDrop', 'keep'):.0%} of hidden units; "
         f"α = {value('AsyncPart', 'alpha'):g}, exponent 0.5"),
        ("measured", "not stated", f"after every ten uploads, on {measured} test samples"),
        ("repetitions", "not stated", f"{len(make.seeds)}"),
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["setting", "the paper", f"here, profile {profile}"])


def column_settings(profile: str) -> pd.DataFrame:
    """Return what a profile makes of every column of Tables 1 and 2; where the paper has another value, that too.

    Tables 5 and 6 print the step sizes; sizes of networks are those of the specification, as the paper describes one.
    """
    rows = []
    for name, column in COLUMNS.items():
        make = Maker(profile, column.dataset, None, Options(columns=(name,)))
        spec = make.entry("FedASMU", name, 0).spec
        side, whole_side = make.side(name), column.shape[-1] if len(column.shape) == 3 else None
        rows.append(
            {"column": f"{column.model}, {column.data}",
             "parameters": _beside(make.parameters(name), column.parameters),
             "side of an image": "–" if whole_side is None else _beside(side or whole_side, whole_side),
             "samples of a device": _beside(round(column.samples * spec.partition.train_fraction), column.samples),
             "uploads": _beside(make.uploads(name), SCALES["paper"].uploads),
             "η_i": _beside(spec.training.lr, column.lr), "target": _beside(target_of(profile, name), column.target),
             "initial values": INITIAL[spec.initialisation], "seeds": len(make.seeds)}
        )  # fmt: skip
    return pd.DataFrame(rows)


def _beside(here: float, paper: float) -> str:
    return f"{here:,}" if here == paper else f"{here:,} (paper {paper:,})"
