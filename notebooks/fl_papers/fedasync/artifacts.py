"""FedAsync (Xie, Koyejo & Gupta, 2019): its figures and tables, and what the book adds.

Figures 2 to 7 show convergence by gradients, global epochs and communications, and are views of the same runs;
Figures 8 to 10 show where runs end, over the maximum staleness and over alpha.
"""

from __future__ import annotations

from functools import partial

from fl_core.experiments import rounding
from fl_core.experiments.artifacts import Artifact, Columns, Curves, Panel
from fl_papers.fedasync import figures
from fl_papers.fedasync.experiment import AXES, FIGURES, FedAsyncExperiment

PAPER, FOLDER = "Xie, Koyejo and Gupta (2019)", "notebooks/fl_papers/fedasync"
ACCURACY, LOSS = Panel("test_accuracy", "(a) top-1 test accuracy"), Panel("train_loss", "(b) training loss")
PANELS = (ACCURACY, Panel("train_loss", "(b) training loss, log scale", log=True))
LABELS = {
    "gradients": "gradients applied to the global model",
    "epochs": "global epochs",
    "communications": "communications (models sent and received by the server)",
}
LOOK = {
    "gradients": "A gradient is one mini-batch; SGD is the reference that no federated method should beat.",
    "epochs": "A global epoch is one new global model, however much work it took: FedAvg's costs ten times more.",
    "communications": "Each global epoch of FedAsync moves 2 models, each round of FedAvg 20.",
}
CURVE_CLAIMS = {
    2: "C01 C02 C03 C07 C16 C17 C23",
    3: "C03 C04 C05 C06 C16 C17 C23",
    4: "C07 C08",
    5: "C08",
    6: "C02 C07 C22",
    7: "C04 C22",
}
ENDS = "Each point is the end of runs with one α."
NARROW = "Mind the narrow range of the ordinate."

no_runs = FedAsyncExperiment.made()
replicated = partial(Artifact, notebook=f"{FOLDER}/replication.ipynb")
derived = partial(
    Artifact,
    reference="Beyond the paper",
    description="Computed exactly, without training.",
    notebook=f"{FOLDER}/derivation.ipynb",
    make_grid=no_runs,
)
setting = FedAsyncExperiment.shown(FedAsyncExperiment.setting)


def claims(numbers: str) -> tuple[str, ...]:
    """Return the ids of claims, ``"C01 C02"`` being the first two."""
    return tuple(f"FEDASYNC-{number}" for number in numbers.split())


ARTIFACTS = [
    replicated(
        id="fedasync-fig1",
        title="the system, and three workers in time",
        reference=f"Figure 1 of {PAPER}",
        description="Scheduler and updater work at the same time; a worker's model waits for nobody.",
        reduce=figures.three_workers,
        view=figures.system,
    ),
    replicated(
        id="fedasync-tab1",
        title="notation",
        reference=f"Table 1 of {PAPER}",
        description="The paper's symbols, with the ones that it uses and does not list, and their names in code.",
        reduce=figures.notation,
        view=Columns(wrap={"meaning": 16, "in a run": 10}),
    ),
    replicated(
        id="fedasync-tab2",
        title="the convolutional network",
        reference=f"Table 2 of {PAPER}",
        description="What is printed, and what is built and counted here, layer by layer.",
        reduce=figures.network_table,
        view=Columns(
            {
                "paper": "the paper",
                "built": "built here",
                "multiply_adds": "multiply-adds per image",
                "statistics": "running statistics",
            }
        ),
    ),
    *(
        replicated(
            id=f"fedasync-fig{number}",
            title=f"accuracy and training loss by {axis}, {('small', 'large')[which]} staleness",
            reference=f"Figure {number} of {PAPER}",
            description=LOOK[axis],
            make_grid=FIGURES[number],
            reduce=partial(figures.curves, axis=axis, which=which),
            view=Curves(LABELS[axis], PANELS),
            paper_setting=setting,
            claims=claims(CURVE_CLAIMS[number]),
        )
        for number, (axis, which) in enumerate(((axis, which) for axis in AXES for which in (0, 1)), start=2)
    ),
    *(
        replicated(
            id=f"fedasync-fig{number}",
            title=f"final accuracy and training loss over {over}",
            reference=f"Figure {number} of {PAPER}",
            description=look,
            make_grid=FedAsyncExperiment.made(grid),
            reduce=partial(figures.sweep, role=role, column=column, which=which),
            view=Curves(label, (ACCURACY, LOSS), points=True),
            paper_setting=setting,
            claims=claims(tested),
        )
        for number, over, role, column, label, grid, which, look, tested in (
            (8, "the maximum staleness", "staleness sweep", "max_staleness", "maximum staleness K",
             FedAsyncExperiment.staleness_sweep, None,
             "Each point is the end of runs at one maximum staleness; K = 1 means always fresh.", "C11 C12 C18"),
            (9, "α, small staleness", "alpha sweep", "alpha", "mixing weight α",
             partial(FedAsyncExperiment.alpha_sweep, which=0), 0,
             f"{ENDS} With b = 4 the hinge cannot bend where K = 4: its curve lies on plain FedAsync's. {NARROW}",
             "C13 C14"),
            (10, "α, large staleness", "alpha sweep", "alpha", "mixing weight α",
             partial(FedAsyncExperiment.alpha_sweep, which=1), 1, f"{ENDS} {NARROW}", "C13 C15 C18"),
        )
    ),
    derived(
        id="fedasync-x1",
        title="staleness functions",
        reduce=figures.reduce_staleness_functions,
        view=Curves("staleness u (missed updates)", (Panel("weight", "weight s(u)"),), points=True),
    ),
    derived(
        id="fedasync-x2",
        title="the error of toy Q against the printed and the derived bound",
        reduce=figures.reduce_bounds,
        view=Curves("updates t", (Panel("error", "expected error, log scale", log=True),)),
        claims=claims("C26 C26c C27 C27c E10 E21"),
    ),
    derived(
        id="fedasync-x3",
        title="mixing models is stable at every age, adding updates is not",
        reduce=figures.reduce_stability,
        view=Curves("age K of every upload", (Panel("root", "largest root |λ|: the error grows above 1"),)),
        claims=claims("C29"),
    ),
    derived(
        id="fedasync-x4",
        title="the error that remains, against α",
        reduce=figures.reduce_remaining_error,
        view=Curves("mixing weight α", (Panel("error", "error that remains, log scale", log=True),)),
        claims=claims("C28 C28c"),
    ),
    replicated(
        id="fedasync-x5",
        title="accuracy and training loss by virtual time, one slow device of a hundred",
        reference="Beyond the paper",
        description="With a clock: FedAvg waits for the slow device whenever it is chosen, FedAsync never does.",
        make_grid=FedAsyncExperiment.made(FedAsyncExperiment.clocked),
        reduce=figures.time_curves,
        view=Curves("virtual time (s)", PANELS),
        paper_setting=FedAsyncExperiment.shown(FedAsyncExperiment.clocked_setting),
        claims=claims("C21 C30"),
    ),
    replicated(
        id="fedasync-x6",
        title="how far a rounding error takes FedAsync",
        reference="Beyond the paper",
        description="The same run from an initial model changed in its last bits.",
        make_grid=FedAsyncExperiment.made(FedAsyncExperiment.luck),
        reduce=rounding.parting,
        view=rounding.VIEW,
        paper_setting=setting,
        over_seeds="mean over",
    ),
]  # fmt: skip
