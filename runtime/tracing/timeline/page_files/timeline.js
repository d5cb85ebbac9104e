// The timeline: a canvas of lanes and queue depths over time, redrawn at every change of the view.

const GUTTER = 216;
const AXIS = 26;
const DEVICE_HEAD = 24;
const DEPTH_HEIGHT = 38;
const MOST_ROWS_TALL = 24; // of more lanes each is drawn lower, so that all fit on a screen
const LEAST_SPAN_PX = 1; // what is narrower is summed up by the pixel
const LEAST_VIEW_NS = 100;

/** Where everything is drawn, from the top: device heads, depth strips, lanes. */
function layout() {
  const height = trace.rows.length > MOST_ROWS_TALL ? 12 : 22;
  const places = { rows: [], depths: [], heads: [], rowHeight: height, height: AXIS };
  let device = null;
  trace.rows.forEach((row, number) => {
    const executor = trace.executors[row.executor];
    if (executor.device !== device) {
      device = executor.device;
      places.heads.push({ name: device, top: places.height });
      places.height += DEVICE_HEAD;
      const depth = trace.depths.find((item) => item.device === device);
      if (depth && depth.most > 0) {
        places.depths.push({ depth, top: places.height });
        places.height += DEPTH_HEIGHT + 4;
      }
    }
    const isFirst = number === 0 || trace.rows[number - 1].executor !== row.executor;
    places.rows.push({ top: places.height, label: row.name, share: isFirst ? executor.share : null });
    places.height += height + 2;
  });
  places.height += 6;
  return places;
}

