"""The server's link where it is finite: transfers share it fairly, and none goes faster than its device's own link.

Between two events the shares are constant. A transfer that joins never speeds up another one, so the moment at which
one would end with those present is never too late: it looks again then, and goes on if others have joined meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

DONE = 1e-9
"""Part of a transfer that rounding may leave over."""


def fair_shares(limits: Sequence[float], rate: float) -> list[float]:
    """Divide `rate` among transfers, none above its limit: the max-min fair shares (Bertsekas & Gallager, 1992)."""
    shares, left = [0.0] * len(limits), rate
    order = sorted(range(len(limits)), key=limits.__getitem__)
    for place, number in enumerate(order):
        shares[number] = min(limits[number], left / (len(order) - place))
        left -= shares[number]
    return shares


class SharedLink:
    """One direction of a server's link, `rate` bits per second."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.open: dict[int, tuple[float, float, float]] = {}
        """Of each task in transfer: bits that are left, bits in all, most bits per second."""
        self.since = 0.0

    def look(self, task: int, bits: float, limit: float, now: float) -> float | None:
        """Return when the transfer of `task` ends if none joins, or None if it has; a new one joins.

        `limit` is the speed of the device's own link, infinite where that costs nothing.
        """
        self._advance(now)
        left, whole, _ = self.open.setdefault(task, (bits, bits, limit))
        if left <= DONE * whole:
            del self.open[task]
            return None
        return max(self._end(task), now)

    def _advance(self, now: float) -> None:
        shares = fair_shares([limit for _, _, limit in self.open.values()], self.rate)
        for (task, (left, whole, limit)), share in zip(list(self.open.items()), shares, strict=True):
            self.open[task] = (max(0.0, left - share * (now - self.since)), whole, limit)
        self.since = now

    def _end(self, task: int) -> float:
        """Return when `task` ends, going from one end of a transfer to the next."""
        left = {number: bits for number, (bits, _, _) in self.open.items()}
        time = self.since
        while True:
            shares = dict(zip(left, fair_shares([self.open[number][2] for number in left], self.rate), strict=True))
            step = min(bits / shares[number] for number, bits in left.items())
            time += step
            ended = [number for number, bits in left.items() if bits <= shares[number] * step * (1 + DONE)]
            if task in ended:
                return time
            left = {n: bits - shares[n] * step for n, bits in left.items() if n not in ended}
