// What stands around the timeline. Names of models are put in as text, and never as markup.

/** Make an element; what is inside are elements and texts. */
function make(tag, className, ...inside) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...inside);
  return element;
}

function swatch(stage) {
  const mark = make("span", "swatch");
  mark.style.background = colors[stage];
  return mark;
}

/** A piece of a bar, so much of its length; without a color it is drawn as its class says. */
function piece(className, share, color, title = "") {
  const element = make("span", className);
  element.style.width = `${100 * Math.min(share, 1)}%`;
  if (color) element.style.background = color;
  element.title = title;
  return element;
}

/** A share as a bar with its number; the bar may have several pieces. */
function shareBar(share, ...pieces) {
  return make("span", "share", make("span", "bar", ...pieces), make("span", "number", percent(share)));
}

/** A table; columns are [heading, explanation, isNumber]. */
function table(columns, lines) {
  const heads = columns.map(([heading, explanation, isNumber]) => {
    const cell = make("th", isNumber ? "number" : "", heading);
    if (explanation) cell.title = explanation;
    return cell;
  });
  const body = lines.map((line) =>
    make("tr", "", ...line.map((item, place) => make("td", columns[place][2] ? "number" : "", item))),
  );
  return make("table", "", make("thead", "", make("tr", "", ...heads)), make("tbody", "", ...body));
}

function executorName({ device, name }) {
  return name === device ? device : `${device} · ${name}`;
}

function stagePanel() {
  const lines = trace.stages.map((stage, number) => [
    make("span", "", swatch(number), stage.name),
    executorName({ device: stage.device, name: stage.executor }),
    grouped(stage.count),
    duration(stage.service[0]),
    duration(stage.service[1]),
    duration(stage.queue[0]),
    duration(stage.queue[1]),
    shareBar(stage.share, piece("busy", stage.share, colors[number])),
  ]);
  const columns = [
    ["stage", "", false],
    ["runs on", "the device, and its executor", false],
    ["runs", "", true],
    ["takes p50", "half of the runs took at most so long", true],
    ["p99", "99 of 100 runs took at most so long", true],
    ["queue p50", "time in the executor's queue", true],
    ["p99", "time in the executor's queue", true],
    ["busy", "share of the time of the executor's lanes", false],
  ];
  return make("section", "stages", make("h2", "", "Stages"), table(columns, lines));
}

function executorPanel() {
  const lines = trace.executors.map((item) => [
    executorName(item),
    grouped(item.lanes),
    shareBar(item.share, piece("busy", item.share)),
  ]);
  const columns = [
    ["executor", "", false],
    ["lanes", "lanes with spans", true],
    ["busy", "share of their time in which they ran spans", false],
  ];
  return make("section", "executors", make("h2", "", "Executors"), table(columns, lines));
}

/** Fill the panel that says where a run's time went. */
function showPath(panel, run) {
  if (run < 0) {
    panel.replaceChildren(make("h2", "", "Critical path"), "Click a span, or type a request's id.");
    return;
  }
  const { runs, spans } = trace;
  const latency = Math.max(runs.latency[run], 1);
  const parts = criticalPath(run);
  const total = (kind) => parts.reduce((sum, part) => sum + part[kind], 0);
  const rank = runs.latency.filter((other) => other > runs.latency[run]).length;
  const place = rank === 0 ? "the slowest" : `${grouped(rank)} were slower`;
  const heading = make(
    "h2",
    "",
    `Critical path of request ${runs.label[run]}: ${duration(runs.latency[run])} `,
    make("small", "", `${place} of ${grouped(runs.label.length)}`),
  );
  const facts = make(
    "p",
    "legend",
    make("span", "swatch ran"),
    `running ${percent(total("service") / latency)}`,
    make("span", "swatch queue"),
    `in queues ${percent(total("queue") / latency)}`,
    make("span", "swatch slot"),
    `waiting for slots and hand-overs ${percent(total("slot") / latency)}`,
  );
  const bar = make("div", "path");
  const lines = parts.map(({ span, slot, queue, service }) => {
    const stage = spans.stage[span];
    const name = trace.stages[stage].name;
    const pieces = () => [
      piece("slot", slot / latency, "", `waited ${duration(slot)} for a slot before ${name}`),
      piece("queue", queue / latency, "", `waited ${duration(queue)} in the queue of ${name}`),
      piece("ran", service / latency, colors[stage], `${name} ran ${duration(service)}`),
    ];
    bar.append(...pieces());
    const row = trace.rows[spans.row[span]];
    return [
      make("span", "", swatch(stage), name),
      `${trace.executors[row.executor].device} · ${row.name}`,
      duration(spans.start[span] - runs.arrived[run]),
      duration(slot),
      duration(queue),
      duration(service),
      copiedText([span]),
      shareBar((slot + queue + service) / latency, ...pieces()),
    ];
  });
  const columns = [
    ["stage", "", false],
    ["device · lane", "", false],
    ["began after", "since the request came", true],
    ["for a slot", "since the stage before had ended", true],
    ["in queue", "of the lane's executor", true],
    ["ran", "", true],
    ["copied", "", false],
    ["of the latency", "waits and run together", false],
  ];
  const notes = [];
  const copied = copiedText(spansOf(run));
  if (copied) notes.push(`For the request: ${copied}.`);
  const joined = spansOf(run).find((span) => trace.members[span]);
  if (joined !== undefined) notes.push(`Its run was ${membersText(trace.members[joined])}.`);
  const aside = runs.stages[run] - parts.length;
  if (aside > 0) {
    notes.push(`Spans of it that ran beside this path, and were not waited for: ${aside}.`);
  }
  if (!runs.complete[run]) notes.push("It came before the oldest spans that are kept.");
  panel.replaceChildren(heading, facts, bar, table(columns, lines), make("p", "note", notes.join(" ")));
}

/** What the tooltip says of a span. */
function spanTip(span) {
  const { spans, runs } = trace;
  const stage = trace.stages[spans.stage[span]];
  const row = trace.rows[spans.row[span]];
  const lines = [
    make("strong", "", swatch(spans.stage[span]), stage.name),
    `request ${runs.label[spans.run[span]]}, ${trace.executors[row.executor].device} · ${row.name}`,
    `ran ${duration(spans.took[span])}, from ${duration(spans.start[span])} on`,
    `in queue ${duration(spans.waited[span])}`,
  ];
  const part = trace.parts[spans.part[span]];
  if (part) lines.push(`subgraph ${part}`);
  const copied = copiedText([span]);
  if (copied) lines.push(copied);
  const members = trace.members[span];
  if (members) lines.push(membersText(members));
  return lines;
}

/** What the tooltip says of a device's queues at a time. */
function depthTip(depth, time) {
  const step = depthAt(depth, time);
  const slot = step < 0 ? 0 : depth.slot[step];
  const queue = step < 0 ? 0 : depth.queue[step];
  return [
    make("strong", "", `waiting for ${depth.device}`),
    make("span", "", make("span", "swatch queue"), `${queue} in a queue`),
    make("span", "", make("span", "swatch slot"), `${slot} without a slot`),
  ];
}
