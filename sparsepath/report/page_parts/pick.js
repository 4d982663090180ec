// Picking: by click, by keys, by the least accuracy, by the table; everything follows.
const close = 1e-9;
const splits = [...new Set(data.runs.map((run) => (run.judged_by === "test" ? "the test" : run.judged_by)))];
// Accuracies are compared as they are shown: whoever asks for 97.61 % gets what says 97.61 %.
const asShown = (share) => Number((100 * share).toFixed(2));
const judged = data.runs.flatMap((run, number) => run.points
  .filter((p) => p[run.judged_by] != null && p.zero_blocks != null)
  .map((point) => ({ number, point, accuracy: asShown(point[run.judged_by]) })));

function pick(run, point, { by = "hand" } = {}) {
  if (run !== picked.run) { picked.run = run; byId("run").value = String(run); listLayers(); openTable(); }
  const numbers = runNow().points.map((p) => p.number);
  const wanted = point ?? runNow().chosen ?? numbers[0];
  picked.point = numbers.includes(wanted) ? wanted : numbers[0] ?? null;
  const slider = byId("point");
  slider.max = String(Math.max(1, numbers.length));
  slider.value = String(numbers.indexOf(picked.point) + 1);
  slider.disabled = numbers.length < 2;
  const now = pointNow();
  byId("point-said").textContent = now ? [now.number, ...(now.zero_blocks == null ? [] : [`${percent(now.zero_blocks)} zero blocks`])].join(": ") : "none yet";
  slider.setAttribute("aria-valuetext", now ? `point ${now.number}` : "none");
  if (by === "hand") {
    byId("best").textContent = "";
    const where = data.runs.length > 1 ? ` of ${isolated(runNow().name)}` : "";
    announce(now ? `Point ${now.number}${where}: ${sayPoint(now)}.` : `No points${where} yet.`);
  }
  if (by !== "start") remember({ run: picked.run, point: picked.point, by });
  redraw();
}

function openTable() {
  for (const table of document.querySelectorAll("details.table")) table.open = table.dataset.run === String(picked.run);
}

// The sparsest; of equally sparse ones the most accurate.
function bestFor(floor) {
  const good = judged.filter(({ accuracy }) => accuracy >= floor - close);
  const better = (next, best) => next.point.zero_blocks - best.point.zero_blocks || next.accuracy - best.accuracy;
  return good.reduce((best, next) => (!best || better(next, best) > 0 ? next : best), null);
}

function sayFloor() {
  const slider = byId("floor"), floor = Number(slider.value);
  const less = judged.filter(({ accuracy }) => accuracy < floor - close).length;
  const end = floor <= Number(slider.min) + close && less ? ` (the slider ends here; ${counted(less, "point has", "points have")} less)` : "";
  const said = `${floor.toFixed(2)} % in ${splits.join(" or ")}${end}`;
  byId("floor-said").textContent = said;
  slider.setAttribute("aria-valuetext", said);
}

function floorMoved() {
  sayFloor();
  const floor = Number(byId("floor").value), best = bestFor(floor);
  remember({ floor: byId("floor").value, by: "floor" });
  if (best) pick(best.number, best.point.number, { by: "floor" });
  else drawCurve();
  const where = best && data.runs.length > 1 ? ` of ${isolated(data.runs[best.number].name)}` : "";
  const said = best
    ? `Sparsest with at least ${floor.toFixed(2)} %: point ${best.point.number}${where}, ${sayPoint(best.point)}.`
    : `No point has ${floor.toFixed(2)} %; the most is ${Math.max(...judged.map(({ accuracy }) => accuracy)).toFixed(2)} %.`;
  byId("best").textContent = said;
  announce(said);
}

function prepareFloor() {
  const slider = byId("floor"), reached = judged.map(({ accuracy }) => accuracy);
  if (!reached.length) {
    slider.disabled = true;
    byId("floor-said").textContent = data.runs.some((run) => run.points.length) ? "no point has an accuracy and zero blocks" : "no points yet";
    return;
  }
  const dense = data.runs.flatMap((run) => say2(run.dense[run.judged_by], asShown) ?? []);
  const down = (x) => Math.floor(x * 100 + 1e-6) / 100;
  const run = runNow(), own = run.dense[run.judged_by], low = span([...reached, ...dense]).low;
  const floor = own == null ? low : Math.max(0, down(100 * (own - (run.tolerance ?? 0))));
  slider.min = String(Math.min(down(low), floor)); // a floor that the slider could not show would be moved unsaid
  slider.max = String(Math.max(floor, Math.min(100, down(Math.max(...reached, ...dense) + 0.01))));
  slider.value = remembered().floor ?? String(floor);
  sayFloor();
  slider.addEventListener("input", floorMoved);
}

function step(by) {
  const numbers = runNow().points.map((p) => p.number), next = numbers[numbers.indexOf(picked.point) + by];
  if (next !== undefined) pick(picked.run, next);
}

byId("curve").addEventListener("keydown", (event) => {
  const by = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
  if (by) { event.preventDefault(); step(by); }
});
byId("point").addEventListener("input", () => pick(picked.run, runNow().points[Number(byId("point").value) - 1]?.number ?? null));
byId("run").addEventListener("change", () => pick(Number(byId("run").value), null));
byId("across").addEventListener("change", () => { remember({ across: across() }); drawCurve(); });
byId("inner").addEventListener("change", () => { remember({ inner: byId("inner").checked }); drawCurve(); });
