#include <string>

#include "src/driver/pass_report.h"

namespace lathe {

namespace {

constexpr std::string_view kBefore = R"page(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Lathe pass report</title>
<link rel="icon" href="data:,">
<style>
* { box-sizing: border-box; }
body { margin: 0; height: 100vh; display: grid; grid-template: auto 1fr / 290px 1fr 320px;
  font: 13px/1.4 system-ui, "Helvetica Neue", Arial, sans-serif; color: #1f2933; }
header { grid-column: 1 / -1; display: flex; flex-wrap: wrap; gap: 6px 14px; align-items: center;
  padding: 7px 12px; background: #f3f5f7; border-bottom: 1px solid #cfd6dd; }
header h1 { font-size: 14px; margin: 0; max-width: 260px; overflow: hidden; white-space: nowrap;
  text-overflow: ellipsis; }
#passes, #details { overflow: auto; padding: 8px; background: #fafbfc; }
#passes { border-right: 1px solid #cfd6dd; }
#details { border-left: 1px solid #cfd6dd; overflow-wrap: anywhere; }
#panes { display: flex; min-width: 0; min-height: 0; }
.pane { flex: 1; position: relative; min-width: 0; border-left: 1px solid #cfd6dd; }
.pane:first-child { border-left: none; }
.pane canvas { position: absolute; inset: 0; width: 100%; height: 100%; cursor: grab; }
.pane .name { position: absolute; left: 8px; top: 6px; padding: 1px 8px; background: #ffffffdd;
  border: 1px solid #cfd6dd; border-radius: 10px; font-weight: 600; pointer-events: none; }
.pass { padding: 6px 8px; margin-bottom: 4px; border: 1px solid #d9dfe5; border-radius: 6px;
  background: #fff; cursor: pointer; }
.pass:hover { border-color: #7b8794; }
.pass.chosen { border-color: #1565c0; box-shadow: 0 0 0 1px #1565c0; }
.pass.same { background: none; border-style: dashed; color: #7b8794; cursor: default; }
.pass.failed { border-color: #c62828; }
.pass .row { display: flex; justify-content: space-between; gap: 8px; }
.pass b { overflow-wrap: anywhere; font-size: 12.5px; }
.row .small { white-space: nowrap; }
.small { font-size: 11.5px; color: #616e7c; }
.chip { display: inline-block; padding: 0 6px; margin: 2px 3px 0 0; border-radius: 8px;
  border: 1px solid; font-size: 11.5px; white-space: nowrap; }
.removed { background: #ffdbd7; border-color: #c62828; }
.added { background: #d3f1d7; border-color: #2e7d32; }
.changed { background: #fff0c0; border-color: #b27b00; }
.rewired { background: #e3f0ff; border-color: #1565c0; }
table { border-collapse: collapse; width: 100%; margin: 4px 0 10px; }
td, th { text-align: left; vertical-align: top; padding: 2px 6px 2px 0; border-top: 1px solid #e4e7eb; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
h2 { font-size: 14px; margin: 4px 0; overflow-wrap: anywhere; }
h3 { font-size: 12px; margin: 10px 0 2px; color: #52606d; }
a.node { color: #0b57a4; cursor: pointer; text-decoration: none; }
a.node:hover { text-decoration: underline; }
del { background: #ffdbd7; } ins { background: #d3f1d7; text-decoration: none; }
button, select, input { font: inherit; }
button:disabled { opacity: 0.5; }
#search { width: 170px; }
</style>
</head>
<body>
<header>
<h1 id="title"></h1>
<span id="legend"></span>
<select id="view" title="which graphs to show">
<option value="both">before and after</option><option value="before">before</option>
<option value="after">after</option></select>
<label title="also constants, parameters and what is computed from them alone">
<input type="checkbox" id="leaves"> constants</label>
<span><button id="previous" title="previous change (p)">&#8593; change</button>
<button id="next" title="next change (n)">&#8595; change</button>
<span id="position" class="small"></span></span>
<span><input id="search" type="search" placeholder="search op, location or type  (/)">
<span id="found" class="small"></span></span>
<button id="whole" title="fit the whole graph (f)">whole graph</button>
</header>
<nav id="passes"></nav>
<main id="panes">
<div class="pane"><canvas id="before"></canvas><span class="name"></span></div>
<div class="pane"><canvas id="after"></canvas><span class="name"></span></div>
</main>
<aside id="details"></aside>
<script id="data" type="application/json">)page";

constexpr std::string_view kGraphs = R"page(</script>
<script>
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const texts = data.strings;
const $ = id => document.getElementById(id);

// ---- graphs ----

/// The extents of a shape; commas inside brackets belong to an extent.
function splitDims(shape) {
  const dims = [""];
  let depth = 0;
  for (const c of shape) {
    depth += c === "(" ? 1 : c === ")" ? -1 : 0;
    if (c === "," && depth === 0) dims.push("");
    else dims[dims.length - 1] += c;
  }
  return dims.map(d => d.trim());
}

/// "f32 1\u00d764\u00d7112\u00d7112"; long extents are cut when `brief`.
function shortType(type, brief) {
  const found = /^v?_?tensor<\[(.*)\], (\w+)>$/.exec(type);
  if (!found) return type;
  const dims = splitDims(found[1]).map(d => brief && d.length > 9 ? "\u2026" : d);
  return found[2] + " " + (dims.join("\u00d7") || "scalar");
}

function makeNode(raw, id) {
  const [op, loc, attrs, types, args] = data.records[raw.n[id]];
  const node = {id, record: raw.n[id], op: texts[op], loc: texts[loc], attrs: new Map(),
    types: types.map(t => texts[t]), args: args.map(t => texts[t]), inputs: raw.i[id],
    parent: raw.p ? raw.p[id] : -1, users: []};
  for (let i = 0; i < attrs.length; i += 2) node.attrs.set(texts[attrs[i]], texts[attrs[i + 1]]);
  node.title = node.op.replace(/^nn\./, "");
  node.parts = node.loc.match(/'[^']*'|[^\s,()']+:\d+:\d+/g) || [];
  node.subtitle = (node.attrs.get("name") || node.parts[0] || "").replace(/^["']|["']$/g, "") +
    (node.parts.length > 1 ? " +" + (node.parts.length - 1) : "");
  node.shape = node.types.map(t => shortType(t, true)).join(", ");
  node.text = [node.op, node.loc, node.attrs.get("name") || "", node.shape, ...node.types].join(" ")
    .toLowerCase();
  return node;
}

function makeGraph(raw) {
  const nodes = raw.n.map((_, id) => makeNode(raw, id)), makers = [];
  for (const node of nodes) {
    for (let i = 0; i < node.types.length + node.args.length; ++i) makers.push({node, index: i});
  }
  for (const node of nodes) {
    for (const value of node.inputs) {
      const users = value < 0 ? null : makers[value].node.users;
      if (users && users[users.length - 1] !== node) users.push(node);
    }
  }
  markLeaves(nodes, makers);
  return {nodes, makers, layouts: new Map()};
}

/// Leaves: constants, parameters, and what is computed from them alone.
function markLeaves(nodes, makers) {
  const owners = new Set(nodes.map(n => n.parent));
  for (const n of nodes) {
    const known = n.inputs.length ? n.inputs.every(v => v < 0 || makers[v].node.leaf) :
      n.op.startsWith("builtin.");
    n.leaf = known && n.types.length > 0 && !owners.has(n.id) && !/random|bernoulli/.test(n.op);
  }
}

const graphs = data.graphs.map(makeGraph);

// ---- differences ----

function pairBy(key, a, b, to, from) {
  const waiting = new Map();
  for (const n of a.nodes) {
    const k = to[n.id] < 0 ? key(n, a) : "";
    if (k === "") continue;
    if (!waiting.has(k)) waiting.set(k, {list: [], next: 0});
    waiting.get(k).list.push(n.id);
  }
  for (const n of b.nodes) {
    const found = from[n.id] < 0 ? waiting.get(key(n, b)) : undefined;
    if (!found || found.next === found.list.length) continue;
    const other = found.list[found.next++];
    to[other] = n.id;
    from[n.id] = other;
  }
}

function makerRecord(graph, value) {
  return value < 0 ? "-" : graph.makers[value].node.record + "." + graph.makers[value].index;
}

/// Whether `n` of `a` and `m` of `b`, a pair, read the same values.
function sameInputs(n, m, a, b, to) {
  return n.inputs.length === m.inputs.length && n.inputs.every((value, i) => {
    if (value < 0 || m.inputs[i] < 0) return value === m.inputs[i];
    const x = a.makers[value], y = b.makers[m.inputs[i]];
    const same = x.node.record === y.node.record && x.node.leaf && !x.node.inputs.length;
    return (same || to[x.node.id] === y.node.id) && x.index === y.index;
  });
}

/// For each node of `a`, nodes of `b` that share a part of its location.
function relatives(b) {
  const by = new Map();
  for (const n of b.nodes) {
    for (const part of n.parts) {
      if (!by.has(part)) by.set(part, []);
      by.get(part).push(n);
    }
  }
  return node => [...new Set(node.parts.flatMap(part => by.get(part) || []))];
}

function compare(a, b) {
  const to = new Array(a.nodes.length).fill(-1), from = new Array(b.nodes.length).fill(-1);
  const near = (n, g) => n.record + ":" + n.inputs.map(v => makerRecord(g, v)).join();
  const place = n => n.parts.length ? n.op + "@" + n.parts[0] : "";  // rewritten, merged, fused
  for (const key of [near, n => String(n.record), n => n.loc ? n.op + "@" + n.loc : "", place]) {
    pairBy(key, a, b, to, from);
  }
  const before = a.nodes.map(n => to[n.id] < 0 ? "removed" : ""), counts = {};
  const after = b.nodes.map(m => {
    if (from[m.id] < 0) return "added";
    const n = a.nodes[from[m.id]];
    const state = n.record !== m.record ? "changed" : sameInputs(n, m, a, b, to) ? "" : "rewired";
    before[n.id] = state;
    return state;
  });
  for (const s of [...before.filter(s => s === "removed"), ...after]) counts[s] = (counts[s] || 0) + 1;
  return {to, from, before, after, counts};
}

// ---- layout ----

const kWidth = 176, kHeight = 50, kRow = 84, kGap = 22, kMaxChain = 400;

/// Longest-path layers; sources and leaves stand just above their first user. Program order is
/// topological.
function layersOf(nodes, graph) {
  const layer = new Map();
  for (const n of nodes) {
    let at = n.parent >= 0 ? layer.get(graph.nodes[n.parent]) + 1 : 0;
    for (const v of n.inputs) {
      const above = v < 0 ? undefined : layer.get(graph.makers[v].node);
      if (above !== undefined) at = Math.max(at, above + 1);
    }
    layer.set(n, at);
  }
  for (const n of [...nodes].reverse()) {
    const below = n.users.filter(u => layer.has(u)).map(u => layer.get(u));
    if ((n.leaf || n.inputs.length === 0) && below.length) {
      layer.set(n, Math.max(layer.get(n), below.reduce((x, y) => Math.min(x, y)) - 1));
    }
  }
  return layer;
}

/// Items are nodes and the bends of long edges; all users of a node share one chain of bends.
function makeItems(nodes, graph) {
  const layer = layersOf(nodes, graph), rows = [], items = new Map();
  const put = (node, row, width) => {
    while (rows.length <= row) rows.push([]);
    const item = {node, row, width, x: 0, order: rows[row].length, up: [], down: []};
    rows[row].push(item);
    return item;
  };
  const link = (from, to) => { from.down.push(to); to.up.push(from); };
  for (const n of nodes) items.set(n, put(n, layer.get(n), kWidth));
  for (const n of nodes) {
    const users = n.users.filter(u => layer.has(u)).sort((x, y) => layer.get(x) - layer.get(y));
    let end = items.get(n);
    for (const u of users) {
      if (layer.get(u) - end.row <= kMaxChain) {
        while (end.row < layer.get(u) - 1) {
          const bend = put(null, end.row + 1, 14);
          link(end, bend);
          end = bend;
        }
      }
      link(end, items.get(u));
    }
    const owner = n.parent >= 0 ? graph.nodes[n.parent] : null;
    if (owner && items.get(n).up.length === 0) link(items.get(owner), items.get(n));
  }
  return {rows, items};
}

function sweep(rows, side) {
  const sequence = side === "up" ? rows : [...rows].reverse();
  for (const row of sequence) {
    for (const item of row) {
      const near = item[side];
      item.want = near.length ? near.reduce((sum, o) => sum + o.order, 0) / near.length : item.order;
    }
    row.sort((p, q) => p.want - q.want || p.order - q.order);
    row.forEach((item, i) => { item.order = i; });
  }
}

/// Moves the items of a row, in their order, as near as can be to what they want (least squares).
function placeRow(row, sides) {
  const blocks = [];
  let offset = 0;
  row.forEach((item, i) => {
    if (i) offset += (row[i - 1].width + item.width) / 2 + kGap;
    const near = sides.flatMap(side => item[side]);
    const want = near.length ? near.reduce((sum, o) => sum + o.x, 0) / near.length : item.x;
    const weight = near.length ? (item.node ? 1 : 4) : 0.1;
    let block = {first: i, weight, at: want - offset};
    item.offset = offset;
    while (blocks.length && blocks[blocks.length - 1].at > block.at) {
      const left = blocks.pop(), sum = left.weight + block.weight;
      block = {first: left.first, weight: sum,
        at: (left.at * left.weight + block.at * block.weight) / sum};
    }
    blocks.push(block);
  });
  blocks.forEach((block, i) => {
    const end = i + 1 < blocks.length ? blocks[i + 1].first : row.length;
    for (let k = block.first; k < end; ++k) row[k].x = block.at + row[k].offset;
  });
}

function layoutOf(graph, leaves) {
  if (graph.layouts.has(leaves)) return graph.layouts.get(leaves);
  const {rows, items} = makeItems(graph.nodes.filter(n => leaves || !n.leaf), graph);
  for (let i = 0; i < 6; ++i) sweep(rows, i % 2 ? "down" : "up");
  for (const row of rows) placeRow(row, []);
  for (let i = 0; i < 8; ++i) {
    for (const row of rows) placeRow(row, i < 6 ? ["up"] : ["up", "down"]);
    for (const row of [...rows].reverse()) placeRow(row, i < 6 ? ["down"] : ["up", "down"]);
  }
  const all = rows.flat(), xs = all.map(item => item.x);
  const layout = {rows, items, left: xs.reduce((p, q) => Math.min(p, q), 0) - kWidth,
    right: xs.reduce((p, q) => Math.max(p, q), 0) + kWidth, bottom: rows.length * kRow};
  graph.layouts.set(leaves, layout);
  return layout;
}
)page";

constexpr std::string_view kPanes = R"page(
// ---- drawing ----

const kFill = {removed: "#ffdbd7", added: "#d3f1d7", changed: "#fff0c0", rewired: "#e3f0ff", "": "#ffffff"};
const kLine = {removed: "#c62828", added: "#2e7d32", changed: "#b27b00", rewired: "#1565c0", "": "#9aa5b1"};
const kStrip = 16;

class Pane {
  constructor(side) {
    this.side = side;
    this.canvas = $(side);
    this.ctx = this.canvas.getContext("2d");
    this.scale = 1;
    this.x = this.y = 0;  // of the graph, at the middle of the pane
    this.listen();
  }

  show(graph, states, leaves) {
    this.graph = graph;
    this.states = states;
    this.layout = layoutOf(graph, leaves);
  }

  state(node) { return this.states[node.id]; }
  item(node) { return this.layout.items.get(node); }

  resize() {
    const ratio = window.devicePixelRatio || 1, box = this.canvas.getBoundingClientRect();
    this.width = box.width;
    this.height = box.height;
    this.canvas.width = box.width * ratio;
    this.canvas.height = box.height * ratio;
  }

  center(node, scale) {
    const item = this.item(node);
    if (!item) return;
    this.x = item.x;
    this.y = item.row * kRow;
    if (scale) this.scale = scale;
  }

  wholeScale() {
    const {left, right, bottom} = this.layout;
    return Math.min(1, (this.width - kStrip) / (right - left), this.height / (bottom + kRow));
  }

  whole() {
    const {left, right, bottom} = this.layout;
    this.scale = this.wholeScale();
    this.x = (left + right) / 2;
    this.y = (bottom - kRow) / 2;
  }

  rowsInView() {
    const half = this.height / 2 / this.scale;
    return [Math.max(0, Math.floor((this.y - half) / kRow) - 1),
      Math.min(this.layout.rows.length - 1, Math.ceil((this.y + half) / kRow) + 1)];
  }

  draw() {
    const {ctx, scale} = this, ratio = window.devicePixelRatio || 1;
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, this.width, this.height);
    ctx.translate(this.width / 2, this.height / 2);
    ctx.scale(scale, scale);
    ctx.translate(-this.x, -this.y);
    const [first, last] = this.rowsInView();
    for (let r = first; r <= last; ++r) for (const item of this.layout.rows[r]) this.drawEdges(item);
    for (let r = first; r <= last; ++r) for (const item of this.layout.rows[r]) this.drawNode(item);
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.drawStrip();
  }

  drawEdges(item) {
    const {ctx} = this, half = this.width / 2 / this.scale + kWidth;
    const y0 = item.row * kRow + (item.node ? kHeight / 2 : 0);
    for (const to of item.down) {
      if (Math.min(item.x, to.x) > this.x + half || Math.max(item.x, to.x) < this.x - half) continue;
      const y1 = to.row * kRow - (to.node ? kHeight / 2 : 0), bend = Math.min(kRow, y1 - y0) / 2;
      const near = to.node && to.node === view.selected || item.node && item.node === view.selected;
      ctx.strokeStyle = near ? "#1565c0" : "#a5b0bb";
      ctx.lineWidth = (near ? 2.5 : 1.3) / Math.min(1, Math.sqrt(this.scale) * 1.3);
      ctx.setLineDash(to.node && to.node.parent >= 0 && !to.node.inputs.length ? [4, 4] : []);
      ctx.beginPath();
      ctx.moveTo(item.x, y0);
      ctx.bezierCurveTo(item.x, y0 + bend, to.x, y1 - bend, to.x, y1);
      ctx.stroke();
      if (to.node && this.scale > 0.35) this.drawArrow(to.x, y1, ctx.strokeStyle);
    }
    ctx.setLineDash([]);
  }

  drawArrow(x, y, colour) {
    const {ctx} = this;
    ctx.fillStyle = colour;
    ctx.beginPath();
    ctx.moveTo(x, y);
    ctx.lineTo(x - 4, y - 7);
    ctx.lineTo(x + 4, y - 7);
    ctx.fill();
  }

  drawNode(item) {
    const {ctx} = this, node = item.node, half = this.width / 2 / this.scale + kWidth;
    if (!node || Math.abs(item.x - this.x) > half) return;
    const state = this.state(node), x = item.x - kWidth / 2, y = item.row * kRow - kHeight / 2;
    ctx.globalAlpha = view.query && !view.hits.has(node) ? 0.25 : 1;
    ctx.fillStyle = kFill[state];
    ctx.strokeStyle = kLine[state];
    ctx.lineWidth = state ? Math.max(2, 1.5 / this.scale) : 1;
    ctx.beginPath();
    ctx.roundRect(x, y, kWidth, kHeight, 6);
    ctx.fill();
    ctx.stroke();
    if (node === view.selected || node === view.partner) {
      ctx.strokeStyle = "#1565c0";
      ctx.lineWidth = 3;
      ctx.setLineDash(node === view.partner ? [6, 4] : []);
      ctx.strokeRect(x - 5, y - 5, kWidth + 10, kHeight + 10);
      ctx.setLineDash([]);
    }
    if (this.scale > 0.3) this.drawText(node, item.x, y, state);
    ctx.globalAlpha = 1;
  }

  drawText(node, x, y, state) {
    const {ctx} = this;
    ctx.textAlign = "center";
    const line = (text, font, colour, at) => {
      ctx.font = font;
      ctx.fillStyle = colour;
      ctx.fillText(fitText(ctx, text, kWidth - 12), x, y + at);
    };
    line(node.title, "600 13px system-ui, Arial, sans-serif", "#1f2933", 16);
    if (this.scale < 0.45) return;
    line(node.subtitle, "10.5px system-ui, Arial, sans-serif", "#52606d", 30);
    line(node.shape, "10.5px ui-monospace, Menlo, monospace", "#52606d", 44);
    if (state !== "removed") return;
    ctx.strokeStyle = kLine.removed;
    ctx.lineWidth = 1;
    const width = ctx.measureText(node.title).width * 0.62;
    ctx.beginPath();
    ctx.moveTo(x - width, y + 12);
    ctx.lineTo(x + width, y + 12);
    ctx.stroke();
  }

  /// The whole height at the right edge: where the changes are, and what is in view.
  drawStrip() {
    const {ctx} = this, rows = this.layout.rows, unit = this.height / rows.length;
    const left = this.width - kStrip;
    ctx.fillStyle = "#eef1f4";
    ctx.fillRect(left, 0, kStrip, this.height);
    for (const row of rows) {
      for (const item of row) {
        const state = item.node ? this.state(item.node) : "";
        const hit = item.node && view.query && view.hits.has(item.node);
        if (!state && !hit) continue;
        ctx.fillStyle = hit ? "#6a1b9a" : kLine[state];
        ctx.fillRect(left + 2, item.row * unit, kStrip - 4, Math.max(2, Math.min(unit - 1, 8)));
      }
    }
    const half = this.height / 2 / this.scale / kRow;
    ctx.strokeStyle = "#1f2933";
    ctx.lineWidth = 1.5;
    ctx.strokeRect(left + 0.75, (this.y / kRow + 0.5 - half) * unit, kStrip - 1.5, 2 * half * unit);
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const px = event.clientX - box.left, py = event.clientY - box.top;
    return {px, py, x: this.x + (px - this.width / 2) / this.scale,
      y: this.y + (py - this.height / 2) / this.scale};
  }

  nodeAt(point) {
    const row = this.layout.rows[Math.round(point.y / kRow)] || [];
    if (Math.abs(point.y - Math.round(point.y / kRow) * kRow) > kHeight / 2) return null;
    const item = row.find(i => i.node && Math.abs(i.x - point.x) <= kWidth / 2);
    return item ? item.node : null;
  }

  /// The paired node nearest to the middle: what the other pane keeps at the same place.
  anchor() {
    const [first, last] = this.rowsInView();
    let best = null, distance = Infinity;
    for (let r = first; r <= last; ++r) {
      for (const item of this.layout.rows[r]) {
        if (!item.node || !this.item(item.node) || !view.pair(this.side, item.node)) continue;
        const d = Math.hypot(item.x - this.x, item.row * kRow - this.y);
        if (d < distance) [best, distance] = [item, d];
      }
    }
    return best;
  }

  lead() {
    const other = view.panes.find(p => p !== this), anchor = this.anchor();
    other.scale = this.scale;
    const partner = anchor && other.item(view.pair(this.side, anchor.node));
    if (!partner) return;
    other.x = partner.x + this.x - anchor.x;
    other.y = partner.row * kRow + this.y - anchor.row * kRow;
  }

  listen() {
    let from = null, moved = false, strip = false;
    const jump = point => { this.y = (point.py / this.height) * this.layout.bottom - kRow / 2; };
    this.canvas.addEventListener("pointerdown", e => {
      from = this.at(e);
      moved = false;
      strip = from.px > this.width - kStrip;
      this.canvas.setPointerCapture(e.pointerId);
      if (strip) { jump(from); this.lead(); redraw(); }
    });
    this.canvas.addEventListener("pointermove", e => {
      if (!from) return;
      const now = this.at(e);
      if (Math.hypot(now.px - from.px, now.py - from.py) > 3) moved = true;
      if (strip) {
        jump(now);
      } else if (moved) {
        this.x += from.x - now.x;
        this.y += from.y - now.y;
      }
      this.lead();
      redraw();
    });
    this.canvas.addEventListener("pointerup", e => {
      if (from && !moved && !strip) select(this, this.nodeAt(this.at(e)), false);
      from = null;
    });
    this.canvas.addEventListener("wheel", e => {
      e.preventDefault();
      const point = this.at(e);
      this.scale = Math.min(3, Math.max(0.01, this.scale * Math.exp(-e.deltaY * 0.0015)));
      const now = this.at(e);
      this.x += point.x - now.x;
      this.y += point.y - now.y;
      this.lead();
      redraw();
    }, {passive: false});
  }
}

const fitted = new Map();
function fitText(ctx, text, width) {
  const key = ctx.font + text;
  if (fitted.has(key)) return fitted.get(key);
  let shown = text;
  if (ctx.measureText(text).width > width) {  // the end of a long name says more than its start
    let low = 0, high = text.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (ctx.measureText("\u2026" + text.slice(middle)).width > width) low = middle + 1;
      else high = middle;
    }
    shown = "\u2026" + text.slice(low);
  }
  fitted.set(key, shown);
  return shown;
}
)page";

constexpr std::string_view kAfter = R"page(
// ---- the page ----

const view = {pass: null, selected: null, partner: null, query: "", hits: new Set(), changes: [],
  at: -1, panes: [], pair(side, node) {
    const {to, from} = this.pass.diff;
    const id = side === "before" ? to[node.id] : from[node.id];
    return id < 0 ? null : this.pass.graph[side === "before" ? "after" : "before"].nodes[id];
  }};

function el(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.filter(child => child !== null && child !== undefined));
  return element;
}

let drawing = false;
function redraw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    for (const pane of view.panes) if (pane.width > 0 && pane.layout) pane.draw();
  });
}

const kSigns = {removed: "\u2212", added: "+", changed: "~", rewired: "\u21c4"};
const kWords = {removed: "removed", added: "added", changed: "changed", rewired: "rewired"};
const kHelp = {removed: "gone after the pass", added: "made by the pass",
  changed: "another attribute, type or location", rewired: "the same op reads other values"};

function chips(counts) {
  return Object.keys(kSigns).filter(s => counts[s]).map(s =>
    el("span", {className: "chip " + s, title: kHelp[s]}, kSigns[s] + counts[s]));
}

function opCounts(pass) {
  const counts = new Map();
  for (const [graph, sign] of [[pass.graph.before, 0], [pass.graph.after, 1]]) {
    for (const n of graph.nodes) {
      if (!counts.has(n.op)) counts.set(n.op, [0, 0]);
      ++counts.get(n.op)[sign];
    }
  }
  const rows = [...counts].filter(([, [a, b]]) => a !== b).sort((p, q) => p[0] < q[0] ? -1 : 1);
  return el("table", {}, el("tr", {}, ...["op", "before", "after"].map(t => el("th", {}, t))),
    ...rows.map(([op, [a, b]]) => el("tr", {}, el("td", {}, op),
      ...[a, b].map(n => el("td", {className: "number"}, String(n))))));
}

function passEntry(pass, i) {
  const [before, after] = pass.ops, change = after - before;
  const ops = before + (change ? " \u2192 " + after : "") + " ops";
  const entry = el("div", {className: "pass" + (pass.diff ? "" : " same") + (pass.error ? " failed" : "")},
    el("div", {className: "row"}, el("b", {}, (i + 1) + ". " + pass.name),
      el("span", {className: "small"}, pass.ms.toFixed(pass.ms < 10 ? 2 : 0) + " ms")),
    el("div", {className: "small"}, pass.diff ? ops : "no change", pass.text === pass.name ? "" : " \u00b7 " + pass.text),
    pass.diff ? el("div", {}, ...chips(pass.diff.counts)) : null,
    pass.error ? el("div", {className: "removed"}, "failed: " + pass.error) : null,
    ...Object.entries(pass.stats).map(([name, n]) => el("div", {className: "small"}, name + ": " + n)));
  if (pass.diff) entry.onclick = () => { location.hash = i + 1; };
  return entry;
}

function makePasses() {
  const total = data.passes.reduce((sum, p) => sum + p.ms, 0);
  $("title").textContent = $("title").title = data.title;
  $("passes").append(el("div", {className: "small"}, data.passes.length + " passes, " +
    total.toFixed(1) + " ms"));
  $("legend").append(...Object.keys(kSigns).map(s =>
    el("span", {className: "chip " + s, title: kHelp[s]}, kSigns[s] + " " + kWords[s])));
  data.passes.forEach((pass, i) => {
    if (pass.before !== pass.after) {
      pass.graph = {before: graphs[pass.before], after: graphs[pass.after]};
      pass.diff = compare(pass.graph.before, pass.graph.after);
    }
    pass.entry = passEntry(pass, i);
    $("passes").append(pass.entry);
  });
}

/// Changed nodes in the order of the program, each with the pane that shows it best.
function listChanges() {
  const leaves = $("leaves").checked, {diff, graph} = view.pass, changes = [];
  const take = (pane, nodes, states) => {
    for (const n of nodes) if (states[n.id] && (leaves || !n.leaf)) changes.push([pane, n, pane.item(n)]);
  };
  take(view.panes[0], graph.before.nodes.filter(n => diff.before[n.id] === "removed"), diff.before);
  take(view.panes[1], graph.after.nodes, diff.after);
  const height = ([pane, , item]) => item.row / pane.layout.rows.length;
  view.changes = changes.sort((p, q) => height(p) - height(q));
  view.at = -1;
}

function choosePass(index) {
  const pass = data.passes[index];
  if (!pass || !pass.diff) return;
  for (const p of data.passes) p.entry.classList.toggle("chosen", p === pass);
  pass.entry.scrollIntoView({block: "nearest"});
  view.pass = pass;
  const seen = side => pass.graph[side].nodes.some(n => !n.leaf && pass.diff[side][n.id]);
  if (!seen("before") && !seen("after")) $("leaves").checked = true;
  document.querySelectorAll(".pane .name").forEach((name, i) => {
    name.textContent = (i ? "after " : "before ") + pass.name + " \u00b7 " + pass.ops[i] + " ops";
  });
  showGraphs();
  whatChanged();
}

function showGraphs() {
  const {graph, diff} = view.pass, leaves = $("leaves").checked;
  for (const pane of view.panes) pane.show(graph[pane.side], diff[pane.side], leaves);
  view.selected = view.partner = null;
  listChanges();
  search();
  resizeAll();
  const [pane, node] = view.changes[0] || [view.panes[1], graph.after.nodes.find(n => leaves || !n.leaf)];
  if (!node) return;
  const other = view.panes.find(p => p !== pane);
  pane.center(node, 0.8);
  other.center((other.graph.nodes.find(n => other.item(n)) || node), 0.8);
  pane.y = Math.max(pane.y, pane.height / 2 / pane.scale - kRow);  // no empty space on top
  pane.lead();
  if (view.panes.every(p => !p.width || p.wholeScale() >= 0.5)) showWhole();
  showPosition();
  redraw();
}

function whatChanged() {
  $("details").replaceChildren(el("h2", {}, view.pass.name), el("div", {}, ...chips(view.pass.diff.counts)),
    el("h3", {}, "Op counts"), opCounts(view.pass),
    el("div", {className: "small"}, "Click a node for its details. Drag to pan, wheel to zoom, " +
      "n and p for the next and previous change, / to search."));
}

function resizeAll() {
  const shown = $("view").value;
  for (const pane of view.panes) {
    pane.canvas.parentElement.style.display = shown === "both" || shown === pane.side ? "" : "none";
  }
  for (const pane of view.panes) pane.resize();
  redraw();
}

function nodeLink(pane, node) {
  return el("a", {className: "node", onclick: () => { reveal(pane, node); }},
    node.title + (node.subtitle ? " " + node.subtitle : ""));
}

function reveal(pane, node) {
  if (!pane.item(node)) {
    $("leaves").checked = true;
    showGraphs();
  }
  select(pane, node, true);
}

function select(pane, node, move) {
  view.selected = node;
  view.partner = node && view.pair(pane.side, node);
  if (!node) {
    whatChanged();
    redraw();
    return;
  }
  if (move) {
    if ($("view").value !== "both" && $("view").value !== pane.side) {
      $("view").value = pane.side;
      resizeAll();
    }
    pane.center(node, Math.max(pane.scale, 0.6));
  }
  const other = view.panes.find(p => p !== pane);
  if (view.partner && other.item(view.partner) && move) {
    other.scale = pane.scale;
    other.center(view.partner);
  } else if (move) {
    pane.lead();
  }
  showDetails(pane, other, node);
  redraw();
}

function attributeRows(node, old) {
  const names = [...new Set([...(old ? old.attrs.keys() : []), ...node.attrs.keys()])].sort();
  return names.map(name => {
    const now = node.attrs.get(name), was = old ? old.attrs.get(name) : now;
    const value = was === now ? [now] : [was === undefined ? null : el("del", {}, was), " ",
      now === undefined ? null : el("ins", {}, now)];
    return el("tr", {}, el("td", {}, name), el("td", {}, ...value));
  });
}

function section(title, rows) {
  return rows.length ? [el("h3", {}, title), el("table", {}, ...rows)] : [];
}

function inputRows(pane, node) {
  return node.inputs.map((value, i) => {
    const maker = value < 0 ? null : pane.graph.makers[value];
    return el("tr", {}, el("td", {}, String(i)), el("td", {}, maker ? nodeLink(pane, maker.node) : "absent",
      maker ? el("div", {className: "small"}, shortType([...maker.node.types, ...maker.node.args][maker.index])) : null));
  });
}

function showDetails(pane, other, node) {
  const state = pane.state(node), partner = view.partner, links = (p, nodes) =>
    nodes.slice(0, 40).map(n => el("tr", {}, el("td", {}, nodeLink(p, n))));
  const old = partner && pane.side === "after" ? partner : null;
  const related = relatives(other.graph)(node).filter(n => n !== partner && other.state(n) !== "");
  const types = node.types.map((type, i) => el("tr", {}, el("td", {}, String(i)),
    el("td", {}, old && old.types[i] !== type ? el("del", {}, old.types[i] || "") : null, type)));
  const fill = (...parts) => $("details").replaceChildren(...parts.filter(part => part !== null));
  fill(el("h2", {}, node.op),
    state ? el("span", {className: "chip " + state}, kHelp[state]) : el("span", {className: "small"}, "unchanged"),
    old && old.loc !== node.loc ? el("div", {className: "small"}, el("del", {}, old.loc)) : null,
    el("div", {className: "small"}, (node.loc || "no location") + " \u00b7 " + pane.side + " " + view.pass.name),
    ...section("Results", types), ...section("Attributes", attributeRows(node, old)),
    ...section("Inputs", inputRows(pane, node)), ...section("Users", links(pane, node.users)),
    ...(state || related.length ? section(pane.side === "before" ? "From the same place after the pass" :
      "From the same place before the pass", links(other, related)) : []));
}

function search() {
  view.query = $("search").value.trim().toLowerCase();
  const words = view.query.split(/\s+/), hits = [];
  for (const pane of view.query && view.pass ? [view.panes[1], view.panes[0]] : []) {
    for (const n of pane.graph.nodes) {
      if (pane.item(n) && words.every(word => n.text.includes(word))) hits.push([pane, n]);
    }
  }
  view.hits = new Set(hits.map(hit => hit[1]));
  view.hitList = hits;
  view.hitAt = -1;
  const count = view.panes.map(p => hits.filter(hit => hit[0] === p).length);
  $("found").textContent = view.query ? count[0] + " before, " + count[1] + " after" : "";
  redraw();
}

function showPosition() {
  const {diff} = view.pass, count = states => states.filter(s => s !== "").length;
  const hidden = count(diff.before.filter(s => s === "removed")) + count(diff.after) - view.changes.length;
  $("position").textContent = (view.at < 0 ? "" : view.at + 1 + " of ") + view.changes.length +
    " changes" + (hidden ? " (" + hidden + " among constants)" : "");
}

function step(by) {
  if (!view.changes.length) return;
  view.at = view.at < 0 && by < 0 ? view.changes.length - 1 :
    (view.at + by + view.changes.length) % view.changes.length;
  const [pane, node] = view.changes[view.at];
  select(pane, node, true);
  showPosition();
}

function nextHit(by) {
  if (!view.hitList.length) return;
  view.hitAt = (view.hitAt + by + view.hitList.length) % view.hitList.length;
  select(...view.hitList[view.hitAt], true);
}

function showWhole() {
  for (const pane of view.panes) pane.whole();
  redraw();
}

function listen() {
  $("next").onclick = () => step(1);
  $("previous").onclick = () => step(-1);
  $("whole").onclick = showWhole;
  $("leaves").onchange = showGraphs;
  $("view").onchange = resizeAll;
  $("search").oninput = search;
  $("search").onkeydown = e => { if (e.key === "Enter") nextHit(e.shiftKey ? -1 : 1); };
  window.onresize = resizeAll;
  window.onhashchange = () => choosePass(Number(location.hash.slice(1)) - 1);
  document.onkeydown = e => {
    if (e.target === $("search") || e.ctrlKey || e.metaKey || e.altKey) return;
    const keys = {n: () => step(1), p: () => step(-1), f: showWhole, "/": () => $("search").focus()};
    if (!keys[e.key]) return;
    e.preventDefault();
    keys[e.key]();
  };
}

view.panes = [new Pane("before"), new Pane("after")];
makePasses();
listen();
const first = data.passes.findIndex(pass => pass.diff);
const asked = Number(location.hash.slice(1)) - 1;
if (first < 0) {
  $("panes").replaceChildren(el("p", {style: "margin: 2em"}, "No pass changed the program."));
} else {
  choosePass(data.passes[asked] && data.passes[asked].diff ? asked : first);
}
document.body.dataset.ready = String(data.passes.length);
</script>
</body>
</html>
)page";

}  // namespace

ReportPage GetReportPage() {
  static const std::string after = std::string(kGraphs) + std::string(kPanes) + std::string(kAfter);
  return {kBefore, after};
}

}  // namespace lathe
