// Mean, estimate and selection of five gradients, as explore_selection of figures.py computes them.
(p) => {
  const x = [...Array(91).keys()].map(i => 4 * i - 180), found = { x, mean: [], estimate: [], selection: [] };
  const friends = [[25, 0], [-18, 0], [7, 1], [-40, 2]];
  const mix = (g, w) => [0, 1].map(c => g.reduce((s, v, i) => s + w[i] * v[c], 0) / w.reduce((s, v) => s + v, 0));
  for (const angle of x) {
    const all = [...friends, [angle, p.staleness, p.length]];
    const g = all.map(([turn, , length = 1]) => [Math.cos, Math.sin].map(f => f(turn * Math.PI / 180) * length));
    const ages = all.map(([, age]) => age);
    const estimate = mix(g, ages.map(age => (2 / Math.E) ** age)), size = Math.hypot(...estimate);
    const sims = g.map(v => (v[0] * estimate[0] + v[1] * estimate[1]) / Math.hypot(...v) / size);
    const score = sims.map(s => (s >= p.sim_min ? Math.exp(p.sim_beta * s) : 0));
    const made = [mix(g, g.map(() => 1)), estimate, score.some(s => s > 0) ? mix(g, score) : estimate];
    ["mean", "estimate", "selection"].forEach((name, k) => found[name].push(made[k][0] / Math.hypot(...made[k])));
  }
  return found;
}
