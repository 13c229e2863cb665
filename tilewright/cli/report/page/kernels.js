"use strict";
// Kernels: a list, and the levels of the chosen one side by side.

const LEVELS = [["loops", "Loops", "loops"], ["scheduled", "Schedule", "loops"], ["llvm", "LLVM IR", "llvm"], ["asm", "Assembly", "asm"]];

class KernelView {
  constructor(report) {
    this.report = report;
    this.shown = new Set(["loops", "scheduled", "llvm", "asm"]);
    this.chosen = report.kernels[0]?.name;
  }

  show(host, name) {
    if (name) this.chosen = name;
    this.list = el("ul", { class: "list" });
    this.body = el("div", { class: "kernel" });
    const search = el("input", { type: "search", placeholder: "Search kernels", style: "width:100%",
      on: { input: (e) => this.fill(e.target.value.toLowerCase()) } });
    host.append(el("div", { class: "fill" }, el("aside", { class: "side left" }, search, this.list), this.body));
    this.fill("");
    this.open(this.chosen);
  }

  fill(word) {
    const kernels = this.report.kernels.filter((k) => !word || k.name.toLowerCase().includes(word) || k.origins.join(" ").toLowerCase().includes(word));
    this.list.replaceChildren(...kernels.map((k) => el("li", { "data-name": k.name, class: k.name === this.chosen ? "on" : "", on: { click: () => this.open(k.name) } },
      el("div", { class: "name", title: k.name }, el("span", { class: "dot", style: `background:${colour(k.kind)}` }), k.name),
      el("div", { class: "meta" }, `${k.calls} ${k.calls === 1 ? "call" : "calls"}${k.seconds ? ` · ${seconds(k.seconds)} · ${percent(k.share)}` : ""}`))));
  }

  open(name) {
    const k = this.report.byName.get(name);
    if (!k) { this.body.replaceChildren(el("p", { class: "empty" }, "No kernels.")); return; }
    this.chosen = name;
    for (const li of this.list.children) li.classList.toggle("on", li.dataset.name === name);
    const choose = el("div", { class: "seg" }, ...LEVELS.map(([key, label]) => el("button", { class: this.shown.has(key) ? "on" : "",
      on: { click: () => { this.shown.has(key) ? this.shown.delete(key) : this.shown.add(key); this.open(name); } } }, label)));
    const facts = [`${k.calls} ${k.calls === 1 ? "call" : "calls"}`];
    if (k.seconds) facts.push(`${seconds(k.seconds / k.calls)} each`, percent(k.share) + " of the run");
    if (k.flops && k.seconds) facts.push(rate(k.flops / k.seconds, "FLOP/s"));
    const origins = k.origins.slice(0, 3).join(" · ") + (k.origins.length > 3 ? ` · and ${k.origins.length - 3} more` : "");
    this.body.replaceChildren(
      el("div", { class: "khead" }, el("h3", {}, k.name), el("div", { class: "soft" }, facts.join(" · ")),
        el("div", { class: "soft", style: "font-size:12px" }, origins), choose),
      el("div", { class: "cols" }, ...LEVELS.filter(([key]) => this.shown.has(key)).map(([key, label, language]) => column(label, k[key], language))));
  }
}

// What unwinding tables need says nothing about the code.
const readable = (text) => text.replace(/^\s+\.cfi_.*\n/gm, "");

function column(label, given, language) {
  const text = language === "asm" ? readable(given || "") : given;
  const lines = text ? text.trimEnd().split("\n").length : 0;
  return el("div", { class: "col" },
    el("h4", {}, `${label} · ${lines} lines`, el("button", { on: { click: () => navigator.clipboard?.writeText(text) } }, "copy")),
    el("pre", {}, text ? coloured(text, language) : el("span", { class: "soft" }, "not in this report")));
}
