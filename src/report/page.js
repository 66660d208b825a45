// page.js: reading off and zooming. Everything that a report says is in the page without this script; it adds a cursor that
// follows the pointer or the arrow keys, a tip that names what is there (and tells it to screen readers), and a zoom.
'use strict';
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const profile = data.profile;
  const tip = document.getElementById('tip');
  const NUMBER = 0, COUNT = 1, BYTES = 2, MICROSECONDS = 3;  // kinds of axes, as html.h numbers them

  // ---- numbers for people ----

  const group = (n) => Math.round(n).toString().replace(/\B(?=(\d{3})+$)/g, ',');
  const short = (v) => (v === null || v === undefined ? '–' : String(+v.toPrecision(5)));
  const pick = (v, units) => units.find(([size]) => v >= size) || units[units.length - 1];
  const BYTE_UNITS = [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [1024, 'KiB'], [1, 'B']];
  const TIME_UNITS = [[1e6, 's'], [1e3, 'ms'], [1, 'µs']];
  const bytes = (v) => { const [size, unit] = pick(v, BYTE_UNITS); return +(v / size).toPrecision(4) + ' ' + unit; };
  const micro = (v) => { const [size, unit] = pick(v, TIME_UNITS); return +(v / size).toPrecision(4) + ' ' + unit; };

  // Marks at round numbers, as html.c chooses them.
  function marksOf(axis, wanted) {
    const unit = axis.kind === BYTES ? pick(axis.high, BYTE_UNITS) : axis.kind === MICROSECONDS ? pick(axis.high, TIME_UNITS) : [1, ''];
    const rough = (axis.high - axis.low) / unit[0] / wanted, power = 10 ** Math.floor(Math.log10(rough));
    let step = power * [1, 2, 5, 10].find((m) => rough / power <= m + 1e-9) * unit[0];
    if (axis.kind === COUNT && step < 1) step = 1;
    const marks = [];
    for (let v = Math.ceil(axis.low / step - 1e-9) * step; v <= axis.high + step * 1e-9 && marks.length < 12; v += step)
      marks.push([v, axis.kind === COUNT ? group(v) : +(v / unit[0]).toPrecision(6) + (unit[1] ? ' ' + unit[1] : '')]);
    return marks;
  }

  // ---- the tip ----

  function show(text, x, y) {
    tip.textContent = text;
    tip.style.visibility = 'visible';
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 8)) + 'px';
    tip.style.top = (y + 18 + box.height > innerHeight ? Math.max(4, y - box.height - 12) : y + 18) + 'px';
  }
  const hide = () => { tip.style.visibility = 'hidden'; };

  const make = (parent, name) => {
    const e = document.createElement('div');
    e.className = name;
    e.hidden = true;
    parent.append(e);
    return e;
  };

  // First index whose value is at least v.
  function search(count, value, v) {
    let low = 0, high = count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (value(middle) < v) low = middle + 1; else high = middle;
    }
    return low;
  }

  function nearestOf(count, value, v) {
    const i = search(count, value, v);
    return i > 0 && (i === count || v - value(i - 1) < value(i) - v) ? i - 1 : i;
  }

  // ---- a chart: an x axis that zooms, places along it, and what to say of each ----

  class Chart {
    constructor(frame) {
      this.frame = frame;
      this.figure = frame.closest('figure');
      const [low, high, kind] = frame.dataset.x.split(' ').map(Number);
      this.full = { low, high, kind };
      this.x = { low, high, kind };
      this.panes = [...frame.querySelectorAll('.draw, .row')];
      this.svgs = [...frame.querySelectorAll('svg')];
      this.cursors = this.panes.map((pane) => make(pane, 'cursor'));
      this.brush = make(this.panes[0], 'brush');
      this.place = -1;
      this.reset = document.createElement('button');
      this.reset.className = 'reset';
      this.reset.type = 'button';
      this.reset.textContent = 'Show all';
      this.reset.hidden = true;
      this.reset.onclick = () => this.zoom(this.full.low, this.full.high);
      this.figure.querySelector('figcaption').append(this.reset);
      frame.addEventListener('pointermove', (e) => this.move(e));
      frame.addEventListener('pointerdown', (e) => this.press(e));
      frame.addEventListener('pointerup', (e) => this.release(e));
      frame.addEventListener('pointerleave', () => { this.from = undefined; this.brush.hidden = true; this.clear(); });
      frame.addEventListener('keydown', (e) => this.key(e));
      frame.addEventListener('blur', () => this.clear());
    }

    share(v) { return (v - this.x.low) / (this.x.high - this.x.low); }

    valueAt(e) {
      const box = this.panes[0].getBoundingClientRect();
      return this.x.low + (this.x.high - this.x.low) * Math.min(1, Math.max(0, (e.clientX - box.left) / box.width));
    }

    clear() {
      for (const c of this.cursors) c.hidden = true;
      hide();
    }

    // Puts the cursor at a place and says what is there. With keys the place comes into view first.
    go(place, e) {
      const count = this.count();
      if (count === 0) return;
      this.place = Math.max(0, Math.min(count - 1, place));
      const v = this.at(this.place);
      if (!e && (v < this.x.low || v > this.x.high)) this.zoom(v - (this.x.high - this.x.low) / 2, v + (this.x.high - this.x.low) / 2);
      for (const c of this.cursors) {
        c.hidden = false;
        c.style.left = 100 * this.share(v) + '%';
      }
      const box = this.panes[0].getBoundingClientRect();
      show(this.say(this.place), e ? e.clientX : box.left + box.width * this.share(v), e ? e.clientY : box.top + 10);
    }

    move(e) {
      if (!this.panes.some((pane) => pane.contains(e.target))) return this.from === undefined ? this.clear() : undefined;
      const v = this.valueAt(e);
      if (this.from !== undefined) {
        const a = this.share(Math.min(this.from, v)), b = this.share(Math.max(this.from, v));
        this.brush.hidden = b - a < 0.004;
        this.brush.style.left = 100 * a + '%';
        this.brush.style.width = 100 * (b - a) + '%';
      }
      this.hover(v, e);
    }

    hover(v, e) { this.go(this.nearest(v), e); }

    press(e) {
      if (e.button === 0 && e.pointerType === 'mouse' && this.panes.some((pane) => pane.contains(e.target))) this.from = this.valueAt(e);
    }

    release(e) {
      const to = this.valueAt(e), from = this.from;
      this.from = undefined;
      this.brush.hidden = true;
      if (from !== undefined && Math.abs(this.share(to) - this.share(from)) > 0.008) this.zoom(Math.min(from, to), Math.max(from, to));
    }

    key(e) {
      if (e.target !== this.frame || e.ctrlKey || e.metaKey || e.altKey) return;
      const middle = this.place >= 0 ? this.at(this.place) : (this.x.low + this.x.high) / 2, width = this.x.high - this.x.low;
      const far = e.shiftKey ? 20 : 1;
      const actions = {
        ArrowRight: () => this.go(this.place + far), ArrowLeft: () => this.go(this.place < 0 ? 0 : this.place - far),
        Home: () => this.go(0), End: () => this.go(this.count() - 1),
        ArrowUp: () => this.turn(-1), ArrowDown: () => this.turn(1),
        '+': () => this.zoom(middle - width / 4, middle + width / 4), '=': () => this.zoom(middle - width / 4, middle + width / 4),
        '-': () => this.zoom(middle - width, middle + width),
        Escape: () => { this.zoom(this.full.low, this.full.high); this.clear(); },
      };
      if (!actions[e.key] || ((e.key === 'ArrowUp' || e.key === 'ArrowDown') && !this.turns)) return;
      e.preventDefault();
      actions[e.key]();
    }

    zoom(low, high) {
      const full = this.full, least = (full.high - full.low) / 1e5;
      if (high - low < least) high = low + least;
      if (high - low > full.high - full.low) { low = full.low; high = full.high; }
      if (low < full.low) { high += full.low - low; low = full.low; }
      if (high > full.high) { low -= high - full.high; high = full.high; }
      this.x.low = Math.max(full.low, low);
      this.x.high = high;
      this.reset.hidden = this.x.low === full.low && this.x.high === full.high;
      this.draw();
    }

    draw() {
      const scale = 1000 / (this.full.high - this.full.low);
      const all = this.reset.hidden;  // exactly as it was drawn, without a rounding
      const left = all ? 0 : (this.x.low - this.full.low) * scale, width = all ? 1000 : (this.x.high - this.x.low) * scale;
      for (const svg of this.svgs) {
        const box = svg.getAttribute('viewBox').split(' ').map(Number);
        svg.setAttribute('viewBox', [left, box[1], width, box[3]].join(' '));
      }
      const marks = marksOf(this.x, 6).map(([v, label]) => {
        const span = document.createElement('span');
        span.style.left = 100 * this.share(v) + '%';
        if (this.share(v) < 0.03) span.className = 'l';
        if (this.share(v) > 0.97) span.className = 'r';
        span.textContent = label;
        return span;
      });
      this.frame.querySelector('.x').replaceChildren(...marks);
      const grid = this.frame.querySelector('.grid');
      if (grid) grid.setAttribute('d', grid.getAttribute('d').replace(/M[\d.-]+ ([\d.-]+)H[\d.-]+/g, (_, y) => `M${left} ${y}H${left + width}`));
      this.clear();
    }
  }

  // ---- numbers by step ----

  class Curve extends Chart {
    constructor(frame) {
      super(frame);
      this.column = Number(frame.dataset.curve);
      this.evals = frame.dataset.evals ? data.evals : [];
      this.rows = data.steps;
    }
    count() { return this.rows.length; }
    at(i) { return this.rows[i][0]; }
    nearest(v) { return nearestOf(this.rows.length, (k) => this.rows[k][0], v); }
    say(i) {
      const row = this.rows[i], name = this.column === 5 ? data.rate_unit : data.columns[this.column];
      let text = `step ${group(row[0])}\n${name} ${short(row[this.column])}`;
      const k = search(this.evals.length, (n) => this.evals[n][0], row[0] + 1) - 1;
      if (k >= 0) text += `\nvalidation ${short(this.evals[k][1])} (step ${group(this.evals[k][0])})`;
      return text;
    }
  }

  // ---- losses of several configurations over each other, by step or by time ----

  class Losses extends Chart {
    constructor(frame) {
      super(frame);
      const timed = frame.dataset.losses === 'time';
      this.timed = timed;
      this.curves = data.compared.filter((c) => c.curve.length > 0).map((c) => ({
        name: c.name, rows: c.curve.map(([step, ...loss]) => [timed ? step * c.step_seconds * 1e6 : step, step, ...loss]) }));
      this.places = [...new Set(this.curves.flatMap((c) => c.rows.map((row) => row[0])))].sort((a, b) => a - b);
    }
    count() { return this.places.length; }
    at(i) { return this.places[i]; }
    nearest(v) { return nearestOf(this.places.length, (k) => this.places[k], v); }
    say(i) {
      const lines = [this.timed ? `after ${micro(this.places[i])}` : `step ${group(this.places[i])}`];
      for (const c of this.curves) {
        const row = c.rows[search(c.rows.length, (k) => c.rows[k][0], this.places[i] + 1e-9) - 1];
        if (!row) continue;
        const [x, step, mean, low, high] = row, other = this.timed || x < this.places[i] ? ` (step ${group(step)})` : '';
        lines.push(`${c.name} ${short(mean)}${low !== undefined ? ` (${short(low)} to ${short(high)})` : ''}${other}`);
      }
      return lines.join('\n');
    }
  }

  // ---- memory: what is live at a moment, and the largest tenants ----

  class Memory extends Chart {
    constructor(frame) {
      super(frame);
      this.tier = profile.memory[Number(frame.dataset.memory)];
    }
    count() { return this.tier.moments.length; }
    at(i) { return this.tier.moments[i][0]; }
    nearest(v) { return Math.max(0, search(this.count(), (k) => this.at(k), v + 1e-9) - 1); }
    say(i) {
      const [time, step, ...sizes] = this.tier.moments[i];
      const all = sizes.reduce((a, b) => a + b, 0);
      const lines = [`at ${micro(time)}: ${bytes(all)} live`];
      for (let k = sizes.length - 1; k >= 0; k--) if (sizes[k] > 0) lines.push(`${this.tier.kinds[k]} ${bytes(sizes[k])}`);
      const tenants = this.tier.tenants.filter((t) => t[3] <= step && step <= t[4]);
      lines.push('', 'largest:');
      for (const t of tenants.slice(0, 6)) lines.push(`${t[0]} (${this.tier.kinds[t[1]]}) ${bytes(t[2])}`);
      if (tenants.length > 6) lines.push(`and ${group(tenants.length - 6)} more`);
      return lines.join('\n');
    }
  }

  // ---- streams: a row of operations each for predicted and measured ----

  class Streams extends Chart {
    constructor(frame) {
      super(frame);
      this.turns = true;
      this.rows = [];
      for (const s of profile.streams)
        for (const which of ['predicted', 'measured'])
          if (s[which]) this.rows.push({ stream: s, which, marks: this.withWaits(s, which) });
      this.row = 0;
      this.outline = make(this.panes[0], 'mark');
      this.names = Object.fromEntries(profile.streams.map((s) => [s.stream, s.name]));
    }
    // On the row of compute, the times in which it stood still are places, too.
    withWaits(s, which) {
      if (s.stream !== 0) return s[which];
      const waits = profile.waits[which].list.map(([begin, length, stream]) => ({ begin, length, stream }));
      return s[which].concat(waits.map((w) => [w.begin, w.length, -1, -1, w.stream])).sort((a, b) => a[0] - b[0]);
    }
    get marks() { return this.rows[this.row].marks; }
    count() { return this.marks.length; }
    at(i) { return this.marks[i][0] + this.marks[i][1] / 2; }
    nearest(v) { return Math.max(0, search(this.marks.length, (k) => this.marks[k][0], v + 1e-9) - 1); }
    turn(by) {
      const v = this.place >= 0 ? this.at(this.place) : this.x.low;
      this.row = Math.max(0, Math.min(this.rows.length - 1, this.row + by));
      this.go(this.nearest(v));
    }
    hover(v, e) {
      const row = this.panes.findIndex((pane) => pane.contains(e.target));
      if (row < 0) return this.clear();
      this.row = row;
      const i = this.nearest(v), m = this.marks[i], slack = (this.x.high - this.x.low) / 300;
      if (!m || v > m[0] + m[1] + slack) return this.clear();
      this.go(i, e);
    }
    go(place, e) {
      super.go(place, e);
      const m = this.marks[this.place];
      if (!m) return;
      for (const c of this.cursors) c.hidden = true;
      this.panes[this.row].append(this.outline);
      this.outline.hidden = false;
      this.outline.style.left = 100 * this.share(m[0]) + '%';
      this.outline.style.width = 100 * (m[1] / (this.x.high - this.x.low)) + '%';
    }
    clear() {
      super.clear();
      if (this.outline) this.outline.hidden = true;
    }
    say(i) {
      const [begin, length, name, kind, count] = this.marks[i], row = this.rows[this.row];
      const where = `${row.stream.name}, ${row.which}`, when = `${micro(begin)} to ${micro(begin + length)}, ${micro(length)}`;
      if (kind === -1) return `compute stands still, ${row.which}\nfor ${count === 0 ? 'the host' : this.names[count]}\n${when}`;
      const kinds = ['forward', 'backward', 'update', 'evaluation', 'computed again'];
      return `${profile.names[name]}${count > 1 ? ` and ${group(count - 1)} more` : ''}\n${where}, ${kinds[kind]}\n${when}`;
    }
  }

  for (const frame of document.querySelectorAll('.frame'))
    if (frame.dataset.curve) new Curve(frame);
    else if (frame.dataset.losses) new Losses(frame);
    else if (frame.dataset.memory) new Memory(frame);
    else if (frame.dataset.gantt) new Streams(frame);

  // Tables are printed open.
  addEventListener('beforeprint', () => document.querySelectorAll('figure details').forEach((d) => { d.open = true; }));
})();
