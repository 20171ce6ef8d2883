"""WKAFL's claims about runs, with the specification's tests (section 8), for true and for aliased staleness.

``WKAFL-C07`` is judged on the runs with true staleness, ``WKAFL-C07-aliased`` on those whose devices share the
server's memory, as in the authors' programs (E30). The runs are those of :mod:`fl_papers.wkafl.grid`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fl_core.experiments.claims import Check, Comparison, add_claim
from fl_core.experiments.study import Study
from fl_papers.wkafl import judges as judges
from fl_papers.wkafl.judges import Judge, both, each_skew, on_levels
from fl_papers.wkafl.measures import early, final, unrest
from fl_papers.wkafl.setups import ABLATIONS, METHODS


def _in_mode(judge: Judge, snapshot: str) -> Callable[[Study], Sequence[Comparison | Check]]:
    def judged(study: Study) -> Sequence[Comparison | Check]:
        return judge(study, snapshot)

    return judged


def _add(number: str, source: str, statement: str, test: str, judge: Judge, modes: bool = True) -> None:
    for suffix, snapshot in (("", "copy"), ("-aliased", "aliased")) if modes else (("", "copy"),):
        told = statement if not suffix else f"{statement} (devices share the server's memory)"
        add_claim("WKAFL", f"{number}{suffix}", source, told, test, _in_mode(judge, snapshot))


_add("C01", "Fig. 2 a", "Exponential weights leave few dominating gradients: at most five in almost all updates.",
     "share of updates with at most 5 weights above 0.1 ≥ 0.95", judges.few_dominate, modes=False)  # fmt: skip
_add("C03", "Fig. 5", "WKAFL ends highest and starts fastest among its ablations.",
     "final and early accuracy(WKAFL) > those of each ablation",
     both(on_levels(final, "WKAFL", tuple(ABLATIONS), True),
           on_levels(early, "WKAFL", tuple(ABLATIONS), True)))  # fmt: skip
_add("C04", "Fig. 5", "Selecting gradients makes training smoother and faster.",
     "stability(WKAFL) < stability(No Grad-Sel), fewer versions to 90 % of the worse final accuracy",
     both(on_levels(unrest, "WKAFL", ("No Grad-Sel",), False),
           judges.selection_is_faster))  # fmt: skip
_add("C05", "Fig. 5", "Removing what is done against staleness hurts most.",
     "final accuracy(No Staleness) < that of the three others",
     on_levels(final, "No Staleness", ("WKAFL", "No Grad-Sel", "No Non-IIDness"), False))  # fmt: skip
_add("C06", "Fig. 6", "With one writer or celebrity per device WKAFL starts faster and ends higher than the others.",
     "early and final accuracy(WKAFL) > those of TWAFL, SASGD, GSGM",
     both(each_skew(early, METHODS[1:], True), each_skew(final, METHODS[1:], True)))  # fmt: skip
_add("C07", "Table 2", "WKAFL is better than TWAFL, and TWAFL than SASGD, at every level of staleness.",
     "final accuracy(WKAFL) > TWAFL > SASGD, each level", judges.ordered)  # fmt: skip
_add("C08", "Table 2", "WKAFL loses least by staleness, SASGD most.",
     "drop from lowest to highest level: WKAFL < TWAFL < SASGD", judges.robust_to_staleness)  # fmt: skip
_add("C09", "Figs 7, 8", "WKAFL trains fastest at every level, most visibly at the highest.",
     "versions to 90 % of the worst final accuracy: fewest with WKAFL; least against the next at the highest level",
     judges.fastest)  # fmt: skip
_add("C10", "Table 2", "At the highest level WKAFL is far ahead of SASGD.",
     "gap > 0.05 and larger than at the other levels", judges.large_gap)  # fmt: skip
_add("C11", "Table 3", "WKAFL has the highest accuracy whatever the label skew.",
     "final accuracy(WKAFL) > each baseline, each number of labels",
     each_skew(final, METHODS[1:], True))  # fmt: skip
_add("C12", "Table 3", "WKAFL's advantage is larger for stronger heterogeneity.",
     "gap to TWAFL: fewest labels > most labels", judges.gap_grows_with_skew)  # fmt: skip
_add("C13", "Table 3", "WKAFL is more stable than TWAFL.",
     "stability(WKAFL) < stability(TWAFL), each number of labels", each_skew(unrest, ("TWAFL",), False))  # fmt: skip
_add("C14", "Table 3", "With one label WKAFL is more than twice as stable as SASGD (93 % in print).",
     "stability(WKAFL) ≤ 0.5 stability(SASGD), fewest labels",
     each_skew(unrest, ("SASGD",), False, 0.5, first=True))  # fmt: skip
_add("C15", "Table 3", "With one label WKAFL's stability is about 44 % better than TWAFL's.",
     "stability(WKAFL) ≤ 0.8 stability(TWAFL), fewest labels",
     each_skew(unrest, ("TWAFL",), False, 0.8, first=True))  # fmt: skip
_add("C16", "Table 3", "GSGM is the most stable, but less accurate than WKAFL.",
     "stability(GSGM) < that of the others; final accuracy(WKAFL) > that of GSGM",
     both(judges.gsgm_is_most_stable, each_skew(final, ("GSGM",), True)))  # fmt: skip
_add("C17", "Table 3", "WKAFL gains 5.83 to 10.59 points over GSGM.",
     "gap > 0, each number of labels (the effect is the gap)", judges.gap_to_gsgm)  # fmt: skip
_add("C18", "Table 3", "Training gets less stable as heterogeneity grows.",
     "stability with the fewest labels > with the most, each method", judges.less_stable_if_skewed)  # fmt: skip
_add("C19", "Table 3", "On CIFAR-10 with five or ten labels TWAFL and WKAFL are level.",
     "|gap| < two standard errors over seeds and < 0.01", judges.twafl_is_level)  # fmt: skip
_add("C20", "Fig. 10", "There, their curves nearly coincide.",
     "largest gap of the smoothed curves < 0.03", judges.curves_coincide)  # fmt: skip
_add("C30", "Sec. 6.3.1", "The level of accuracy on CIFAR-10 is that of LeNet-5, less what asynchrony costs.",
     "accuracy(LeNet-5, centrally) in [0.60, 0.72], that of WKAFL below it", judges.lenet_explains,
     modes=False)  # fmt: skip
_add("C27b", "Sec. 4.3.1", "Accumulated gradients make training on non-IID data more stable.",
     "stability(WKAFL) < stability(No Non-IIDness)",
     on_levels(unrest, "WKAFL", ("No Non-IIDness",), False))  # fmt: skip
_add("C29", "App. A", "Zeno++ is far worse than WKAFL on non-IID data.",
     "final accuracy(WKAFL) − final accuracy(Zeno++) > 0.05", judges.zeno_is_worse, modes=False)  # fmt: skip
