"use strict";
// The graph on a canvas: pan, zoom, search, click.

class GraphView {
  constructor(report) {
    this.report = report;
    this.which = "after";
    this.paint = "operator";
    this.chosen = -1;
    this.found = new Set();
    this.views = {};
  }

  get graph() { return this.report.graphs[this.which]; }
  get view() { return this.views[this.which] ??= this.fitted(); }

  show(host) {
    this.canvas = el("canvas");
    this.details = el("aside", { class: "side" });
    const search = el("input", { type: "search", placeholder: "Search nodes  ( / )", id: "search",
      on: { input: (e) => this.search(e.target.value), keydown: (e) => e.key === "Enter" && this.next() } });
    this.search_ = search;
    const tools = el("div", { class: "tools" },
      segment([["after", "After fusion"], ["before", "Before"]], this.which, (k) => this.choose(k)),
      segment([["operator", "Operators"], ["time", "Time"]].slice(0, this.report.profile ? 2 : 1), this.paint,
        (k) => { this.paint = k; this.fillLegend(); this.draw(); }),
      search,
      segment([["in", "+"], ["out", "−"], ["fit", "Fit"]], "", (k) => this.step(k)));
    this.legend = el("div", { class: "legend" });
    this.fillLegend();
    this.map = el("canvas", { class: "map", on: { pointerdown: (e) => this.jump(e), pointermove: (e) => this.jump(e) } });
    const stage = el("div", { class: "stage" }, this.canvas, tools, this.legend, this.map);
    host.append(el("div", { class: "fill" }, stage, this.details));
    this.listen(stage);
    this.resize();
    this.tell();
  }

  fillLegend() {
    const families = [...new Set(this.graph.nodes.map((n) => familyOf(n.kind)))];
    const entries = this.paint === "time"
      ? [0, 0.05, 0.25, 1].map((f) => [`${percent(f * this.report.hottest)} of the run`, heat(f)])
      : families.map(([name, tint]) => [name, name.startsWith("inputs") ? ink() : tint]);
    this.legend.replaceChildren(...entries.map(([name, tint]) =>
      el("span", {}, el("span", { class: "dot", style: `background:${tint}` }), name)));
  }

  listen(stage) {
    const c = this.canvas;
    new ResizeObserver(() => this.resize()).observe(stage);
    c.addEventListener("wheel", (e) => {
      e.preventDefault();
      this.zoom(Math.exp(-e.deltaY * 0.0015), e.offsetX, e.offsetY);
    }, { passive: false });
    let last = null, moved = 0;
    c.addEventListener("pointerdown", (e) => { last = e; moved = 0; c.setPointerCapture(e.pointerId); c.classList.add("drag"); });
    c.addEventListener("pointermove", (e) => {
      if (last) {
        this.view.x += e.offsetX - last.offsetX;
        this.view.y += e.offsetY - last.offsetY;
        moved += Math.abs(e.offsetX - last.offsetX) + Math.abs(e.offsetY - last.offsetY);
        last = e;
        this.draw();
      } else {
        const k = this.at(e.offsetX, e.offsetY), n = this.graph.nodes[k];
        tip(e, n ? `${n.label}\n${n.type}${n.origin ? "\n" + n.origin : ""}` : "");
        c.style.cursor = n ? "pointer" : "";
      }
    });
    c.addEventListener("pointerup", (e) => {
      c.classList.remove("drag");
      if (moved < 4) this.select(this.at(e.offsetX, e.offsetY));
      last = null;
    });
    c.addEventListener("pointerleave", (e) => tip(e, ""));
  }

  resize() {
    const box = this.canvas.parentElement.getBoundingClientRect(), dpr = devicePixelRatio || 1;
    if (!box.width) return;
    this.size = [box.width, box.height];
    this.canvas.width = box.width * dpr;
    this.canvas.height = box.height * dpr;
    this.canvas.style.width = `${box.width}px`;
    this.canvas.style.height = `${box.height}px`;
    this.draw();
  }

  // A whole graph that is long and thin would be too small to read: begin at its top then.
  fitted(whole = false) {
    const [w, h] = this.size, g = this.graph;
    const all = Math.min((w - 80) / g.width, (h - 160) / g.height, 1.2);
    const scale = whole ? all : Math.max(all, Math.min(1, (w - 80) / g.width, 0.9));
    const start = g.nodes.length ? g.nodes[0].x : g.width / 2;
    const x = g.width * scale <= w - 40 ? (w - g.width * scale) / 2 : w / 2 - start * scale;
    return { scale, x, y: g.height * scale < h - 140 ? (h - g.height * scale) / 2 : 72 };
  }

