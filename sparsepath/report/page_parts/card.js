// The card of the picked point, and its row in the table.
function figureRow(list, title, name, shown) {
  list.append(element("dt", {}, title), element("dd", { "data-figure": name }, shown));
}

const ofDense = (value, dense, words) => (dense == null ? words(value) : `${words(value)} (dense ${words(dense)})`);
const ofAll = (value, all, words) => (all == null ? words(value) : `${words(value)} of ${words(all)}`);

// One row for each figure that any point of the run has: a walk has fewer than a run.
function figuresOf(run, point) {
  const list = element("dl", {}), last = point.residuals[point.residuals.length - 1] || {};
  const has = (...names) => run.points.some((each) => names.some((name) => each[name] != null));
  const row = (title, name, shown) => { if (has(name)) figureRow(list, title, name, shown); };
  row("mu", "mu", brief(point.mu));
  row("validation", "validation", ofDense(point.validation, run.dense.validation, percent));
  row("test", "test", ofDense(point.test, run.dense.test, percent));
  row("zero blocks", "zero_blocks", percent(point.zero_blocks));
  row("weights", "kept", ofAll(point.kept, run.dense.kept, count));
  row("MACs", "macs", `${count(point.macs)}${point.macs_speedup == null ? "" : `, ${times(point.macs_speedup)} fewer`}`);
  row("bytes, about", "bytes", ofAll(point.bytes, run.dense.bytes, bytes));
  // Where nothing was measured, that is said: it is what a point is chosen for.
  if (point.latency_seconds == null && list.children.length) figureRow(list, "measured latency", "latency", run.commands.Deploy ? "not measured: deploy this point" : "not measured");
  if (point.latency_seconds != null) {
    const beside = (ours, dense, runtimes) => `${ours} in ${runtimes?.[0] || MISSING} (dense ${dense} in ${runtimes?.[1] || MISSING})`;
    figureRow(list, "measured latency", "latency", beside(milliseconds(point.latency_seconds), milliseconds(point.latency_dense_seconds), point.latency_in));
    const whole = (number) => count(say2(number, Math.round));
    if (point.throughput != null) figureRow(list, "images a second", "throughput", beside(whole(point.throughput), whole(point.throughput_dense), point.throughput_in));
  }
  if (run.points.some((each) => each.residuals.some((row) => row.primal != null || row.dual != null))) {
    figureRow(list, "residuals", "residuals", `primal ${brief(last.primal)}, dual ${brief(last.dual)}`);
  }
  row("iterations", "iterations", `${count(point.iterations)}${point.converged ? ", converged" : ""}`);
  row("epochs", "epochs", count(point.epochs));
  return list.children.length ? list : element("p", { class: "hint" }, "This run has no figures of its points.");
}

const MANY_LAYERS = 12; // more scroll in a box of their own, so that the commands stay near
function layersOf(run, point) {
  const names = Object.keys(run.layers).filter((name) => run.points.some((each) => each.layers[name] != null));
  if (!names.length) return [];
  const list = element("dl", {});
  for (const name of names) {
    const zero = point.layers[name], blocks = run.layers[name];
    list.append(element("dt", {}, element("bdi", {}, name)), element("dd", { "data-layer": name }, zero == null ? MISSING : `${count(zero)} of ${count(blocks)}`));
    if (zero != null) list.append(element("div", { class: "bar", "aria-hidden": "true" }, element("span", { style: `width:${(100 * zero) / blocks}%` })));
  }
  const box = names.length > MANY_LAYERS ? element("div", { class: "many", tabindex: "0", role: "region", "aria-label": "Zero blocks by layer" }, list) : list;
  return [element("div", { class: "layers" }, element("h4", {}, "Zero blocks by layer"), element("p", { class: "hint" }, "In colour: what lives."), box)];
}

function commandsOf(run, point) {
  return Object.entries(run.commands).map(([title, parts]) => {
    const command = parts.join(title === "Deploy" ? point.number : String(point.number).padStart(2, "0"));
    const copy = element("button", { type: "button", "aria-label": `Copy: ${title}` }, "Copy");
    copy.addEventListener("click", () => {
      const tell = (word) => { copy.textContent = word; copy.setAttribute("aria-label", `${word}: ${title}`); announce(`${word}: ${title}`); };
      const written = navigator.clipboard?.writeText(command) ?? Promise.reject(new Error("no clipboard"));
      written.then(() => tell("Copied"), () => { getSelection().selectAllChildren(copy.previousSibling); tell("Selected"); });
    });
    return element("div", { class: "command" }, title, element("div", { class: "row" }, element("code", { dir: "ltr" }, command), copy));
  });
}

function fillCard() {
  const card = byId("card"), run = runNow(), point = pointNow();
  const name = element("p", { class: "run" }, element("bdi", {}, run.name));
  if (!point) { card.replaceChildren(element("p", {}, run.points.length ? "No point is picked." : "No points yet."), name); return; }
  const chosen = point.number === run.chosen ? ` - the run's choice${run.finished ? "" : " so far"}` : "";
  card.replaceChildren(
    element("h3", {}, `Point ${point.number} of ${run.points.length}${chosen}`), name,
    figuresOf(run, point), ...layersOf(run, point), element("div", { class: "commands" }, ...commandsOf(run, point)),
  );
}

function markRow() {
  for (const row of document.querySelectorAll("#tables tbody tr, #runs-table tbody tr")) { row.classList.remove("picked"); row.removeAttribute("aria-current"); }
  const rows = [...document.querySelectorAll(`#table-${picked.run} tbody tr`)].filter((row) => row.dataset.point === String(picked.point));
  const run = document.querySelectorAll("#runs-table tbody tr")[picked.run];
  for (const row of run ? [...rows, run] : rows) { row.classList.add("picked"); row.setAttribute("aria-current", "true"); }
}

// The first cell of every point's row becomes a button that picks it.
data.runs.forEach((run, number) => {
  for (const row of document.querySelectorAll(`#table-${number} tbody tr`)) {
    const head = row.querySelector("th"), point = Number(head.textContent);
    if (!run.points.some((p) => p.number === point)) continue;
    row.dataset.point = point;
    const button = element("button", { type: "button", "aria-label": `Pick point ${point}` }, String(point));
    button.addEventListener("click", () => pick(number, point));
    head.replaceChildren(button);
  }
});
document.querySelectorAll("#runs-table tbody tr").forEach((row, number) => {
  const head = row.querySelector("th");
  const button = element("button", { type: "button" }, element("bdi", {}, head.textContent));
  button.addEventListener("click", () => pick(number, null));
  head.replaceChildren(button);
});
views.push(fillCard, markRow);
