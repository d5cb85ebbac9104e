// Colours, texts and arrows that fit.

const LEAST_LETTERS = 6; // of a name; less says nothing

// Middle tones that dark text can be read on, beside a light and a dark page.
const PALETTE =
  "#6aa5e3 #f0a860 #76c28f #e58a8a #b79be0 #d9c04f #6cc5c5 #e59ac6 #a8b86a #c9a58a #8fb2c9 #b5b5b5".split(
    " ",
  );

/** A colour for each stage; the busiest get the colours that differ most. */
function stageColors() {
  const order = trace.stages.map((_, index) => index);
  order.sort((one, other) => trace.stages[other].share - trace.stages[one].share);
  const colors = [];
  order.forEach((stage, place) => (colors[stage] = PALETTE[place % PALETTE.length]));
  return colors;
}

const colors = stageColors();

/** Draw a curve from a span's end to where the next one was queued. */
function arrow(context, from, to, height) {
  const down = to.top > from.top;
  const startY = down ? from.top + height : from.top;
  const endY = down ? to.top - 1 : to.top + height + 1;
  const bend = (endY - startY) / 2;
  context.beginPath();
  context.moveTo(from.right, startY);
  context.bezierCurveTo(from.right, startY + bend, to.left, endY - bend, to.left, endY);
  context.stroke();
  const tip = down ? -5 : 5;
  context.beginPath();
  context.moveTo(to.left - 3, endY + tip);
  context.lineTo(to.left, endY);
  context.lineTo(to.left + 3, endY + tip);
  context.stroke();
}

/** Shorten a text until it fits: names differ at their ends, so the middle goes. */
function fitted(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  let kept = Math.min(text.length - 1, Math.floor(room / 5));
  while (kept >= LEAST_LETTERS) {
    const half = Math.ceil(kept / 2);
    const short = `${text.slice(0, half)}…${text.slice(text.length - (kept - half))}`;
    if (context.measureText(short).width <= room) return short;
    kept--;
  }
  return "";
}

/** The least of 1, 2, 5, 10, ... that is at least so much. */
function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return [1, 2, 5, 10].map((digit) => digit * power).find((step) => step >= least);
}

/** A tick's time in the unit of its step, with the digits that the step needs. */
function tickText(tick, step) {
  if (tick === 0) return "0";
  const [unit, size] = UNITS.find(([, size]) => Math.abs(tick) >= size) || UNITS[3];
  const digits = Math.max(0, Math.ceil(-Math.log10(step / size)));
  return `${(tick / size).toFixed(digits)} ${unit}`;
}

/** The page's colours, as the colour scheme has them now. */
function themeColors() {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(`--${name}`).trim();
  const family = getComputedStyle(document.body).fontFamily;
  return {
    text: color("text"),
    faint: color("faint"),
    line: color("line"),
    lane: color("lane"),
    band: color("band"),
    accent: color("accent"),
    queue: color("queue"),
    slot: color("slot"),
    onColor: "#10151c",
    smallFont: `11px ${family}`,
    boldFont: `600 13px ${family}`,
  };
}
