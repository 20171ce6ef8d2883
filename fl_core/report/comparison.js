// Curves of methods over a chosen axis, and their paired differences to one of them. Computes what Python computed at
// the end of every axis first, and draws nothing if the two disagree.
(function (root) {
  "use strict";
  const data = JSON.parse(root.querySelector("script[type='application/json']").textContent);
  const arrays = data.arrays.map(column => column.map(v => (v === null ? NaN : v)));
  const columns = [...Object.keys(data.axes), ...Object.keys(data.metrics)], settings = Object.keys(data.runs);
  const live = root.querySelector(".flc-live"), GRID = 81;
  const of = (setting, method, seed, column) => arrays[data.runs[setting][method][seed][columns.indexOf(column)]];
  const mean = values => values.reduce((a, b) => a + b, 0) / values.length;
  const deviation = values => Math.sqrt(values.reduce((a, b) => a + (b - mean(values)) ** 2, 0) / (values.length - 1));

  function interpolated(x, xs, ys) { // as numpy.interp
    if (x <= xs[0]) return ys[0];
    let low = 0, high = xs.length;
    while (low + 1 < high) { const middle = (low + high) >> 1; if (xs[middle] <= x) low = middle; else high = middle; }
    if (low === xs.length - 1 || xs[low] === x) return ys[low];
    return ys[low] + (ys[low + 1] - ys[low]) / (xs[low + 1] - xs[low]) * (x - xs[low]);
  }

  const value = (setting, method, seed, axis, metric, x) =>
    interpolated(x, of(setting, method, seed, axis), of(setting, method, seed, metric));
  const seedsOf = (setting, method) => Object.keys(data.runs[setting][method]);
  function reach(setting, methods, axis) {
    return Math.min(...methods.flatMap(m => seedsOf(setting, m).map(s => of(setting, m, s, axis).at(-1))));
  }
  function compared(setting, method, against, axis, metric, x) {
    const own = seedsOf(setting, method), both = own.filter(seed => seedsOf(setting, against).includes(seed));
    const values = own.map(seed => value(setting, method, seed, axis, metric, x));
    const apart = both.map(seed => value(setting, method, seed, axis, metric, x) - value(setting, against, seed, axis, metric, x));
    return { mean: mean(values), spread: deviation(values), seeds: own.length, apart: mean(apart),
      half: apart.length > 1 ? data.t[apart.length] * deviation(apart) / Math.sqrt(apart.length) : NaN };
  }

  function wrong() {
    for (const { setting, axis, metric, against, found } of data.checks) {
      const x = reach(setting, Object.keys(found), axis);
      for (const method in found) {
        const c = compared(setting, method, against, axis, metric, x), ours = [c.mean, c.apart, c.half];
        for (let i = 0; i < 3; i++) {
          const theirs = found[method][i], size = Math.max(1e-3, Math.abs(theirs), Math.abs(c.mean));
          if (theirs === null ? !Number.isNaN(ours[i]) : !(Math.abs(ours[i] - theirs) <= 1e-6 * size))
            return `${method}, ${metric} over ${axis}: ${ours[i]} here, ${theirs} in Python`;
        }
      }
    }
    return "";
  }

  const text = (v, digits = 3) => (Number.isFinite(v) ? String(Number(v.toPrecision(digits))) : "–");
  const signed = v => (v > 0 ? "+" : "") + text(v, 2).replace("-", "−");
  const escaped = s => s.replace(/[&<>"]/g, c => `&#${c.charCodeAt(0)};`);
  const options = pairs => pairs.map(([key, words]) => `<option value="${escaped(key)}">${escaped(words)}</option>`).join("");
  const select = (name, words, pairs) => pairs.length > 1
    ? `<label>${words} <select name="${name}">${options(pairs)}</select></label>` : "";

  function ticks(low, high, log) {
    if (log && high > 8 * low) {
      const found = [];
      for (let e = Math.floor(Math.log10(low)); e <= Math.log10(high); e++)
        for (const k of high > 200 * low ? [1] : [1, 2, 5]) if (k * 10 ** e >= low && k * 10 ** e <= high) found.push(k * 10 ** e);
      return found;
    }
    const rough = (high - low) / 6, unit = 10 ** Math.floor(Math.log10(rough)), found = [];
    const step = [1, 2, 5, 10].map(k => k * unit).find(k => k >= rough);
    for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + 1e-9 * step; v += step) found.push(v);
    return found;
  }

  const all = Object.keys(data.looks);
  const letter = m => String.fromCharCode(97 + all.indexOf(m)); // colours alone would tell nothing to many
  function build() {
    const swatch = m => `<i style="border-color:${data.looks[m][0]};border-top-style:${data.looks[m][1] ? "dashed" : "solid"}"></i>`;
    live.innerHTML = `<div class="flc-row flc-methods" role="group" aria-label="methods">${all.map(m =>
      `<label><input type="checkbox" name="on" value="${escaped(m)}" checked>${swatch(m)}<b>${letter(m)}</b> ${escaped(m)}</label>`).join("")}</div>
      <div class="flc-row">${data.slide ? `<label>${escaped(data.slide)} <input type="range" name="setting" min="0" max="${settings.length - 1}" value="0"><output name="set"></output></label>`
        : select("setting", "setting", settings.map(s => [s, s]))}
      ${select("metric", "show", Object.entries(data.metrics))}${select("axis", "over", Object.entries(data.axes))}
      ${select("shape", "as", [["band", "mean and deviation"], ["seeds", "every seed"], ["apart", "difference, 95 % interval"]])}
      <label><input type="checkbox" name="beyond">on to the longest run's end</label></div>
      <svg class="flc-curves" role="img"></svg>
      <div class="flc-row">${select("against", "difference to", all.map(m => [m, m]))}
      <label>read at <input type="range" name="at" min="2" max="100" value="100"><output></output></label>
      <button type="button">CSV</button></div><svg class="flc-dots" role="img"></svg><p class="flc-said"></p>`;
    live.querySelectorAll("input, select").forEach(input => input.addEventListener("input", draw));
    const against = live.querySelector("[name=against]");
    if (against) against.value = data.against;
    live.querySelector("button").addEventListener("click", download);
    addEventListener("resize", draw);
  }
  const chosen = (name, fallback) => (live.querySelector(`[name="${name}"]`) || { value: fallback }).value;

  function download() {
    const lines = [["setting", "method", "seed", ...columns].join(",")];
    for (const s of settings) for (const m in data.runs[s]) for (const seed of seedsOf(s, m))
      of(s, m, seed, columns[0]).forEach((_, i) =>
        lines.push([JSON.stringify(s), JSON.stringify(m), seed, ...columns.map(c => of(s, m, seed, c)[i])].join(",")));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/csv" }));
    link.download = data.title.replace(/\W+/g, "-").toLowerCase() + ".csv";
    link.click();
    URL.revokeObjectURL(link.href);
  }

  function draw() {
    const picked = chosen("setting", settings[0]), setting = data.slide ? settings[Number(picked)] : picked, axis = chosen("axis", columns[0]), shape = chosen("shape");
    const metric = chosen("metric", Object.keys(data.metrics)[0]), marked = metric === Object.keys(data.metrics)[0];
    const here = all.filter(m => m in data.runs[setting] && seedsOf(setting, m).every(s => of(setting, m, s, axis).at(-1) > 0));
    live.querySelectorAll("[name=on]").forEach(box => { box.parentElement.hidden = !here.includes(box.value); });
    if (!here.length) {
      live.querySelectorAll("svg").forEach(svg => { svg.innerHTML = ""; });
      live.querySelector(".flc-said").textContent = `No run of this setting has come anywhere on this axis (${data.axes[axis]}).`;
      return;
    }
    const shown = here.filter(m => live.querySelector(`[name=on][value="${CSS.escape(m)}"]`).checked);
    const against = here.includes(chosen("against", all[0])) ? chosen("against", all[0]) : here[0];
    const W = Math.max(300, Math.min(760, root.clientWidth - 24)), H = W < 480 ? 260 : 320, L = 52, R = 12, T = 12, B = 40;
    const log = data.log.includes(metric) && shape !== "apart", end = reach(setting, shown.length ? shown : here, axis);
    const paths = [], lasting = m => Math.min(...seedsOf(setting, m).map(s => of(setting, m, s, axis).at(-1)));
    const own = m => shape === "apart" ? Math.min(lasting(m), lasting(against)) : lasting(m);
    const right = live.querySelector("[name=beyond]").checked ? Math.max(end, ...shown.map(own)) : end;
    for (const m of shown) {
      const last = Math.min(right, own(m));
      const xs = Array.from({ length: GRID }, (_, i) => last * i / (GRID - 1));
      if (shape === "seeds") { for (const s of seedsOf(setting, m)) paths.push({ m, xs, ys: xs.map(x => value(setting, m, s, axis, metric, x)), thin: true }); continue; }
      const found = xs.map(x => compared(setting, m, against, axis, metric, x)), apart = shape === "apart";
      const ys = found.map(c => apart ? c.apart : c.mean), half = found.map(c => (apart ? c.half : c.spread) || 0);
      paths.push({ m, xs, ys, low: ys.map((y, i) => log ? Math.max(y - half[i], y / 10) : y - half[i]), high: ys.map((y, i) => y + half[i]) });
    }
    const marks = marked && shape !== "apart" ? data.marks.filter(k => k.setting === setting && shown.includes(k.method) && k.axis === axis && k.x <= right) : [];
    const late = p => p.xs.findIndex(x => x >= 0.05 * right); // the steep beginning would squeeze the rest
    const inside = [...paths.flatMap(p => late(p) < 0 ? [] : [p.ys, p.low || [], p.high || []].flatMap(v => v.slice(late(p)))), ...marks.map(k => k.value)].filter(v => Number.isFinite(v) && (!log || v > 0));
    let low = inside.length ? Math.min(...inside) : 0, high = inside.length ? Math.max(...inside) : 1;
    if (!(high > low)) high = low + 1;
    const place = v => log ? Math.log(v) : v, sx = x => L + (W - R - L) * x / right;
    const sy = y => Math.min(Math.max(H - B - (H - B - T) * (place(y) - place(low)) / (place(high) - place(low)), T - 6), H - B + 6);
    const line = (xs, ys) => { let pen = "M", d = ""; ys.forEach((y, i) => { if (Number.isFinite(y) && (!log || y > 0)) { d += `${pen}${sx(xs[i]).toFixed(1)} ${sy(y).toFixed(1)}`; pen = "L"; } else pen = "M"; }); return d; };
    const at = Number(chosen("at", 100)) / 100 * end;
    const grid = ticks(low, high, log).map(v => `<path class="flx-grid" d="M${L} ${sy(v)}H${W - R}"/><text x="${L - 5}" y="${sy(v) + 4}" text-anchor="end">${text(v)}</text>`).join("") +
      ticks(0, right).map(v => `<text x="${sx(v)}" y="${H - B + 17}" text-anchor="middle">${v >= 1e4 ? v / 1e3 + "k" : text(v)}</text>`).join("");
    const curves = live.querySelector(".flc-curves");
    curves.setAttribute("viewBox", `0 0 ${W} ${H}`);
    curves.innerHTML = grid + `<text x="${(L + W - R) / 2}" y="${H - 4}" text-anchor="middle">${escaped(data.axes[axis])}</text>` +
      `<path class="flx-grid" d="M${sx(at)} ${T}V${H - B}" stroke-dasharray="3 3"/>` +
      paths.map(p => {
        const [colour, dash] = data.looks[p.m];
        const ok = p.high ? p.xs.map((_, i) => i).filter(i => Number.isFinite(p.low[i]) && Number.isFinite(p.high[i])) : [];
        const band = ok.length ? `<path class="flc-band" style="fill:${colour}" d="M${ok.map(i => `${sx(p.xs[i]).toFixed(1)} ${sy(p.high[i]).toFixed(1)}`).join("L")}L${ok.reverse().map(i => `${sx(p.xs[i]).toFixed(1)} ${sy(p.low[i]).toFixed(1)}`).join("L")}Z"/>` : "";
        return `${band}<path d="${line(p.xs, p.ys)}" stroke="${colour}" stroke-dasharray="${dash}" class="${p.thin ? "flc-thin" : ""}"/>`;
      }).join("") +
      shown.map((m, i) => { // its letter, each at another place of the axis
        const p = paths.find(path => path.m === m), x = right * (i + 1) / (shown.length + 1), y = interpolated(x, p.xs, p.ys);
        return x > p.xs.at(-1) || !Number.isFinite(y) ? "" : `<text class="flc-letter" x="${sx(x).toFixed(1)}" y="${(sy(y) + 4).toFixed(1)}">${letter(m)}</text>`;
      }).join("") +
      marks.map(k => { const x = sx(k.x), y = sy(k.value); return `<path d="M${x - 5} ${y}l5 -5l5 5l-5 5Z" stroke="${data.looks[k.method][0]}"><title>${escaped(k.method)}, printed: ${k.value}</title></path>`; }).join("");

    const rows = shown.map(m => ({ m, ...compared(setting, m, against, axis, metric, at) }));
    const printed = m => (data.marks.find(k => !k.axis && k.setting === setting && k.method === m) || {}).value;
    const crosses = marked ? rows.map(r => printed(r.m) - printed(against)) : [];
    const span = Math.max(1e-12, ...rows.map(r => Math.abs(r.apart) + (r.half || 0)).filter(Number.isFinite), ...crosses.filter(Number.isFinite).map(Math.abs));
    const narrow = W < 640, step = narrow ? 38 : 24, from = narrow ? 10 : 400, middle = (from + W - 12) / 2, px = v => middle + (W - 12 - from) / 2 * v / span;
    const said = r => `${r.m}: ${text(r.mean)} (${r.m === against ? "compared with" : `${signed(r.apart)} ± ${text(r.half, 2)}`}, ${r.seeds} seed${r.seeds > 1 ? "s" : ""})`;
    const dots = live.querySelector(".flc-dots");
    dots.setAttribute("viewBox", `0 0 ${W} ${step * rows.length + 4}`);
    dots.setAttribute("aria-label", rows.map(said).join("; "));
    curves.setAttribute("aria-label", `${data.title}: ${data.metrics[metric]} over ${data.axes[axis]}, of ${shown.join(", ")}`);
    dots.innerHTML = `<path class="flx-grid" d="M${middle} 0V${step * rows.length}"/>` + rows.map((r, i) => {
      const y = step * i + (narrow ? 28 : 14), colour = data.looks[r.m][0], finite = Number.isFinite(r.apart);
      return (Number.isFinite(r.half) ? `<path d="M${px(r.apart - r.half)} ${y}H${px(r.apart + r.half)}" stroke="${colour}"/>` : "") +
        (finite ? `<circle cx="${px(r.apart)}" cy="${y}" r="4.5" fill="${colour}"/>` : "") +
        (Number.isFinite(crosses[i]) && r.m !== against ? `<path d="M${px(crosses[i]) - 4} ${y - 4}l8 8m0 -8l-8 8" stroke="currentColor"/>` : "") +
        `<text x="0" y="${narrow ? y - 13 : y + 4}" style="font-size:${Math.min(13, 1.7 * W / said(r).length)}px">${escaped(said(r))}</text>`;
    }).join("");
    if (data.slide) live.querySelector("output[name=set]").textContent = setting;
    live.querySelector("output:not([name])").textContent = `${text(at)} (of ${text(end)}, ${data.axes[axis]})`;
    const what = marks.length || crosses.some(Number.isFinite) ? " Diamonds and crosses are printed." : "";
    live.querySelector(".flc-said").textContent = `${data.metrics[metric]} there, and the difference to ${against}, paired by seed, with its 95 % interval (one comparison alone; what the claims rest on is below).${what}`;
  }

  const disagreement = wrong();
  if (disagreement) {
    root.querySelector(".flx-refusal").textContent = `Not drawn: the figure and the library disagree (${disagreement}).`;
    root.dataset.state = "refused";
    return;
  }
  build();
  live.hidden = false;
  root.querySelector(".flc-still").hidden = true;
  root.dataset.state = "drawn";
  draw();
})
