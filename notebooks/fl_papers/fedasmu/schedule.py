"""Who uploads when under FedASMU's trigger: staleness, and how far back a device's previous upload lies (E06, E17).

Only times count here, so nothing is trained, and thousands of aggregations take a fraction of a second.
"""

from __future__ import annotations

import heapq

import numpy as np
import pandas as pd

TRANSFERS = 3
"""Of a task: the model, the fresh model, the upload."""


def arrivals(
    aggregations: int = 5000,
    *,
    devices: int = 100,
    concurrency: int = 10,
    ratio: float = 5.0,
    per_tick: int = 10,
    period_seconds: float = 10.0,
    fastest_seconds: float = 100.0,
    transfer_seconds: float = 1.0,
    loguniform: bool = False,
    staleness_bound: int | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Return a row for each upload that arrives until so many have been mixed in.

    At each tick up to `per_tick` idle devices start, drawn at random, and no more than `concurrency` are in flight.
    Local training takes from `fastest_seconds` to `ratio` times that; both ends occur.

    Returns
    -------
    DataFrame
        Seconds, device, staleness s = t - o + 1, whether it was mixed in, and ``between``: how many other uploads
        were mixed in between the device's previous one and the version it started from (-1: there is none).
    """
    rng = np.random.default_rng(seed)
    place = rng.permutation(np.concatenate([[0.0, 1.0], rng.random(devices - 2)]))
    seconds = fastest_seconds * (ratio**place if loguniform else 1 + (ratio - 1) * place)
    flights: list[tuple[float, int, int, int]] = []
    idle, last = set(range(devices)), dict[int, int]()
    rows: list[tuple[float, int, int, bool, int]] = []
    version, started, now = 0, 0, 0.0
    while True:
        while flights and flights[0][0] <= now:
            arrived, _, device, origin = heapq.heappop(flights)
            idle.add(device)
            staleness = version - origin + 1
            used = staleness_bound is None or staleness <= staleness_bound
            between = origin - last[device] - 1 if device in last else -1
            rows.append((arrived, device, staleness, used, between))
            if used:
                last[device] = version
                version += 1
            if version == aggregations:
                return pd.DataFrame(rows, columns=["seconds", "device", "staleness", "used", "between"])
        count = min(per_tick, concurrency - len(flights))
        for device in rng.choice(sorted(idle), count, replace=False) if count else ():
            idle.remove(int(device))
            end = now + TRANSFERS * transfer_seconds + seconds[device]
            heapq.heappush(flights, (end, started, int(device), version))
            started += 1
        now += period_seconds
