"use strict";
// Overview, memory over time, timeline, roofline.

function card(value, label) { return el("div", { class: "card" }, el("div", { class: "v" }, value), el("div", { class: "k" }, label)); }
function panel(title, sub, ...children) { return el("section", { class: "panel" }, el("h2", {}, title), el("p", { class: "sub" }, sub), ...children); }

function table(head, rows) {
  const numeric = (h) => h.startsWith(">") ? "n" : "";
  return el("table", {},
    el("thead", {}, el("tr", {}, ...head.map((h) => el("th", { class: numeric(h) }, h.replace(">", ""))))),
    el("tbody", {}, ...rows.map(({ cells, open }) => el("tr", open ? { class: "link", on: { click: open } } : {},
      ...cells.map((c, k) => el("td", { class: numeric(head[k]) }, c))))));
}

// ---- overview

class Overview {
  constructor(report) { this.report = report; }

  show(host) {
    const r = this.report, cards = [];
    if (r.profile) cards.push(card(seconds(r.profile.total), "one run"));
    cards.push(card(String(r.kernels.length), "kernels"), card(String(r.calls.length), "kernel calls"),
      card(`${r.graphs.before.nodes.length} → ${r.graphs.after.nodes.length}`, "nodes, before → after"),
      card(bytes(r.memory.size), "arena"));
    if (r.constants) cards.push(card(bytes(r.constants), "constants"));
    if (r.profile?.flops) cards.push(card(rate(r.profile.flops / r.profile.total, "FLOP/s"), "over the whole run"));
    const io = (specs) => table(["Name", "Type"], specs.map((s) => {
      const [name, ...rest] = s.split(": ");
      return { cells: [el("code", {}, name), el("code", {}, rest.join(": "))] };
    }));
    host.append(el("div", { class: "page" }, el("div", { class: "cards" }, ...cards),
      el("div", { class: "two" },
        panel("Inputs", "What the model takes", io(r.inputs)), panel("Outputs", "What it gives", io(r.outputs))),
      this.where(), this.launches(), this.machine()));
  }

  // What a GPU runs at the same time.
  launches() {
    const l = this.report.launches;
    if (!l) return null;
    const rows = [
      ["Side by side", `${l.chain} of ${l.calls} kernel calls follow each other; the others run beside them`],
      ["Begin early", `${l.early} of ${l.count} launches begin while those run that they wait for`],
      ...l.merged.map((m) => ["Merged", `${m.name} stands for ${m.before} launches`])];
    return panel("Launches", "Turned off by disabled_passes={\"merge_kernels\"}", table(["", ""], rows.map((cells) => ({ cells }))));
  }

  where() {
    const r = this.report;
    if (r.profile) {
      const top = [...r.kernels].sort((a, b) => b.seconds - a.seconds).slice(0, 12);
      return panel("Where the time goes", "The kernels that take most of a run", kernelTable(r, top));
    }
    const kinds = new Map();
    for (const n of r.graphs.before.nodes) if (n.kind !== "input" && n.kind !== "output") kinds.set(n.kind, (kinds.get(n.kind) || 0) + 1);
    const rows = [...kinds].sort((a, b) => b[1] - a[1]), most = rows[0]?.[1] || 1;
    return panel("Operators", "How often each occurs", table(["Operator", ">Count", ""], rows.map(([kind, count]) => ({
      cells: [el("span", {}, el("span", { class: "dot", style: `background:${colour(kind)}` }), kind), String(count), bar(count / most, colour(kind))] }))));
  }

  machine() {
    const r = this.report;
    const tuned = r.tuned.kernels.length ? [`${r.tuned.kernels.length} of ${r.kernels.length} kernels`] : [];
    return panel("Made for", "The target, and what made it", table(["", ""], [
      { cells: ["Target", el("code", {}, r.target)] }, { cells: ["Tilewright", r.version] },
      ...[...tuned, ...r.tuned.decisions].map((text) => ({ cells: ["By records", text] }))]));
  }
}

function bar(f, tint) { return el("div", { class: "bar" }, el("i", { style: `width:${(100 * f).toFixed(1)}%;background:${tint}` })); }

function kernelTable(r, kernels) {
  const rows = kernels.map((k) => ({
    open: () => app.open("kernels", k.name),
    cells: [el("span", {}, el("span", { class: "dot", style: `background:${colour(k.kind)}` }), el("code", {}, k.name)),
      String(k.calls), seconds(k.seconds), percent(k.share), k.flops ? rate(k.flops / k.seconds, "FLOP/s") : "–",
      k.bytes ? rate(k.bytes / k.seconds, "B/s") : "–", k.floor ? percent(Math.min(1, k.floor / k.seconds)) : "–",
      bar(k.share / r.hottest, colour(k.kind))],
  }));
  return table(["Kernel", ">Calls", ">Time", ">Share", ">FLOP/s", ">Bytes/s", ">Of floor", ""], rows);
}

// ---- memory

class MemoryView {
  constructor(report) { this.report = report; }

