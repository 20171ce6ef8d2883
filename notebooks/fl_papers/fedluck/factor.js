/* FedLuck's key convergence factor over local steps and compression rate, for a device that the reader sets: no library,
   no request to any host, works from file://. A .fl-factor element holds its data as JSON, its controls, and tables for
   readers without scripts. The minimum is found anew here and compared with the planner's for many devices; if any
   differs, nothing is drawn. */
(() => {
  "use strict";
  const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
  const put = (node, attributes) => Object.entries(attributes).forEach(([name, value]) => node.setAttribute(name, value));
  const TIE = 1e-9;

  // ---- The formulas; alpha, beta, period in seconds

  const job = ({ alpha, beta }, k, delta) => k * alpha + delta * beta;
  function factor(device, k, delta) { // Eq. 14
    const tau = job(device, k, delta) / device.period;
    return (tau * tau * (2 - delta) + 1) / (k * Math.sqrt(delta));
  }
  const staleness = (device, k, delta) => Math.max(1, Math.ceil(job(device, k, delta) / device.period - TIE)); // Eq. 7

  /* The local minimum of phi(k, .), moved into the box: smallest positive root of (L-e), by Laguerre's iteration from 0. */
  function valley({ alpha, beta, period }, k, [, , low, high]) {
    const kappa = k * alpha / period, r = beta / period;
    const [a3, a2, a1, a0] = [2.5 * r * r, 3 * r * (kappa - r), kappa * (kappa - 4 * r) / 2, kappa * kappa + 0.5];
    let x = 0;
    for (let step = 0; step < 10; step++) {
      const value = ((a3 * x + a2) * x + a1) * x + a0, slope = (3 * a3 * x + 2 * a2) * x + a1, bend = 6 * a3 * x + 2 * a2;
      const next = x + 3 * value / (Math.sqrt(Math.max(4 * slope * slope - 6 * value * bend, 0)) - slope);
      x = next < high ? next : high; // also where next is not a number
    }
    return Math.max(x, low);
  }
  /* The smallest phi in the box, over whole k: for each k at the valley or at the largest delta. */
  function minimum(device, box) {
    let best = { factor: Infinity };
    for (let k = box[0]; k <= box[1]; k++) {
      for (const delta of [valley(device, k, box), box[3]]) {
        const found = factor(device, k, delta);
        if (found < best.factor) best = { k, delta, factor: found };
      }
    }
    return best;
  }
  /* Where both derivatives vanish, (L-g) and (L-h): the local minimum (from 0) or the saddle (from 2/3), or null. */
  function stationary({ alpha, beta, period }, from) {
    const r = beta / period, left = (x) => 0.75 * x * x * (2 - x) ** 2 * (2 - 3 * x);
    if (left(0.4) < 1 / (r * r)) return null;
    let [below, above] = [from, 0.4];
    for (let step = 0; step < 80; step++) {
      const middle = (below + above) / 2;
      if (left(middle) < 1 / (r * r)) below = middle; else above = middle;
    }
    return { k: above * beta * (2 - 1.5 * above) / alpha, delta: above };
  }
  const uncompressed = ({ alpha, beta, period }) => ({ k: Math.hypot(beta, period) / alpha, delta: 1 });

  function agrees({ box, checks }) {
    const close = (a, b) => Math.abs(a - b) <= 1e-7 * Math.abs(b);
    const same = (point, k, delta) => (point === null ? k === null : k !== null && close(point.k, k) && close(point.delta, delta));
    return checks.every(([alpha, beta, period, k, delta, phi, k1, d1, k2, d2, k3]) => {
      const device = { alpha, beta, period }, best = minimum(device, box);
      return best.k === k && close(best.delta, delta) && close(best.factor, phi) && same(stationary(device, 0), k1, d1)
        && same(stationary(device, 2 / 3), k2, d2) && same(uncompressed(device), k3, 1);
    });
  }

  // ---- The figure

  const TICKS = [1, 2, 5].flatMap((m) => [-3, -2, -1, 0, 1, 2, 3, 4].map((e) => +(m * 10 ** e).toPrecision(1))).sort((a, b) => a - b);
  const MARGIN = { left: 44, right: 12, top: 8, bottom: 36 };

  function start(root) {
    const part = (name) => root.querySelector(`.flf-${name}`), all = (what) => [...root.querySelectorAll(what)];
    const data = JSON.parse(part("data").textContent), same = agrees(data);
    root.dataset.selfcheck = same ? "ok" : "failed";
    part("page").hidden = !same;
    part("wrong").hidden = same;
    if (!same) return;
    part("tables").open = false;

    const { box, devices, ranges, bands, threshold } = data, [kMin, kMax, dMin, dMax] = box;
    const device = { ...devices[0], period: data.period }, probe = { k: kMin, delta: dMax };
    const canvas = root.querySelector("canvas"), chart = root.querySelector(".flf-map svg");
    const sliders = all("[data-set]"), hands = all("[data-probe]"), select = part("device");
    let best;
    const short = (x) => +x.toPrecision(x < 1 ? 2 : 3), exact = (x) => +x.toPrecision(4);
    const rgb = bands.map(({ colour }) => [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16)));

    /* A logarithmic scale from `low` to `high` onto pixels `from` to `to`. */
    function scale(low, high, from, to) {
      const place = (value) => from + Math.log(value / low) / Math.log(high / low) * (to - from);
      const value = (pixel) => low * (high / low) ** ((pixel - from) / (to - from));
      return { place, value, low, high };
    }
    function make(parent, tag, kind, { text = "", ...attributes }) {
      const node = parent.appendChild(document.createElementNS("http://www.w3.org/2000/svg", tag));
      put(node, { class: kind, ...attributes });
      node.append(text);
      return node;
    }
    function axes(svg, x, y, xName, yName, width, height) {
      const [bottom, left] = [height - MARGIN.bottom, MARGIN.left];
      make(svg, "path", "flf-axis", { d: `M${left} ${MARGIN.top}V${bottom}H${width - MARGIN.right}` });
      const spaced = (ticks, least, place) => ticks.filter((t, i) => i === 0 || Math.abs(place(t) - place(ticks[i - 1])) > least);
      const inside = ({ low, high }) => TICKS.filter((t) => t >= low * (1 - TIE) && t <= high * (1 + TIE));
      for (const t of spaced(inside(x), 16, x.place)) {
        make(svg, "path", "flf-axis", { d: `M${x.place(t)} ${bottom}v4` });
        make(svg, "text", "", { x: x.place(t), y: bottom + 15, "text-anchor": "middle", text: t });
      }
      for (const t of spaced(inside(y), 9, y.place)) {
        make(svg, "path", "flf-axis", { d: `M${left} ${y.place(t)}h-4` });
        make(svg, "text", "", { x: left - 6, y: y.place(t) + 4, "text-anchor": "end", text: t });
      }
      make(svg, "text", "", { x: (left + width - MARGIN.right) / 2, y: height - 5, "text-anchor": "middle", text: xName });
      make(svg, "text", "", { x: 2, y: MARGIN.top + 5, text: yName });
    }
    function size(svg) {
      const { width, height } = svg.getBoundingClientRect();
      put(svg, { viewBox: `0 0 ${width} ${height}` });
      svg.replaceChildren();
      return [width, height];
    }
    const mapScales = (width, height) => [scale(kMin, kMax, MARGIN.left, width - MARGIN.right), scale(dMin, dMax, height - MARGIN.bottom, MARGIN.top)];

    function drawMap() {
      const [width, height] = size(chart);
      if (width < 100) return;
      const [x, y] = mapScales(width, height), dots = Math.min(2, window.devicePixelRatio || 1);
      const [w, h] = [width - MARGIN.left - MARGIN.right, height - MARGIN.top - MARGIN.bottom];
      canvas.width = Math.round(w * dots);
      canvas.height = Math.round(h * dots);
      Object.assign(canvas.style, { left: `${MARGIN.left}px`, top: `${MARGIN.top}px`, width: `${w}px`, height: `${h}px` });
      const pen = canvas.getContext("2d"), image = pen.createImageData(canvas.width, canvas.height);
      const ks = Array.from({ length: canvas.width }, (_, i) => x.value(MARGIN.left + (i + 0.5) / dots));
      for (let j = 0, at = 0; j < canvas.height; j++) {
        const delta = y.value(MARGIN.top + (j + 0.5) / dots);
        for (const k of ks) {
          const ratio = factor(device, k, delta) / best.factor;
          const [red, green, blue] = rgb[bands.findIndex((band) => band.most === null || ratio <= band.most)];
          image.data[at++] = red; image.data[at++] = green; image.data[at++] = blue; image.data[at++] = 255;
        }
      }
      pen.putImageData(image, 0, 0);
      axes(chart, x, y, "local steps k", "δ", width, height);
      const visible = (point) => point && point.k >= kMin && point.k <= kMax && point.delta >= dMin && point.delta <= dMax;
      const at = (point) => [x.place(point.k), y.place(point.delta)];
      const [px, py] = at(probe);
      make(chart, "path", "flf-cross", { d: `M${px} ${MARGIN.top}V${height - MARGIN.bottom}M${MARGIN.left} ${py}H${width - MARGIN.right}` });
      for (const point of [stationary(device, 0), uncompressed(device)].filter(visible)) {
        const [a, b] = at(point);
        make(chart, "path", "flf-stationary", { d: `M${a - 6} ${b}l6-6 6 6-6 6z` });
      }
      const saddle = stationary(device, 2 / 3);
      if (visible(saddle)) {
        const [a, b] = at(saddle);
        make(chart, "path", "flf-saddle", { d: `M${a - 5} ${b - 5}l10 10m0-10l-10 10` });
      }
      const [a, b] = at(best);
      make(chart, "circle", "flf-best", { cx: a, cy: b, r: 6 });
      put(chart, { "aria-label": `Map of φ over k and δ. ${part("result").textContent} ${part("here").textContent}` });
    }

    function drawCut(svg) {
      const along = svg.dataset.along, [width, height] = size(svg), [low, high] = along === "k" ? [kMin, kMax] : [dMin, dMax];
      if (width < 100) return;
      const value = (t) => (along === "k" ? factor(device, t, probe.delta) : factor(device, probe.k, t));
      const x = scale(low, high, MARGIN.left, width - MARGIN.right);
      const points = Array.from({ length: 241 }, (_, i) => low * (high / low) ** (i / 240)).map((t) => [t, value(t)]);
      const values = points.map(([, v]) => v), y = scale(Math.min(...values) / 1.1, Math.max(...values) * 1.1, height - MARGIN.bottom, MARGIN.top);
      axes(svg, x, y, along === "k" ? `local steps k, at δ = ${short(probe.delta)}` : `δ, at k = ${probe.k}`, "φ", width, height);
      make(svg, "path", "flf-curve", { d: "M" + points.map(([t, v]) => `${x.place(t).toFixed(1)} ${y.place(v).toFixed(1)}`).join("L") });
      points.slice(1, -1).forEach(([t, v], i) => {
        const [before, after] = [values[i], values[i + 2]];
        if ((v < before && v <= after) || (v > before && v >= after)) make(svg, "circle", "flf-turn", { cx: x.place(t), cy: y.place(v), r: 4 });
      });
      make(svg, "path", "flf-cross", { d: `M${x.place(probe[along])} ${MARGIN.top}V${height - MARGIN.bottom}` });
      put(svg, { "aria-label": `φ over ${along === "k" ? "k" : "δ"} through the chosen point` });
    }

    const stay = (k, delta) => {
      const tau = staleness(device, k, delta);
      return `a job takes ${exact(job(device, k, delta))} s, ${exact(job(device, k, delta) / device.period)} rounds, staleness ${tau}`;
    };
    function draw() {
      for (const slider of sliders) {
        const name = slider.dataset.set, [low, high] = ranges[name];
        slider.value = Math.log(device[name] / low) / Math.log(high / low);
        slider.setAttribute("aria-valuetext", `${exact(device[name])} seconds`);
        slider.parentNode.querySelector("output").textContent = `= ${exact(device[name])} s`;
      }
      for (const hand of hands) {
        const name = hand.dataset.probe;
        hand.value = name === "k" ? probe.k : Math.log(probe.delta / dMin) / Math.log(dMax / dMin);
        hand.setAttribute("aria-valuetext", exact(probe[name]));
        hand.parentNode.querySelector("output").textContent = `= ${exact(probe[name])}`;
      }
      const r = device.beta / device.period, here = factor(device, probe.k, probe.delta), more = 100 * (here / best.factor - 1);
      const side = r > threshold ? "compress" : "do not compress";
      part("result").textContent = `Smallest in the box: k = ${best.k}, δ = ${exact(best.delta)}, φ = ${exact(best.factor)}; ${stay(best.k, best.delta)}. `
        + `β/T̃ = ${exact(r)} is ${r > threshold ? "above" : "below"} ${exact(threshold)}: without bounds on k, ${side}.`;
      part("here").textContent = `At k = ${probe.k}, δ = ${exact(probe.delta)}: φ = ${exact(here)}, ${more < 0.005 ? "the smallest" : `${short(more)} % above the smallest`}; ${stay(probe.k, probe.delta)}.`;
      Object.assign(root.dataset, { k: best.k, delta: best.delta, factor: best.factor, here });
      drawMap();
      all(".flf-cut").forEach(drawCut);
    }
    function change(values) {
      Object.assign(device, values);
      best = minimum(device, box);
      draw();
    }
    function move(k, delta) {
      Object.assign(probe, { k: clamp(Math.round(k), kMin, kMax), delta: clamp(delta, dMin, dMax) });
      draw();
    }

    select.addEventListener("change", () => { if (select.value !== "") { change(devices[+select.value]); move(best.k, best.delta); } });
    for (const slider of sliders) {
      slider.addEventListener("input", () => {
        const name = slider.dataset.set, [low, high] = ranges[name];
        if (name !== "period") select.value = "";
        change({ [name]: low * (high / low) ** slider.value });
      });
    }
    for (const hand of hands) {
      put(hand, hand.dataset.probe === "k" ? { min: kMin, max: kMax } : {});
      hand.addEventListener("input", () => (hand.dataset.probe === "k" ? move(+hand.value, probe.delta) : move(probe.k, dMin * (dMax / dMin) ** hand.value)));
    }
    root.querySelector("[data-act=best]").addEventListener("click", () => move(best.k, best.delta));
    function point(event) {
      const { left, top, width, height } = chart.getBoundingClientRect(), [x, y] = mapScales(width, height);
      move(x.value(event.clientX - left), y.value(event.clientY - top));
    }
    chart.addEventListener("click", point);
    chart.addEventListener("pointermove", (e) => { if (e.buttons && e.pointerType === "mouse") point(e); });

    best = minimum(device, box);
    Object.assign(probe, { k: best.k, delta: best.delta });
    draw();
    new ResizeObserver(draw).observe(chart);
  }

  document.querySelectorAll(".fl-factor:not([data-selfcheck])").forEach(start);
})();
