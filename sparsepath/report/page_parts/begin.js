// The beginning: what the reader had chosen before, then the first drawing.
const before = remembered();
// No choice of what no run has.
for (const option of byId("split")?.querySelectorAll("option") ?? []) {
  if (option.value !== "test" && !data.runs.some((run) => run.points.some((p) => p[option.value] != null))) option.remove();
}
for (const id of ["across", "split"]) if (before[id] && byId(id)) byId(id).value = before[id];
byId("inner").checked = before.inner ?? false;
Object.assign(showsAll, before.showsAll);
if (before.run < data.runs.length && before.by) { picked.run = before.run; byId("run").value = String(before.run); }
listLayers();
prepareFloor();
if (before.by) openTable();
pick(picked.run, before.by === "hand" ? before.point : null, { by: "start" });
for (const view of lasting) view();
if (before.by === "floor" && judged.length) floorMoved();
if (before.reloaded) comeBack(before);
follow();