  show(host) {
    const m = this.report.memory;
    if (!m.places.length) { host.append(el("p", { class: "empty" }, "The model needs no memory between its kernels.")); return; }
    const total = m.places.reduce((s, p) => s + p.size, 0);
    const note = m.usual ? " Symbolic dimensions count as 64." : "";
    host.append(el("div", { class: "page" },
      el("div", { class: "cards" }, card(bytes(m.size), "arena"), card(bytes(this.peak(m)), "live at the peak"), card(bytes(total), "all values, unshared"), card(String(m.places.length), "values")),
      panel("The memory plan", "Every value between kernels: when it lives (across) and where in the arena (up)." + note, this.picture(m)),
      panel("Live bytes", "What the program holds at each kernel call", this.curve(m))));
  }

  live(m) {
    const steps = new Float64Array(m.last + 2);
    for (const p of m.places) { steps[p.first] += p.size; steps[p.last + 1] -= p.size; }
    for (let k = 1; k < steps.length; k++) steps[k] += steps[k - 1];
    return steps.slice(0, m.last + 1);
  }
  peak(m) { return Math.max(...this.live(m)); }

  frame(high, top, format) {
    const g = svg("svg", { viewBox: `0 0 1200 ${high + 40}`, width: "100%", style: "display:block" });
    for (let k = 0; k <= 4; k++) {
      const y = high - high * k / 4 + 10;
      g.append(svg("line", { x1: 70, x2: 1190, y1: y, y2: y, class: "axis" }), text(62, y + 4, format(top * k / 4), "end"));
    }
    g.append(text(70, high + 32, "first kernel call", "start"), text(1190, high + 32, "last", "end"));
    return g;
  }

  picture(m) {
    const high = 460, g = this.frame(high, m.size, bytes), x = (t) => 70 + 1120 * t / (m.last + 1);
    const kinds = new Map(this.report.calls.map((c) => [c.step, c.kernel]));
    m.places.forEach((p, number) => {
      const kernel = this.report.byName.get(kinds.get(p.first));
      const tall = Math.max(0.8, high * p.size / m.size - 0.7);
      const box = svg("rect", { x: x(p.first), width: Math.max(1, x(p.last + 1) - x(p.first) - 0.6), y: high + 10 - high * (p.offset + p.size) / m.size, height: tall, rx: 1.5,
        fill: kernel ? colour(kernel.kind) : "#8b95a7", "fill-opacity": [0.9, 0.62, 0.76][number % 3], class: "hit" });
      const text_ = `${p.name}\n${bytes(p.size)} at ${bytes(p.offset)}\nlives for ${p.last - p.first + 1} of ${m.last + 1} steps` + (kernel ? `\nmade by ${kernel.name}` : "");
      for (const [event, f] of Object.entries(hinted(text_))) box.addEventListener(event, f);
      g.append(box);
    });
    return g;
  }

  curve(m) {
    const high = 160, live = this.live(m), top = Math.max(m.size, ...live), g = this.frame(high, top, bytes);
    let path = `M70 ${high + 10}`;
    live.forEach((v, k) => {
      const y = (high + 10 - high * v / top).toFixed(1), x = (t) => (70 + 1120 * t / live.length).toFixed(1);
      path += `L${x(k)} ${y}L${x(k + 1)} ${y}`;
    });
    g.append(svg("path", { d: `${path}L1190 ${high + 10}Z`, fill: "#2f6fed", "fill-opacity": 0.25, stroke: "#2f6fed", "stroke-width": 1.5 }));
    return g;
  }
}

function text(x, y, what, anchor) { const t = svg("text", { x, y, "text-anchor": anchor, class: "tick" }); t.textContent = what; return t; }

// ---- timeline

class TimelineView {
  constructor(report) { this.report = report; }

  show(host) {
    const r = this.report;
    if (!r.profile) { host.append(unmeasured()); return; }
    host.append(el("div", { class: "page" },
      panel("One run, from left to right", `${r.profile.events.length} kernel calls in ${seconds(r.profile.total)}. Click a call for its kernel.`, this.strip(r)),
      panel("Kernels by time", "All calls of a kernel together; “of floor” is the least time that the machine's peak and bandwidth allow, as a share of the time taken.",
        kernelTable(r, [...r.kernels].sort((a, b) => b.seconds - a.seconds)))));
  }

  strip(r) {
    const rows = 4, each = r.profile.total / rows, high = 46;
    const g = svg("svg", { viewBox: `0 0 1200 ${rows * (high + 26) + 6}`, width: "100%", style: "display:block" });
    for (let row = 0; row < rows; row++) {
      const y = row * (high + 26) + 4;
      g.append(svg("rect", { x: 0, y, width: 1200, height: high, rx: 6, fill: "var(--hover)" }), text(0, y + high + 15, seconds(row * each), "start"));
      if (row === rows - 1) g.append(text(1200, y + high + 15, seconds(r.profile.total), "end"));
      for (const e of r.profile.events) {
        const from = Math.max(e.start, row * each), to = Math.min(e.start + e.seconds, (row + 1) * each);
        if (to > from) g.append(this.block(r, e, 1200 * (from - row * each) / each, 1200 * (to - from) / each, y, high));
      }
    }
    return g;
  }

