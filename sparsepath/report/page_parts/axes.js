// What an axis shows: how far down accuracies go, and which numbers stand on a logarithmic one.

// A network that has collapsed would press all others into one line: what lies far below is cut off.
const REACH = 15;
const showsAll = { curve: false, runs: false };
function span(accuracies, all) {
  const known = accuracies.filter((x) => x != null);
  if (!known.length) return { low: 0, range: [0, 100], below: 0, least: 0 };
  const high = Math.max(...known), least = Math.min(...known), near = Math.max(least, high - REACH);
  const low = all ? least : near, edge = 0.06 * (high - low || 1);
  return { low, range: [low - edge, high + edge], below: known.filter((x) => x < near - 0.06 * (high - near || 1)).length, least };
}

function sayCut(id, shown, redrawIt) {
  const place = byId(`${id}-cut`), button = place.querySelector("button"), all = showsAll[id];
  const kept = document.activeElement === button;
  place.hidden = !shown.below;
  const lie = shown.below === 1 ? "lies" : "lie";
  place.querySelector("span").textContent = all
    ? `All accuracies are shown, down to ${shown.least.toFixed(2)} %.`
    : `${counted(shown.below, "accuracy", "accuracies")} below ${shown.low.toFixed(0)} % ${lie} off the figure.`;
  button.textContent = all ? "Show the upper part" : "Show all";
  button.setAttribute("aria-label", all ? "Show the upper part of the accuracies" : "Show all accuracies");
  button.onclick = () => {
    showsAll[id] = !showsAll[id];
    remember({ showsAll });
    redrawIt();
    announce(place.querySelector("span").textContent);
  };
  if (kept && place.hidden) byId(id).focus();
}

const DIGITS = [[1], [1, 3], [1, 2, 5], [1, 2, 3, 4, 5, 6, 7, 8, 9]];
const MOST = 9;
// The fewest round numbers that are at least three, and never so many that they touch.
function logTicks(low, high) {
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  const inside = (x) => x >= low * 0.999 && x <= high * 1.001;
  for (const digits of DIGITS) {
    let found = [];
    for (let power = first; power <= last; power++) found.push(...digits.map((digit) => Number(`${digit}e${power}`)));
    found = found.filter(inside);
    if (found.length < 3) continue;
    const every = Math.ceil(found.length / MOST);
    return found.filter((_, n) => n % every === 0);
  }
  const size = 10 ** Math.floor(Math.log10(high - low));
  for (const digit of [5, 2, 1, 0.5, 0.2, 0.1]) {
    const found = [], step = digit * size;
    for (let n = Math.ceil(low / step); n * step <= high; n++) found.push(Number((n * step).toPrecision(8)));
    if (found.length >= 3) return found;
  }
  return [low, high];
}
const tickText = (x) => (x >= 1e-3 && x < 1e5 ? String(x) : x.toExponential());

// Plotly's own numbers are one alone within a decade, or digits that do not say which decade.
function fitTicks(plot) {
  const changes = {};
  for (const name of ["xaxis", "yaxis", "yaxis2"]) {
    const drawn = plot._fullLayout[name];
    if (drawn?.type !== "log") continue;
    const ends = drawn.range.map((end) => 10 ** end), ticks = logTicks(Math.min(...ends), Math.max(...ends));
    if (JSON.stringify(ticks) === JSON.stringify(drawn.tickvals)) continue;
    Object.assign(changes, { [`${name}.tickmode`]: "array", [`${name}.tickvals`]: ticks, [`${name}.ticktext`]: ticks.map(tickText) });
  }
  if (Object.keys(changes).length) Plotly.relayout(plot, changes);
}
