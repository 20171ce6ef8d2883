"""FedAsync (Xie, Koyejo & Gupta, 2019): its figures and tables, and what the book adds.

Figures 2 to 7 show convergence by gradients, global epochs and communications, and are views of the same runs;
Figures 8 to 10 show where runs end, over the maximum staleness and over alpha.
"""

from __future__ import annotations

from functools import partial
from itertools import product

from fl_core.experiments import rounding
from fl_core.experiments.artifacts import Columns, Curves, Panel, Paper
from fl_papers.fedasync import figures
from fl_papers.fedasync.experiment import AXES, FIGURES
from fl_papers.fedasync.experiment import FedAsyncExperiment as Runs

PAPER = Paper("fedasync", "Xie, Koyejo and Gupta (2019)", Runs.shown(Runs.setting))
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
    2: "C01 C02 C03 C07 C16 C17 C23", 3: "C03 C04 C05 C06 C16 C17 C23", 4: "C07 C08", 5: "C08", 6: "C02 C07 C22",
    7: "C04 C22",
}  # fmt: skip
ENDS, NARROW = "Each point is the end of runs with one α.", "Mind the narrow range of the ordinate."

replicated, no_runs = PAPER.artifact, Runs.made()
derived = partial(
    PAPER.artifact, where="", description="Computed exactly, without training.", make_grid=no_runs,
    chapter="derivation", paper_setting=None,
)  # fmt: skip

ARTIFACTS = [
    replicated("fig1", "Figure 1", "the system, and three workers in time",
               "Scheduler and updater work at the same time; a worker's model waits for nobody.",
               figures.three_workers, figures.system),
    replicated("tab1", "Table 1", "notation",
               "The paper's symbols, with the ones that it uses and does not list, and their names in code.",
               figures.notation, Columns(wrap={"meaning": 16, "in a run": 10})),
    replicated("tab2", "Table 2", "the convolutional network",
               "What is printed, and what is built and counted here, layer by layer.", figures.network_table,
               Columns({"paper": "the paper", "built": "built here", "multiply_adds": "multiply-adds per image",
                        "statistics": "running statistics"})),
    *(
        replicated(f"fig{number}", f"Figure {number}",
                   f"accuracy and training loss by {axis}, {('small', 'large')[which]} staleness", LOOK[axis],
                   partial(figures.curves, axis=axis, which=which), Curves(LABELS[axis], PANELS), FIGURES[number],
                   CURVE_CLAIMS[number])
        for number, (axis, which) in enumerate(product(AXES, (0, 1)), start=2)
    ),
    *(
        replicated(f"fig{number}", f"Figure {number}", f"final accuracy and training loss over {over}", look,
                   partial(figures.sweep, role=role, column=column, which=which),
                   Curves(label, (ACCURACY, LOSS), points=True), Runs.made(grid), tested)
        for number, over, role, column, label, grid, which, look, tested in (
            (8, "the maximum staleness", "staleness sweep", "max_staleness", "maximum staleness K",
             Runs.staleness_sweep, None,
             "Each point is the end of runs at one maximum staleness; K = 1 means always fresh.", "C11 C12 C18"),
            (9, "α, small staleness", "alpha sweep", "alpha", "mixing weight α",
             partial(Runs.alpha_sweep, which=0), 0,
             f"{ENDS} With b = 4 the hinge cannot bend where K = 4: its curve lies on plain FedAsync's. {NARROW}",
             "C13 C14"),
            (10, "α, large staleness", "alpha sweep", "alpha", "mixing weight α",
             partial(Runs.alpha_sweep, which=1), 1, f"{ENDS} {NARROW}", "C13 C15 C18"),
        )
    ),
    derived("x1", title="staleness functions", reduce=figures.reduce_staleness_functions, claims="E10",
            view=Curves("staleness u (missed updates)", (Panel("weight", "weight s(u)"),), points=True)),
    derived("x2", title="the error of toy Q against the printed and the derived bound", reduce=figures.reduce_bounds,
            view=Curves("updates t", (Panel("error", "expected error, log scale", log=True),)),
            claims="C26 C26c"),
    derived("x3", title="mixing models is stable at every age, adding updates is not",
            reduce=figures.reduce_stability,
            view=Curves("age K of every upload", (Panel("root", "largest root |λ|: the error grows above 1"),)),
            claims="C29"),
    derived("x4", title="the error that remains, against α", reduce=figures.reduce_remaining_error,
            view=Curves("mixing weight α", (Panel("error", "error that remains, log scale", log=True),)),
            claims="C28 C28c"),
    replicated("x5", "", "accuracy and training loss by virtual time, one slow device of a hundred",
               "With a clock: FedAvg waits for the slow device whenever it is chosen, FedAsync never does.",
               figures.time_curves, Curves("virtual time (s)", PANELS), Runs.made(Runs.clocked), "C21 C30",
               paper_setting=Runs.shown(Runs.clocked_setting)),
    replicated("x6", "", "how far a rounding error takes FedAsync",
               "The same run from an initial model changed in its last bits.", rounding.parting, rounding.VIEW,
               Runs.made(Runs.luck), over_seeds="mean over"),
    replicated("x7", "", "FedAsync's learning rate searched as SGD's is",
               "The training loss per gradient over that of SGD, by FedAsync's learning rate.", figures.over_rates,
               Curves("learning rate", (Panel("ratio", "mean training loss over SGD's"),), points=True),
               Runs.made(Runs.own_rates)),
]  # fmt: skip
