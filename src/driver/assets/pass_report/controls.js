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
  inside: "something within it has changed",
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
  const missed = pass.remarks.filter(([kind]) => kind === 1);
  const ops = before + (change ? " \u2192 " + after : "") + " ops";
  const entry = el("div", {className: "pass" + (pass.diff ? "" : " same") + (pass.error ? " failed" : ""),
    title: pass.diff ? "" : "changed nothing"},
    el("div", {className: "row"}, el("b", {}, (i + 1) + ". " + pass.name),
      el("span", {className: "small"}, (pass.diff ? "" : "= ") + pass.ms.toFixed(pass.ms < 10 ? 2 : 0) + " ms")),
    el("div", {className: "small"}, pass.diff ? ops : "", pass.text === pass.name ? "" : " \u00b7 " + pass.text),
    pass.diff ? el("div", {}, ...chips(pass.diff.counts)) : null,
    pass.error ? el("div", {className: "removed"}, "failed: " + pass.error) : null,
    ...Object.entries(pass.stats).map(([name, n]) => el("div", {className: "small"}, name + ": " + n)),
    missed.length ? el("div", {className: "small"}, missed.length + " almost") : null);
  if (pass.diff) entry.onclick = () => { location.hash = i + 1; };
  else if (pass.remarks.length) entry.onclick = () => showQuietPass(pass);
  return entry;
}

function makePasses() {
  const total = data.passes.reduce((sum, p) => sum + p.ms, 0);
  $("title").textContent = $("title").title = data.title;
  $("passes").append(el("div", {className: "small"}, data.passes.length + " passes, " +
    data.passes.filter(p => p.before !== p.after).length + " changed something, " + total.toFixed(1) + " ms"));
  $("legend").append(...Object.keys(kSigns).map(s =>
    el("span", {className: "chip " + s, title: kHelp[s]}, kSigns[s] + " " + kWords[s])));
  data.passes.forEach((pass, i) => {
    if (pass.before !== pass.after) {
      pass.graph = {before: graphs[pass.before], after: graphs[pass.after]};
      pass.diff = compare(pass.graph.before, pass.graph.after);
    }
    pass.remarks ||= [];
    pass.entry = passEntry(pass, i);
    $("passes").append(pass.entry);
  });
}

function outermost(graph, node) {
  while (node.parent >= 0) node = graph.nodes[node.parent];
  return node;
}

/// Shows the bodies of op `page` of this pane, -1 the top, and of its partner in the other.
function openPage(pane, page) {
  const other = view.panes.find(p => p !== pane), leaves = $("leaves").checked, left = pane.page;
  const partner = page < 0 ? -1 : (view.pair(pane.side, pane.graph.nodes[page]) || {id: -1}).id;
  pane.page = page;
  other.page = partner >= 0 && !other.graph.nodes[partner].children.length ? -1 : partner;
  for (const p of view.panes) p.show(p.graph, p.states, leaves);
  namePanes();
  showWhole();
  if (left >= 0 && page < left) select(pane, pane.graph.nodes[left], false);
}

function namePanes() {
  for (const pane of view.panes) {
    const name = pane.canvas.parentElement.querySelector(".name"), {pass} = view;
    const owner = pane.page < 0 ? null : pane.graph.nodes[pane.page];
    name.textContent = pane.side + " " + pass.name + " \u00b7 " + (owner ? "within " + owner.title + " " +
      owner.subtitle : pass.ops[pane.side === "before" ? 0 : 1] + " ops");
  }
  $("up").style.display = view.panes.some(p => p.page >= 0) ? "" : "none";
}

function leavePage() {
  const pane = view.panes.find(p => p.page >= 0);
  if (pane) openPage(pane, pane.graph.nodes[pane.page].parent);
}

/// Goes to the page, and to the constants if need be, where the node is drawn.
function bringUp(pane, node) {
  if (node.leaf && !$("leaves").checked) {
    $("leaves").checked = true;
    showGraphs();
  }
  if (node.parent !== pane.page) openPage(pane, node.parent);
}

/// Changed nodes in the order of the program, each with the pane that shows it best.
function listChanges() {
  const leaves = $("leaves").checked, {diff, graph} = view.pass, changes = [];
  const take = (pane, nodes, states) => {
    const top = layoutOf(pane.graph, leaves, -1);
    for (const n of nodes) {
      if (!states[n.id] || states[n.id] === "inside" || (n.leaf && !leaves)) continue;
      changes.push([pane, n, top.items.get(outermost(pane.graph, n)).row / top.rows.length]);
    }
  };
  take(view.panes[0], graph.before.nodes.filter(n => diff.before[n.id] === "removed"), diff.before);
  take(view.panes[1], graph.after.nodes, diff.after);
  view.changes = changes.sort((p, q) => p[2] - q[2] || p[1].id - q[1].id);
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
  for (const pane of view.panes) pane.page = -1;
  showGraphs();
  whatChanged();
}