  zoom(factor, x = this.size[0] / 2, y = this.size[1] / 2) {
    const v = this.view, scale = Math.max(0.02, Math.min(4, v.scale * factor));
    v.x = x - (x - v.x) * scale / v.scale;
    v.y = y - (y - v.y) * scale / v.scale;
    v.scale = scale;
    this.draw();
  }

  step(key) {
    if (key === "fit") { this.views[this.which] = this.fitted(true); this.draw(); }
    else this.zoom(key === "in" ? 1.4 : 1 / 1.4);
  }

  choose(which) {
    const kernel = this.graph.nodes[this.chosen]?.kernel;
    this.which = which;
    this.chosen = kernel ? this.graph.nodes.findIndex((n) => n.kernel === kernel) : -1;
    this.search(this.search_.value);
    if (this.chosen >= 0) this.centre(this.chosen);
    this.tell();
  }

  at(x, y) {
    const v = this.view, gx = (x - v.x) / v.scale, gy = (y - v.y) / v.scale;
    return this.graph.nodes.findIndex((n) => Math.abs(gx - n.x) <= n.w / 2 && Math.abs(gy - n.y) <= 20);
  }

  search(text) {
    const word = text.trim().toLowerCase();
    const hits = this.graph.nodes.map((n, k) => [n, k]).filter(([n]) =>
      word && [n.label, n.origin, n.kernel, n.type].some((s) => s.toLowerCase().includes(word)));
    this.found = new Set(hits.map(([, k]) => k));
    this.order = [...this.found];
    this.draw();
    return this.found.size;
  }

  next() {
    if (!this.order?.length) return;
    this.order.push(this.order.shift());
    this.select(this.order[this.order.length - 1]);
    this.centre(this.chosen);
  }

  centre(k) {
    const n = this.graph.nodes[k], v = this.view;
    v.scale = Math.max(v.scale, 0.8);
    v.x = this.size[0] / 2 - n.x * v.scale;
    v.y = this.size[1] / 2 - n.y * v.scale;
    this.draw();
  }

  select(k) { this.chosen = k; this.draw(); this.tell(); }

  // ---- drawing

  draw() {
    if (!this.size) return;
    const c = this.canvas.getContext("2d"), v = this.view, dpr = devicePixelRatio || 1;
    c.setTransform(dpr, 0, 0, dpr, 0, 0);
    c.clearRect(0, 0, ...this.size);
    c.translate(v.x, v.y);
    c.scale(v.scale, v.scale);
    const seen = this.visible();
    this.drawEdges(c, seen);
    this.drawNodes(c, seen);
    this.drawMap(seen);
  }

  // The whole graph, small, with a frame around what is in sight.
  drawMap(seen) {
    const g = this.graph, map = this.map, dpr = devicePixelRatio || 1;
    const scale = Math.min(150 / g.width, (this.size[1] - 180) / g.height);
    const [w, h] = [Math.max(24, g.width * scale), g.height * scale];
    map.style.width = `${w + 16}px`;
    map.style.height = `${h + 16}px`;
    map.width = (w + 16) * dpr;
    map.height = (h + 16) * dpr;
    const c = map.getContext("2d");
    c.scale(dpr, dpr);
    c.translate(8 + (w - g.width * scale) / 2, 8);
    for (const n of g.nodes) {
      c.fillStyle = this.tint(n);
      c.fillRect((n.x - n.w / 2) * scale, (n.y - 20) * scale, Math.max(2, n.w * scale), Math.max(1, 40 * scale));
    }
    c.strokeStyle = css("--accent");
    c.lineWidth = 1.5;
    const top = Math.max(0, seen.y0), end = Math.min(g.height, seen.y1), left = Math.max(0, seen.x0), right = Math.min(g.width, seen.x1);
    c.strokeRect(left * scale - 3, top * scale - 2, (right - left) * scale + 6, (end - top) * scale + 4);
    this.mapScale = scale;
  }

  jump(e) {
    if (!e.buttons) return;
    this.view.y = this.size[1] / 2 - (e.offsetY - 8) / this.mapScale * this.view.scale;
    this.draw();
  }

  visible() {
    const v = this.view, [w, h] = this.size;
    const [x0, y0, x1, y1] = [-v.x / v.scale, -v.y / v.scale, (w - v.x) / v.scale, (h - v.y) / v.scale];
    return { x0, y0, x1, y1 };
  }

