// Zero blocks of every layer along the path, and which blocks of one layer live.
const patterns = ["", "/", "x", ".", "-", "\\", "|", "+"];
// Bars side by side while each can be seen; beyond that a map of the path, and the picked point's bars.
const FEW_BARS = 8, MOST_BARS = 20, THINNEST = 4;
const fitsBars = (layers, points) => layers <= FEW_BARS || (layers <= MOST_BARS && layers * points * THINNEST <= (printing ? PAPER : byId("bars").clientWidth));

function drawBars() {
  const run = runNow(), names = Object.keys(run.layers);
  if (!run.points.length) { sayInstead("bars", "There are no points yet."); return; }
  const listed = run.points.some((p) => Object.keys(p.layers).length);
  if (!names.length || !listed) { sayInstead("bars", "The zero blocks of this run's layers were not recorded."); return; }
  const numbers = run.points.map((p) => String(p.number));
  const share = (point, name) => say2(point.layers[name], (zero) => (100 * zero) / run.layers[name]);
  const place = numbers.indexOf(String(picked.point)), bars = fitsBars(names.length, numbers.length);
  const frame = place < 0 ? [] : [{
    type: "rect", layer: bars ? "below" : "above", xref: "x", yref: "paper", x0: place - 0.48, x1: place + 0.48, y0: 0, y1: 1,
    ...(bars ? { fillcolor: colour("panel"), line: { color: colour("line"), width: 1 } } : { line: { color: colour("c1"), width: 3 } }),
  }];
  const said = `Zero blocks of ${counted(names.length, "layer", "layers")} at ${counted(numbers.length, "point", "points")}${place < 0 ? "" : `, point ${picked.point} marked`}; the table has the numbers.`;
  if (!bars) {
    const now = pointNow(), titles = names.map(label);
    const map = {
      type: "heatmap", x: numbers, y: titles, z: names.map((name) => run.points.map((p) => share(p, name))),
      customdata: names.map(() => run.points.map((p) => [picked.run, p.number])),
      zmin: 0, zmax: 100, colorscale: "Cividis", colorbar: { title: { text: "zero (%)" }, thickness: 12 },
      hovertemplate: "%{y}, point %{x}: %{z:.1f} % zero<extra></extra>",
    };
    const own = {
      type: "bar", orientation: "h", xaxis: "x2", name: `point ${picked.point}`, y: titles, x: names.map((name) => now && share(now, name)),
      customdata: names.map((name) => [picked.run, picked.point, now?.layers[name] ?? null, run.layers[name]]), marker: { color: colour("c0") },
      hovertemplate: "%{y}: %{customdata[2]} of %{customdata[3]} zero<extra></extra>",
    };
    // Beside each other where there is room, otherwise the bars below.
    const narrow = !printing && byId("bars").clientWidth < 600, rows = { autorange: "reversed", dtick: 1, tickfont: { size: 11 } };
    if (narrow) Object.assign(map, { colorbar: { title: { text: "zero (%)", side: "top" }, thickness: 10, orientation: "h", y: 1, yanchor: "bottom" } });
    for (const shape of frame) Object.assign(shape, { yref: "y domain" });
    draw("bars", said, now ? [map, narrow ? { ...own, yaxis: "y2" } : own] : [map], {
      showlegend: false, shapes: frame, height: 100 + (narrow && now ? 2 : 1) * Math.max(220, 20 * names.length),
      xaxis: axis("point", { type: "category", domain: now && !narrow ? [0, 0.58] : [0, 1], anchor: "y" }),
      yaxis: axis("", { ...rows, domain: now && narrow ? [0.58, 1] : [0, 1] }),
      ...(now ? { xaxis2: axis(`zero at point ${picked.point} (%)`, { domain: narrow ? [0, 1] : [0.64, 1], range: [0, 100], anchor: narrow ? "y2" : "y" }) } : {}),
      ...(now && narrow ? { yaxis2: axis("", { ...rows, domain: [0, 0.42], anchor: "x2" }) } : {}),
    });
    onClick("bars");
    return;
  }
  draw("bars", said, names.map((name, number) => ({
    type: "bar", name: label(name), x: numbers, y: run.points.map((p) => share(p, name)),
    customdata: run.points.map((p) => [picked.run, p.number, p.layers[name] ?? null, run.layers[name]]),
    marker: { color: styleOf(number).colour, pattern: { shape: patterns[number % patterns.length], fillmode: "overlay", size: 6, solidity: 0.2, fgcolor: colour("paper") } },
    hovertemplate: "%{fullData.name}, point %{x}: %{customdata[2]} of %{customdata[3]} zero<extra></extra>",
  })), { barmode: "group", bargap: 0.12, xaxis: axis("point", { type: "category" }), yaxis: axis("zero blocks (%)", { range: [0, 100] }), shapes: frame, height: 360 });
  onClick("bars");
}

