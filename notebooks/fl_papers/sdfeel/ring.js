// How gossip on a ring averages, as explore_ring of figures.py computes it.
(p) => {
  const n = p.servers, x = [...Array(41).keys()], found = { x }, floor = 1e-9;
  const eigen = j => 2 - 2 * Math.cos(2 * Math.PI * j / n);
  const fastest = Math.min(0.5, 2 / (eigen(1) + eigen(Math.floor(n / 2))));
  for (const [name, c] of [["one third each", 1 / 3], ["fastest safe step", fastest]]) {
    let models = Array.from({ length: n }, (_, j) => (j === 0 ? 1 : 0));
    found[name] = x.map(() => {
      const spread = Math.max(...models) - Math.min(...models) + floor;
      models = models.map((w, j) => (1 - 2 * c) * w + c * (models[(j + 1) % n] + models[(j + n - 1) % n]));
      return spread;
    });
    let second = 0;
    for (let j = 1; j < n; j++) second = Math.max(second, Math.abs(1 - c * eigen(j)));
    found[name + ", ζ per round"] = x.map(k => second ** k + floor);
  }
  return found;
}
