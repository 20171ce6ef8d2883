"""The proof of FedAsync's second theorem, evaluated: each step is a chain of numbers that must not fall.

Source: Xie, Koyejo & Gupta, "Asynchronous Federated Optimization" (2019), proof of Theorem 2, with every constant
written out (FA-12); evaluated on `ToyW` with one client and exact gradients, so that V1 = 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fl_papers.fedasync.bounds import beta, printed_bound, q_option2, theorem2_constants
from fl_papers.fedasync.toys import ToyW, iterate

Array = NDArray[np.float64]


def theorem2_chains(
    toy: ToyW, start: float, alpha: float, base_versions: Sequence[int], steps: int
) -> dict[str, list[Array]]:
    """Return, for every step of the proof, the quantities that it orders from small to large.

    Parameters
    ----------
    toy : ToyW
    start : float
        x_0.
    alpha : float
        Mixing weight in (0, 1].
    base_versions : sequence of int
        tau_1 .. tau_T with 0 <= tau_t < t.
    steps : int
        H >= 1.

    Returns
    -------
    dict of str to list of ndarray
        Name of the step to its quantities: over all local steps ``[T, H]``, all updates ``[T]``, or (the last) all
        models ``[T + 1]``. Constants are arrays of shape ``[]``. F_* = 0 at x_* = 0.

    Raises
    ------
    ValueError
        An argument is out of range.
    """
    f, df, lr, rho, mu = toy.loss, toy.gradient, toy.lr, toy.prox_rho, toy.weak_convexity
    r = rho - mu

    def G(x: Array, anchor: Array | float) -> Array:
        return np.asarray(f(x) + rho / 2 * (x - anchor) ** 2)

    def dG(x: Array, anchor: Array | float) -> Array:
        return np.asarray(df(x) + rho * (x - anchor))

    run = np.array(iterate(start, [alpha] * len(base_versions), base_versions, lambda x: toy.local_model(x, steps)))
    base, previous, now = run[list(base_versions)], run[:-1], run[1:]
    path = np.stack([toy.local_model(base, h) for h in range(steps + 1)], axis=1)
    x, y, anchor, arrived = path[:, :-1], path[:, 1:], base[:, None], path[:, -1]
    g, v2 = dG(x, anchor), toy.grad_second_moment_bound(np.concatenate([path.ravel(), run]))
    c1, c2, residual = theorem2_constants(lr, rho, mu, 0.0, v2)
    q = q_option2(lr, rho, mu, steps)
    b = beta(alpha, q)
    last = printed_bound(np.arange(len(run)), f(start), b, residual)
    chains = {
        "1 descent": [
            f(y),
            f(x) - lr * df(x) * g + toy.smoothness * lr**2 / 2 * g**2,
            f(x) - lr / 2 * df(x) ** 2 + lr / 2 * (df(x) - g) ** 2,
        ],
        "2 split": [lr / 2 * (df(x) - g) ** 2, lr * rho**2 * (x - anchor) ** 2],
        "3 local drift": [(x - anchor) ** 2, ((g - dG(anchor, anchor)) / r) ** 2, 4 * v2 / r**2],
        "4 lemma": [
            f(x),
            G(x, 0) - G(np.zeros(1), 0),
            dG(x, 0) ** 2 / (2 * r),
            (df(x) ** 2 + rho**2 * x**2) / r,
            df(x) ** 2 / r + 4 * rho**2 * v2 / r**3,
        ],
        "5 one step": [f(y), (1 - lr * r / 2) * f(x) + c1],
        "6 one task": [f(arrived), q * f(base) + 2 * c1 / (lr * r)],
        "7 mixing": [
            f(now),
            G(now, previous),
            (1 - alpha) * G(previous, previous) + alpha * G(arrived, previous),
            (1 - alpha) * f(previous) + alpha * f(arrived) + 2 * alpha * rho * v2 / r**2,
        ],
        "7 server drift": [
            (arrived - previous) ** 2,
            ((dG(arrived, previous) - dG(previous, previous)) / r) ** 2,
            4 * v2 / r**2,
        ],
        "8 staleness": [f(base) - f(previous), f(base), dG(base, 0) ** 2 / (2 * r), v2 / (2 * r)],
        "9 one update": [f(now), b * f(previous) + alpha * c2],
        "9 whole run": [f(run), last],
    }
    return {name: [np.asarray(part) for part in parts] for name, parts in chains.items()}
