// FedAsync's step on a quadratic, as explore_staleness of figures.py computes it.
(p) => {
  const found = { x: [...Array(61).keys()], plain: [], "+Poly": [] };
  for (const [name, a] of [["plain", 0], ["+Poly", 0.5]]) {
    const models = [1];
    for (let t = 0; t < 60; t++) {
      const from = Math.max(0, t - p.missed), w = p.alpha * (t - from + 1) ** -a;
      models.push((1 - w) * models[t] + w * p.q * models[from]);
    }
    found[name] = models.map(value => Math.abs(value) + 1e-12);
  }
  return found;
}
