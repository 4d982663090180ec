// Zero blocks of every layer along the path, and which blocks of one layer live.
const patterns = ["", "/", "x", ".", "-", "\\", "|", "+"];
const MOST_BARS = 8;

function drawBars() {
  const run = runNow(), names = Object.keys(run.layers);
  if (!run.points.length) { sayInstead("bars", "There are no points yet."); return; }
  const listed = run.points.some((p) => Object.keys(p.layers).length);
  if (!names.length || !listed) { sayInstead("bars", "The zero blocks of this run's layers were not recorded."); return; }
  const numbers = run.points.map((p) => String(p.number));
  const share = (point, name) => say2(point.layers[name], (zero) => (100 * zero) / run.layers[name]);
  const place = numbers.indexOf(String(picked.point));
  const frame = place < 0 ? [] : [{
    type: "rect", layer: "below", xref: "x", yref: "paper", x0: place - 0.48, x1: place + 0.48, y0: 0, y1: 1,
    fillcolor: colour("panel"), line: { color: colour("line"), width: 1 },
  }];
  const said = `Zero blocks of ${counted(names.length, "layer", "layers")} at ${counted(numbers.length, "point", "points")}${place < 0 ? "" : `, point ${picked.point} marked`}; the table has the numbers.`;
  if (names.length > MOST_BARS) {
    draw("bars", said, [{
      type: "heatmap", x: numbers, y: names.map(label), z: names.map((name) => run.points.map((p) => share(p, name))),
      zmin: 0, zmax: 100, colorscale: "Cividis", colorbar: { title: { text: "zero (%)" }, thickness: 12 },
      hovertemplate: "%{y}, point %{x}: %{z:.1f} % zero<extra></extra>",
    }], { xaxis: axis("point", { type: "category" }), yaxis: axis("", { autorange: "reversed" }), height: Math.max(320, 60 + 18 * names.length) });
    return;
  }
  draw("bars", said, names.map((name, number) => ({
    type: "bar", name: label(name), x: numbers, y: run.points.map((p) => share(p, name)),
    customdata: run.points.map((p) => [picked.run, p.number, p.layers[name] ?? null, run.layers[name]]),
    marker: { color: styleOf(number).colour, pattern: { shape: patterns[number], fillmode: "overlay", size: 6, solidity: 0.2, fgcolor: colour("paper") } },
    hovertemplate: "%{fullData.name}, point %{x}: %{customdata[2]} of %{customdata[3]} zero<extra></extra>",
  })), { barmode: "group", xaxis: axis("point", { type: "category" }), yaxis: axis("zero blocks (%)", { range: [0, 100] }), shapes: frame, height: 360 });
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
