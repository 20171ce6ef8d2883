"""SD-FEEL's tables that are no results: the algorithm as the program words it, and the paper's setting and ours."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import pandas as pd

from fl_core.algorithms import AsyncSDFeel
from fl_core.datasets.registry import actual, kind_of, sizes
from fl_core.experiments.profiles import CLUSTERS
from fl_core.experiments.study import Study
from fl_core.formulas import sdfeel
from fl_papers.sdfeel.clock import RESNET18
from fl_papers.sdfeel.grid import (
    BATCH,
    LONG_GAP,
    LONG_ROUNDS,
    NON_IID,
    PAPER_BATCHES,
    PAPER_LR,
    Options,
    figure2,
    parameters_of,
)
from fl_papers.sdfeel.printed import printed

STEPS = (
    ("device", "", AsyncSDFeel.device),
    ("", "(2)", sdfeel.normalized_update),
    ("server", "", AsyncSDFeel.updater),
    ("", "(3)", sdfeel.intra_cluster_aggregate),
    ("", "(5)", sdfeel.gossip_weights),
    ("", "(4), trigger", sdfeel.gossip_average),
    ("", "(4), neighbour", sdfeel.gossip_towards),
    ("scheduler", "(6)", AsyncSDFeel.scheduler),
    ("clock", "section II", sdfeel.plan_cluster),
)
"""Who does it, the paper's equation, and the function that does it."""


def listing(study: Study) -> pd.DataFrame:
    """Return Algorithm 1 as the first sentences of the functions that carry it out."""
    rows = []
    for who, equation, function in STEPS:
        words = (inspect.getdoc(function) or "").partition("\n\n")[0].replace("\n", " ").replace("`", "")
        rows.append((who or None, equation or None, words, function.__qualname__))
    return pd.DataFrame(rows, columns=["who", "equation", "what", "function"])


def setup(study: Study) -> pd.DataFrame:
    """Return the paper's setting beside that of the study's profile."""
    return paper_setting(study.profile, study.dataset, study.seeds or None)


def paper_setting(
    profile: str, dataset: str = "fashion-mnist", seeds: Sequence[int] | None = None, **overrides: object
) -> pd.DataFrame:
    """Return the paper's setting beside ours, one row per quantity; what the paper does not say is marked."""
    chosen, scale = Options.of(**overrides), CLUSTERS[profile]
    entries = figure2(profile, dataset, seeds, **overrides)
    spec = entries[0].spec
    algorithm, clusters, measured = spec.algorithm, spec.world.clusters, spec.evaluation
    assert isinstance(algorithm, AsyncSDFeel)
    assert clusters is not None
    steps, part = algorithm.min_batches, algorithm.min_batches / PAPER_BATCHES
    horizon = spec.budget.seconds or 0.0
    rounds = chosen.rounds or scale.rounds
    long_rounds = LONG_ROUNDS * rounds / CLUSTERS["paper"].rounds
    gaps = ", ".join(f"{gap:g}" for gap in chosen.gaps)
    shorter = "the paper's" if part == 1 else f"{part:g} times the paper's"
    rows = [
        ("data", "CIFAR-10", f"{actual(dataset)} ({kind_of(dataset)})"),
        ("network", f"ResNet-18, {RESNET18:,} parameters",
         f"{spec.model}, {parameters_of(spec.model, dataset):,} parameters"),
        ("devices; clusters; graph", f"{_p('num_clients')}; {_p('num_clusters')}; {_p('topology')}",
         f"{spec.world.devices}; {clusters.servers}; {clusters.graph.kind}"),
        ("heterogeneity gap H", "5, 10, 30", gaps),
        ("speeds", "not stated how they are drawn", "uniform, rescaled to exactly H, mean 1 GFLOPS"),
        ("labels", f"Dirichlet, concentration {_p('dirichlet_concentration')}",
         f"Dirichlet, concentration {chosen.alpha:g}; with fewer classes {NON_IID:g}"),
        ("batch; rate", f"{_p('batch_size')}; {_p('learning_rate')}, constant",
         f"{BATCH}; {spec.training.lr:g}, constant"),
        ("momentum, augmentation", "not stated", "none"),
        ("local steps of the slowest device", _p("min_minibatches_per_client"), f"{steps}"),
        ("a local step at mean speed", "55.67 s (E-19)", "55.67 s"),
        ("upload; server to server", "71.5 s; 35.8 s", f"{shorter}, whatever the network's size (D12)"),
        ("staleness discount ψ", "1/(2(δ+1))", "1/(δ+1): the 1/2 cancels (E-04)"),
        ("weights of (5)", "as printed do not add up to one (E-01)", "corrected"),
        ("Sync.: local steps, exchanges", "not stated", f"{steps}, 1, matrix 'laplacian_safe' (2.5)"),
        ("horizon", "not stated", f"{horizon:,.0f} s, {rounds:g} synchronous rounds at H = 10"),
        ("long runs", "–", f"linear model, H = {LONG_GAP:g}, {long_rounds:g} synchronous rounds"),
        ("measured", "not stated", f"{scale.points} times; on {measured.train_samples:,} training images and "
         f"{measured.test_samples or sizes(dataset)[1]:,} test images"),
        ("repetitions", "not stated", f"{len({entry.labels['seed'] for entry in entries})}"),
    ]  # fmt: skip
    if chosen.lr is None and part != 1:
        rows[6] = (*rows[6][:2], f"{BATCH}; {PAPER_LR:g}/{part:g} = {spec.training.lr:g}, constant")
    return pd.DataFrame(rows, columns=["setting", "the paper", f"here, profile {profile}"])


def differences(first: Study, second: Study) -> pd.DataFrame:
    """Return the rows of :func:`paper_setting` in which two studies differ, with a column for each."""
    one, other = (paper_setting(s.profile, s.dataset, s.seeds or None, **s.options) for s in (first, second))
    here, there = one.iloc[:, 2], other.iloc[:, 2]
    found = one.iloc[:, :2].assign(**{first.dataset: here, second.dataset: there})
    return found[here != there].reset_index(drop=True)


def _p(quantity: str) -> str:
    """Return what the paper prints of its setting."""
    rows = printed()
    return str(rows.loc[(rows["table"] == "setup") & (rows["quantity"] == quantity), "value"].iloc[0])
