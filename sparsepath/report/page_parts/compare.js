// All runs in one figure; runs that differ in their seed alone as a line with a band.
const MOST_NAMED = 12; // more names would leave no room for the curves
function translucent(hex) { return /^#[0-9a-f]{6}$/i.test(hex) ? `${hex}33` : hex; }

// One level where all runs began alike, otherwise each group's own.
function denseLevels(split) {
  const found = new Map();
  data.groups.forEach((group, number) => {
    for (const n of group.runs) {
      const level = hundred(data.runs[n].dense[split]);
      if (level != null && !found.has(level)) found.set(level, styleOf(number).colour);
    }
  });
  return found.size === 1 ? new Map([[[...found.keys()][0], colour("soft")]]) : found;
}

function groupTraces(group, number, split) {
  const style = styleOf(number), name = label(group.label), band = group[split], legendgroup = String(number);
  const line = { color: style.colour, dash: style.dash, width: 2 };
  const points = group.runs.flatMap((n) => [...data.runs[n].points.map((p) => ({ p, place: [n, p.number, label(data.runs[n].name)] })), null]);
  const single = {
    name, legendgroup, showlegend: !band, x: points.map((each) => each && hundred(each.p.zero_blocks)),
    y: points.map((each) => each && hundred(each.p[split])), mode: band ? "markers" : "lines+markers", line,
    marker: { color: style.colour, symbol: style.symbol, size: band ? 5 : 7, opacity: band ? 0.55 : 1 },
    customdata: points.map((each) => each?.place ?? null),
    hovertemplate: "%{customdata[2]}, point %{customdata[1]}: %{y:.2f} %, %{x:.2f} % zero blocks<extra></extra>",
  };
  if (!band) return [single];
  const x = band.x.map(hundred), edge = { x, mode: "lines", line: { width: 0 }, showlegend: false, legendgroup, hoverinfo: "skip" };
  return [
    { ...edge, y: band.low.map(hundred) },
    { ...edge, y: band.high.map(hundred), fill: "tonexty", fillcolor: translucent(style.colour) },
    { name, legendgroup, x, y: band.mean.map(hundred), mode: "lines", line, hoverinfo: "skip" },
    single,
  ];
}

const PICKED = "picked run";
function pickedLine(split) {
  const points = runNow().points;
  return { x: points.map((p) => hundred(p.zero_blocks)), y: points.map((p) => hundred(p[split])) };
}

function drawCompare() {
  if (data.runs.length < 2) return;
  const split = byId("split").value, levels = denseLevels(split), named = data.groups.length <= MOST_NAMED;
  const ring = { symbol: "circle-open", size: 13, color: colour("ink"), line: { width: 1.5 } };
  const traces = [
    ...data.groups.flatMap((group, number) => groupTraces(group, number, split)),
    ...(levels.size ? [{ name: "dense", x: [null], y: [null], mode: "lines", line: { color: colour("soft"), ...DENSE }, hoverinfo: "skip" }] : []),
    { name: PICKED, ...pickedLine(split), mode: "lines+markers", line: { color: colour("ink"), width: named ? 0 : 3 }, marker: ring, hoverinfo: "skip" },
  ];
  const shapes = [...levels].map(([level, tint]) => ({ type: "line", xref: "paper", x0: 0, x1: 1, y0: level, y1: level, line: { color: tint, ...DENSE } }));
  const shown = span([...levels.keys(), ...data.runs.flatMap((run) => run.points.map((p) => hundred(p[split])))], showsAll.runs);
  sayCut("runs", shown, drawCompare);
  byId("runs-names").hidden = named;
  const said = `${split} accuracy over zero blocks of ${data.runs.length} runs; the table below lists them.`;
  draw("runs", said, traces, {
    xaxis: axis("zero blocks (%)"), yaxis: axis(`${split} accuracy (%)`, { range: shown.range }), shapes, showlegend: named,
    height: 460 + (named ? 22 * data.groups.length : 140), uirevision: `${split} ${showsAll.runs}`,
  });
  onClick("runs");
}

// The rest of the figure stays as it is: fifty runs take long to draw.
function markRun() {
  const plot = byId("runs"), place = plot?.data?.findIndex((trace) => trace.name === PICKED) ?? -1;
  if (place < 0) return;
  const { x, y } = pickedLine(byId("split").value);
  Plotly.restyle(plot, { x: [x], y: [y] }, [place]);
}
byId("split")?.addEventListener("change", () => { remember({ split: byId("split").value }); drawCompare(); });
lasting.push(drawCompare);
views.push(markRun);
