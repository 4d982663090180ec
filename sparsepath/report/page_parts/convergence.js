// Residuals and loss over the iterations of the path, with every change of mu.
function drawConvergence() {
  const run = runNow();
  const rows = run.points.flatMap((point) => point.residuals.map((row, k) => ({ ...row, point: point.number, k: k + 1, mu: point.mu })));
  const known = (...names) => rows.some((row) => names.some((name) => row[name] > 0));
  const why = !rows.length ? "There are no iterations yet." : known("primal", "dual", "loss") ? "" : "The residuals of this run are missing or all zero: there is nothing to draw.";
  byId("convergence-said").hidden = why !== "";
  if (why) { sayInstead("residuals", why); return; }
  const x = rows.map((_, n) => n + 1), hasLoss = known("loss"), hasResiduals = known("primal", "dual");
  const about = rows.map((row) => `point ${row.point}, iteration ${row.k}, mu ${brief(row.mu)}`);
  const positive = (value) => (value > 0 ? value : null);
  const line = (name, title, number, axisName) => ({
    name: title, x, y: rows.map((row) => positive(row[name])), text: about, yaxis: axisName || "y", mode: rows.length > 60 ? "lines" : "lines+markers",
    line: { color: styleOf(number).colour, dash: dashes[number], width: 2 }, marker: { color: styleOf(number).colour, symbol: symbols[number], size: 7 },
    customdata: rows.map((row) => [picked.run, row.point]), hovertemplate: `%{text}: %{y:.4g}<extra>${title}</extra>`,
  });
  const traces = hasResiduals ? [line("primal", "primal ||W - F||", 0), line("dual", "dual ||F - F before||", 1)] : [];
  if (hasLoss) traces.push(line("loss", "loss, with the pull to F", 2, "y2"));
  const starts = run.points.map((point) => ({ number: point.number, mu: point.mu, at: rows.findIndex((row) => row.point === point.number) + 0.5 })).filter((s) => s.at > 0);
  const shapes = starts.map((s) => ({ type: "line", x0: s.at, x1: s.at, yref: "paper", y0: 0, y1: 1, line: { color: colour("soft"), width: s.number === picked.point ? 2.5 : 0.8 } }));
  if (run.epsilon > 0 && hasResiduals) shapes.push({ type: "line", xref: "paper", x0: 0, x1: 1, y0: run.epsilon, y1: run.epsilon, line: { color: colour("ink"), width: 1, dash: "dot" } });
  const every = Math.ceil((100 * starts.length) / Math.max(100, printing ? PAPER : byId("residuals").clientWidth));
  const annotations = starts.filter((_, n) => n % every === 0).map((s) => ({
    x: s.at, xanchor: "left", yref: "paper", y: 1, yanchor: "bottom", text: `mu ${brief(s.mu)}`, showarrow: false, font: { size: 10, color: colour("soft") },
  }));
  byId("convergence-said").textContent = `Every vertical line is the next mu${run.epsilon > 0 ? `; the dotted line is epsilon = ${run.epsilon}` : ""}.${hasLoss ? "" : " The losses of this run were not recorded."}${hasResiduals ? "" : " Its residuals are missing or all zero."}`;
  const last = rows[rows.length - 1];
  const said = `Residuals over ${counted(rows.length, "iteration", "iterations")}; at the end primal ${brief(last.primal)}, dual ${brief(last.dual)}.`;
  draw("residuals", said, traces, {
    height: hasLoss && hasResiduals ? 520 : 380, margin: { l: 50, r: 15, t: 25, b: 45 },
    legend: { orientation: "h", x: 0, y: -0.14, yanchor: "top" },
    xaxis: axis("iteration of the path", { showgrid: false, anchor: hasLoss ? "y2" : "y", range: [0.5, rows.length + 0.5], ...(rows.length <= 12 ? { dtick: 1 } : {}) }),
    ...(hasResiduals ? { yaxis: axis("residual", { type: "log", domain: hasLoss ? [0.42, 1] : [0, 1] }) } : {}),
    ...(hasLoss ? { yaxis2: axis("loss", { domain: hasResiduals ? [0, 0.35] : [0, 1], type: "log" }) } : {}),
    shapes, annotations,
  });
  onClick("residuals");
}
views.push(drawConvergence);
