// The accuracy-sparsity curve of the picked run, with the other runs behind it.
const across = () => byId("across").value;
const isShare = () => across() !== "macs_speedup";
const along = (point) => say2(point[across()], (x) => (isShare() ? 100 * x : x));
const hundred = (share) => say2(share, (x) => 100 * x);
function say2(value, change) { return value == null ? null : change(value); }

function splitTrace(run, split, number, title) {
  const style = styleOf(number);
  return {
    name: title, x: run.points.map(along), y: run.points.map((p) => hundred(p[split])),
    customdata: run.points.map((p) => [picked.run, p.number]), mode: "lines+markers",
    line: { color: style.colour, width: 2, dash: number === 0 ? "solid" : "dash" }, marker: { color: style.colour, symbol: style.symbol, size: 9 },
    hovertemplate: `point %{customdata[1]}: %{y:.2f} % ${title}, %{x:.2f}${isShare() ? " %" : "x"}<extra></extra>`,
  };
}

function otherTrace(run, number) {
  return {
    name: label(run.name), x: run.points.map(along), y: run.points.map((p) => hundred(p.test)),
    customdata: run.points.map((p) => [number, p.number]), mode: "lines+markers", showlegend: false,
    line: { color: colour("soft"), width: 1 }, marker: { color: colour("soft"), size: 5 }, opacity: 0.35,
    hovertemplate: `%{fullData.name}, point %{customdata[1]}: %{y:.2f} % test<extra></extra>`,
  };
}

function denseLines(run) {
  const lines = [["validation", 0], ["test", 1]].filter(([split]) => run.dense[split] != null);
  return lines.map(([split, number]) => ({
    type: "line", xref: "paper", x0: 0, x1: 1, y0: 100 * run.dense[split], y1: 100 * run.dense[split],
    line: { color: styleOf(number).colour, width: 1.2, dash: "dot" },
  }));
}

function floorLine() {
  const floor = Number(byId("floor").value);
  return { type: "line", xref: "paper", x0: 0, x1: 1, y0: floor, y1: floor, line: { color: colour("soft"), width: 1, dash: "longdashdot" } };
}

function drawCurve() {
  const run = runNow();
  if (!run.points.length) { sayInstead("curve", "This run has no points yet."); return; }
  const others = data.runs.flatMap((other, number) => (number === picked.run ? [] : [otherTrace(other, number)]));
  const traces = [...others, splitTrace(run, "validation", 0, "validation"), splitTrace(run, "test", 1, "test")];
  for (const [name, title, number] of [["validation_W", "validation of W", 2], ["validation_F", "validation of F", 3]]) {
    traces.push({ ...splitTrace(run, name, number, title), visible: "legendonly" });
  }
  const point = pointNow();
  if (point) {
    const x = along(point);
    traces.push({
      name: "picked", x: [x, x], y: [hundred(point.validation), hundred(point.test)], mode: "markers", hoverinfo: "skip",
      marker: { symbol: "circle-open", size: 19, color: colour("ink"), line: { width: 2.5 } },
    });
  }
  const shown = span([...run.points.flatMap((p) => [hundred(p.validation), hundred(p.test)]), hundred(run.dense.validation), hundred(run.dense.test)]);
  byId("cut").textContent = cutOff(shown);
  const annotations = run.dense.test == null ? [] : [{
    xref: "paper", x: 0.005, xanchor: "left", y: 100 * Math.max(run.dense.test, run.dense.validation ?? 0), yanchor: "bottom",
    text: "dotted: dense reference", showarrow: false, font: { size: 11, color: colour("soft") },
  }];
  annotations.push({
    xref: "paper", x: 0.005, xanchor: "left", y: Number(byId("floor").value), yanchor: "top",
    text: "least I accept", showarrow: false, font: { size: 11, color: colour("soft") },
  });
  const titles = { zero_blocks: "zero blocks (%)", zero_of_model: "zero weights of the model (%)", macs_speedup: "times fewer MACs" };
  const said = run.points.map((p) => `point ${p.number}, ${percent(p.zero_blocks)} zero blocks, test ${percent(p.test)}`).join("; ");
  byId("curve").setAttribute("aria-label", `Accuracy along the path of ${run.name}: ${said}`);
  draw("curve", traces, {
    xaxis: axis(titles[across()], isShare() ? {} : { type: "log" }), yaxis: axis("accuracy (%)", { range: shown.range }),
    shapes: [...denseLines(run), floorLine()], annotations, height: innerWidth >= 832 ? 580 : 400, uirevision: `${picked.run} ${across()}`,
  });
  onClick("curve");
}

function onClick(id) {
  const plot = byId(id);
  plot.removeAllListeners?.("plotly_click");
  plot.on("plotly_click", (event) => {
    const place = event.points.find((found) => Array.isArray(found.customdata));
    if (place) pick(place.customdata[0], place.customdata[1]);
  });
}
views.push(drawCurve);
