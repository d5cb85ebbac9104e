// Puts the page together, and turns what is done to it into views and selections.

function headline() {
  const { runs, spans } = trace;
  const seconds = trace.elapsed / 1e9;
  const facts = [
    counted(runs.label.length, "request"),
    counted(spans.stage.length, "span"),
    `in ${duration(trace.elapsed)}`,
  ];
  if (seconds > 0) facts.push(`${grouped(Math.round(runs.label.length / seconds))} requests/s`);
  return make(
    "header",
    "",
    make("h1", "", trace.network, make("small", "", ` on ${trace.device}`)),
    make("p", "facts", facts.join(" · ")),
  );
}

function button(text, title, act) {
  const element = make("button", "", text);
  element.type = "button";
  element.title = title;
  element.addEventListener("click", act);
  return element;
}

class Page {
  constructor() {
    this.canvas = make("canvas", "timeline");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", "Spans over time; the tables below say the same.");
    this.timeline = new Timeline(this.canvas);
    this.path = make("section", "critical");
    this.tip = make("div", "tip");
    this.tip.hidden = true;
    this.input = make("input", "");
    this.input.size = 9;
    this.input.setAttribute("aria-label", "a request's id");
    document.body.append(
      headline(),
      make("main", "", this.toolbar(), this.canvas, this.path, make("div", "tables", stagePanel(), executorPanel())),
      this.tip,
    );
    this.listen();
    this.followLink();
  }

