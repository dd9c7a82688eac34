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
