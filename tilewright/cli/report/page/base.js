"use strict";
// What all views share: making elements, formats, colours, the tooltip.

const $ = (id) => document.getElementById(id);

function el(tag, attrs = {}, ...children) {
  const made = document.createElement(tag);
  for (const [k, v] of Object.entries(attrs)) {
    if (k === "on") for (const [event, f] of Object.entries(v)) made.addEventListener(event, f);
    else if (v !== undefined && v !== false) made.setAttribute(k, v);
  }
  made.append(...children.filter((c) => c !== null && c !== undefined));
  return made;
}

const SVG = "http://www.w3.org/2000/svg";
function svg(tag, attrs = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [k, v] of Object.entries(attrs)) made.setAttribute(k, v);
  made.append(...children);
  return made;
}

// ---- formats

function scaled(value, units, step) {
  let k = 0;
  while (Math.abs(value) >= step && k < units.length - 1) { value /= step; k++; }
  const digits = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${+value.toFixed(digits)} ${units[k]}`;
}
const bytes = (n) => scaled(n, ["B", "KB", "MB", "GB"], 1000);
const seconds = (s) => s === 0 ? "0" : scaled(s * 1e9, ["ns", "µs", "ms", "s"], 1000);
const rate = (n, unit) => scaled(n, ["", "K", "M", "G", "T"].map((p) => p + unit), 1000);
const percent = (f) => `${(100 * f).toFixed(f < 0.1 ? 1 : 0)}%`;

// ---- colours: one hue for each family of operators

const FAMILIES = [
  ["products", "#2f6fed", /^(conv|matmul|dense|gemm|qlinear|einsum|attention|integer|deform)/],
  ["activations", "#12a594", /^(relu|sigmoid|tanh|gelu|silu|clip|erf|hard|leaky|elu|softplus|mish|exp|swish|prelu)/],
  ["arithmetic", "#46a758", /^(add|sub|mul|div|neg|pow|sqrt|min|max(?!_)|abs|cast|where|select|equal|less|greater|not|and|or|reciprocal|rsqrt|square)/],
  ["normalisation", "#f5a524", /(norm|softmax)/],
  ["reductions, pooling", "#e5484d", /(pool|sum|mean|reduce|arg|max_|min_|cumsum|top)/],
  ["data movement", "#8b95a7", /(reshape|transpose|concat|slice|gather|pad|expand|split|squeeze|flatten|tile|resize|scatter|identity|shape|stack|copy|repeat|range|dims)/],
  ["control", "#d6409f", /^(control|loop|if|branch)/],
  ["inputs, outputs", "#1a1d23", /^(input|output)$/],
  ["other", "#8e4ec6", /./],
];
const familyOf = (() => {
  const memo = new Map();
  return (kind) => {
    if (!memo.has(kind)) memo.set(kind, FAMILIES.find(([, , rule]) => rule.test(kind)));
    return memo.get(kind);
  };
})();
const colour = (kind) => kind === "input" || kind === "output" ? ink() : familyOf(kind)[1];
const isDark = () => document.documentElement.dataset.theme === "dark";
const ink = () => isDark() ? "#c3cad6" : "#475066";
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
function heat(f) { // from cool to hot, by share of time
  const t = Math.sqrt(Math.max(0, Math.min(1, f)));
  return `hsl(${220 - 210 * t} ${55 + 30 * t}% ${isDark() ? 45 : 58 - 8 * t}%)`;
}

// ---- tooltip

function tip(event, text) {
  const box = $("tip");
  if (!text) { box.style.opacity = 0; return; }
  box.textContent = text;
  box.style.opacity = 1;
  const wide = box.offsetWidth, high = box.offsetHeight;
  box.style.left = `${Math.min(event.clientX + 14, innerWidth - wide - 8)}px`;
  box.style.top = `${Math.min(event.clientY + 14, innerHeight - high - 8)}px`;
}
const hinted = (text) => ({ mousemove: (e) => tip(e, text), mouseleave: (e) => tip(e, "") });

// ---- colours of code

const RULES = {
  loops: /(#[^\n]*)|("[^"\n]*")|\b(for|in|with|as|if|else|def|return|while|let|block|range|parallel|vectorized|unrolled|alloc|init|spatial|reduce|where|reads|writes|assert)\b|\b([fiub]\d+(?:x\d+)?|bool|float\d+|int\d+)\b|\b(\d[\d.e+-]*)\b/g,
  llvm: /(;[^\n]*)|("[^"\n]*")|\b(define|declare|load|store|br|ret|call|phi|getelementptr|inbounds|nuw|nsw|add|sub|mul|fadd|fmul|fsub|fdiv|icmp|fcmp|select|label|tail|contract|fma|shufflevector|insertelement|extractelement|bitcast|zext|sext|trunc|switch)\b|\b(i\d+|float|double|half|bfloat|ptr|void)\b|\b(\d[\d.e+x]*)\b/g,
  asm: /((?:\/\/|# |;)[^\n]*)|("[^"\n]*")|^(\s+[a-z][\w.]*)|\b([vqxwdszrk]\d+(?:\.\w+)?(?:\[\d\])?|[xyz]mm\d+|r[a-d]x|r[sd]i|r[sb]p|sp|lr)\b|(#?-?\b\d[\dxa-f]*)\b/gm,
};
const CLASSES = ["com", "str", "kw", "type", "num"];
function coloured(text, language) {
  if (text.length > 400000) return document.createTextNode(text);
  const made = document.createDocumentFragment();
  let at = 0;
  for (const found of text.matchAll(RULES[language])) {
    const which = found.slice(1).findIndex((g) => g !== undefined);
    if (found.index > at) made.append(text.slice(at, found.index));
    made.append(el("span", { class: CLASSES[which] }, found[0]));
    at = found.index + found[0].length;
  }
  made.append(text.slice(at));
  return made;
}
