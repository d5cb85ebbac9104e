// The trace as numbers: decoded once, asked for by all. Times are nanoseconds.

const given = JSON.parse(document.getElementById("trace").textContent);

/** Decode the columns; rows learn where their spans begin and end among all of them. */
function decode(raw) {
  const spans = {
    stage: Uint16Array.from(raw.spans.stage),
    run: Uint32Array.from(raw.spans.run),
    queued: Float64Array.from(raw.spans.queued),
    waited: Float64Array.from(raw.spans.waited),
    took: Float64Array.from(raw.spans.took),
    part: Uint32Array.from(raw.spans.part),
    before: Int32Array.from(raw.spans.before),
  };
  spans.start = spans.queued.map((queued, index) => queued + spans.waited[index]);
  spans.row = new Uint16Array(spans.stage.length);
  let first = 0;
  const rows = raw.rows.map((row, number) => {
    const place = { ...row, first, end: first + row.count };
    spans.row.fill(number, first, place.end);
    first = place.end;
    return place;
  });
  const depths = raw.depths.map((depth) => ({
    ...depth,
    most: depth.slot.reduce((most, slot, index) => Math.max(most, slot + depth.queue[index]), 0),
  }));
  return { ...raw, spans, rows, depths };
}

const trace = decode(given);

/** The first place in [low, high) for which the sorted values are above the limit; else high. */
function firstAbove(values, limit, low, high) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > limit) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Where the time of a run went: what it waited for, from its arrival to its last span. */
function criticalPath(run) {
  const { spans, runs } = trace;
  const parts = [];
  for (let span = runs.last[run]; span >= 0; span = spans.before[span]) {
    const previous = spans.before[span];
    const since =
      previous < 0 ? runs.arrived[run] : spans.start[previous] + spans.took[previous];
    parts.push({
      span,
      slot: spans.queued[span] - since,
      queue: spans.waited[span],
      service: spans.took[span],
    });
  }
  return parts.reverse();
}

/** All spans of a run. */
function spansOf(run) {
  const found = [];
  trace.spans.run.forEach((owner, span) => {
    if (owner === run) found.push(span);
  });
  return found;
}

/** The run that a text means: a label, or a request's id for the slowest of its runs; or -1. */
function findRun(text) {
  const wanted = text.trim();
  const { label, latency } = trace.runs;
  const exact = label.indexOf(wanted);
  if (exact >= 0 || wanted === "") return exact;
  let found = -1;
  label.forEach((name, run) => {
    if (name.startsWith(`${wanted}.`) && (found < 0 || latency[run] > latency[found])) found = run;
  });
  return found;
}

/** The step of a depth that holds at a time; -1 before the first. */
function depthAt(depth, time) {
  return firstAbove(depth.time, time, 0, depth.time.length) - 1;
}

const UNITS = [
  ["s", 1e9],
  ["ms", 1e6],
  ["µs", 1e3],
  ["ns", 1],
];

/** A duration with three digits and the unit that fits. */
function duration(ns) {
  if (ns === 0) return "0";
  const [unit, size] = UNITS.find(([, size]) => Math.abs(ns) >= size * 0.9995) || UNITS[3];
  const value = ns / size;
  const digits = unit === "ns" || Math.abs(value) >= 99.95 ? 0 : Math.abs(value) >= 9.995 ? 1 : 2;
  return `${value.toFixed(digits)} ${unit}`;
}

function percent(share) {
  if (share > 0 && share < 0.001) return "< 0.1 %";
  return `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
}

function grouped(count) {
  return count.toLocaleString("en");
}

function counted(count, what) {
  return `${grouped(count)} ${what}${count === 1 ? "" : "s"}`;
}

/** Bytes with three digits and the unit that fits. */
function size(bytes) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  const power = Math.min(bytes < 1 ? 0 : Math.floor(Math.log10(bytes) / 3), units.length - 1);
  const value = bytes / 1000 ** power;
  const digits = power === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return `${value.toFixed(digits)} ${units[power]}`;
}

const COPY_WORDS = {
  upload: "uploaded",
  download: "downloaded",
  device: "copied on the device",
  host: "copied on the host",
  later_download: "downloaded later",
};

/** Who shares a run. */
function membersText(members) {
  const shown = members.slice(0, 8).join(", ");
  const rest = members.length > 8 ? ` and ${members.length - 8} more` : "";
  return `shared by ${members.length} requests: ${shown}${rest}`;
}

/** What these spans have copied, in words; "" for nothing. */
function copiedText(spans) {
  const sums = {};
  spans.forEach((span) =>
    Object.entries(trace.copied[span] || {}).forEach(([kind, bytes]) => {
      sums[kind] = (sums[kind] || 0) + bytes;
    }),
  );
  return Object.keys(COPY_WORDS)
    .filter((kind) => sums[kind])
    .map((kind) => `${size(sums[kind])} ${COPY_WORDS[kind]}`)
    .join(", ");
}
