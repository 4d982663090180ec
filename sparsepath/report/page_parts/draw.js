// Theme and drawing: plotly takes its colours from the page's style.
const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");
const views = [];
const PAPER = 680; // pixels that fit the width of a sheet, which a figure cannot find out by itself
let printing = false;
let chosenTheme = null;
try { chosenTheme = localStorage.getItem("sparsepath theme"); } catch { /* may be denied */ }

const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
const themeNow = () => chosenTheme || (dark.matches ? "dark" : "light");
const dashes = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
const symbols = ["circle", "square", "diamond", "triangle-up", "cross", "x", "star"];
const styleOf = (number) => ({
  colour: colour(`c${number % 6}`),
  // Not by colour alone: the second six go through the dashes in another order.
  dash: dashes[(number + Math.floor(number / 6)) % dashes.length],
  symbol: symbols[number % symbols.length],
});

function setTheme(name) {
  root.dataset.theme = name;
  byId("theme").setAttribute("aria-pressed", String(name === "dark"));
  byId("theme").textContent = name === "dark" ? "Light" : "Dark";
  byId("theme").setAttribute("aria-label", `Switch to the ${name === "dark" ? "light" : "dark"} page`);
}

function axis(title, more) {
  return {
    title: { text: title, standoff: 8 }, gridcolor: colour("line"), zerolinecolor: colour("line"),
    linecolor: colour("line"), automargin: true, ...more,
  };
}

function layout(more) {
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: colour("ink"), family: "system-ui, sans-serif", size: 13 },
    margin: { l: 50, r: 15, t: 40, b: 45 }, hovermode: "closest",
    hoverlabel: { bgcolor: colour("panel"), bordercolor: colour("line"), font: { color: colour("ink") } },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("soft"), activecolor: colour("accent") },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 12 } },
    ...more,
    ...(printing ? { width: PAPER, height: Math.min(more.height, 360), autosize: false } : { autosize: true }),
  };
}

// A network that has collapsed would press all others into one line: what lies far below is cut off.
const REACH = 15;
function span(accuracies) {
  const known = accuracies.filter((x) => x != null);
  if (!known.length) return { low: 0, range: [0, 100], hidden: 0 };
  const high = Math.max(...known), low = Math.max(Math.min(...known), high - REACH), edge = 0.06 * (high - low || 1);
  return { low, range: [low - edge, high + edge], hidden: known.filter((x) => x < low - edge).length };
}

const cutOff = (shown) => (shown.hidden ? `Accuracies below ${shown.low.toFixed(0)} % lie off the figure; a double click on it shows them.` : "");

function draw(id, traces, shape) {
  const settings = {
    responsive: true, displaylogo: false, showTips: false,
    displayModeBar: innerWidth >= 600, modeBarButtons: [["toImage", "resetScale2d"]],
    toImageButtonOptions: { format: "svg", filename: `sparsepath-${id}` },
  };
  byId(id).style.minHeight = "";
  for (const sentence of byId(id).querySelectorAll(":scope > .hint")) sentence.remove();
  return Plotly.react(byId(id), traces, layout(shape), settings);
}

const sayInstead = (id, sentence) => {
  Plotly.purge(byId(id));
  byId(id).replaceChildren(element("p", { class: "hint" }, sentence));
  byId(id).style.minHeight = "0";
};

function redraw() { for (const view of views) view(); }

byId("theme").addEventListener("click", () => {
  chosenTheme = themeNow() === "dark" ? "light" : "dark";
  try { localStorage.setItem("sparsepath theme", chosenTheme); } catch { /* may be denied */ }
  setTheme(chosenTheme);
  redraw();
});
dark.addEventListener("change", () => { setTheme(themeNow()); redraw(); });
addEventListener("beforeprint", () => { printing = true; setTheme("light"); redraw(); });
addEventListener("afterprint", () => { printing = false; setTheme(themeNow()); redraw(); });
setTheme(themeNow());
