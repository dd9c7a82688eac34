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
