// Draws charts from the columns of tables, so that readers who cannot see a chart have the numbers.
(() => {
  const section = document.getElementById("charts");
  if (!section) return;
  const table = document.getElementById(section.dataset.table);
  const names = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
  const rows = [...table.tBodies[0].rows].reverse();
  const column = (at) => rows.map((row) => { const value = parseFloat(row.cells[at].textContent.replaceAll(",", "")); return Number.isNaN(value) ? null : value; });
  const x = column(0), first = x[0], last = x[x.length - 1];
  const colours = { light: ["#0172ad", "#b45309", "#6d28d9"], dark: ["#5cb8ec", "#f0b45a", "#c4a5f7"] };
  let charts = [], range = [first, last];

  const isDark = () => (document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const setRange = (from, to) => {
    const width = Math.max(2, Math.min(last - first || 1, to - from)), start = Math.max(first, Math.min(from, last - width));
    range = [start, start + width];
    for (const chart of charts) chart.setScale("x", { min: range[0], max: range[1] });
  };

  const draw = () => {
    for (const chart of charts) chart.destroy();
    const style = getComputedStyle(document.documentElement), dark = isDark();
    const text = style.getPropertyValue("--pico-muted-color"), grid = style.getPropertyValue("--pico-muted-border-color");
    const axis = { stroke: text, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 } };
    charts = [...section.querySelectorAll("figure")].map((figure) => {
      const place = figure.querySelector(".chart"), columns = figure.dataset.series.split(" ").map(Number);
      const series = columns.map((at, number) => ({
        label: names[at], stroke: colours[dark ? "dark" : "light"][number], width: 2, spanGaps: true,
        dash: number ? [6, 4] : undefined, points: { show: rows.length < 60 }, value: (_, v) => (v == null ? "–" : v.toFixed(4)),
      }));
      return new uPlot({
        width: place.clientWidth, height: 240, cursor: { sync: { key: "rounds" }, drag: { x: true, y: false } },
        scales: { x: { time: false } }, series: [{ label: names[0] }, ...series],
        axes: [{ ...axis }, { ...axis, size: 56 }],
        hooks: { setSelect: [(chart) => { if (chart.select.width > 0) setTimeout(() => setRange(chart.posToVal(chart.select.left, "x"), chart.posToVal(chart.select.left + chart.select.width, "x"))); }] },
      }, [x, ...columns.map(column)], place);
    });
    setRange(...range);
  };

  section.querySelector(".zoom").addEventListener("click", (event) => {
    const how = event.target.dataset.zoom, middle = (range[0] + range[1]) / 2, half = (range[1] - range[0]) / 2;
    if (how === "all") setRange(first, last);
    else if (how) setRange(middle - half * (how === "in" ? 0.5 : 2), middle + half * (how === "in" ? 0.5 : 2));
  });
  section.hidden = false;
  draw();
  document.addEventListener("secemb:theme", draw);
  section.addEventListener("dblclick", () => setTimeout(() => setRange(first, last)));
  addEventListener("resize", () => { for (const chart of charts) chart.setSize({ width: chart.root.parentElement.clientWidth, height: 240 }); });
})();
