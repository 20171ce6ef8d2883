// Draws curves of a formula that the reader moves with sliders. The formula is given twice, here and in Python; before
// anything is drawn it is compared with what Python computed, and on a disagreement nothing is drawn.
(function (root, formula) {
  "use strict";
  const data = JSON.parse(root.querySelector("script[type='application/json']").textContent);
  const svg = root.querySelector("svg"), legend = root.querySelector(".flx-legend");
  const inputs = [...root.querySelectorAll("input")], W = 640, H = 340, L = 62, R = 14, T = 12, B = 44;

  function wrong() {
    for (const check of data.checks) {
      const found = formula(check.parameters);
      for (const name of data.series) {
        const ours = found[name], theirs = check.values[name];
        if (!ours || ours.length !== theirs.length) return `${name} has another length`;
        for (let i = 0; i < ours.length; i++) {
          if (!(Math.abs(ours[i] - theirs[i]) <= 1e-6 * Math.max(1, Math.abs(theirs[i]))))
            return `${name} at ${JSON.stringify(check.parameters)}: ${ours[i]} here, ${theirs[i]} in Python`;
        }
      }
    }
    return "";
  }

  function scale(low, high, log, from, to) {
    if (log) { low = Math.log10(low); high = Math.log10(high); }
    if (!(high > low)) high = low + 1;
    return value => from + (to - from) * ((log ? Math.log10(value) : value) - low) / (high - low);
  }

  function ticks(low, high, log) {
    if (log) {
      const found = [];
      const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
      const step = Math.max(1, Math.ceil((last - first) / 6));
      for (let e = first; e <= last; e += step) found.push(10 ** e);
      return found.length > 1 ? found : [low, high];
    }
    const rough = (high - low) / 5, unit = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map(k => k * unit).find(k => k >= rough);
    const found = [];
    for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + 1e-9 * step; v += step) found.push(v);
    return found;
  }

  const raised = power => String(power).replace(/./g, sign => "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"["0123456789-".indexOf(sign)]);
  const short = value => Number(Number(value).toPrecision(4));
  const times = (_, digits, power) => `${digits === "1" ? "" : digits + "·"}10${raised(power)}`;
  const text = value => {
    const number = short(value), small = number && Math.abs(number) < 1e-3;
    return (small ? number.toExponential() : String(number)).replace(/^(.*)e\+?(-?\d+)$/, times).replace("-", "−");
  };
  const add = (name, attributes, content) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    if (content !== undefined) node.textContent = content;
    svg.appendChild(node);
    return node;
  };

  function draw() {
    const parameters = {};
    for (const input of inputs) {
      parameters[input.name] = Number(input.value);
      root.querySelector(`output[data-for="${input.name}"]`).textContent = text(input.value);
    }
    const found = formula(parameters), x = found.x;
    const inside = data.series.flatMap(name => found[name]).filter(v => Number.isFinite(v) && (!data.log || v > 0));
    let low = data.range ? data.range[0] : Math.min(...inside), high = data.range ? data.range[1] : Math.max(...inside);
    if (!data.log && low > 0 && low < 0.3 * high) low = 0;
    const sx = scale(x[0], x[x.length - 1], data.log_x, L, W - R), sy = scale(low, high, data.log, H - B, T);
    svg.replaceChildren();
    for (const v of ticks(low, high, data.log)) {
      add("line", { x1: L, x2: W - R, y1: sy(v), y2: sy(v), class: "flx-grid" });
      add("text", { x: L - 6, y: sy(v) + 4, "text-anchor": "end" }, text(v));
    }
    for (const v of ticks(x[0], x[x.length - 1], data.log_x))
      add("text", { x: sx(v), y: H - B + 18, "text-anchor": "middle" }, text(v));
    add("text", { x: (L + W - R) / 2, y: H - 6, "text-anchor": "middle" }, data.x_label);
    data.series.forEach((name, k) => {
      let path = "", pen = "M";
      found[name].forEach((v, i) => {
        if (!Number.isFinite(v) || (data.log && v <= 0)) { pen = "M"; return; }
        const y = Math.min(Math.max(sy(v), T - 4), H - B + 4);
        path += `${pen}${sx(x[i]).toFixed(1)} ${y.toFixed(1)}`;
        pen = "L";
      });
      add("path", { d: path, stroke: data.colours[k], "stroke-dasharray": data.dashes[k], class: "flx-curve" });
    });
    const last = name => found[name][found[name].length - 1];
    legend.innerHTML = data.series.map((name, k) =>
      `<span><i style="border-color:${data.colours[k]};border-style:${data.dashes[k] ? "dashed" : "solid"}"></i>` +
      `${name}: ${text(last(name))} at the right end</span>`).join("");
    svg.setAttribute("aria-label", `${data.title}. ` + data.series.map(name => `${name} ends at ${text(last(name))}`).join(", "));
  }

  const disagreement = wrong();
  if (disagreement) {
    root.querySelector(".flx-refusal").textContent = `Not drawn: the figure and the library disagree (${disagreement}).`;
    root.dataset.state = "refused";
    return;
  }
  root.querySelector(".flx-live").hidden = false;
  root.dataset.state = "drawn";
  inputs.forEach(input => input.addEventListener("input", draw));
  draw();
})
