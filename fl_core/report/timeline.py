"""What happens in a run: who does what when, idle time, staleness, and accuracy against virtual time."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from fl_core.report.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION
from fl_core.runtime import History

WORK = {"download": SKY, "train": BLUE, "upload": ORANGE}
COLOURS = {**WORK, "down": PURPLE}
IDLE = "#ECECEC"
PALETTE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
MARKERS = "osD^vP"


def plot_timelines(histories: Mapping[str, History], until: float, devices: int) -> Figure:
    """Draw the traced runs below one another on one time axis of `until` virtual seconds, one row a device.

    A bar is an activity, grey is idle, the number in a training bar is the staleness with which its result was used,
    a cross is a fault, and the dotted lines are new versions of the global model.
    """
    height = 0.7 + 0.28 * (devices + 1) * len(histories) + 0.35 * len(histories)
    figure, axes = plt.subplots(len(histories), 1, figsize=(5.4, height), sharex=True, squeeze=False)
    for axis, (title, history) in zip(axes[:, 0], histories.items(), strict=True):
        draw_timeline(axis, history, until, devices)
        axis.set_title(title, loc="left", fontsize=11)
    axes[-1, 0].set_xlabel("virtual time (s)")
    seen = {activity for history in histories.values() for activity in history.spans["activity"]}
    patches = [Patch(color=colour, label=activity) for activity, colour in COLOURS.items() if activity in seen]
    patches.append(Patch(color=IDLE, label="idle"))
    figure.legend(
        handles=patches, loc="upper center", ncol=4, frameon=False, fontsize=10, columnspacing=1.0, handlelength=1.2
    )
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.35 / height), h_pad=0.6)
    return figure


def draw_timeline(axis: Axes, history: History, until: float, devices: int) -> None:
    """Draw one traced run into `axis`; see :func:`plot_timelines`."""
    spans = history.span_frame()
    for device in range(devices):
        axis.barh(device, until, 0.72, color=IDLE, lw=0)
    for activity, colour in COLOURS.items():
        bars = spans[spans["activity"] == activity]
        start, end, row = (bars[column].to_numpy(float) for column in ("start", "end", "device"))
        width = np.minimum(end, until) - start
        axis.barh(row[width > 0], width[width > 0], 0.72, start[width > 0], color=colour, ec="white", lw=0.8)
    used = arrivals(history)
    used = used[used["arrived"] <= until]
    for trained, device, staleness in zip(used["trained"], used["device"], used["staleness"], strict=True):
        place = (trained - 0.01 * until, device)
        axis.text(*place, str(staleness), ha="right", va="center", fontsize=9, color="white", zorder=4)
    faults = history.fault_frame()
    faults = faults[(faults["seconds"] <= until) & (faults["device"] >= 0)]
    axis.plot(faults["seconds"], faults["device"], "x", color=BLACK, ms=6, mew=1.8, zorder=5)
    commits = sorted({s for s in history.updates["seconds"] if s <= until})
    axis.vlines(commits, -0.6, devices - 0.4, color="#444444", lw=0.8, ls=":")
    axis.set(xlim=(0, until), ylim=(devices - 0.4, -0.6), yticks=range(devices))
    axis.set_yticklabels([f"device {d}" for d in range(devices)], fontsize=9)
    axis.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)


def arrivals(history: History) -> pd.DataFrame:
    """Return, for each upload that was used, the task that it came from and what became of it.

    Columns: ``task``, ``device``; ``trained``, ``arrived`` and ``used`` (virtual seconds); the ``version`` made with
    it, its ``staleness`` then, and its ``weight``. A task that took no time left no trace: its number is -1 and
    its times are NaN.
    """
    spans = history.span_frame()
    spans = spans[spans["activity"].isin(WORK)]
    trained = spans[spans["activity"] == "train"].groupby("task")["end"].max()
    tasks = spans.groupby("task").agg(device=("device", "first"), base=("base_version", "first"), end=("end", "max"))
    open_tasks: dict[int, list[tuple[float, int, int]]] = {}
    for task, device, base, end in zip(tasks.index, tasks["device"], tasks["base"], tasks["end"], strict=True):
        open_tasks.setdefault(device, []).append((end, task, base))
    rows = []
    used = ("device", "seconds", "version", "staleness", "weight")
    # Backwards, so that each use takes the latest delivery that no later use has taken.
    for use in reversed(list(zip(*(history.updates[column] for column in used), strict=True))):
        device, seconds, version, staleness, _ = use
        delivered = [entry for entry in open_tasks.get(device, []) if entry[0] <= seconds]
        same_base = [entry for entry in delivered if entry[2] == version - 1 - staleness]
        arrived, task = np.nan, -1
        if delivered:
            chosen = max(same_base or delivered)
            open_tasks[device].remove(chosen)
            arrived, task = chosen[:2]
        rows.append((task, trained.get(task, arrived), arrived, *use))
    columns = ["task", "trained", "arrived", "device", "used", "version", "staleness", "weight"]
    return pd.DataFrame(rows[::-1], columns=columns)


def state_at(history: History, seconds: float) -> tuple[int, int]:
    """Return the global version and the number of tasks in flight right after the events of a virtual time."""
    updates, spans = history.update_frame(), history.span_frame()
    spans = spans[spans["activity"].isin(WORK)]
    tasks = spans.groupby("task").agg(start=("start", "min"), end=("end", "max"))
    version = updates.loc[updates["seconds"] <= seconds, "version"].max()
    flying = (tasks["start"] <= seconds) & (seconds < tasks["end"])
    return (0 if pd.isna(version) else int(version)), int(flying.sum())


def schedule_summary(histories: Mapping[str, History], until: float, devices: int) -> pd.DataFrame:
    """Return what the timelines show, in numbers, over the first `until` virtual seconds.

    Columns: ``versions`` of the global model; ``uploads`` used; ``idle``, part of all device time that is not spent
    on downloading, training or uploading, in [0, 1]; ``mean staleness`` and ``max staleness`` of the uploads used.
    """
    rows = {}
    for title, history in histories.items():
        spans, updates = history.span_frame(), history.update_frame()
        spans = spans[spans["activity"].isin(WORK)]
        busy = (spans["end"].clip(upper=until) - spans["start"]).clip(lower=0).sum()
        used = updates[updates["seconds"] <= until]
        rows[title] = {
            "versions": int(used["version"].nunique()),
            "uploads": len(used),
            "idle": 1 - float(busy) / (until * devices),
            "mean staleness": float(used["staleness"].mean()) if len(used) else np.nan,
            "max staleness": int(used["staleness"].max()) if len(used) else 0,
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def plot_accuracy(histories: Mapping[str, History]) -> Figure:
    """Draw test accuracy against virtual time, one line a run."""
    figure, axis = plt.subplots(figsize=(5.2, 3.2))
    for (label, history), colour, marker in zip(histories.items(), PALETTE, MARKERS, strict=False):
        frame = history.evaluation_frame()
        axis.plot(frame["seconds"], frame["test_accuracy"], color=colour, marker=marker, ms=4, label=label)
    axis.set(xlabel="virtual time (s)", ylabel="test accuracy", ylim=(0, 1))
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, loc="lower right")
    figure.tight_layout()
    return figure


def plot_staleness(history: History) -> Figure:
    """Draw how many updates of a run had which staleness."""
    staleness = np.asarray(history.updates["staleness"], dtype=int)
    counts = np.bincount(staleness)
    figure, axis = plt.subplots(figsize=(5.2, 2.6))
    axis.bar(np.arange(len(counts)), counts, color=PALETTE[0])
    axis.axvline(staleness.mean(), color="black", ls="--", lw=1, label=f"mean {staleness.mean():.1f}")
    axis.set(xlabel="staleness (versions missed)", ylabel="updates")
    axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.legend(frameon=False)
    figure.tight_layout()
    return figure
