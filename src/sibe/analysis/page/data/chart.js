"use strict";
// One panel of curves as inline SVG, with a cursor that reads the values. No library.
// A curve: {x, mean, low, high, n, seeds, values, variant: {label, color, dash, width}}; null is
// "nothing here", and a width of none is 2.

const SVG_NS = "http://www.w3.org/2000/svg";
const MARGIN = { top: 10, right: 18, bottom: 38, left: 46 };

function svgElement(parent, name, attributes) {
  const node = document.createElementNS(SVG_NS, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  parent.append(node);
  return node;
}

function htmlElement(parent, name, text, properties = {}) {
  const node = Object.assign(document.createElement(name), properties);
  node.textContent = text;
  parent.append(node);
  return node;
}

// Round steps (1, 2, 2.5 or 5 times a power of ten) that cover [low, high] in about `count` parts.
function ticks(low, high, count) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((size) => size >= raw * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step);
  return found;
}

function formatSteps(value) {
  if (value >= 1e6) return `${+(value / 1e6).toFixed(2)}M`;
  return value >= 1000 ? `${+(value / 1000).toFixed(1)}k` : String(value);
}

function formatValue(value) {
  const size = Math.abs(value);
  if (size >= 100) return value.toFixed(0);
  return size >= 1 || size === 0 ? value.toFixed(1) : value.toPrecision(2);
}

// What runs along x: the label below it, its tick marks, and how a place on it is read out. `log`: y is
// logarithmic, for what is positive and falls by orders of magnitude. `hold`: curves have points at
// different places, and between two of its own a curve is read at the first.
const ENV_STEPS = {
  log: false,
  hold: false,
  label: "env steps",
  tick: formatSteps,
  place: (x) => `env step ${x.toLocaleString("en")}`,
};

