"""FedAsync (Xie, Koyejo & Gupta, 2019), Figures 2 to 10.

Figures 2 to 7 show convergence by gradients, global epochs and communications, and are views of the same runs;
Figures 8 to 10 show where runs end, over the maximum staleness and over alpha. The runs are those of
:mod:`fl_papers.fedasync.grid`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pandas as pd

from fl_core.datasets import load_dataset
from fl_core.experiments.artifacts import Artifact, Columns, Curves, Panel, register
from fl_core.experiments.profiles import CONVERGENCE
from fl_core.experiments.study import Entry, Study
from fl_papers.fedasync import claims as claims
from fl_papers.fedasync import figures
from fl_papers.fedasync import systems as systems
from fl_papers.fedasync import tables as tables
from fl_papers.fedasync import theory as theory
from fl_papers.fedasync.curves import AXES, curves, sweep
from fl_papers.fedasync.grid import (
    ADAPTIVE,
    BATCH,
    DEVICES,
    LOCAL_LR,
    ROUND,
    SAMPLES,
    STEPS,
    WEIGHT_DECAY,
    Options,
    alpha_sweep,
    convergence,
    learning_rates,
    network,
    staleness_sweep,
)


def paper_setting(
    profile: str, dataset: str = "fashion-mnist", seeds: Sequence[int] | None = None, **overrides: Any
) -> pd.DataFrame:
    """Return the paper's setting beside ours, one row per quantity; "not stated" is the paper's silence."""
    chosen, scale = Options.of(**overrides), CONVERGENCE[profile]
    data = load_dataset(dataset)
    model, preprocessing = network(dataset, profile)
    pixels = (24, 24) if preprocessing == "fedasync" else data.shape[1:]
    shape = "×".join(map(str, (*pixels, data.shape[0]))) + (", cropped" if pixels != data.shape[1:] else "")
    small, large = chosen.max_staleness
    lrs = ", ".join(f"{lr:g}" for lr in learning_rates(profile, dataset, chosen))
    alphas = ", ".join(f"{alpha:g}" for alpha in chosen.alphas or scale.alphas)
    swept = ", ".join(map(str, chosen.sweep_staleness or scale.sweep_staleness))
    weights = ", ".join(f"{alpha:g}" for alpha in chosen.sweep_alphas or scale.sweep_alphas)
    rows = [
        ("data", "CIFAR-10, cropped to 24×24×3", f"{data.name} ({data.kind}), {shape}"),
        ("training / test images", "50,000 / 10,000", f"{DEVICES * SAMPLES:,} / {len(data.test):,}"),
        ("devices × images", "100 × 500", f"{DEVICES} × {SAMPLES}, independent and identically distributed"),
        ("network", "4 convolutions, 2 dense layers; 2.6 million parameters", model),
        ("mini-batch; local work", "50; one pass = 10 gradients", f"{BATCH}; one pass = {STEPS} gradients"),
        ("global epochs T", "2000", f"{scale.updates}"),
        ("mixing weight α", "several, not stated", alphas),
        ("decay of α", "halved at epoch 800 = 0.4 T", f"halved after epoch {scale.decay_epoch}"),
        ("maximum staleness K", "4 and 16, uniform", f"{small} and {large}, uniform over the last K versions"),
        ("FedAsync+Poly", "a = 0.5", f"a = {chosen.poly_a:g}"),
        ("FedAsync+Hinge", "a = 10, b = 4", f"a = {chosen.hinge_a:g}, b = {chosen.hinge_b:g}"),
        ("Figure 8: K; α", "grid not stated; not stated", f"{swept}; {chosen.sweep_alpha:g}"),
        (
            "Figures 9, 10: α; hinge",
            "grid not stated; a = 4, b = 4",
            f"{weights}; a = {chosen.sweep_hinge_a:g}, b = {chosen.hinge_b:g}",
        ),
        ("local learning rate", "not stated (authors' code: 0.1)", f"{LOCAL_LR:g}"),
        ("proximal weight ρ", "not stated (authors' code: 0.1)", f"{chosen.rho:g}"),
        ("weight decay", "not stated (authors' code: 0.0001)", f"{WEIGHT_DECAY:g}, all methods"),
        ("initial model", "not stated (authors' code: 5 passes, one device)", "5 passes over device 0, rate 0.01"),
        ("FedAvg", f"k = {ROUND}; learning rate by grid search", f"k = {ROUND}; rate from {lrs}"),
        ("SGD", "learning rate by grid search", f"rate from {lrs}; mini-batch {BATCH}"),
        ("choice of those rates", "best test accuracy", "best mean final test accuracy"),
        ("training loss", "whole training set", f"first {scale.train_samples:,} training images"),
        ("evaluation", "every 10 epochs (authors' code)", f"every {scale.eval_every} epochs"),
        ("repetitions", "10", f"{len(scale.seeds if seeds is None else seeds)}"),
    ]
    return pd.DataFrame(rows, columns=["setting", "the paper", f"here, profile {profile}"])


def _reduce(axis: str, which: int, study: Study) -> pd.DataFrame:
    staleness = claims.staleness(study, which)
    methods = ("SGD", "FedAvg", *ADAPTIVE) if axis == "gradients" else ("FedAvg", *ADAPTIVE)
    return curves(study, axis, staleness, methods)


def _reduce_sweep(role: str, column: str, which: int | None, study: Study) -> pd.DataFrame:
    labels = {} if which is None else {"max_staleness": claims.staleness(study, which)}
    return sweep(study, role, column, **labels)


_PAPER, _CHAPTER = "Xie, Koyejo and Gupta (2019)", "notebooks/fl_papers/fedasync/replication.ipynb"

register(
    Artifact(
        id="fedasync-fig1",
        title="the system, and three workers in time",
        reference=f"Figure 1 of {_PAPER}",
        description="Scheduler and updater work at the same time; a worker's model waits for nobody.",
        notebook=_CHAPTER,
        reduce=tables.three_workers,
        view=figures.system,
    )
)
register(
    Artifact(
        id="fedasync-tab1",
        title="notation",
        reference=f"Table 1 of {_PAPER}",
        description="The paper's symbols, with the ones that it uses and does not list, and their names in code.",
        notebook=_CHAPTER,
        reduce=tables.notation,
        view=Columns(wrap={"meaning": 16, "in a run": 10}),
    )
)
register(
    Artifact(
        id="fedasync-tab2",
        title="the convolutional network",
        reference=f"Table 2 of {_PAPER}",
        description="What is printed, and what is built and counted here, layer by layer.",
        notebook=_CHAPTER,
        reduce=tables.network_table,
        view=Columns(
            {"paper": "the paper", "built": "built here", "multiply_adds": "multiply-adds per image",
             "statistics": "running statistics"},
        ),
    )
)  # fmt: skip

_PANELS = (
    Panel("test_accuracy", "(a) top-1 test accuracy"),
    Panel("train_loss", "(b) training loss, log scale", log=True),
)
_X_LABELS = {
    "gradients": "gradients applied to the global model",
    "epochs": "global epochs",
    "communications": "communications (models sent and received by the server)",
}
_CLAIMS = {
    2: ("C01", "C02", "C07", "C16", "C17", "C23"),
    3: ("C03", "C04", "C05", "C06", "C16", "C17", "C23"),
    4: ("C07", "C08"),
    5: ("C08",),
    6: ("C07", "C09", "C22"),
    7: ("C10", "C22"),
}
_LOOK = {
    "gradients": "A gradient is one mini-batch; SGD is the reference that no federated method should beat.",
    "epochs": "A global epoch is one new global model, however much work it took: FedAvg's costs ten times more.",
    "communications": "Each global epoch of FedAsync moves 2 models, each round of FedAvg 20.",
}

for _number, (_axis, _which) in enumerate(((a, w) for a in AXES for w in (0, 1)), start=2):
    register(
        Artifact(
            id=f"fedasync-fig{_number}",
            title=f"accuracy and training loss by {_axis}, {('small', 'large')[_which]} staleness",
            reference=f"Figure {_number} of {_PAPER}",
            description=_LOOK[_axis],
            notebook=_CHAPTER,
            make_grid=partial(convergence, _axis, _which),
            reduce=partial(_reduce, _axis, _which),
            view=Curves(_X_LABELS[_axis], _PANELS),
            paper_setting=paper_setting,
            claims=tuple(f"FEDASYNC-{claim}" for claim in _CLAIMS[_number]),
        )
    )

_HINGE = "With b = 4 the hinge cannot bend where K = 4: its curve lies on plain FedAsync's."
_SWEEPS: tuple[tuple[str, str, str, str, Callable[..., list[Entry]], str, tuple[str, ...]], ...] = (
    (
        "the maximum staleness",
        "staleness sweep",
        "max_staleness",
        "maximum staleness K",
        staleness_sweep,
        "Each point is the end of runs at one maximum staleness; K = 1 means always fresh.",
        ("C11", "C12", "C18"),
    ),
    (
        "α, small staleness",
        "alpha sweep",
        "alpha",
        "mixing weight α",
        partial(alpha_sweep, 0),
        f"Each point is the end of runs with one α. {_HINGE} Mind the narrow range of the ordinate.",
        ("C13", "C14"),
    ),
    (
        "α, large staleness",
        "alpha sweep",
        "alpha",
        "mixing weight α",
        partial(alpha_sweep, 1),
        "Each point is the end of runs with one α. Mind the narrow range of the ordinate.",
        ("C13", "C15", "C18"),
    ),
)

for _number, (_over, _role, _column, _label, _make, _text, _tested) in enumerate(_SWEEPS, start=8):
    register(
        Artifact(
            id=f"fedasync-fig{_number}",
            title=f"final accuracy and training loss over {_over}",
            reference=f"Figure {_number} of {_PAPER}",
            description=_text,
            notebook=_CHAPTER,
            make_grid=_make,
            reduce=partial(_reduce_sweep, _role, _column, None if _number == 8 else _number - 9),
            view=Curves(_label, (_PANELS[0], Panel("train_loss", "(b) training loss")), points=True),
            paper_setting=paper_setting,
            claims=tuple(f"FEDASYNC-{claim}" for claim in _tested),
        )
    )

_EXTRA: tuple[tuple[str, Callable[[Study], pd.DataFrame], Curves, tuple[str, ...]], ...] = (
    (
        "staleness functions",
        theory.reduce_staleness_functions,
        Curves("staleness u (missed updates)", (Panel("weight", "weight s(u)"),), points=True),
        (),
    ),
    (
        "the error of toy Q against the printed and the derived bound",
        theory.reduce_bounds,
        Curves("updates t", (Panel("error", "expected error, log scale", log=True),)),
        ("C26", "C27"),
    ),
    (
        "mixing models is stable at every age, adding updates is not",
        theory.reduce_stability,
        Curves("age K of every upload", (Panel("root", "largest root |λ|: the error grows above 1"),)),
        ("C29",),
    ),
    (
        "the error that remains, against α",
        theory.reduce_remaining_error,
        Curves("mixing weight α", (Panel("error", "error that remains, log scale", log=True),)),
        ("C28",),
    ),
)

for _number, (_title, _reduced, _view, _tested) in enumerate(_EXTRA, start=1):
    register(
        Artifact(
            id=f"fedasync-x{_number}",
            title=_title,
            reference="Beyond the paper",
            description="Computed exactly, without training.",
            notebook="notebooks/fl_papers/fedasync/derivation.ipynb",
            make_grid=theory.no_runs,
            reduce=_reduced,
            view=_view,
            claims=tuple(f"FEDASYNC-{claim}" for claim in _tested),
        )
    )

register(
    Artifact(
        id="fedasync-x5",
        title="accuracy and training loss by virtual time, one slow device of a hundred",
        reference="Beyond the paper",
        description="With a clock: FedAvg waits for the slow device whenever it is chosen, FedAsync never does.",
        notebook=_CHAPTER,
        make_grid=systems.event_grid,
        reduce=systems.time_curves,
        view=Curves("virtual time (s)", _PANELS),
        paper_setting=systems.event_setting,
        claims=("FEDASYNC-C21",),
    )
)
