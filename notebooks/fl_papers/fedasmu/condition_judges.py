"""The tests of FedASMU's claims about Figure 7: other bandwidths, speeds and numbers of devices.

Times are those of the first evaluation with an accuracy of 60 %.
"""

from __future__ import annotations

from fl_core.experiments.claims import Comparison
from fl_core.experiments.study import Study
from fl_papers.fedasmu.grid import CONDITION_TARGET
from fl_papers.fedasmu.judges import above, below, faster, more_accurate
from fl_papers.fedasmu.measures import Setting, Values, difference, gaps, over_seeds, savings, settings
from fl_papers.fedasmu.methods import BASELINES, SYNCHRONOUS


def better_in(study: Study, varied: str, *values: float) -> list[Comparison]:
    """Return that FedASMU is more accurate and faster than every baseline."""
    found: list[Comparison] = []
    for at in _conditions(study, varied, *values):
        pairs = [("FedASMU", other, at) for other in BASELINES]
        found += more_accurate(study, pairs) + faster(study, pairs, target=CONDITION_TARGET)
    return found


def low_bandwidth(study: Study) -> list[Comparison]:
    """C24."""
    found = better_in(study, "bandwidth", 50)
    for at in _conditions(study, "bandwidth", 50):
        here, normal = (over_seeds(_savings(study, one).values()) for one in (at, Setting(at.column)))
        found += below(f"{at}, mean time saved, less that at normal bandwidth", difference(here, normal))
    return found


def lower_bandwidth(study: Study) -> list[Comparison]:
    """C25: also the largest and the least advantages, which the paper's ranges have moving apart."""
    found = better_in(study, "bandwidth", 100)
    for at in _conditions(study, "bandwidth", 100):
        before = at._replace(value=50)
        for what, of in (("accuracy gained", _gaps), ("time saved", _savings)):
            for name, pick in (("largest", max), ("least", min)):
                here, there = (over_seeds(of(study, one).values(), pick) for one in (at, before))
                change = difference(here, there)
                made = above if name == "largest" else below
                found += made(f"{at}, {name} {what}, less that at bandwidth 50", change)
    return found


def heterogeneity(study: Study) -> list[Comparison]:
    """C26: from the smallest to the largest ratio, against each synchronous baseline."""
    found = []
    points = _conditions(study, "heterogeneity")
    for column in dict.fromkeys(at.column for at in points):
        ratios = sorted(at.value for at in points if at.column == column)
        if len(ratios) > 1:
            ends = [Setting(column, "heterogeneity", ratio) for ratio in (ratios[0], ratios[-1])]
            for other in SYNCHRONOUS:
                low, high = (savings(study, "FedASMU", other, at, CONDITION_TARGET) for at in ends)
                name = f"time saved against {other}, ratio {ratios[-1]:g} less {ratios[0]:g}"
                found += above(name, difference(high, low))
    return found


def more_devices(study: Study) -> list[Comparison]:
    """C27: with 100 devices, the standard number, and with 200."""
    found = better_in(study, "devices", 200)
    for at in _conditions(study, "devices", 200):
        pairs = [("FedASMU", other, Setting(at.column)) for other in BASELINES]
        found += more_accurate(study, pairs) + faster(study, pairs, target=CONDITION_TARGET)
    return found


def _conditions(study: Study, varied: str, *values: float) -> list[Setting]:
    return [at for at in settings(study, varied=varied) if not values or at.value in values]


def _gaps(study: Study, at: Setting) -> dict[str, Values]:
    return {other: gaps(study, "FedASMU", other, at) for other in BASELINES}


def _savings(study: Study, at: Setting) -> dict[str, Values]:
    return {other: savings(study, "FedASMU", other, at, CONDITION_TARGET) for other in BASELINES}
