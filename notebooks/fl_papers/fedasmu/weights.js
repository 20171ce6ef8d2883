// Weights (2) and (8) over the versions of a run, as explore_weights of figures.py computes them.
(p) => {
  const t = Array.from({ length: 40 }, (_, i) => Math.round(30 * (5000 / 30) ** (i / 39)));
  const score = t.map(v => p.lambda_ / (Math.sqrt(v + 1) * p.staleness ** p.sigma) + p.iota);
  const phi = t.map(v => p.lambda_ / Math.sqrt(v) * (1 - p.upsilon / Math.sqrt(p.staleness)));
  return {
    x: t, "score ξ, cut at 1": score.map(s => Math.min(1, s)), "α of an upload": score.map(s => s / (1 + s)),
    "β of a fresh model": phi.map(s => s / (1 + s)), "FedAsync+Poly": t.map(() => 0.6 * p.staleness ** -0.5),
  };
}
