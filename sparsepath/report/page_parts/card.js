// The card of the picked point, and its row in the table.
function figureRow(list, title, name, shown) {
  list.append(element("dt", {}, title), element("dd", { "data-figure": name }, shown));
}

function fillCard() {
  const card = byId("card"), run = runNow(), point = pointNow();
  if (!point) { card.replaceChildren(element("p", {}, run.points.length ? "No point is picked." : "No points yet.")); return; }
  const list = element("dl", {});
  const against = (value, dense, words) => (dense == null ? words(value) : `${words(value)} of ${words(dense)}`);
  figureRow(list, "mu", "mu", brief(point.mu));
  figureRow(list, "validation", "validation", `${percent(point.validation)} (dense ${percent(run.dense.validation)})`);
  figureRow(list, "test", "test", `${percent(point.test)} (dense ${percent(run.dense.test)})`);
  figureRow(list, "zero blocks", "zero_blocks", percent(point.zero_blocks));
  const last = point.residuals[point.residuals.length - 1] || {};
  figureRow(list, "weights", "kept", against(point.kept, run.dense.kept, count));
  figureRow(list, "MACs", "macs", `${count(point.macs)}, ${times(point.macs_speedup)} fewer`);
  figureRow(list, "bytes, about", "bytes", against(point.bytes, run.dense.bytes, bytes));
  if (point.latency_seconds != null) {
    const beside = (ours, dense, runtimes) => `${ours} in ${runtimes?.[0] || MISSING} (dense ${dense} in ${runtimes?.[1] || MISSING})`;
    figureRow(list, "measured latency", "latency", beside(milliseconds(point.latency_seconds), milliseconds(point.latency_dense_seconds), point.latency_in));
    figureRow(list, "images a second", "throughput", beside(count(Math.round(point.throughput)), count(Math.round(point.throughput_dense)), point.throughput_in));
  }
  figureRow(list, "residuals", "residuals", `primal ${brief(last.primal)}, dual ${brief(last.dual)}`);
  figureRow(list, "iterations", "iterations", `${count(point.iterations)}${point.converged ? ", converged" : ""}`);
  figureRow(list, "epochs", "epochs", count(point.epochs));
  const layers = element("dl", {});
  for (const [name, blocks] of Object.entries(run.layers)) {
    const zero = point.layers[name];
    layers.append(element("dt", {}, name), element("dd", { "data-layer": name }, zero === undefined ? MISSING : `${count(zero)} of ${count(blocks)}`));
    if (zero !== undefined) {
      const bar = element("div", { class: "bar", "aria-hidden": "true" }, element("span", { style: `width:${(100 * zero) / blocks}%` }));
      layers.append(bar);
    }
  }
  const commands = Object.entries(run.commands).map(([title, parts]) => {
    const command = parts.join(title === "Deploy" ? point.number : String(point.number).padStart(2, "0"));
    const copy = element("button", { type: "button", "aria-label": `Copy: ${title}` }, "Copy");
    copy.addEventListener("click", () => {
      const say = (word) => { copy.textContent = word; copy.setAttribute("aria-label", `${word}: ${title}`); };
      navigator.clipboard?.writeText(command).then(() => say("Copied"), () => say("Select it"));
    });
    return element("div", { class: "command" }, title, element("div", { class: "row" }, element("code", {}, command), copy));
  });
  const chosen = point.number === run.chosen ? " - the run's choice" : "";
  card.replaceChildren(
    element("h3", {}, `Point ${point.number} of ${run.points.length}${chosen}`), list,
    element("h3", {}, "Zero blocks by layer"), element("p", { class: "hint" }, "In colour: what lives."), layers, ...commands,
  );
}

function markRow() {
  for (const row of document.querySelectorAll("#tables tbody tr, #runs-table tbody tr")) row.classList.remove("picked");
  const rows = document.querySelectorAll(`#table-${picked.run} tbody tr`);
  rows.forEach((row) => { if (row.dataset.point === String(picked.point)) row.classList.add("picked"); });
  document.querySelectorAll("#runs-table tbody tr")[picked.run]?.classList.add("picked");
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
  const button = element("button", { type: "button" }, head.textContent);
  button.addEventListener("click", () => pick(number, null));
  head.replaceChildren(button);
});
views.push(fillCard, markRow);