// An SVG path through [x, y] points; null breaks the line.
function linePath(points) {
  let path = "";
  let pen = "M";
  for (const [x, y] of points) {
    if (y === null) pen = "M";
    else {
      path += `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
      pen = "L";
    }
  }
  return path;
}

function bandPath(curve, sx, sy) {
  const known = curve.x.map((_, i) => i).filter((i) => curve.low[i] !== null);
  if (known.length < 2) return "";
  const upper = known.map((i) => [sx(curve.x[i]), sy(curve.high[i])]);
  const lower = known.reverse().map((i) => [sx(curve.x[i]), sy(curve.low[i])]);
  return `${linePath(upper.concat(lower))}Z`;
}

function limits(curves, everySeed, log) {
  const ys = curves.flatMap((c) => [...c.mean, ...c.low, ...c.high, ...(everySeed ? c.values.flat() : [])]);
  const known = ys.filter((y) => y !== null);
  const means = curves.flatMap((c) => c.mean).filter((y) => y !== null);
  // From zero up where nothing is negative; a band may reach below, where nothing can be.
  const low = means.every((y) => y >= 0) && !log ? 0 : Math.min(...known);
  const high = Math.max(...known, low + 1e-9);
  const last = Math.max(...curves.flatMap((c) => c.x));
  if (log) return { low: low / 1.3, high: high * 1.3, last };
  return { low, high: high + 0.04 * (high - low), last };
}

// Powers of ten within [low, high], every second or third where there are many.
function powers(low, high) {
  const [first, last] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
  const step = Math.max(1, Math.ceil((last - first) / 5));
  const found = [];
  for (let i = first; i <= last; i += step) found.push(10 ** i);
  return found;
}

function drawAxes(svg, size, range, sx, sy, axis) {
  for (const y of axis.log ? powers(range.low, range.high) : ticks(range.low, range.high, 5)) {
    svgElement(svg, "line", { class: "grid", x1: MARGIN.left, x2: size.width - MARGIN.right, y1: sy(y), y2: sy(y) });
    const text = svgElement(svg, "text", { x: MARGIN.left - 6, y: sy(y) + 4, "text-anchor": "end" });
    text.textContent = String(+y.toPrecision(6));
  }
  const bottom = size.height - MARGIN.bottom;
  svgElement(svg, "line", { class: "axis", x1: MARGIN.left, x2: size.width - MARGIN.right, y1: bottom, y2: bottom });
  for (const x of ticks(0, range.last, Math.max(2, Math.floor(size.width / 90)))) {
    const text = svgElement(svg, "text", { x: sx(x), y: bottom + 16, "text-anchor": "middle" });
    text.textContent = axis.tick(x);
  }
  const middle = (MARGIN.left + size.width - MARGIN.right) / 2;
  svgElement(svg, "text", { x: middle, y: bottom + 33, "text-anchor": "middle" }).textContent = axis.label;
}

function drawCurve(svg, curve, sx, sy, everySeed) {
  const { color, dash, width = 2 } = curve.variant;
  const place = (values) => values.map((y, i) => [sx(curve.x[i]), y === null ? null : sy(y)]);
  svgElement(svg, "path", { d: bandPath(curve, sx, sy), fill: color, "fill-opacity": 0.18 });
  // Too few seeds for a band: the seeds themselves say how much they differ.
  if (everySeed || (curve.seeds.length > 1 && curve.low.every((y) => y === null))) {
    for (const values of curve.values) {
      svgElement(svg, "path", { d: linePath(place(values)), fill: "none", stroke: color, "stroke-opacity": 0.5 });
    }
  }
  const line = { d: linePath(place(curve.mean)), fill: "none", stroke: color, "stroke-width": width, class: "mean" };
  svgElement(svg, "path", { ...line, "stroke-dasharray": dash });
  if (curve.x.length === 1) {
    svgElement(svg, "circle", { cx: sx(curve.x[0]), cy: sy(curve.mean[0]), r: 3.5, fill: color });
  }
}

function describe(title, curves, axis) {
  const last = curves.map((c) => {
    const i = c.x.length - 1;
    return `${c.variant.label} ${formatValue(c.mean[i])} at ${axis.tick(c.x[i])} ${axis.label}`;
  });
  return `${title}: ${last.join(", ")}`;
}

// The point of a curve that is read at x; -1 if it has none there.
function pointAt(curve, x, axis) {
  const i = axis.hold ? curve.x.findLastIndex((own) => own <= x) : curve.x.indexOf(x);
  return i >= 0 && curve.mean[i] !== null ? i : -1;
}

// What the curves say at x: a line each, the highest first.
function fillTip(tip, curves, x, axis) {
  tip.replaceChildren();
  htmlElement(tip, "b", axis.place(x));
  const rows = curves
    .map((curve) => ({ curve, i: pointAt(curve, x, axis) }))
    .filter(({ i }) => i >= 0)
    .sort((a, b) => b.curve.mean[b.i] - a.curve.mean[a.i]);
  for (const { curve, i } of rows) {
    const row = htmlElement(tip, "div", "");
    htmlElement(row, "i", "").style.background = curve.variant.color;
    const band = curve.low[i] === null ? "" : ` [${formatValue(curve.low[i])}, ${formatValue(curve.high[i])}]`;
    const count = curve.n ? `, n = ${curve.n[i]}` : "";
    htmlElement(row, "span", `${curve.variant.label}: ${formatValue(curve.mean[i])}${band}${count}`);
  }
}

function addCursor(svg, tip, curves, size, sx, sy, axis) {
  const steps = [...new Set(curves.flatMap((c) => c.x))].sort((a, b) => a - b);
  const layer = svgElement(svg, "g", {});
  let at = -1;
  const hide = () => {
    at = -1;
    layer.replaceChildren();
    tip.hidden = true;
  };
  const show = (index) => {
    if (index === at) return;
    at = index;
    const x = steps[at];
    layer.replaceChildren();
    const ends = { y1: MARGIN.top, y2: size.height - MARGIN.bottom };
    svgElement(layer, "line", { class: "cursor", x1: sx(x), x2: sx(x), ...ends });
    for (const curve of curves) {
      const i = pointAt(curve, x, axis);
      if (i >= 0) {
        svgElement(layer, "circle", { cx: sx(curve.x[i]), cy: sy(curve.mean[i]), r: 4, fill: curve.variant.color });
      }
    }
    fillTip(tip, curves, x, axis);
    tip.hidden = false;
    // On the side where the pointer is not.
    const left = sx(x) > size.width / 2;
    tip.style.left = left ? "0.6rem" : "auto";
    tip.style.right = left ? "auto" : "0.6rem";
  };
  const follow = (event) => {
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * size.width;
    let best = 0;
    steps.forEach((step, i) => {
      if (Math.abs(sx(step) - x) < Math.abs(sx(steps[best]) - x)) best = i;
    });
    show(best);
  };
  svg.addEventListener("pointermove", follow);
  svg.addEventListener("pointerdown", follow);
  svg.addEventListener("pointerleave", (event) => {
    // A finger "leaves" when it is lifted: what it tapped stays until the focus goes elsewhere.
    if (event.pointerType === "mouse") hide();
  });
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape") hide();
    if (!move) return;
    event.preventDefault();
    show(at < 0 ? steps.length - 1 : Math.min(Math.max(at + move, 0), steps.length - 1));
  });
}

// A piece of a curve's line, as legends show it.
function drawSwatch(parent, { color, dash, width = 3 }) {
  const swatch = svgElement(parent, "svg", { width: 26, height: 8, "aria-hidden": "true", class: "swatch" });
  const line = { x1: 0, x2: 26, y1: 4, y2: 4, stroke: color, "stroke-width": width };
  svgElement(swatch, "line", { ...line, "stroke-dasharray": dash });
}

// Say below a panel which curve is which.
function drawLegend(holder, curves) {
  const legend = htmlElement(holder, "div", "", { className: "legend" });
  for (const { variant } of curves) {
    const entry = htmlElement(legend, "span", "");
    drawSwatch(entry, variant);
    entry.append(variant.label);
  }
}

// Draw `curves` into `holder` (a <figure>), which must be in the page: its width decides the size.
// Return where they were drawn: {svg, lines, size, sx}, lines being the group of all curves.
function drawPanel(holder, title, curves, everySeed, axis = ENV_STEPS) {
  holder.replaceChildren();
  htmlElement(holder, "figcaption", title);
  if (!curves.length) {
    htmlElement(holder, "p", "No method is switched on.");
    return null;
  }
  const width = Math.max(240, holder.clientWidth - 20);
  const size = { width, height: Math.min(380, Math.round(width * 0.62)) };
  const range = limits(curves, everySeed, axis.log);
  const sx = (x) => MARGIN.left + (x / (range.last || 1)) * (size.width - MARGIN.left - MARGIN.right);
  const down = size.height - MARGIN.top - MARGIN.bottom;
  const scale = axis.log ? Math.log : (y) => y;
  const [bottom, top] = [scale(range.low), scale(range.high)];
  const sy = (y) => MARGIN.top + (1 - (scale(Math.max(y, range.low)) - bottom) / (top - bottom)) * down;
  const svg = svgElement(holder, "svg", {
    viewBox: `0 0 ${size.width} ${size.height}`,
    role: "img",
    tabindex: 0,
    "aria-label": describe(title, curves, axis),
  });
  drawAxes(svg, size, range, sx, sy, axis);
  const lines = svgElement(svg, "g", {});
  for (const curve of [...curves].reverse()) drawCurve(lines, curve, sx, sy, everySeed);
  const tip = htmlElement(holder, "div", "", { className: "tip", hidden: true });
  tip.setAttribute("role", "status");
  addCursor(svg, tip, curves, size, sx, sy, axis);
  return { svg, lines, size, sx };
}
