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
  border: 1px solid #cfd6dd; border-radius: 10px; font-weight: 600; pointer-events: none;
  max-width: calc(100% - 40px); overflow: hidden; white-space: nowrap; text-overflow: ellipsis; }
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
.remark summary { cursor: pointer; padding: 2px 0; } .remark div { margin-left: 14px; }
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
<button id="up" title="to the op around these bodies (u)">&#8598; leave body</button>
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
  const [op, loc, attrs, types, args, regions] = data.records[raw.n[id]];
  const node = {id, record: raw.n[id], op: texts[op], loc: texts[loc], attrs: new Map(),
    types: types.map(t => texts[t]), args: args.map(t => texts[t]), inputs: raw.i[id],
    parent: raw.p ? raw.p[id] : -1, region: raw.r ? raw.r[id] : 0, users: [], children: [],
    flow: [], flowIn: [], regions: (regions || []).map(([name, count]) => ({name: texts[name], count}))};
  for (let i = 0; i < attrs.length; i += 2) node.attrs.set(texts[attrs[i]], texts[attrs[i + 1]]);
  node.title = node.op.replace(/^nn\./, "");
  node.parts = node.loc.match(/'[^']*'|[^\s,()']+:\d+:\d+/g) || [];
  node.subtitle = (node.attrs.get("name") || node.parts[0] || "").replace(/^["']|["']$/g, "") +
    (node.parts.length > 1 ? " +" + (node.parts.length - 1) : "");
  node.subtitle = node.subtitle.replace(/^.*\/(?=[^\/]+:\d+:\d+)/, "");  // a file's folders say little
  node.shape = node.types.map(t => shortType(t, true)).join(", ");
  node.place = node.op + (node.loc ? " at " + node.loc : "");
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
    if (node.parent >= 0) nodes[node.parent].children.push(node);
    for (const value of node.inputs) if (value >= 0) connect(nodes, makers[value], node);
  }
  markLeaves(nodes, makers);
  return {nodes, makers, layouts: new Map()};
}