// One bit a block, or one byte a tile; what lies beyond the last block is nothing.
function cells(map, packed) {
  const raw = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
  const [high, wide] = map.tile;
  const rows = Math.ceil(map.rows / high), columns = Math.ceil(map.columns / wide), whole = high * wide === 1;
  const bit = (n) => (n >= map.count ? null : (raw[n >> 3] >> (7 - (n & 7))) & 1);
  const at = (n) => (whole ? bit(n) : raw[n] / 255);
  return Array.from({ length: rows }, (_, i) => Array.from({ length: columns }, (_, j) => at(i * columns + j)));
}

function drawMap() {
  const run = runNow(), name = byId("layer").value, map = (run.maps || {})[name], point = pointNow();
  const packed = map && point && map.points[String(point.number)];
  if (!packed) {
    byId("map-said").textContent = "";
    const why = data.maps_fit ? "There are no weights of this point to draw from." : "There is no room here for the maps of so many blocks: make a page of fewer runs.";
    sayInstead("map", why);
    return;
  }
  const grid = cells(map, packed), whole = map.tile[0] * map.tile[1] === 1, kernels = run.blocks_word === "kernels" && map.columns > 1 && map.count === map.rows * map.columns;
  const zero = point.layers[name], total = run.layers[name];
  const unit = whole ? "" : ` Each cell is a tile of ${map.tile[0]} x ${map.tile[1]} blocks.`;
  const sentence = `${isolated(name)} at point ${point.number}: ${count(total - zero)} of ${count(total)} blocks live, ${count(zero)} are zero.${unit}`;
  byId("map-said").textContent = sentence;
  const things = whole ? "blocks" : "tiles";
  const [down, right] = kernels && whole ? ["output i", "input j"] : [`row of ${things}`, `column of ${things}`];
  const scale = whole ? [[0, colour("zero")], [1, colour("c0")]] : "Cividis";
  const gap = grid.length * grid[0].length <= 5000 ? 1 : 0;
  const turned = grid.length > grid[0].length;
  const shown = turned ? grid[0].map((_, j) => grid.map((row) => row[j])) : grid;
  const [first, second] = turned ? [right, down] : [down, right];
  const size = Math.min(560, Math.max(190, (byId("map").clientWidth - 80) * (shown.length / shown[0].length) + 90));
  draw("map", sentence, [{
    type: "heatmap", z: shown, zmin: 0, zmax: 1, colorscale: scale, xgap: gap, ygap: gap, showscale: !whole,
    colorbar: { title: { text: "live" }, thickness: 12 },
    text: whole ? shown.map((row) => row.map((live) => (live ? "lives" : "is zero"))) : undefined,
    hovertemplate: `${first} = %{y}, ${second} = %{x}: ${whole ? "%{text}" : "%{z:.0%} live"}<extra></extra>`,
  }], {
    height: size,
    xaxis: axis(second, { constrain: "domain", showgrid: false, zeroline: false }),
    yaxis: axis(first, { autorange: "reversed", scaleanchor: "x", constrain: "domain", showgrid: false, zeroline: false }),
  });
}

function listLayers() {
  const select = byId("layer"), before = select.value || remembered().layer;
  const names = Object.keys(runNow().layers);
  select.replaceChildren(...names.map((name) => element("option", { value: name, dir: "auto" }, name)));
  const largest = names.reduce((a, b) => (runNow().layers[b] > runNow().layers[a] ? b : a), names[0]);
  if (names.length) select.value = names.includes(before) ? before : largest;
}
byId("layer").addEventListener("change", () => {
  remember({ layer: byId("layer").value });
  drawMap();
  announce(byId("map-said").textContent || byId("map-instead").textContent);
});
views.push(drawBars, drawMap);