  drawEdges(c, seen) {
    const near = new Set([this.chosen]);
    for (const hot of [false, true]) {
      c.beginPath();
      c.strokeStyle = hot ? css("--accent") : isDark() ? "#3a4252" : "#c3c9d4";
      c.lineWidth = hot ? 2.2 : 1.3;
      for (const e of this.graph.edges) {
        if ((near.has(e.from) || near.has(e.to)) !== hot) continue;
        const p = e.points, end = p.length - 1;
        if (p[end] < seen.y0 || p[1] > seen.y1) continue;
        c.moveTo(p[0], p[1] + 20);
        for (let k = 2; k < p.length; k += 2) {
          const [px, py] = [p[k - 2], p[k - 1] + (k === 2 ? 20 : 0)];
          const [x, y] = [p[k], p[k + 1] - (k === end - 1 ? 20 : 0)];
          const mid = (py + y) / 2;
          c.bezierCurveTo(px, mid, x, mid, x, y);
        }
      }
      c.stroke();
    }
  }

  drawNodes(c, seen) {
    const panel = css("--panel"), text = css("--ink"), soft = css("--soft"), accent = css("--accent");
    const plain = this.view.scale < 0.28;
    c.textAlign = "center";
    this.graph.nodes.forEach((n, k) => {
      if (n.x + n.w / 2 < seen.x0 || n.x - n.w / 2 > seen.x1 || n.y + 24 < seen.y0 || n.y - 24 > seen.y1) return;
      const tint = this.tint(n), faded = this.found.size && !this.found.has(k);
      c.globalAlpha = faded ? 0.25 : 1;
      c.beginPath();
      c.roundRect(n.x - n.w / 2, n.y - 20, n.w, 40, 9);
      c.fillStyle = plain ? tint : panel;
      c.fill();
      if (plain) { c.globalAlpha = 1; return; }
      c.globalAlpha *= this.paint === "time" ? 0.3 : 0.12;
      c.fillStyle = tint;
      c.fill();
      c.globalAlpha = faded ? 0.25 : 1;
      c.strokeStyle = k === this.chosen ? accent : tint;
      c.lineWidth = k === this.chosen ? 3 : 1.4;
      c.stroke();
      c.fillStyle = text;
      c.font = "600 12.5px system-ui, sans-serif";
      c.fillText(n.label, n.x, n.y - 1, n.w - 14);
      c.fillStyle = soft;
      c.font = "10.5px ui-monospace, monospace";
      c.fillText(this.subtitle(n), n.x, n.y + 13, n.w - 14);
      c.globalAlpha = 1;
    });
  }

  subtitle(n) {
    const k = this.paint === "time" && this.report.byName.get(n.kernel);
    return k ? `${seconds(k.seconds / k.calls)}, ${percent(k.share / k.calls)}` : n.type;
  }

  tint(n) {
    if (this.paint === "time" && this.report.shares) return heat((this.report.shares.get(n.kernel) || 0) / this.report.hottest);
    return colour(n.kind);
  }

  // ---- details

  tell() {
    const n = this.graph.nodes[this.chosen], side = this.details;
    side.replaceChildren();
    if (!n) {
      const { before, after } = this.report.graphs;
      side.append(el("h3", {}, "Graph"), el("p", { class: "soft" },
        `${before.nodes.length} nodes before fusion, ${after.nodes.length} after. Drag to move, scroll to zoom, click a node for what it is.`));
      return;
    }
    const kernel = this.report.byName.get(n.kernel);
    const rows = [["Output", n.type], ["From", n.origin.replaceAll(", node ", "\nnode ")]];
    side.append(el("h3", {}, el("span", { class: "dot", style: `background:${colour(n.kind)}` }), n.label));
    const list = el("dl");
    for (const [k, v] of rows) if (v) list.append(el("dt", {}, k), el("dd", { style: "white-space:pre-line" }, v));
    if (kernel) {
      list.append(el("dt", {}, "Kernel"), el("dd", {}, el("a", { href: "#kernels", class: "mono", on: { click: (e) => {
        e.preventDefault(); app.open("kernels", n.kernel); } } }, n.kernel)));
      if (kernel.seconds) list.append(el("dt", {}, "Time"), el("dd", {}, `${seconds(kernel.seconds / kernel.calls)} a call, ${percent(kernel.share)} of the run`));
    }
    list.append(el("dt", {}, "Text"), el("pre", {}, coloured(n.text, "loops")));
    side.append(list);
  }
}

function segment(choices, chosen, onChoose) {
  const made = el("div", { class: "seg" });
  for (const [key, label] of choices) {
    made.append(el("button", { class: key === chosen ? "on" : "", "data-key": key, on: { click: (e) => {
      if (chosen !== "") for (const b of made.children) b.classList.toggle("on", b === e.target);
      onChoose(key);
    } } }, label));
  }
  return made;
}