/// `user` reads the value. Seen from the body that makes it, the op around the user reads it.
function connect(nodes, {node, index}, user) {
  if (node.users[node.users.length - 1] !== user) node.users.push(user);
  if (index >= node.types.length) return;  // an argument of the body: on the frame around it
  while (user && user.parent !== node.parent) user = nodes[user.parent];
  if (!user || user === node || user.flowIn.includes(node)) return;
  user.flowIn.push(node);
  node.flow.push(user);
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

/// Two constants or parameters of one value, wherever they come from.
function sameValue(n, m) {
  return n.op === m.op && n.types.join() === m.types.join() && n.attrs.size === m.attrs.size &&
    [...n.attrs].every(([name, value]) => m.attrs.get(name) === value);
}

/// An op is marked when something within it is.
function markOwners(nodes, states) {
  for (const n of nodes) {
    for (let at = n; states[n.id] && at.parent >= 0; at = nodes[at.parent]) states[at.parent] ||= "inside";
  }
}

/// Whether `n` of `a` and `m` of `b`, a pair, read the same values.
function sameInputs(n, m, a, b, to) {
  return n.inputs.length === m.inputs.length && n.inputs.every((value, i) => {
    if (value < 0 || m.inputs[i] < 0) return value === m.inputs[i];
    const x = a.makers[value], y = b.makers[m.inputs[i]];
    const same = x.node.leaf && !x.node.inputs.length && sameValue(x.node, y.node);
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
  delete counts[""];
  markOwners(a.nodes, before);
  markOwners(b.nodes, after);
  return {to, from, before, after, counts};
}

// ---- layout ----

const kWidth = 176, kHeight = 50, kRow = 84, kGap = 22, kMaxChain = 400;

/// Longest-path layers; sources and leaves stand just above their first user. Program order is
/// topological.
function layersOf(nodes) {
  const layer = new Map();
  for (const n of nodes) {
    let at = 0;
    for (const m of n.flowIn) if (layer.has(m)) at = Math.max(at, layer.get(m) + 1);
    layer.set(n, at);
  }
  for (const n of [...nodes].reverse()) {
    const below = n.flow.filter(u => layer.has(u)).map(u => layer.get(u));
    if ((n.leaf || n.inputs.length === 0) && below.length) {
      layer.set(n, Math.max(layer.get(n), below.reduce((x, y) => Math.min(x, y)) - 1));
    }
  }
  return layer;
}

/// Items are nodes and the bends of long edges; all users of a node share one chain of bends.
function makeItems(nodes) {
  const layer = layersOf(nodes), rows = [], items = new Map();
  const put = (node, row, width) => {
    while (rows.length <= row) rows.push([]);
    const item = {node, row, width, x: 0, order: rows[row].length, up: [], down: []};
    rows[row].push(item);
    return item;
  };
  const link = (from, to) => { from.down.push(to); to.up.push(from); };
  for (const n of nodes) items.set(n, put(n, layer.get(n), kWidth));
  for (const n of nodes) {
    const users = n.flow.filter(u => layer.has(u)).sort((x, y) => layer.get(x) - layer.get(y));
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

function layoutPart(nodes) {
  const {rows, items} = makeItems(nodes);
  for (let i = 0; i < 6; ++i) sweep(rows, i % 2 ? "down" : "up");
  for (const row of rows) placeRow(row, []);
  for (let i = 0; i < 8; ++i) {
    for (const row of rows) placeRow(row, i < 6 ? ["up"] : ["up", "down"]);
    for (const row of [...rows].reverse()) placeRow(row, i < 6 ? ["down"] : ["up", "down"]);
  }
  const xs = rows.flat().map(item => item.x);
  return {rows, items, left: xs.reduce((p, q) => Math.min(p, q), xs[0] || 0) - kWidth,
    right: xs.reduce((p, q) => Math.max(p, q), xs[0] || 0) + kWidth, bottom: rows.length * kRow};
}

/// A page is the top of the program (-1), or the bodies of one op, each in a frame, side by side.
function layoutOf(graph, leaves, page) {
  const key = leaves + ":" + page;
  if (graph.layouts.has(key)) return graph.layouts.get(key);
  const nodes = graph.nodes.filter(n => n.parent === page && (leaves || !n.leaf));
  const layout = page < 0 ? {...layoutPart(nodes), frames: []} : layoutBodies(graph.nodes[page], nodes);
  graph.layouts.set(key, layout);
  return layout;
}

function layoutBodies(owner, nodes) {
  const whole = {rows: [], items: new Map(), left: 0, right: 0, bottom: 0, frames: []};
  let argument = 0;
  owner.regions.forEach(({name, count}, r) => {
    const part = layoutPart(nodes.filter(n => n.region === r)), shift = whole.right - part.left;
    part.rows.forEach((row, i) => {
      for (const item of row) item.x += shift;
      (whole.rows[i] ||= []).push(...row);
    });
    for (const [node, item] of part.items) whole.items.set(node, item);
    const types = owner.args.slice(argument, argument += count).map(t => shortType(t, true));
    whole.frames.push({title: name + (count ? " (" + types.join(", ") + ")" : ""),
      left: whole.right + 40, right: part.right + shift - 40, bottom: part.bottom});
    whole.right = part.right + shift;
    whole.bottom = Math.max(whole.bottom, part.bottom, kRow);
  });
  return whole;
}
)page";

constexpr std::string_view kPanes = R"page(
// ---- drawing ----

const kFill = {inside: "#fff8e6", removed: "#ffdbd7", added: "#d3f1d7", changed: "#fff0c0", rewired: "#e3f0ff", "": "#ffffff"};
const kLine = {inside: "#b27b00", removed: "#c62828", added: "#2e7d32", changed: "#b27b00", rewired: "#1565c0", "": "#9aa5b1"};
const kStrip = 16;

class Pane {
  constructor(side) {
    this.side = side;
    this.canvas = $(side);
    this.ctx = this.canvas.getContext("2d");
    this.scale = 1;
    this.page = -1;  // the op whose bodies are shown
    this.x = this.y = 0;  // of the graph, at the middle of the pane
    this.listen();
  }

  show(graph, states, leaves) {
    this.graph = graph;
    this.states = states;
    this.layout = layoutOf(graph, leaves, this.page);
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
    if (!this.layout.rows.length) return [0, -1];
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
    for (const frame of this.layout.frames) this.drawFrame(frame);
    for (let r = first; r <= last; ++r) for (const item of this.layout.rows[r]) this.drawEdges(item);
    for (let r = first; r <= last; ++r) for (const item of this.layout.rows[r]) this.drawNode(item);
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.drawStrip();
  }

  drawFrame({title, left, right, bottom}) {
    const {ctx} = this;
    ctx.fillStyle = "#f7f9fb";
    ctx.strokeStyle = "#9aa5b1";
    ctx.lineWidth = 1.5 / Math.min(1, this.scale);
    ctx.beginPath();
    ctx.roundRect(left, -kRow * 0.85, right - left, bottom + kRow * 0.6, 10);
    ctx.fill();
    ctx.stroke();
    ctx.textAlign = "left";
    ctx.fillStyle = "#52606d";
    ctx.font = "600 14px system-ui, Arial, sans-serif";
    ctx.fillText(fitText(ctx, title, right - left - 24), left + 12, -kRow * 0.58);
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
      ctx.beginPath();
      ctx.moveTo(item.x, y0);
      ctx.bezierCurveTo(item.x, y0 + bend, to.x, y1 - bend, to.x, y1);
      ctx.stroke();
      if (to.node && this.scale > 0.35) this.drawArrow(to.x, y1, ctx.strokeStyle);
    }
  }

  drawArrow(x, y, color) {
    const {ctx} = this;
    ctx.fillStyle = color;
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
    if (node.children.length) {  // something is within
      ctx.lineWidth = 1;
      ctx.beginPath();
      ctx.roundRect(x + 4, y + 4, kWidth - 8, kHeight - 8, 4);
      ctx.stroke();
    }
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
    const line = (text, font, color, at) => {
      ctx.font = font;
      ctx.fillStyle = color;
      ctx.fillText(fitText(ctx, text, kWidth - 12), x, y + at);
    };
    line(node.title, "600 13px system-ui, Arial, sans-serif", "#1f2933", 16);
    if (this.scale < 0.45) return;
    line(node.children.length ? bodiesOf(node) : node.subtitle, "10.5px system-ui, Arial, sans-serif", "#52606d", 30);
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
    this.canvas.addEventListener("dblclick", e => {
      const node = this.nodeAt(this.at(e));
      if (node && node.children.length) openPage(this, node.id);
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

/// "then 3 ops, else 5 ops"
function bodiesOf(node) {
  return node.regions.map(({name}, r) =>
    name + " " + node.children.filter(n => n.region === r).length + " ops").join(", ");
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

}  // namespace

ReportPage GetReportPage() {
  static const std::string after =
      std::string(kGraphs) + std::string(kPanes) + std::string(ReportPageScript());
  return {kBefore, after};
}

}  // namespace lathe
