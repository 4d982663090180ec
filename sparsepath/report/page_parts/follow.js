// An unfinished run rewrites its page: look for more, and be where the reader was afterwards.
const { changed, every, for: patience } = data.live;
const IDLE = 3000; // milliseconds after the last touch or key before the page may be exchanged
const TOUCHES = ["pointerdown", "pointermove", "keydown", "wheel", "touchmove"];
const FOCUSABLE = "a, button, input, select, summary, [tabindex]";

// Where an element is: what of its kind inside the nearest named part it is.
function placeOf(found) {
  const part = found?.closest("[id]");
  return part && part !== found ? [part.id, [...part.querySelectorAll(FOCUSABLE)].indexOf(found)] : [found?.id, -1];
}
const atPlace = ([id, number]) => (number < 0 ? byId(id) : byId(id)?.querySelectorAll(FOCUSABLE)[number]);
const allDetails = () => [...document.querySelectorAll("details")];

function lookForMore() {
  remember({
    reloaded: true, scroll: [scrollX, scrollY], focus: placeOf(document.activeElement),
    opened: allDetails().map((details) => details.open), points: data.runs[0].points.length,
  });
  location.reload();
}

// Figures that are drawn a moment later push the page about: stay until all is drawn or touched.
function stayAt([left, top]) {
  history.scrollRestoration = "manual";
  const stay = () => scrollTo({ left, top, behavior: "instant" });
  const watcher = new ResizeObserver(stay), leave = () => watcher.disconnect();
  watcher.observe(document.body);
  for (const what of TOUCHES) addEventListener(what, leave, { passive: true, once: true });
  setTimeout(leave, IDLE);
  stay();
}

function comeBack(before) {
  allDetails().forEach((details, number) => { details.open = before.opened?.[number] ?? details.open; });
  atPlace(before.focus || [])?.focus({ preventScroll: true });
  stayAt(before.scroll);
  const more = data.runs[0].points.length - before.points;
  if (more > 0) announce(`${counted(more, "new point", "new points")}: ${data.runs[0].points.length} so far.`);
  remember({ reloaded: false });
}

function ago(seconds) {
  const hours = Math.round(seconds / 3600);
  if (seconds < 5400) return counted(Math.round(seconds / 60), "minute", "minutes");
  return hours < 48 ? counted(hours, "hour", "hours") : counted(Math.round(hours / 24), "day", "days");
}

function follow() {
  const box = byId("reload");
  if (!box) return;
  const opened = Date.now(), age = Math.max(0, opened / 1000 - changed);
  // Whoever ticks the box again wants to wait as long once more.
  const since = Math.max(changed, remembered().since ?? 0), waited = () => Date.now() / 1000 - since;
  let touched = 0;
  for (const what of TOUCHES) addEventListener(what, () => { touched = Date.now(); }, { passive: true });
  const busy = () => Date.now() - touched < IDLE || !getSelection().isCollapsed || printing || document.hidden;
  const stop = () => {
    box.checked = false;
    const sentence = `The run wrote nothing for ${ago(Date.now() / 1000 - changed)}: it has probably stopped, so the page no longer looks for more. Give its command again to go on with it.`;
    byId("stopped").textContent = sentence;
    byId("stopped").hidden = false;
  };
  box.checked = remembered().follow ?? true;
  box.addEventListener("change", () => {
    remember({ follow: box.checked, ...(box.checked ? { since: Date.now() / 1000 } : {}) });
    if (box.checked && waited() > patience) lookForMore();
  });
  if (box.checked && waited() > patience) stop();
  // Rarer and rarer, a tenth of the time that nothing has come; a run may be resumed within the hour.
  const due = opened + 1000 * Math.max(every, age < 3600 ? Math.min(60, age / 10) : age / 10);
  setInterval(() => {
    if (!box.checked) return;
    if (waited() > patience) stop();
    else if (Date.now() >= due && !busy()) lookForMore();
  }, 1000);
}
