// All runs in one figure; runs that differ in their seed alone as a line with a band.
function translucent(hex) { return /^#[0-9a-f]{6}$/i.test(hex) ? `${hex}33` : hex; }

function drawCompare() {
  if (data.runs.length < 2) return;
  const split = byId("split").value;
  const traces = data.groups.flatMap((group, number) => {
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
  });
  const shown = span(data.runs.flatMap((run) => run.points.map((p) => hundred(p[split]))), showsAll.runs);
  sayCut("runs", shown, drawCompare);
  const said = `${split} accuracy over zero blocks of ${data.runs.length} runs; the table below lists them.`;
  draw("runs", said, traces, { xaxis: axis("zero blocks (%)"), yaxis: axis(`${split} accuracy (%)`, { range: shown.range }), height: 500, legend: { orientation: "h", x: 0, y: -0.16, yanchor: "top" }, uirevision: `${split} ${showsAll.runs}` });
  onClick("runs");
}
byId("split")?.addEventListener("change", () => { remember({ split: byId("split").value }); drawCompare(); });
lasting.push(drawCompare);
