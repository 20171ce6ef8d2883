"""FedASMU's claims (specification, section 8): what the paper says where, and the test of each."""

from __future__ import annotations

from functools import partial

from fl_core.experiments.claims import add_claim
from fl_papers.fedasmu import condition_judges as figure_7
from fl_papers.fedasmu import judges as judges
from fl_papers.fedasmu import theory_judges as theory
from fl_papers.fedasmu.judges import DA, FA, ZERO, ablation
from fl_papers.fedasmu.measures import gaps, savings
from fl_papers.fedasmu.methods import BASELINES
from fl_papers.fedasmu.printed import What, band


def _range(what: What, other: str = "all") -> str:
    """Return what the text says that FedASMU gains, in words."""
    found = band(what, other)
    unit = "points" if what == "accuracy gain" else "%"
    return "no range printed" if found is None else f"{100 * found[0]:g} to {100 * found[1]:g} {unit}"


_add = partial(add_claim, "FEDASMU")
_TABLES = "Tables 1, 2"

_add("C01", _TABLES, "FedASMU has the highest accuracy in every column.",
     "accuracy(FedASMU) − accuracy(best baseline) > 0, each column", judges.highest)  # fmt: skip
_add("C02", _TABLES, "FedASMU is the first to reach the target in every column.",
     "time(FedASMU) < time(fastest baseline), each column", judges.fastest)  # fmt: skip
_add("C03", "abstract", f"Its accuracy is {_range('accuracy gain')} higher (by the tables up to 27).",
     "least and largest difference over columns and baselines within the range",
     judges.in_the_band(gaps, "accuracy gain"), fragile=True)  # fmt: skip
_add("C04", "abstract", f"It saves {_range('time saved')} of the time.",
     "least and largest part saved over columns and baselines within the range",
     judges.in_the_band(savings, "time saved"), fragile=True)  # fmt: skip
for _number, _other in enumerate(BASELINES, start=5):
    _add(f"C{_number:02d}", "section 5", f"It is faster than {_other} ({_range('time saved', _other)}).",
         f"time(FedASMU) < time({_other}), each column where {_other} reaches the target",
         judges.faster_than(_other))  # fmt: skip
for _number, _other in enumerate(BASELINES, start=14):
    _add(f"C{_number:02d}", "section 5", f"It is more accurate than {_other} ({_range('accuracy gain', _other)}).",
         f"accuracy(FedASMU) − accuracy({_other}) > 0, each column", judges.more_accurate_than(_other))  # fmt: skip
_add("C23", "section 5", "It is fast because it is asynchronous: it saves more over synchronous baselines.",
     "median part saved over synchronous − over asynchronous baselines > 0",
     judges.saves_more_of_synchronous_time)  # fmt: skip
_add("C24", "Fig. 7", "With 50 times lower bandwidth it is still better, with a smaller advantage.",
     "more accurate and faster than each baseline; mean part saved below that at normal bandwidth",
     figure_7.low_bandwidth)  # fmt: skip
_add("C25", "appendix", "With 100 times lower bandwidth it is still better, by more than at 50 (the least falls).",
     "more accurate and faster than each baseline; largest advantage above, least below that at 50",
     figure_7.lower_bandwidth)  # fmt: skip
_add("C26", "Fig. 7", "Its advantage grows with the heterogeneity of devices.",
     "part saved at ratio 440 − at 110 > 0, each synchronous baseline", figure_7.heterogeneity)  # fmt: skip
_add("C27", "Fig. 7", "It is better with 100 and with 200 devices.",
     "more accurate and faster than each baseline, both numbers", figure_7.more_devices)  # fmt: skip
_add("C28", "Fig. 2", "Dynamic weights help: FedASMU is more accurate than FedASMU-DA.",
     "accuracy(FedASMU) − accuracy(FedASMU-DA) > 0", ablation(("FedASMU", DA)))  # fmt: skip
_add("C29", "Fig. 2", "Dynamic weights help: FedASMU-FA is more accurate than FedASMU-0.",
     "accuracy(FedASMU-FA) − accuracy(FedASMU-0) > 0", ablation((FA, ZERO)))  # fmt: skip
_add("C30", "Fig. 2", "Fresh models help: FedASMU is more accurate and faster than FedASMU-FA.",
     "difference of accuracies > 0, time shorter", ablation(("FedASMU", FA), speed=1.0))  # fmt: skip
_add("C31", "Fig. 2", "Fresh models help: FedASMU-DA is more accurate and faster than FedASMU-0.",
     "difference of accuracies > 0, time shorter", ablation((DA, ZERO), speed=1.0))  # fmt: skip
_add("C32", "Fig. 2", "FedASMU-DA and FedASMU-FA are more accurate and faster than FedAvg.",
     "difference of accuracies > 0, time shorter, both",
     ablation((DA, "FedAvg"), (FA, "FedAvg"), speed=1.0))  # fmt: skip
_add("C33", "Fig. 2", "FedASMU-0 is slightly more accurate than FedAvg and much faster.",
     "difference of accuracies ≥ 0, time(FedASMU-0) ≤ 0.5 time(FedAvg)",
     ablation((ZERO, "FedAvg"), speed=0.5))  # fmt: skip
_add("C34", "section 5", "FedASMU-0 is FedAsync with a staleness bound.",
     "equal histories of FedASMU-0 and FedAsync+Poly, bit for bit",
     theory.zero_is_fedasync, exact=True, computed=True)  # fmt: skip
_add("C35", "appendix", "Accuracy hardly depends on the trigger period and the learning rates of λ, σ, ι.",
     "largest − least accuracy over the settings ≤ 0.024", judges.insensitive)  # fmt: skip
_add("C36", "appendix", "FedASMU is more accurate than FedDelay, SyncDrop and AsyncPart.",
     "difference of accuracies > 0, each", judges.more_accurate_than_others)  # fmt: skip
_add("C37", "appendix", "FedASMU is faster than FedDelay, SyncDrop and AsyncPart.",
     "time(FedASMU) < time, each", judges.faster_than_others)  # fmt: skip
_add("C38", "appendix", "A learned slot is better than the fixed ones of H1, H2 and H3.",
     "accuracy(FedASMU) − accuracy(Hn) > 0, each", judges.beats_fixed_slots)  # fmt: skip
_add("C39", "appendix", "Fresh models cost only downloads, and the gradient estimate no traffic at all.",
     "bytes up per upload equal FedAsync's; bytes down at most twice",
     judges.extra_traffic_is_downlink, exact=True)  # fmt: skip
_add("C40", "section 4", "Merging a fresh model lowers the staleness of the upload.",
     "mean ‖w_t − w_o^i‖ at arrival: with the merge < without, same sessions, quadratic losses",
     theory.merging_lowers_staleness, computed=True)  # fmt: skip
_add("C41", "Theorem 1", "FedASMU converges to a critical point.",
     "the corrected bound holds on random runs; the printed one on the example of E13", theory.theorem_1,
     exact=True, computed=True)  # fmt: skip
_add("C42", "(3)", "Updating λ, σ and ι lowers the loss.",
     "F_i(w_o) falls with one step, on random quadratic losses",
     theory.one_step_helps, exact=True, computed=True)  # fmt: skip
_add("C43", "section 4", "The staleness bound removes uploads that are too stale.",
     "more than no upload is dropped, on the paper's schedule", theory.bound_removes_uploads,
     exact=True, computed=True)  # fmt: skip
_add("C44", "section 4", "A late request wastes the fresh model, an early one leaves staleness.",
     "accuracy(best slot in between) − accuracy(first), − accuracy(last) > 0",
     judges.interior_slot_is_best)  # fmt: skip