class Timeline {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.places = layout();
    this.view = this.whole();
    this.measure();
    this.selected = -1;
    this.path = [];
    this.others = [];
    this.hovered = -1;
    this.isWaiting = false;
  }

  whole() {
    const margin = trace.elapsed * 0.01 + 1;
    return { start: -margin, end: trace.elapsed + margin };
  }

  /** Mark a run's spans, those of its critical path stronger than the others. */
  select(run) {
    this.selected = run;
    this.path = run < 0 ? [] : criticalPath(run).map((part) => part.span);
    this.others = run < 0 ? [] : spansOf(run).filter((span) => !this.path.includes(span));
    this.redraw();
  }

  show(start, end) {
    const whole = this.whole();
    const length = Math.min(Math.max(end - start, LEAST_VIEW_NS), whole.end - whole.start);
    const first = Math.min(Math.max((start + end - length) / 2, whole.start), whole.end - length);
    this.view = { start: first, end: first + length };
    this.measure();
    this.redraw();
  }

  zoom(factor, x = (GUTTER + this.width) / 2) {
    const fixed = this.timeAt(x);
    this.show(
      fixed - (fixed - this.view.start) * factor,
      fixed + (this.view.end - fixed) * factor,
    );
  }

  move(share) {
    const by = (this.view.end - this.view.start) * share;
    this.show(this.view.start + by, this.view.end + by);
  }

  /** Take the canvas' width and the view for a scale; asking the page for each span is slow. */
  measure() {
    this.width = this.canvas.clientWidth;
    this.perPixel = (this.view.end - this.view.start) / Math.max(this.width - GUTTER, 1);
  }

  x(time) {
    return GUTTER + (time - this.view.start) / this.perPixel;
  }

  timeAt(x) {
    return this.view.start + (x - GUTTER) * this.perPixel;
  }

  /** The span under a point, or within three pixels beside it; -1 if there is none. */
  spanAt(x, y) {
    const row = this.places.rows.findIndex(
      (place) => y >= place.top && y < place.top + this.places.rowHeight,
    );
    if (row < 0 || x < GUTTER) return -1;
    const { spans, rows } = trace;
    const reach = this.timeAt(x + 3) - this.timeAt(x);
    const time = this.timeAt(x);
    let found = -1;
    let least = reach;
    const last = firstAbove(spans.start, time + reach, rows[row].first, rows[row].end) - 1;
    for (let span = last; span >= rows[row].first && span > last - 8; span--) {
      const end = spans.start[span] + spans.took[span];
      const away = Math.max(spans.start[span] - time, time - end, 0);
      if (away < least || (away === 0 && found < 0)) [found, least] = [span, away];
    }
    return found;
  }

  depthPlaceAt(y) {
    return this.places.depths.find((place) => y >= place.top && y < place.top + DEPTH_HEIGHT);
  }

  redraw() {
    if (this.isWaiting) return;
    this.isWaiting = true;
    requestAnimationFrame(() => {
      this.isWaiting = false;
      this.draw();
    });
  }

  draw() {
    const scale = window.devicePixelRatio || 1;
    const { canvas, context, places } = this;
    this.measure();
    canvas.style.height = `${places.height}px`;
    canvas.width = Math.round(this.width * scale);
    canvas.height = Math.round(places.height * scale);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    this.theme = themeColors();
    context.textBaseline = "middle";
    context.clearRect(0, 0, this.width, places.height);
    this.drawAxis();
    context.save();
    context.beginPath();
    context.rect(GUTTER, 0, this.width - GUTTER, places.height);
    context.clip();
    this.drawBand();
    places.depths.forEach((place) => this.drawDepth(place));
    places.rows.forEach((place, row) => this.drawRow(place, row));
    this.drawSelected();
    context.restore();
    this.drawLabels();
  }

  drawAxis() {
    const { context, theme } = this;
    const { start, end } = this.view;
    const step = niceStep(((end - start) * 110) / (this.width - GUTTER));
    context.font = theme.smallFont;
    context.textAlign = "left";
    for (let tick = Math.ceil(start / step) * step; tick <= end; tick += step) {
      const x = Math.round(this.x(tick)) + 0.5;
      context.fillStyle = theme.line;
      context.fillRect(x, AXIS - 6, 1, this.places.height - AXIS);
      context.fillStyle = theme.faint;
      if (x < this.width - 44) context.fillText(tickText(tick, step), x + 4, AXIS / 2);
    }
  }

  /** Tint the time from the arrival of the selected run to its end. */
  drawBand() {
    if (this.selected < 0) return;
    const arrived = trace.runs.arrived[this.selected];
    const left = this.x(arrived);
    const width = Math.max(this.x(arrived + trace.runs.latency[this.selected]) - left, 2);
    this.context.fillStyle = this.theme.band;
    this.context.fillRect(left, AXIS - 8, width, this.places.height);
    this.context.fillStyle = this.theme.accent;
    this.context.fillRect(left, AXIS - 8, width, 3);
  }

  /** Draw a depth as two areas, one on the other: in a queue, and above it without a slot. */
  drawDepth({ depth, top }) {
    const { context, theme } = this;
    const left = GUTTER;
    const columns = Math.ceil(this.width - left);
    const scale = DEPTH_HEIGHT / depth.most;
    let step = Math.max(depthAt(depth, this.timeAt(left)), 0);
    for (let column = 0; column < columns; column++) {
      const end = this.timeAt(left + column + 1);
      let slot = 0;
      let queue = 0;
      while (step < depth.time.length && depth.time[step] <= end) {
        if (depth.slot[step] + depth.queue[step] > slot + queue) {
          slot = depth.slot[step];
          queue = depth.queue[step];
        }
        step++;
      }
      step = Math.max(step - 1, 0);
      const bottom = top + DEPTH_HEIGHT;
      context.fillStyle = theme.queue;
      context.fillRect(left + column, bottom - queue * scale, 1, queue * scale);
      context.fillStyle = theme.slot;
      context.fillRect(left + column, bottom - (queue + slot) * scale, 1, slot * scale);
    }
    context.fillStyle = theme.line;
    context.fillRect(left, top + DEPTH_HEIGHT, columns, 1);
  }

  drawRow({ top }, row) {
    const { spans, rows } = trace;
    const { context, theme } = this;
    const height = this.places.rowHeight;
    context.fillStyle = theme.lane;
    context.fillRect(GUTTER, top, this.width - GUTTER, height);
    const { start, end } = this.view;
    const { first, end: last } = rows[row];
    let span = Math.max(firstAbove(spans.start, start, first, last) - 1, first);
    let pixel = -1; // the column of narrow spans that is being summed up
    let covered = 0;
    let longest = -1;
    const flush = () => {
      if (pixel < 0) return;
      context.globalAlpha = 0.3 + 0.7 * Math.min(covered, 1);
      context.fillStyle = colors[spans.stage[longest]];
      context.fillRect(pixel, top, 1, height);
      context.globalAlpha = 1;
      pixel = -1;
    };
    for (; span < last && spans.start[span] <= end; span++) {
      const left = this.x(spans.start[span]);
      const width = this.x(spans.start[span] + spans.took[span]) - left;
      if (width >= LEAST_SPAN_PX) {
        flush();
        this.drawSpan(span, left, top, width, height);
        continue;
      }
      const column = Math.floor(left);
      if (column !== pixel) {
        flush();
        [pixel, covered, longest] = [column, 0, span];
      }
      covered += width;
      if (spans.took[span] > spans.took[longest]) longest = span;
    }
    flush();
  }

  drawSpan(span, left, top, width, height) {
    const { context, theme } = this;
    const gap = width > 4 ? 0.5 : 0;
    context.fillStyle = colors[trace.spans.stage[span]];
    context.fillRect(left, top, width - gap, height);
    const shown = Math.max(left, GUTTER);
    const room = left + width - shown - 8;
    if (room < 28 || height < 14) return;
    context.font = theme.smallFont;
    context.textAlign = "left";
    context.fillStyle = theme.onColor;
    context.fillText(
      fitted(context, trace.stages[trace.spans.stage[span]].name, room),
      shown + 4,
      top + height / 2 + 0.5,
    );
  }

  drawSelected() {
    const { context, theme, places } = this;
    const { spans } = trace;
    const height = places.rowHeight;
    const box = (span) => {
      const left = this.x(spans.start[span]);
      const right = this.x(spans.start[span] + spans.took[span]);
      return { left, right, top: places.rows[spans.row[span]].top };
    };
    context.lineWidth = 1.5;
    const outline = (span, color) => {
      const { left, right, top } = box(span);
      context.strokeStyle = color;
      context.strokeRect(left - 0.75, top - 0.75, Math.max(right - left, 1) + 1.5, height + 1.5);
    };
    this.others.forEach((span) => outline(span, theme.faint));
    for (const span of [...this.others, ...this.path]) {
      const from = spans.before[span] < 0 ? null : box(spans.before[span]);
      const to = box(span);
      const isOnPath = this.path.includes(span);
      context.strokeStyle = isOnPath ? theme.accent : theme.faint;
      context.globalAlpha = isOnPath ? 1 : 0.7;
      const queued = this.x(spans.queued[span]);
      context.beginPath(); // the time in the queue, on the span's own row
      context.setLineDash([3, 2]);
      context.moveTo(queued, to.top + height / 2);
      context.lineTo(to.left, to.top + height / 2);
      context.stroke();
      context.setLineDash([]);
      if (from && from.top !== to.top) arrow(context, from, { ...to, left: queued }, height);
      context.globalAlpha = 1;
    }
    this.path.forEach((span) => outline(span, theme.accent));
    if (this.hovered >= 0) outline(this.hovered, theme.text);
  }

  drawLabels() {
    const { context, theme, places } = this;
    context.textAlign = "left";
    places.heads.forEach(({ name, top }) => {
      context.font = theme.boldFont;
      context.fillStyle = theme.text;
      context.fillText(fitted(context, name, this.width - 40), 10, top + DEVICE_HEAD / 2 + 2);
    });
    places.depths.forEach(({ depth, top }) => {
      context.font = theme.smallFont;
      context.fillStyle = theme.faint;
      context.fillText("waiting", 20, top + DEPTH_HEIGHT / 2);
      context.textAlign = "right";
      context.fillText(`${depth.most}`, GUTTER - 8, top + 6);
      context.fillText("0", GUTTER - 8, top + DEPTH_HEIGHT - 5);
      context.textAlign = "left";
    });
    context.font = theme.smallFont;
    places.rows.forEach(({ label, share, top }) => {
      const middle = top + places.rowHeight / 2 + 0.5;
      context.fillStyle = theme.text;
      context.fillText(fitted(context, label, GUTTER - 84), 20, middle);
      if (share === null) return;
      context.fillStyle = theme.faint;
      context.textAlign = "right";
      context.fillText(`${percent(share)} busy`, GUTTER - 8, middle);
      context.textAlign = "left";
    });
  }
}