function showGraphs() {
  const {graph, diff} = view.pass, leaves = $("leaves").checked;
  for (const pane of view.panes) pane.show(graph[pane.side], diff[pane.side], leaves);
  namePanes();
  view.selected = view.partner = null;
  listChanges();
  search();
  resizeAll();
  const [pane, changed] = view.changes[0] || [view.panes[1], graph.after.nodes.find(n => leaves || !n.leaf)];
  if (!changed) return;
  const node = pane.item(changed) ? changed : outermost(pane.graph, changed);
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
    el("h3", {}, "Op counts"), opCounts(view.pass), ...remarkList(view.pass),
    el("div", {className: "small"}, "Click a node for its details. Drag to pan, wheel to zoom, " +
      "double click to look into an op with bodies (u: out again), n and p for the next and previous " +
      "change, / to search."));
}

/// A pass that changed nothing may still have something to say.
function showQuietPass(pass) {
  $("details").replaceChildren(el("h2", {}, pass.name), el("div", {className: "small"}, "no change"),
    ...remarkList(pass));
}

/// The pane and node that a remark speaks of, in the pass that is shown.
function nodeOfRemark(pass, place) {
  if (pass !== view.pass) return null;
  for (const pane of view.panes) {
    pane.graph.places ||= new Map(pane.graph.nodes.map(n => [n.place, n]));
    const node = pane.graph.places.get(place);
    if (node) return [pane, node];
  }
  return null;
}

const kRemarks = ["done", "almost", "note"];

/// Remarks with the same words are one entry, which opens.
function remarkList(pass) {
  const groups = new Map();
  for (const [kind, words, place] of pass.remarks) {
    const key = kind + texts[words];
    if (!groups.has(key)) groups.set(key, {kind, words: texts[words], places: []});
    groups.get(key).places.push(texts[place]);
  }
  const entry = ({kind, words, places}) => el("details", {className: "remark"},
    el("summary", {}, el("span", {className: "chip " + ["added", "changed", "rewired"][kind]}, kRemarks[kind]),
      words + (places.length > 1 ? " \u00d7 " + places.length : "")),
    ...places.slice(0, 60).map(place => {
      const found = nodeOfRemark(pass, place);
      return el("div", {className: "small"}, found ? nodeLink(...found) : place);
    }));
  const sorted = [...groups.values()].sort((p, q) => p.kind - q.kind || q.places.length - p.places.length);
  return sorted.length ? [el("h3", {}, "What it did, and almost did"), ...sorted.map(entry)] : [];
}

function remarksAbout(node) {
  return view.pass.remarks.filter(([, , place]) => texts[place] === node.place).map(([kind, words]) =>
    el("tr", {}, el("td", {}, kRemarks[kind]), el("td", {}, texts[words])));
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
  select(pane, node, true);
}

function select(pane, node, move) {
  if (node && !pane.item(node)) bringUp(pane, node);
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
    node.children.length ? el("button", {onclick: () => openPage(pane, node.id)}, "look inside: " + bodiesOf(node)) : null,
    ...section("Remarks", remarksAbout(node)), ...section("Results", types), ...section("Attributes", attributeRows(node, old)),
    ...section("Inputs", inputRows(pane, node)), ...section("Users", links(pane, node.users)),
    ...(state || related.length ? section(pane.side === "before" ? "From the same place after the pass" :
      "From the same place before the pass", links(other, related)) : []));
}

function search() {
  view.query = $("search").value.trim().toLowerCase();
  const words = view.query.split(/\s+/), hits = [];
  for (const pane of view.query && view.pass ? [view.panes[1], view.panes[0]] : []) {
    for (const n of pane.graph.nodes) {
      if ((!n.leaf || $("leaves").checked) && words.every(word => n.text.includes(word))) hits.push([pane, n]);
    }
  }
  view.hits = new Set();
  for (const [pane, n] of hits) {
    for (let at = n; at; at = pane.graph.nodes[at.parent]) view.hits.add(at);  // and what is around it
  }
  view.hitList = hits;
  view.hitAt = -1;
  const count = view.panes.map(p => hits.filter(hit => hit[0] === p).length);
  $("found").textContent = view.query ? count[0] + " before, " + count[1] + " after" : "";
  redraw();
}

function showPosition() {
  const {diff} = view.pass, count = states => states.filter(s => s !== "" && s !== "inside").length;
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
  $("up").onclick = leavePage;
  $("leaves").onchange = showGraphs;
  $("view").onchange = resizeAll;
  $("search").oninput = search;
  $("search").onkeydown = e => { if (e.key === "Enter") nextHit(e.shiftKey ? -1 : 1); };
  window.onresize = resizeAll;
  window.onhashchange = () => choosePass(Number(location.hash.slice(1)) - 1);
  document.onkeydown = e => {
    if (e.target === $("search") || e.ctrlKey || e.metaKey || e.altKey) return;
    const keys = {n: () => step(1), p: () => step(-1), f: showWhole, u: leavePage, "/": () => $("search").focus()};
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
