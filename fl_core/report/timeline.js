/* Interactive timelines of traced runs: no library, no request to any host, works from file://.
   A .fl-timeline element holds its data as JSON, its controls, and tables for readers without scripts. Every number
   is derived anew here and compared with those that Python sent along; if they differ, nothing is drawn. */
(() => {
  "use strict";
  const DOES = { download: "downloads", train: "trains", upload: "uploads", down: "is down" };
  const RIBBON = 20, PAD = 7;
  const latest = (list, fits) => list.filter(fits).at(-1);
  const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
  const put = (node, attributes) => Object.entries(attributes).forEach(([name, value]) => node.setAttribute(name, value));
  const total = (list) => list.reduce((a, b) => a + b, 0);

  // ---- The numbers

  /* Tie the bars of a run to tasks, and tasks to the versions that they went into. */
  function understand({ name, spans, uses, faults, rows }) {
    const tasks = new Map(), versions = [{ number: 0, seconds: 0, uses: [] }];
    const bars = spans.map(([number, device, activity, start, end, base, row]) => {
      if (activity === "down") return { device, activity, start, end };
      const task = tasks.get(number) || { number, device, start, base, row };
      tasks.set(number, Object.assign(task, { end }, activity === "train" && { trained: end, began: start }));
      return { device, activity, start, end, task };
    });
    for (const [number, device, seconds, version, staleness, weight] of uses) {
      if (versions.at(-1).number !== version) versions.push({ number: version, seconds, uses: [] });
      const use = { device, seconds, version, staleness, weight };
      versions.at(-1).uses.push(use);
      if (tasks.has(number)) tasks.get(number).use = use;
    }
    const events = bars.flatMap((b) => [b.start, b.end]).concat(versions.map((v) => v.seconds)).sort((a, b) => a - b);
    return { name, bars, tasks, list: [...tasks.values()], versions, faults, rows, events };
  }
  const versionAt = (run, seconds) => latest(run.versions, (v) => v.seconds <= seconds).number;
  const inFlight = (run, seconds) => run.list.filter((t) => t.start <= seconds && seconds < t.end).length;
  function idle(run, seconds, devices) {
    const work = run.bars.filter((b) => b.task && b.start < seconds).map((b) => Math.min(b.end, seconds) - b.start);
    return seconds > 0 ? 1 - total(work) / (seconds * devices) : 0;
  }
  function summary(run, until, devices) {
    const stale = run.versions.flatMap((v) => v.uses.map((u) => u.staleness));
    const mean = stale.length ? total(stale) / stale.length : null;
    return [run.versions.length - 1, stale.length, idle(run, until, devices), mean, Math.max(0, ...stale)];
  }
  function agrees(run, checks, until, devices) {
    const close = (a, b) => a === b || (a !== null && b !== null && Math.abs(a - b) < 1e-9);
    return checks.moments.every(([t, version, flying]) => versionAt(run, t) === version && inFlight(run, t) === flying)
      && summary(run, until, devices).every((value, i) => close(value, checks.summary[i]));
  }

  // ---- The figure

  function start(root) {
    const part = (name) => root.querySelector(`.flt-${name}`);
    const { until, devices, groups, runs: sent } = JSON.parse(part("data").textContent);
    const runs = sent.map(understand), same = runs.every((run, i) => agrees(run, sent[i].checks, until, devices));
    root.dataset.selfcheck = same ? "ok" : "failed";
    part("page").hidden = !same;
    part("wrong").hidden = same;
    if (!same) return;
    part("tables").open = false;

    const svg = part("chart"), says = part("says"), slider = part("slider"), tabs = [...root.querySelectorAll("[data-run]")];
    let run, plot, ticks, links, items, clock = until, from = 0, to = until, timer = 0, picked = null, pinned = false;
    const time = (s) => `${s.toFixed(until > 2000 ? 0 : until > 200 ? 1 : 2)} s`;
    const percent = (x) => `${Math.round(100 * x)} %`;
    const gutter = 12 + 6.2 * `device ${devices - 1}`.length;
    const plotWidth = () => Math.max(50, svg.clientWidth - gutter - PAD);

    /* Add an element to the chart. One with `a` (and `b`) stands at (from, to) these seconds: the style sheet
       computes its place from --a, --b and the window, so that zooming touches no element. */
    function make(tag, kind, { a, b = a, text = "", ...attributes }, parent = plot) {
      const node = parent.appendChild(document.createElementNS("http://www.w3.org/2000/svg", tag));
      node.setAttribute("class", kind);
      put(node, attributes);
      if (a !== undefined) { node.style.setProperty("--a", a); node.style.setProperty("--b", b); }
      node.append(text);
      return node;
    }
    /* Make an element one that can be pointed at, focused and read. */
    function item(node, lane, a, text, task) {
      const entry = { node, lane, a, text, task };
      put(node, { role: "img", "aria-label": text, tabindex: items.push(entry) > 1 ? -1 : 0 });
      node.addEventListener("pointerenter", (e) => { if (e.pointerType === "mouse" && !pinned) pick(entry); });
      node.addEventListener("focus", () => { if (entry !== picked) { pinned = false; pick(entry); } });
      return node;
    }
    /* A number in a bar; it needs that many pixels. */
    const number = (kind, value, a, b, y) => make("text", kind, { a, b, y, text: value })
      .style.setProperty("--need", 7 * String(value).length + 5);

    function choose(index) {
      run = runs[index];
      tabs.forEach((tab, i) => tab.setAttribute("aria-pressed", i === index));
      const [versions, uploads, idling, mean, most] = summary(run, until, devices);
      part("totals").textContent = `${run.name}, first ${+until.toFixed(2)} s: ${versions} versions from ${uploads} uploads, `
        + `${percent(idling)} of device time idle` + (uploads ? `, staleness ${mean.toFixed(2)} on average, ${most} at most.` : ".");
      build();
      tick(clock);
    }

    function build() {
      svg.replaceChildren();
      items = [];
      const lanes = new Map(), pitch = clamp(360 / devices, 8, 25);
      const label = (text, y, kind = "") => make("text", kind || "flt-label", { x: kind ? 0 : gutter - 8, y, text }, svg);
      let y = RIBBON + 8;
      label("version", 15);
      for (const { server, members } of groups) {
        if (server !== null) label(server, (y += 20) - 6, "flt-server");
        for (const device of members) {
          const rows = run.rows[device] || 1, tall = Math.max(pitch, 8 * rows);
          lanes.set(device, { y, tall, row: tall / rows });
          if (pitch > 11 || device % 5 === 0) label(`device ${device}`, y + tall / 2 + 4);
          y += tall + clamp(pitch / 5, 1, 5);
        }
      }
      put(svg, { height: y + 36, "aria-label": `${run.name}: ${devices} devices, ${run.versions.length - 1} versions. Arrow keys `
        + "go from bar to bar, plus and minus zoom, Shift with an arrow key moves, 0 shows the whole run." });
      const frame = make("svg", "", { x: gutter - PAD, height: y + 36 }, svg); // clips, with a margin for what stands on an edge
      plot = make("g", "flt-plot", { transform: `translate(${PAD} 0)` }, frame);

      for (const { y, tall } of lanes.values()) make("rect", "flt-idle", { a: 0, b: until, y, height: tall });
      lanes.set(-1, { y: 1, tall: RIBBON }); // the server
      run.versions.forEach((version, i) => {
        const n = version.number, a = version.seconds, b = run.versions[i + 1]?.seconds ?? until;
        const made = version.uses.map((u) => `device ${u.device} (staleness ${u.staleness})`).join(", ");
        const text = n ? `Version ${n}, made at ${time(a)} from ${made}.` : "Version 0, the initial model.";
        version.node = item(make("rect", `flt-version flt-${i % 2 ? "odd" : "even"}`, { a, b, y: 1, height: RIBBON }), -1, a, text);
        number("flt-n", n, a, b, 15);
        if (n) make("path", "flt-commit", { a, d: `M0 ${RIBBON + 2}V${y}` });
      });
      for (const { device, activity, start: a, end: b, task } of run.bars) {
        const lane = lanes.get(device), top = lane.y + (task ? task.row * lane.row : 0), height = task ? lane.row : lane.tall;
        if (task) Object.assign(task, { y: top, height, middle: top + height / 2 });
        item(make("rect", `flt-bar flt-${activity}`, { a, b, y: top, height }), device, a, sentence(device, activity, a, b, task), task);
      }
      for (const { end, use, middle, height, began, trained } of run.list.filter((t) => t.use)) {
        make("rect", "flt-wait", { a: end, b: use.seconds, y: middle - 0.6, height: 1.2 });
        make("circle", "flt-use", { a: use.seconds, cy: middle, r: Math.min(3.2, height / 4) });
        if (trained && height > 11) number("flt-stale", use.staleness, began, trained, middle + 4);
      }
      for (const [seconds, device, number, fault] of run.faults) {
        const lane = lanes.get(device), task = run.tasks.get(number);
        const node = make("text", "flt-fault", { a: seconds, y: lane.y + lane.tall / 2 + 6, text: "×" });
        const whom = device < 0 ? "The server" : `Device ${device}${task ? `, task ${number}` : ""}`;
        item(node, device, seconds, `${whom}: ${fault} at ${time(seconds)}.`, task);
      }
      links = make("g", "", {});
      make("rect", "flt-veil", { y: RIBBON + 2, height: y - RIBBON - 2 });
      make("path", "flt-hand", { d: `M0 0V${y + 4}` });
      make("path", "flt-axis", { d: `M0 ${y}h9999` });
      ticks = make("g", "flt-ticks", { transform: `translate(0 ${y})` });
      pinned = false;
      pick(null);
    }

    function sentence(device, activity, a, b, task) {
      const does = `${DOES[activity]} from ${time(a)} to ${time(b)}`;
      if (!task) return `Device ${device} ${does}.`;
      const { number, base, use } = task, text = `Device ${device}, task ${number}: ${does}. Began with version ${base}; `;
      if (!use) return `${text}not used within these ${+until.toFixed(2)} s.`;
      const taken = use.version - 1 - use.staleness === base ? "" : `took version ${use.version - 1 - use.staleness} on the way; `;
      const weight = use.weight === null ? "" : `, weight ${+use.weight.toPrecision(3)}`;
      return `${text}${taken}went into version ${use.version} at ${time(use.seconds)}. Staleness ${use.staleness}${weight}.`;
    }

    /* Show an item; of a task also the version it started from, those it missed and the one it went into. */
    function pick(entry) {
      picked = entry;
      const task = entry?.task, use = task?.use, base = use ? use.version - 1 - use.staleness : task?.base;
      svg.classList.toggle("flt-dim", Boolean(task));
      for (const other of items) other.node.classList.toggle("flt-on", other === entry || Boolean(task && other.task === task));
      for (const { number, node } of run.versions) {
        node.classList.toggle("flt-base", number === base);
        node.classList.toggle("flt-missed", base < number && number < use?.version);
        node.classList.toggle("flt-target", number === use?.version);
      }
      links.replaceChildren();
      if (task) make("path", "flt-link flt-base", { a: task.start, d: `M0 ${RIBBON + 2}V${task.y}m-4-6l4 6l4-6` }, links);
      if (use) {
        make("rect", "flt-link flt-target", { a: task.end, b: use.seconds, y: task.middle - 1, height: 2 }, links);
        make("path", "flt-link flt-target", { a: use.seconds, d: `M0 ${task.middle}V${RIBBON + 2}m-4 6l4-6l4 6` }, links);
      }
      says.textContent = entry ? entry.text : "Point at a bar, tap it or go there with the arrow keys to see its task. "
        + "Drag to move in time; pinch, Ctrl + wheel, or + and − to zoom.";
    }

    // ---- The window on the time axis

    function look(start, end) {
      const length = clamp(end - start, until / 500, until), width = plotWidth();
      from = clamp(start, 0, until - length);
      to = from + length;
      plot.parentNode.setAttribute("width", width + 2 * PAD);
      const window = { from, to, px: width / length, clock };
      for (const [name, value] of Object.entries(window)) plot.style.setProperty(`--${name}`, value);
      const rough = length * 70 / width, power = 10 ** Math.floor(Math.log10(rough));
      const step = power * [1, 2, 5, 10].find((m) => m * power >= rough);
      ticks.replaceChildren();
      for (let k = Math.ceil(from / step); k * step <= to * (1 + 1e-9); k++) {
        const x = (k * step - from) * width / length, anchor = x > width - 5 ? "end" : "middle";
        make("path", "flt-axis", { d: `M${x} 0v4` }, ticks);
        make("text", "", { x, y: 16, "text-anchor": anchor, text: +(k * step).toPrecision(6) }, ticks);
      }
      make("text", "", { x: width / 2, y: 32, "text-anchor": "middle", text: "virtual time (s)" }, ticks);
    }
    const pan = (part) => look(from + part * (to - from), to + part * (to - from));
    const zoom = (factor, at = picked ? picked.a : (from + to) / 2) => look(at - (at - from) * factor, at + (to - at) * factor);
    const pixel = (event) => event.clientX - svg.getBoundingClientRect().left - gutter;

    const fingers = new Map(); // pressed pointers: two of them zoom
    let moved = false;
    svg.addEventListener("pointerdown", (e) => {
      moved = moved && fingers.size > 0;
      fingers.set(e.pointerId, pixel(e));
    });
    svg.addEventListener("pointermove", (e) => {
      if (!fingers.has(e.pointerId) || (!moved && Math.abs(pixel(e) - fingers.get(e.pointerId)) < 5)) return;
      moved = true;
      svg.setPointerCapture(e.pointerId);
      const scale = (to - from) / plotWidth(), [one, two] = [...fingers.values()].map((x) => from + x * scale);
      fingers.set(e.pointerId, pixel(e));
      const [here, there] = fingers.values(), wide = Math.abs(there - here) > 10 ? Math.abs((two - one) / (there - here)) : scale;
      look(one - here * wide, one + (plotWidth() - here) * wide);
    });
    for (const end of ["pointerup", "pointercancel"]) svg.addEventListener(end, (e) => fingers.delete(e.pointerId));
    svg.addEventListener("pointerleave", (e) => { if (!pinned && e.pointerType === "mouse") pick(null); });
    svg.addEventListener("click", (e) => {
      if (moved) return;
      const entry = items.find((i) => i.node === e.target);
      pick(entry || null);
      pinned = Boolean(entry);
    });
    svg.addEventListener("wheel", (e) => {
      const [sideways, other] = e.shiftKey ? [e.deltaY || e.deltaX, 0] : [e.deltaX, e.deltaY];
      if (e.ctrlKey || e.metaKey) zoom(Math.exp(clamp(e.deltaY, -60, 60) / 200), from + pixel(e) * (to - from) / plotWidth());
      else if (Math.abs(sideways) > Math.abs(other)) pan(sideways / plotWidth());
      else return; // the page scrolls
      e.preventDefault();
    }, { passive: false });

    function focus(entry) {
      if (!entry) return;
      for (const { node } of items) node.setAttribute("tabindex", node === entry.node ? 0 : -1);
      if (entry.a < from || entry.a > to) look(entry.a - (to - from) / 3, entry.a + (to - from) * 2 / 3);
      entry.node.focus();
    }
    svg.addEventListener("keydown", (e) => {
      const here = items.find((i) => i.node === e.target);
      if (!here || e.ctrlKey || e.metaKey || e.altKey) return;
      const inLane = (lane) => items.filter((i) => i.lane === lane).sort((a, b) => a.a - b.a), lane = inLane(here.lane);
      const filled = [-1, ...groups.flatMap((g) => g.members)].filter((l) => inLane(l).length);
      const beside = (step) => inLane(filled[filled.indexOf(here.lane) + step]);
      const across = (step) => focus(latest(beside(step), (i) => i.a <= here.a) || beside(step)[0]);
      const along = (step) => e.shiftKey ? pan(step / 4) : focus(lane[lane.indexOf(here) + step]);
      const keys = {
        ArrowLeft: () => along(-1), ArrowRight: () => along(1), ArrowUp: () => across(-1), ArrowDown: () => across(1),
        Home: () => focus(lane[0]), End: () => focus(lane.at(-1)), "+": () => zoom(2 / 3), "=": () => zoom(2 / 3),
        "-": () => zoom(3 / 2), 0: () => look(0, until), Escape: () => { pinned = false; pick(null); },
      };
      if (keys[e.key]) { keys[e.key](); e.preventDefault(); }
    });
    svg.addEventListener("focusout", (e) => { if (!pinned && !svg.contains(e.relatedTarget)) pick(null); });

    // ---- The clock

    function tick(seconds) {
      clock = clamp(seconds, 0, until);
      const ahead = clock < from || clock > to ? clock - (to - from) / 10 : from;
      look(ahead, ahead + to - from);
      const [version, flying, idling] = [versionAt(run, clock), inFlight(run, clock), idle(run, clock, devices)];
      Object.assign(root.dataset, { clock, version, flying, idle: idling });
      const text = `t = ${time(clock)}: version ${version}, ${flying} in flight, ${percent(idling)} idle so far`;
      part("readout").textContent = text;
      slider.value = clock;
      slider.setAttribute("aria-valuetext", text);
    }
    function pause() {
      cancelAnimationFrame(timer);
      timer = 0;
      part("play").textContent = "Play";
    }
    function play() {
      if (timer) return pause();
      let before = performance.now();
      if (clock >= until) tick(0);
      part("play").textContent = "Pause";
      timer = requestAnimationFrame(function frame(now) {
        tick(clock + (now - before) / 20000 * (to - from)); // what is in view takes 20 s
        before = now;
        if (clock < until && root.isConnected) timer = requestAnimationFrame(frame); else pause();
      });
    }
    function jump(seconds) {
      if (seconds === undefined) return;
      pause();
      pinned = false;
      pick(null);
      tick(seconds);
      const made = run.versions.filter((v) => v.number && v.seconds === clock).map((v) => `version ${v.number} is made`);
      const done = run.list.filter((t) => t.end === clock).map((t) => `device ${t.device} has delivered`);
      const begun = run.bars.filter((b) => b.start === clock).map((b) => `device ${b.device} ${DOES[b.activity]}`);
      says.textContent = `At ${time(clock)}: ${[...done, ...made, ...begun].join(", ") || "the figure ends"}.`;
    }
    slider.addEventListener("input", () => { pause(); tick(+slider.value); });

    const acts = {
      earlier: () => pan(-0.25), later: () => pan(0.25), out: () => zoom(3 / 2), in: () => zoom(2 / 3), all: () => look(0, until),
      play, before: () => jump(latest(run.events, (e) => e < clock)), after: () => jump(run.events.find((e) => e > clock)),
    };
    root.addEventListener("click", (e) => acts[e.target.dataset.act]?.());
    tabs.forEach((tab, i) => tab.addEventListener("click", () => choose(i)));
    choose(0);
    new ResizeObserver(() => look(from, to)).observe(svg);
  }

  document.querySelectorAll(".fl-timeline:not([data-selfcheck])").forEach(start);
})();
