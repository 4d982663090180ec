// Picking: by click, by keys, by the least accuracy, by the table; everything follows.
const close = 1e-9;
const splits = [...new Set(data.runs.map((run) => (run.judged_by === "test" ? "the test" : run.judged_by)))];
const judged = data.runs.flatMap((run, number) => run.points.filter((p) => p[run.judged_by] != null && p.zero_blocks != null).map((point) => ({ number, point, accuracy: 100 * point[run.judged_by] })));

function pick(run, point, { keepFloor = false } = {}) {
  if (run !== picked.run) { picked.run = run; byId("run").value = String(run); listLayers(); openTable(); }
  const numbers = runNow().points.map((p) => p.number);
  const wanted = point ?? runNow().chosen ?? numbers[0];
  picked.point = numbers.includes(wanted) ? wanted : numbers[0] ?? null;
  const slider = byId("point");
  slider.max = String(Math.max(1, numbers.length));
  slider.value = String(numbers.indexOf(picked.point) + 1);
  slider.disabled = numbers.length < 2;
  const now = pointNow();
  byId("point-said").textContent = now ? `${now.number}: ${percent(now.zero_blocks)} zero blocks` : "none yet";
  slider.setAttribute("aria-valuetext", now ? `point ${now.number}, ${percent(now.zero_blocks)} zero blocks, test ${percent(now.test)}` : "none");
  if (!keepFloor) byId("best").textContent = "";
  remember({ run: picked.run, point: picked.point });
  redraw();
}

function openTable() {
  for (const table of document.querySelectorAll("details.table")) table.open = table.dataset.run === String(picked.run);
}

function bestFor(floor) {
  const good = judged.filter(({ accuracy }) => accuracy >= floor - close);
  return good.reduce((best, next) => (!best || next.point.zero_blocks > best.point.zero_blocks ? next : best), null);
}

function sayFloor() {
  const said = `${Number(byId("floor").value).toFixed(2)} % in ${splits.join(" or ")}`;
  byId("floor-said").textContent = said;
  byId("floor").setAttribute("aria-valuetext", said);
}

function floorMoved() {
  sayFloor();
  const best = bestFor(Number(byId("floor").value));
  remember({ floor: byId("floor").value });
  if (best) pick(best.number, best.point.number, { keepFloor: true });
  else drawCurve();
  const where = best && data.runs.length > 1 ? ` of ${data.runs[best.number].name}` : "";
  byId("best").textContent = best
    ? `Sparsest with at least that: point ${best.point.number}${where}, ${percent(best.point.zero_blocks)} zero blocks, test ${percent(best.point.test)}.`
    : "No point has so much.";
}

function prepareFloor() {
  const slider = byId("floor"), reached = judged.map(({ accuracy }) => accuracy);
  if (!reached.length) { slider.disabled = true; byId("floor-said").textContent = "no points yet"; return; }
  const dense = data.runs.flatMap((run) => hundred(run.dense[run.judged_by]) ?? []);
  const down = (x) => Math.floor(x * 100 + 1e-6) / 100;
  slider.min = String(down(span([...reached, ...dense]).low));
  slider.max = String(down(Math.max(...reached, ...dense) + 0.01));
  const run = runNow(), own = run.dense[run.judged_by], floor = own == null ? Math.min(...reached) : 100 * (own - (run.tolerance ?? 0));
  slider.value = remembered().floor ?? String(down(floor));
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
byId("across").addEventListener("change", drawCurve);

const before = remembered();
listLayers();
prepareFloor();
if (before.run < data.runs.length) pick(before.run, before.point);
else pick(picked.run, null);
const following = byId("reload");
if (following) {
  following.checked = before.follow ?? true;
  following.addEventListener("change", () => remember({ follow: following.checked }));
  setInterval(() => { if (following.checked && !document.hidden) location.reload(); }, 20000);
}
