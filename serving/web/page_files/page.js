"use strict";
// Names come from models and clients: they are put in as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";
const PERIOD_MS = 1000;
const KEPT = 60;
const history = new Map(); // by model and version: throughputs of the last minute
let before = null;
let token = "";

function element(kind, parent, text) {
  const made = document.createElement(kind);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

function shape(kind, parent, attributes, text) {
  const made = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

function number(value, digits = 1) {
  return value.toLocaleString("en", { maximumFractionDigits: digits });
}

function sizes(counts) {
  return Object.entries(counts).map(([size, count]) => `${size}: ${number(count)}`).join(", ");
}

function rates(state) {
  const found = new Map();
  const seconds = before ? state.now_s - before.now_s : 0;
  for (const model of state.models) {
    const key = `${model.model} ${model.version}`;
    const old = before && before.models.find(
      (other) => other.model === model.model && other.version === model.version);
    const done = old && seconds > 0 ? Math.max(0, model.finished - old.finished) / seconds : 0;
    found.set(key, done);
    const kept = history.get(key) || [];
    kept.push(done);
    history.set(key, kept.slice(-KEPT));
  }
  for (const key of history.keys()) if (!found.has(key)) history.delete(key);
  return found;
}

function drawCards(state, found) {
  const cards = document.getElementById("cards");
  cards.replaceChildren();
  const total = [...found.values()].reduce((sum, rate) => sum + rate, 0);
  const waiting = state.models.reduce((sum, model) => sum + model.waiting, 0);
  const running = state.models.reduce((sum, model) => sum + model.running, 0);
  for (const [name, value] of [
    ["requests/s", number(total)],
    ["waiting", number(waiting)],
    ["running", number(running)],
    ["bodies in memory", `${number(state.bodies_bytes / 1048576)} MiB`],
    ["sequences", number(state.sequences)],
  ]) {
    const card = element("div", cards);
    card.className = "card";
    element("b", card, value);
    element("span", card, name);
  }
}

function drawModels(state, found) {
  const body = document.getElementById("models");
  body.replaceChildren();
  for (const model of state.models) {
    const row = element("tr", body);
    for (const text of [model.model, model.version, model.state, model.device]) {
      element("td", row, text);
    }
    for (const text of [
      number(found.get(`${model.model} ${model.version}`)),
      number(model.p50_ms, 3),
      number(model.p99_ms, 3),
      number(model.waiting),
      number(model.running),
      number(model.finished),
      number(model.failed),
      number(model.cancelled),
      sizes(model.batch_sizes),
      sizes(model.group_sizes),
    ]) element("td", row, text);
    if (model.reason) {
      const why = element("td", element("tr", body), model.reason);
      why.className = "reason";
      why.colSpan = row.cells.length;
    }
  }
}

function drawThroughput() {
  const graph = document.getElementById("throughput");
  graph.replaceChildren();
  const width = 1000;
  const height = 120;
  graph.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const most = Math.max(1, ...[...history.values()].flat());
  let place = 0;
  for (const [key, kept] of history) {
    const points = kept.map((rate, index) => {
      const x = width * (index + KEPT - kept.length) / (KEPT - 1);
      return `${x.toFixed(1)},${(height - 4 - (height - 20) * rate / most).toFixed(1)}`;
    });
    const color = `hsl(${(place * 67) % 360} 60% 50%)`;
    shape("polyline", graph, { points: points.join(" "), fill: "none", stroke: color });
    const label = `${key}: ${number(kept[kept.length - 1])}`;
    shape("text", graph, { x: 4, y: 12 + 13 * place }, label).style.fill = color;
    place += 1;
  }
  shape("text", graph, { x: width - 4, y: 12, "text-anchor": "end" }, `${number(most)}/s`);
}

function drawTimeline(timeline) {
  const graph = document.getElementById("timeline");
  graph.replaceChildren();
  const left = 220;
  const width = 1000;
  const step = 18;
  const height = step * timeline.rows.length + 20;
  graph.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const scale = (width - left) / timeline.window_ms;
  timeline.rows.forEach((row, place) => {
    shape("text", graph, { x: 0, y: place * step + 13 }, row.slice(0, 40));
    shape("line", graph, {
      x1: 0, x2: width, y1: (place + 1) * step, y2: (place + 1) * step, class: "grid",
    });
  });
  for (const [row, start, took, name] of timeline.spans) {
    const bar = shape("rect", graph, {
      class: "bar",
      x: (left + start * scale).toFixed(2),
      y: row * step + 3,
      width: Math.max(0.5, took * scale).toFixed(2),
      height: step - 6,
    });
    shape("title", bar, {}, `${name}: ${number(took, 3)} ms`);
  }
  shape("text", graph, { x: left, y: height - 4 }, `${number(timeline.window_ms / 1000)} s ago`);
  shape("text", graph, { x: width, y: height - 4, "text-anchor": "end" }, "now");
}

async function look() {
  const trouble = document.getElementById("trouble");
  try {
    const headers = token ? { authorization: `Bearer ${token}` } : {};
    const reply = await fetch("page.json", { headers, cache: "no-store" });
    document.getElementById("login").hidden = reply.status !== 401;
    if (!reply.ok) throw new Error(`the server answers ${reply.status}`);
    const state = await reply.json();
    const found = rates(state);
    drawCards(state, found);
    drawModels(state, found);
    drawThroughput();
    drawTimeline(state.timeline);
    document.getElementById("devices").textContent = state.devices.join(", ");
    before = state;
    trouble.textContent = "";
  } catch (error) {
    trouble.textContent = String(error.message);
  }
  setTimeout(look, PERIOD_MS);
}

document.getElementById("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = document.getElementById("token").value;
});
look();
