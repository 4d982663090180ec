// What everything else uses: the figures, what is picked, words for numbers.
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const memory = `sparsepath ${location.pathname} ${document.title}`; // pages from disk share one store

function remembered() {
  try { return JSON.parse(sessionStorage.getItem(memory)) || {}; } catch { return {}; }
}

function remember(changes) {
  try { sessionStorage.setItem(memory, JSON.stringify({ ...remembered(), ...changes })); } catch { /* a page may be denied its memory */ }
}

const firstRun = Math.max(0, data.runs.findIndex((run) => run.points.length));
const picked = { run: firstRun, point: null };
const runNow = () => data.runs[picked.run];
const pointNow = () => runNow().points.find((point) => point.number === picked.point) || null;

// One sentence for those who hear the page, and only the last of several that come at once.
let speaking = 0;
function announce(sentence) {
  clearTimeout(speaking);
  speaking = setTimeout(() => { byId("said").textContent = sentence; }, 200);
}

const MISSING = "-";
const say = (value, words) => (value == null ? MISSING : words(value));
const percent = (share) => say(share, (x) => `${(100 * x).toFixed(2)} %`);
const count = (number) => say(number, (x) => x.toLocaleString("en-US"));
const counted = (number, one, many) => `${count(number)} ${number === 1 ? one : many}`;
const times = (factor) => say(factor, (x) => `${x.toFixed(2)}x`);
const brief = (number) => say(number, (x) => (x === 0 ? "0" : Math.abs(x) >= 1e-3 && Math.abs(x) < 1e5 ? String(+x.toPrecision(3)) : x.toExponential(2)));
const bytes = (number) => say(number, (x) => (x < 1e6 ? `${(x / 1e3).toFixed(1)} kB` : `${(x / 1e6).toFixed(2)} MB`));
const milliseconds = (seconds) => say(seconds, (x) => `${(1e3 * x).toPrecision(3)} ms`);

// A name in a sentence keeps its direction to itself, as <bdi> does where there are elements.
const isolated = (text) => (/^[ -~]*$/.test(text) ? String(text) : `\u2068${text}\u2069`);
// Plotly reads some HTML in its labels; names of runs and layers are no HTML.
const label = (text) => isolated(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  made.append(...children);
  return made;
}
