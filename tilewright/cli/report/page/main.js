"use strict";
// Unpacks the data, builds the tabs, and tests itself when asked to (#selftest).

const app = {
  tabs: [["overview", "Overview", Overview], ["graph", "Graph", GraphView], ["kernels", "Kernels", KernelView],
    ["memory", "Memory", MemoryView], ["timeline", "Timeline", TimelineView], ["roofline", "Roofline", RooflineView]],
  views: {},

  async start() {
    const report = this.report = prepared(await unpacked($("data").textContent));
    $("title").textContent = report.title;
    for (const [key, label, View] of this.tabs) {
      this.views[key] = new View(report);
      $("tabs").append(el("button", { "data-tab": key, on: { click: () => this.open(key) } }, label));
    }
    $("theme").addEventListener("click", () => this.theme(isDark() ? "light" : "dark"));
    this.theme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    addEventListener("keydown", (e) => {
      if (e.key === "/" && document.activeElement.tagName !== "INPUT") { e.preventDefault(); this.open("graph"); $("search").focus(); }
    });
    const asked = location.hash.slice(1).split("=");
    this.open(this.views[asked[0]] ? asked[0] : "overview", asked[1] && decodeURIComponent(asked[1]));
  },

  open(key, what) {
    this.current = key;
    for (const b of $("tabs").children) b.classList.toggle("on", b.dataset.tab === key);
    tip(null, "");
    $("main").replaceChildren();
    this.views[key].show($("main"), what);
  },

  theme(name) {
    document.documentElement.dataset.theme = name;
    if (this.current) this.open(this.current);
  },
};

async function unpacked(base64) {
  const packed = Uint8Array.from(atob(base64.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

function prepared(report) {
  report.byName = new Map(report.kernels.map((k) => [k.name, k]));
  report.shares = null;
  if (report.profile) {
    for (const k of report.kernels) k.share = k.seconds / report.profile.total;
    report.shares = new Map(report.kernels.map((k) => [k.name, k.share / k.calls]));
    report.hottest = Math.max(...report.kernels.map((k) => k.share), 1e-9);
  }
  return report;
}

// ---- what tests look at: <html data-status="…">

const faults = [];
addEventListener("error", (e) => faults.push(e.message));
addEventListener("unhandledrejection", (e) => faults.push(String(e.reason)));

function selfTest() {
  const check = (what, holds) => { if (!holds) faults.push(what); };
  for (const [key] of app.tabs) { app.open(key); check(`${key} is empty`, $("main").textContent.trim()); }
  app.open("graph");
  const view = app.views.graph, node = view.graph.nodes.findIndex((n) => n.kernel);
  if (node >= 0) {
    view.select(node);
    check("a chosen node tells nothing", view.details.textContent.includes(view.graph.nodes[node].kernel));
    check("search finds nothing", view.search(view.graph.nodes[node].label) > 0);
    view.next();
    for (const b of $("main").querySelectorAll(".tools button")) b.click();
    view.choose("before");
    view.step("fit");
    const n = view.graph.nodes[0], v = view.view;
    check("a click misses its node", view.at(n.x * v.scale + v.x, n.y * v.scale + v.y) >= 0);
    app.open("kernels", app.report.kernels[0].name);
    check("levels are missing", $("main").querySelectorAll(".col pre").length === LEVELS.length);
  }
  app.theme("dark");
  app.theme("light");
}

app.start().then(() => {
  if (location.hash === "#selftest") selfTest();
}).catch((e) => faults.push(String(e))).finally(() => {
  document.documentElement.dataset.loaded = Math.round(performance.now());
  document.documentElement.dataset.status = faults.length ? `failed: ${faults.join("; ")}` : "ok";
});
