"""What each device does when: timelines of traced runs, and the idle time and staleness that they show."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from fl_core.report.style import BLUE, ORANGE, SKY
from fl_core.runtime import History

COLOURS = {"download": SKY, "train": BLUE, "upload": ORANGE}
IDLE = "#ECECEC"


def plot_timelines(histories: Mapping[str, History], until: float, devices: int) -> Figure:
    """Draw the traced runs below one another on one time axis.

    Parameters
    ----------
    histories : mapping of str to History
        Panel title and run; each run must have been traced.
    until : float
        Right end of the axis, virtual seconds.
    devices : int
        Number of devices; device 0 is the top row.

    Returns
    -------
    Figure
        One row a device. A bar is an activity, grey is idle, the number in a training bar is the staleness with
        which its result was used, and the dotted lines are new versions of the global model.
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
        axis.text(*place, str(staleness), ha="right", va="center", fontsize=8, color="white", zorder=4)
    commits = sorted({s for s in history.updates["seconds"] if s <= until})
    axis.vlines(commits, -0.6, devices - 0.4, color="#444444", lw=0.8, ls=":")
    axis.set(xlim=(0, until), ylim=(devices - 0.4, -0.6), yticks=range(devices))
    axis.set_yticklabels([f"device {d}" for d in range(devices)], fontsize=9)
    axis.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)


def arrivals(history: History) -> pd.DataFrame:
    """Return, for each upload that was used, when its device had trained, when it arrived, and its staleness.

    Columns: ``device``, ``trained`` and ``arrived`` (virtual seconds), ``staleness`` when it was used.
    """
    spans = history.span_frame()
    trained = spans[spans["activity"] == "train"].set_index("task")["end"]
    tasks = spans.groupby("task").agg({"device": "first", "end": "max"}).sort_values("end")
    rows = []
    for device, used, staleness in zip(
        *(history.updates[c] for c in ("device", "seconds", "staleness")), strict=True
    ):
        done = tasks[(tasks["device"] == device) & (tasks["end"] <= used)]
        task = done.index[-1]
        rows.append((device, trained[task], done["end"].iloc[-1], staleness))
    return pd.DataFrame(rows, columns=["device", "trained", "arrived", "staleness"])


def schedule_summary(histories: Mapping[str, History], until: float, devices: int) -> pd.DataFrame:
    """Return what the timelines show, in numbers, over the first `until` virtual seconds.

    Columns: ``versions`` of the global model; ``uploads`` used; ``idle``, part of all device time that is not spent
    on downloading, training or uploading, in [0, 1]; ``mean staleness`` and ``max staleness`` of the uploads used.
    """
    rows = {}
    for title, history in histories.items():
        spans, updates = history.span_frame(), history.update_frame()
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
