// The accuracy-sparsity curve of the picked run, with the other runs behind it.
const across = () => byId("across").value;
const isShare = () => across() !== "macs_speedup";
const along = (point) => say2(point[across()], (x) => (isShare() ? 100 * x : x));
const hundred = (share) => say2(share, (x) => 100 * x);
function say2(value, change) { return value == null ? null : change(value); }

// What is known of a point, in words.
function sayPoint(point) {
  const shares = [["zero_blocks", "zero blocks"], ["validation", "in validation"], ["test", "in the test"]];
  return shares.filter(([name]) => point[name] != null).map(([name, words]) => `${percent(point[name])} ${words}`).join(", ") || "no figures";
}

// A run in few words: its penalty, where that tells the runs apart, or else its name.
const penalties = new Set(data.runs.map((run) => run.penalty));
const NAME = 28;
const shortName = (run) => label(penalties.size === data.runs.length ? run.penalty : run.name.length > NAME ? `${run.name.slice(0, NAME - 1)}\u2026` : run.name);

function splitTrace(run, split, number, title) {
  const style = styleOf(number);
  return {
    name: data.runs.length > 1 ? `${shortName(run)}: ${title}` : title, x: run.points.map(along), y: run.points.map((p) => hundred(p[split])),
    customdata: run.points.map((p) => [picked.run, p.number]), mode: "lines+markers",
    line: { color: style.colour, width: 2, dash: number === 0 ? "solid" : "dash" }, marker: { color: style.colour, symbol: style.symbol, size: 9 },
    hovertemplate: `point %{customdata[1]}: %{y:.2f} % ${title}, %{x:.2f}${isShare() ? " %" : "x"}<extra></extra>`,
  };
}

// Few other runs are drawn as the picked one is, thinner; that is l1 beside l0.
const FEW = 2;
const others = () => data.runs.map((run, number) => ({ run, number })).filter(({ number, run }) => number !== picked.run && run.points.length);
const fewOthers = () => (others().length <= FEW ? others() : []);
function besideTraces() {
  if (others().length > FEW) return [otherTrace()];
  return fewOthers().flatMap(({ run, number }, nth) => SPLITS.filter(([split]) => run.points.some((p) => p[split] != null)).map(([split, , dashed]) => {
    const style = styleOf(4 + nth);
    return {
      name: `${shortName(run)}: ${split}`, x: run.points.map(along), y: run.points.map((p) => hundred(p[split])), mode: "lines+markers",
      customdata: run.points.map((p) => [number, p.number, label(run.name)]), line: { color: style.colour, width: 1.5, dash: dashed ? "dash" : "solid" },
      marker: { color: style.colour, symbol: dashed ? "square-open" : "circle-open", size: 7 },
      hovertemplate: `%{customdata[2]}, point %{customdata[1]}: %{y:.2f} % ${split}<extra></extra>`,
    };
  }));
}

// Many are one trace with gaps between them: a trace for each would take seconds to draw.
function otherTrace() {
  const rest = data.runs.flatMap((run, number) => (number === picked.run ? [] : [...run.points.map((p) => ({ p, place: [number, p.number, label(run.name)] })), null]));
  return {
    name: "other runs: test", x: rest.map((each) => each && along(each.p)), y: rest.map((each) => each && hundred(each.p.test)),
    customdata: rest.map((each) => each?.place ?? null), mode: "lines+markers",
    line: { color: colour("soft"), width: 1 }, marker: { color: colour("soft"), size: 5 }, opacity: 0.55,
    hovertemplate: "%{customdata[2]}, point %{customdata[1]}: %{y:.2f} % test<extra></extra>",
  };
}

const SPLITS = [["validation", "validation", 0], ["test", "test", 1]];
const DENSE = { width: 1.2, dash: "dot" }, LEAST = { width: 1, dash: "longdashdot" };
function denseLines(run) {
  const level = (value, tint) => ({ type: "line", xref: "paper", x0: 0, x1: 1, y0: value, y1: value, line: { color: tint, ...DENSE } });
  const found = new Map();
  for (const [split, , number] of SPLITS) found.set(hundred(run.dense[split]), styleOf(number).colour);
  // Runs that began alike share the line.
  fewOthers().forEach((other, nth) => {
    for (const [split] of SPLITS) {
      const value = hundred(other.run.dense[split]);
      if (!found.has(value)) found.set(value, styleOf(4 + nth).colour);
    }
  });
  found.delete(null);
  return [...found].map(([value, tint]) => level(value, tint));
}

function floorLine() {
  const floor = Number(byId("floor").value);
  return { type: "line", xref: "paper", x0: 0, x1: 1, y0: floor, y1: floor, line: { color: colour("soft"), ...LEAST } };
}

function drawCurve() {
  const run = runNow();
  const has = (name) => run.points.some((p) => p[name] != null);
  byId("inner-label").hidden = !has("validation_W") && !has("validation_F");
  byId("curve-cut").hidden = true;
  if (!run.points.length) { sayInstead("curve", "This run has no points yet."); return; }
  if (!has("validation") && !has("test")) { sayInstead("curve", "No point of this run has an accuracy."); return; }
  const lines = [...SPLITS];
  if (byId("inner").checked) lines.push(["validation_W", "validation of W", 2], ["validation_F", "validation of F", 3]);
  const drawn = lines.filter(([name]) => has(name));
  const traces = [...besideTraces(), ...drawn.map(([name, title, number]) => splitTrace(run, name, number, title))];
  const point = pointNow();
  if (point) {
    const x = along(point);
    traces.push({
      name: "picked", x: [x, x], y: [hundred(point.validation), hundred(point.test)], mode: "markers", hoverinfo: "skip",
      marker: { symbol: "circle-open", size: 19, color: colour("ink"), line: { width: 2.5 } },
    });
  }
  const beside = fewOthers().flatMap((other) => other.run.points.flatMap((p) => SPLITS.map(([name]) => hundred(p[name]))));
  const dense = denseLines(run);
  const shown = span([...run.points.flatMap((p) => drawn.map(([name]) => hundred(p[name]))), ...beside, ...dense.map((line) => line.y0)], showsAll.curve);
  sayCut("curve", shown, drawCurve);
  const floor = Number(byId("floor").value);
  if (judged.length && floor > shown.range[1] - REACH) shown.range[0] = Math.min(shown.range[0], floor - 0.2);
  const key = (name, line) => ({ name, x: [null], y: [null], mode: "lines", line: { color: colour("soft"), ...line }, hoverinfo: "skip" });
  if (dense.length) traces.push(key("dense", DENSE));
  if (judged.length) traces.push(key("least I accept", LEAST));
  const titles = { zero_blocks: "zero blocks (%)", zero_of_model: "zero weights of the model (%)", macs_speedup: "times fewer MACs" };
  const ends = [run.points[0], run.points[run.points.length - 1]].map((p) => `at point ${p.number} ${sayPoint(p)}`);
  const said = `Accuracy of ${isolated(run.name)} over ${titles[across()]}, ${counted(run.points.length, "point", "points")}: ${[...new Set(ends)].join("; ")}. The table has all.`;
  draw("curve", said, traces, {
    xaxis: axis(titles[across()], isShare() ? {} : { type: "log" }), yaxis: axis("accuracy (%)", { range: shown.range }),
    shapes: [...dense, ...(judged.length ? [floorLine()] : [])], height: printing ? 300 : innerWidth >= 832 ? 580 : 400, uirevision: `${picked.run} ${across()} ${showsAll.curve}`,
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