  toolbar() {
    const form = make("form", "", "Request ", this.input);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const run = findRun(this.input.value);
      this.input.classList.toggle("wrong", run < 0);
      if (run >= 0) this.select(run, true);
    });
    return make(
      "nav",
      "",
      form,
      button("Slowest", "the request that took longest", () => this.select(trace.slowest, true)),
      button("◀", "the request that came before", () => this.step(-1)),
      button("▶", "the request that came next", () => this.step(1)),
      make("span", "space"),
      button("+", "zoom in", () => this.zoom(0.5)),
      button("−", "zoom out", () => this.zoom(2)),
      button("Fit request", "show the chosen request only", () => this.showRun()),
      button("All", "show everything", () => this.showAll()),
      make("span", "hint", "wheel: zoom · drag: move · click a span: its request"),
      make(
        "span",
        "legend key",
        make("span", "swatch queue"),
        "in a queue",
        make("span", "swatch slot"),
        "without a slot",
      ),
    );
  }

  select(run, isToBeSeen) {
    this.input.value = run < 0 ? "" : trace.runs.label[run];
    this.input.classList.remove("wrong");
    this.timeline.select(run);
    showPath(this.path, run);
    if (isToBeSeen && run >= 0) {
      const { view } = this.timeline;
      const arrived = trace.runs.arrived[run];
      const ended = arrived + trace.runs.latency[run];
      if (arrived < view.start || ended > view.end) this.showRun();
    }
    this.saveLink();
  }

  step(by) {
    const count = trace.runs.label.length;
    this.select((this.timeline.selected + by + count) % count, true);
  }

  showRun() {
    const run = this.timeline.selected;
    if (run < 0) return;
    const arrived = trace.runs.arrived[run];
    const margin = trace.runs.latency[run] * 0.15;
    this.show(arrived - margin, arrived + trace.runs.latency[run] + margin);
  }

  showAll() {
    const whole = this.timeline.whole();
    this.show(whole.start, whole.end);
  }

  show(start, end) {
    this.timeline.show(start, end);
    this.saveLink();
  }

  zoom(factor, x) {
    this.timeline.zoom(factor, x);
    this.saveLink();
  }

  listen() {
    const { canvas, timeline } = this;
    canvas.addEventListener(
      "wheel",
      (event) => {
        if (event.offsetX < GUTTER) return; // left of the lanes the page scrolls
        event.preventDefault();
        const sideways = event.shiftKey ? event.deltaY : event.deltaX;
        if (Math.abs(sideways) > Math.abs(event.deltaY) || event.shiftKey) {
          timeline.move(sideways / 1000);
          this.saveLink();
        } else {
          this.zoom(Math.exp(Math.max(-200, Math.min(200, event.deltaY)) / 400), event.offsetX);
        }
      },
      { passive: false },
    );
    canvas.addEventListener("pointerdown", (event) => this.drag(event));
    canvas.addEventListener("pointermove", (event) => this.hover(event));
    canvas.addEventListener("pointerleave", () => this.hover(null));
    canvas.addEventListener("dblclick", () => this.showAll());
    canvas.addEventListener("keydown", (event) => this.press(event));
    new ResizeObserver(() => timeline.redraw()).observe(canvas.parentElement);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => timeline.redraw());
    addEventListener("hashchange", () => this.followLink());
  }

  /** Move the view with the pointer; one that stays where it is chooses a request. */
  drag(down) {
    const { canvas, timeline } = this;
    const { start, end } = timeline.view;
    const { perPixel } = timeline;
    let moved = 0;
    const move = (event) => {
      const by = event.offsetX - down.offsetX;
      moved = Math.max(moved, Math.abs(by));
      if (moved > 3) timeline.show(start - by * perPixel, end - by * perPixel);
    };
    const up = (event) => {
      canvas.removeEventListener("pointermove", move);
      if (moved > 3) return this.saveLink();
      const span = timeline.spanAt(event.offsetX, event.offsetY);
      if (span >= 0) this.select(trace.spans.run[span], false);
    };
    canvas.setPointerCapture(down.pointerId);
    canvas.addEventListener("pointermove", move);
    canvas.addEventListener("pointerup", up, { once: true });
  }

  hover(event) {
    const { timeline, tip } = this;
    const span = event ? timeline.spanAt(event.offsetX, event.offsetY) : -1;
    const place = event && event.offsetX > GUTTER ? timeline.depthPlaceAt(event.offsetY) : null;
    if (span !== timeline.hovered) {
      timeline.hovered = span;
      timeline.redraw();
    }
    tip.hidden = span < 0 && !place;
    if (tip.hidden) return;
    const lines = span >= 0 ? spanTip(span) : depthTip(place.depth, timeline.timeAt(event.offsetX));
    tip.replaceChildren(...lines.map((line) => make("div", "", line)));
    const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    const below = event.clientY + 16;
    const fits = below + tip.offsetHeight < innerHeight;
    tip.style.left = `${left}px`;
    tip.style.top = `${fits ? below : event.clientY - tip.offsetHeight - 10}px`;
  }

  press(event) {
    const acts = {
      ArrowLeft: () => this.timeline.move(-0.1),
      ArrowRight: () => this.timeline.move(0.1),
      "+": () => this.zoom(0.7),
      "-": () => this.zoom(1 / 0.7),
      0: () => this.showAll(),
    };
    if (!acts[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    acts[event.key]();
  }

  /** Take request and view from the page's address, so that a view can be sent to somebody. */
  followLink() {
    const asked = new URLSearchParams(location.hash.slice(1));
    const run = asked.has("request") ? findRun(asked.get("request")) : -1;
    const [start, end] = [Number(asked.get("from")), Number(asked.get("to"))];
    this.select(run >= 0 ? run : trace.slowest, !(end > start));
    if (end > start) this.show(start * 1e3, end * 1e3);
  }

  saveLink() {
    clearTimeout(this.saving);
    this.saving = setTimeout(() => {
      const { view, selected } = this.timeline;
      const whole = this.timeline.whole();
      const link = new URLSearchParams();
      if (selected >= 0) link.set("request", trace.runs.label[selected]);
      if (view.start > whole.start || view.end < whole.end) {
        link.set("from", (view.start / 1e3).toFixed(1));
        link.set("to", (view.end / 1e3).toFixed(1));
      }
      history.replaceState(null, "", `#${link}`);
    }, 400);
  }
}

if (trace.spans.stage.length === 0) {
  document.body.append(headline(), make("main", "", make("p", "", "No span was recorded.")));
} else {
  new Page();
}
