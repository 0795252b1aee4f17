// Charts over time: values are asked for once a minute while somebody looks, and drawn by uPlot in the page's colours.
"use strict";
(() => {
  const EVERY_MS = 60000, HEIGHT = 230, LEAST_STEPS = 10;
  const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]];  // so that lines differ without colour as well
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const drawn = new Map();  // element -> {plot, chart, text}

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  // A colour between this one and the paper's, without transparency: stacked areas lie over each other.
  function pale(own) {
    const paper = colour("--paper"), part = (text, i) => parseInt(text.slice(1 + 2 * i, 3 + 2 * i), 16);
    return `rgb(${[0, 1, 2].map((i) => Math.round(0.45 * part(own, i) + 0.55 * part(paper, i))).join(" ")})`;
  }
  const shortened = (value) => value === null || value === undefined ? "–" : String(Number(value.toPrecision(4)));
  // As `_text` of time_pages.py writes it.
  function told(value, unit) {
    if (unit !== "minutes" || value === null || value === undefined) return shortened(value);
    const said = (number, digits, name) => `${Number(number.toPrecision(digits))} ${name}`;
    return value < 1 ? said(60 * value, 2, "s") : value < 120 ? said(value, 3, "min") : said(value / 60, 3, "h");
  }
  const two = (number) => String(number).padStart(2, "0");

  function clock(seconds, step) {
    const at = new Date(1000 * seconds), time = `${two(at.getUTCHours())}:${two(at.getUTCMinutes())}`;
    return step < 3600 ? time : `${two(at.getUTCMonth() + 1)}-${two(at.getUTCDate())} ${time}`;
  }

  // Stacked lines are drawn from the highest sum to the lowest, each over the ones before it; words have the line's own value.
  function columns(chart) {
    if (!chart.is_stacked) return chart.lines.map((line) => line.values);
    const sums = [], below = new Array(chart.times.length).fill(0);
    for (const line of chart.lines) {
      sums.push(line.values.map((value, i) => value === null ? null : (below[i] += value)));
    }
    return sums;
  }

  function options(chart, width) {
    const order = chart.lines.map((_, i) => chart.is_stacked ? chart.lines.length - 1 - i : i);
    const first = chart.times[0], last = chart.times[chart.times.length - 1];
    const ink = colour("--faint"), grid = { stroke: colour("--line"), width: 1 };
    const series = order.map((i, place) => {
      const line = chart.lines[i], own = colour(`--vc-${line.number % 12}`);
      return {
        label: line.name, stroke: own, width: 2, spanGaps: false, points: { size: 5, fill: own },
        dash: DASHES[(Math.floor(line.number / 12) + (chart.is_stacked ? 0 : place)) % DASHES.length],
        fill: chart.is_stacked ? pale(own) : undefined,
        value: (_, __, ___, index) => told(index === null ? chart.lines[i].values.findLast((one) => one !== null) : chart.lines[i].values[index], chart.unit),
      };
    });
    return {
      width, height: HEIGHT, tzDate: (seconds) => uPlot.tzDate(new Date(1000 * seconds), "Etc/UTC"), padding: [8, 40, 0, 0], cursor: { points: { size: 6 } }, legend: { live: true },
      scales: { x: { range: () => [Math.min(first, last - LEAST_STEPS * chart.step), last] },
        y: { range: (_, __, most) => [0, chart.most ? Math.max(chart.most, most) * 1.02 : Math.max(most * 1.08, 1)] } },
      series: [{ label: "", value: (_, at) => at === null ? "last" : `${clock(at, 3600)} UTC` }, ...series],
      axes: [{ stroke: ink, grid, ticks: grid, values: (_, splits) => splits.map((at) => clock(at, chart.step)), space: chart.step < 3600 ? 60 : 90 },
        { stroke: ink, grid, ticks: grid, size: 56, values: (_, splits) => splits.map((one) => told(one, chart.unit)) }],
    };
  }

  function words(chart) {
    const parts = chart.lines.map((line) => {
      const known = line.values.filter((one) => one !== null);
      if (!known.length) return `${line.name}: nothing`;
      return `${line.name}: ${told(known[known.length - 1], chart.unit)} now, ${told(Math.min(...known), chart.unit)} to ${told(Math.max(...known), chart.unit)}`;
    });
    return `Chart${chart.unit === "minutes" ? "" : ` in ${chart.unit}`}. ${parts.join("; ")}`;
  }

  function draw(element, chart) {
    const before = drawn.get(element);
    if (before) before.plot.destroy(); else element.textContent = "";
    element.hidden = false;
    const values = columns(chart), ordered = chart.is_stacked ? values.reverse() : values;
    const plot = new uPlot(options(chart, Math.max(element.clientWidth, 200)), [chart.times, ...ordered], element);
    const picture = plot.root.querySelector(".u-wrap");
    picture.setAttribute("role", "img");
    picture.setAttribute("aria-label", words(chart));
    drawn.set(element, { plot, chart, text: before ? before.text : "" });
  }

  async function ask(element) {
    try {
      const answer = await fetch(element.dataset.source, { headers: { Accept: "application/json" } });
      if (!answer.ok) throw new Error(String(answer.status));
      const text = await answer.text(), before = drawn.get(element);
      element.classList.remove("is-old");
      if (before && before.text === text) return;
      const chart = JSON.parse(text);
      const isEmpty = !chart.lines.length || !chart.times.length;
      element.classList.toggle("is-empty", isEmpty);
      if (isEmpty) { element.textContent = "Nothing was sampled in this time."; return; }
      draw(element, chart);
      drawn.get(element).text = text;
    } catch {
      element.classList.add("is-old");
      if (!drawn.has(element)) setTable(element, true);
    }
  }

  // The table of a chart is open where no script runs. It is closed before anybody is in it, and not when its chart is drawn.
  function setTable(element, isOpen) {
    const table = document.getElementById(element.dataset.table || "");
    if (table) table.open = isOpen;
  }

  const charts = [...document.querySelectorAll(".chart[data-source]")];
  const seen = new Set();
  const watcher = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) seen.add(target); else seen.delete(target);
      if (isIntersecting && !drawn.has(target)) ask(target);
    }
  }, { rootMargin: "200px" });
  const resizer = new ResizeObserver((entries) => {
    for (const { target, contentRect } of entries) {
      const one = drawn.get(target);
      if (one && contentRect.width >= 200) one.plot.setSize({ width: contentRect.width, height: HEIGHT });
    }
  });
  for (const each of charts) {
    each.hidden = false;  // an element without a place is never seen
    setTable(each, false);
    watcher.observe(each);
    resizer.observe(each);
  }
  setInterval(() => { if (!document.hidden) seen.forEach(ask); }, EVERY_MS);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) seen.forEach(ask); });
  dark.addEventListener("change", () => drawn.forEach(({ chart }, element) => draw(element, chart)));
})();