  block(r, e, x, wide, y, high) {
    const kernel = r.byName.get(e.kernel);
    const box = svg("rect", { x, y, width: Math.max(0.4, wide - 0.8), height: high, rx: Math.min(3, wide / 3), fill: colour(kernel?.kind || "other"), class: "hit", style: "cursor:pointer" });
    box.addEventListener("click", () => app.open("kernels", e.kernel));
    for (const [event, f] of Object.entries(hinted(`${e.kernel}\n${seconds(e.seconds)}, from ${seconds(e.start)}${e.origin ? "\n" + e.origin : ""}`))) box.addEventListener(event, f);
    if (wide < 60) return box;
    const label = text(x + 7, y + high / 2 + 4, e.kernel.replace(/_[0-9a-f]{12}$/, "").slice(0, Math.floor(wide / 7) - 1), "start");
    label.setAttribute("style", "fill:#fff;pointer-events:none");
    return svg("g", {}, box, label);
  }
}

function unmeasured() {
  return el("p", { class: "empty" }, "Nothing was measured for this page. ", el("br"), "Make it on a machine that can run the model, without --no-profile.");
}

// ---- roofline

class RooflineView {
  constructor(report) { this.report = report; }

  show(host) {
    const r = this.report;
    if (!r.profile?.roof) { host.append(unmeasured()); return; }
    host.append(el("div", { class: "page" }, panel("Roofline",
      `What limits each kernel. The roof is what this machine was measured to do: ${rate(r.profile.roof.flops, "FLOP/s")}, ${rate(r.profile.roof.bandwidth, "B/s")} from memory, ${rate(r.profile.roof.cached, "B/s")} from the caches (dashed). A point's area is its share of the run.`,
      this.picture(r))));
  }

  picture(r) {
    const points = r.kernels.filter((k) => k.flops && k.bytes && k.seconds).map((k) => ({ k, x: k.flops / k.bytes, y: k.flops / k.seconds }));
    const { flops, bandwidth } = r.profile.roof, knee = flops / bandwidth;
    const xs = [knee / 8, knee * 8, ...points.map((p) => p.x)], ys = [flops * 2, flops / 100, ...points.map((p) => p.y)];
    const lo = (v) => Math.floor(Math.log10(Math.min(...v))), hi = (v) => Math.ceil(Math.log10(Math.max(...v)));
    const [x0, x1, y0, y1] = [lo(xs), hi(xs), lo(ys), hi(ys)];
    const X = (v) => 80 + 1090 * (Math.log10(v) - x0) / (x1 - x0), Y = (v) => 540 - 520 * (Math.log10(v) - y0) / (y1 - y0);
    const g = svg("svg", { viewBox: "0 0 1200 590", width: "100%", style: "display:block" });
    for (let e = x0; e <= x1; e++) g.append(svg("line", { x1: X(10 ** e), x2: X(10 ** e), y1: 20, y2: 540, class: "axis" }), text(X(10 ** e), 558, String(+(10 ** e).toPrecision(1)), "middle"));
    for (let e = y0; e <= y1; e++) g.append(svg("line", { x1: 80, x2: 1170, y1: Y(10 ** e), y2: Y(10 ** e), class: "axis" }), text(72, Y(10 ** e) + 4, rate(10 ** e, "FLOP/s"), "end"));
    g.append(text(625, 582, "FLOP per byte", "middle"));
    const slope = (rate_) => {
      const left = Math.max(10 ** x0, 10 ** y0 / rate_), end = Math.max(left, flops / rate_);
      return `M${X(left)} ${Y(Math.min(flops, left * rate_))}L${X(end)} ${Y(flops)}`;
    };
    g.append(svg("path", { d: slope(r.profile.roof.cached), fill: "none", stroke: "var(--soft)", "stroke-width": 1.5, "stroke-dasharray": "5 5" }),
      svg("path", { d: `${slope(bandwidth)}L${X(10 ** x1)} ${Y(flops)}`, fill: "none", stroke: "var(--ink)", "stroke-width": 2 }));
    for (const { k, x, y } of points.sort((a, b) => b.k.share - a.k.share)) {
      const dot = svg("circle", { cx: X(x), cy: Y(y), r: 4 + 34 * Math.sqrt(k.share), fill: colour(k.kind), "fill-opacity": 0.65, class: "hit", style: "cursor:pointer" });
      dot.addEventListener("click", () => app.open("kernels", k.name));
      const about = `${k.name}\n${rate(y, "FLOP/s")} at ${x.toFixed(2)} FLOP/byte\n${percent(k.share)} of the run\n${percent(y / Math.min(flops, x * bandwidth))} of what the roof allows`;
      for (const [event, f] of Object.entries(hinted(about))) dot.addEventListener(event, f);
      g.append(dot);
    }
    return g;
  }
}
