// Theme and drawing: plotly takes its colours from the page's style.
const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");
const views = [], lasting = []; // what follows the picked point, and what does not
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
    ...(printing ? { width: PAPER, height: Math.min(more.height, 330), autosize: false } : { autosize: true }),
  };
}

// A figure says in one label what it shows; its buttons stay outside of that image.
function draw(id, said, traces, shape) {
  const plot = byId(id), settings = {
    responsive: true, displaylogo: false, showTips: false,
    displayModeBar: innerWidth >= 600, modeBarButtons: [["toImage", "resetScale2d"]],
    toImageButtonOptions: { format: "svg", filename: `sparsepath-${id}` },
  };
  plot.hidden = false;
  byId(`${id}-instead`).hidden = true;
  Plotly.react(plot, traces, layout(shape), settings);
  fitTicks(plot);
  if (!plot.fitted) plot.on("plotly_relayout", () => fitTicks(plot));
  plot.fitted = true;
  plot.querySelectorAll(".main-svg").forEach((svg, number) => {
    if (number) svg.setAttribute("aria-hidden", "true");
    else { svg.setAttribute("role", "img"); svg.setAttribute("aria-label", said); }
  });
  plot.querySelector(".modebar")?.setAttribute("aria-label", "Save or reset this figure");
}

function sayInstead(id, sentence) {
  const plot = byId(id);
  Plotly.purge(plot);
  plot.replaceChildren();
  plot.fitted = false;
  plot.hidden = true;
  byId(`${id}-instead`).textContent = sentence;
  byId(`${id}-instead`).hidden = false;
}

function redraw() { for (const view of views) view(); }
function redrawAll() { for (const view of [...views, ...lasting]) view(); }

// Heights and legends fit the width; a phone that hides its bar changes the height alone.
let wide = innerWidth, resized = 0;
addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => { if (innerWidth !== wide && !printing) { wide = innerWidth; redrawAll(); } }, 150);
});

byId("theme").addEventListener("click", () => {
  chosenTheme = themeNow() === "dark" ? "light" : "dark";
  try { localStorage.setItem("sparsepath theme", chosenTheme); } catch { /* may be denied */ }
  setTheme(chosenTheme);
  redrawAll();
});
dark.addEventListener("change", () => { setTheme(themeNow()); redrawAll(); });

// On paper nothing can be opened: everything is.
let closed = [];
addEventListener("beforeprint", () => {
  if (printing) return;
  closed = [...document.querySelectorAll("details:not([open])")];
  for (const details of closed) details.open = true;
  printing = true; setTheme("light"); redrawAll();
});
addEventListener("afterprint", () => {
  for (const details of closed) details.open = false;
  printing = false; setTheme(themeNow()); redrawAll();
});
setTheme(themeNow());
