// Chart of one series: estimate with its interval, the lines of the rules, the truth where labels came, versions, alarms.
"use strict";
(function () {
  const place = document.getElementById("chart");
  if (!place) return;
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const NAMES = { min_accuracy: "floor (min_accuracy)", max_drop: "floor (max_drop)", sequential: "floor of the test" };
  const DASHES = { min_accuracy: [], max_drop: [12, 4], sequential: [2, 4] };
  const MOST_NAMED = 8; // versions; more of them are lines without names
  const MANY = 120; // points; of more only those that stand alone have a mark
  // Formats of the time axis by its step in seconds: of every tick, and what is added where a year or a day begins.
  const DATES = [
    [31536000, "{YYYY}", null, null, null, null, null, null, 1],
    [2419200, "{YYYY}-{MM}", null, null, null, null, null, null, 1],
    [86400, "{MM}-{DD}", "\n{YYYY}", null, null, null, null, null, 1],
    [60, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1],
  ];
  const seconds = (time) => Date.parse(time) / 1000;
  const percent = (share) => (100 * share).toFixed(1) + "%";

  // Columns of the chart by name: one place in time for each point, an empty one before each gap, and those of labels.
  function columns({ points, labels, lines }) {
    const rows = [];
    points.forEach((p, k) => {
      const alone = (k === 0 || p.gap) && (k + 1 === points.length || points[k + 1].gap);
      if (p.gap) rows.push({ x: seconds(points[k - 1].end) });
      rows.push({ x: seconds(p.start), point: p, alone, accuracy: p.accuracy, low: p.low, high: p.high, lowest: p.lowest, highest: p.highest, reference: p.reference_accuracy, free: p.label_free, last: p.last_known ?? undefined });
      // A window alone is as wide as it lasts, so that its interval shows.
      if (alone) rows.push({ x: seconds(p.end), low: p.low, high: p.high, lowest: p.lowest, highest: p.highest, reference: p.reference_accuracy });
    });
    labels.forEach((l) => rows.push({ x: seconds(l.start), label: l, truth: l.truth, beside: true }));
    rows.sort((a, b) => a.x - b.x);
    // Labels at the time of a point share its place; uPlot draws a line across the places that only labels have.
    const merged = [];
    for (const row of rows) {
      const last = merged.at(-1);
      if (row.beside && last && last.x === row.x && !last.label) Object.assign(last, { label: row.label, truth: row.truth });
      else merged.push({ ...row });
    }
    const column = (name) => merged.map((row) => (row[name] === undefined ? (row.beside ? undefined : null) : 100 * row[name]));
    const drawn = [
      { name: "interval", values: column("high"), band: "low", fill: "--band" },
      { name: "low", values: column("low"), hidden: true },
    ];
    if (points.some((p) => p.windows > 1)) {
      drawn.push({ name: "lowest to highest", values: column("highest"), band: "lowest", fill: "--band-inner", stroke: "--accent", width: 0.5 });
      drawn.push({ name: "lowest", values: column("lowest"), hidden: true, stroke: "--accent", width: 0.5 });
    }
    drawn.push({ name: "reference", values: column("reference"), stroke: "--muted", width: 1.2, dash: [6, 4] });
    // What the estimate would be without labels, and what one would guess from them alone, once labels are known.
    if (points.some((p) => p.last_known !== null)) {
      drawn.push({ name: "without labels", values: column("free"), stroke: "--accent", width: 1.2, dash: [3, 3] });
      drawn.push({ name: "last known accuracy", values: column("last"), stroke: "--truth", width: 1.2, dash: [3, 3] });
    }
    for (const [rule, value] of Object.entries(lines)) {
      drawn.push({ name: (NAMES[rule] || rule) + " " + percent(value), values: merged.map(() => 100 * value), stroke: "--alarm", width: 1.2, dash: DASHES[rule] || [8, 3, 2, 3] });
    }
    const marks = (u, series, show) => (points.length > MANY ? merged.flatMap((row, k) => (row.alone && row.point ? [k] : [])) : show ? null : []);
    drawn.push({ name: "estimate", values: column("accuracy"), stroke: "--accent", width: 2, points: { show: true, size: 6, filter: marks } });
    if (labels.length) {
      drawn.push({ name: "with labels", values: merged.map((row) => (row.truth === undefined ? null : 100 * row.truth)), stroke: "--truth", width: 0, mark: true, points: { show: true, size: points.length > MANY ? 5 : 8, fill: css("--truth") } });
    }
    return { merged, drawn, x: merged.map((row) => row.x) };
  }

  // What the pointer is on, as text.
  function about(row, zone) {
    const clock = new Intl.DateTimeFormat("sv-SE", { timeZone: zone, dateStyle: "short", timeStyle: "short" });
    const parts = [clock.format(new Date(1000 * row.x))];
    if (row.point) {
      const p = row.point;
      parts.push(percent(p.accuracy) + " (" + percent(p.low) + " to " + percent(p.high) + ")");
      parts.push(p.windows > 1 ? "mean of " + p.windows + " windows, " + percent(p.lowest) + " to " + percent(p.highest) : p.rows.toLocaleString("en") + " rows");
      if (p.last_known !== null) parts.push("without labels " + percent(p.label_free) + ", last known " + percent(p.last_known));
    }
    if (row.label) parts.push("with labels " + percent(row.label.truth) + ", " + row.label.rows.toLocaleString("en") + " labels, version " + row.label.version);
    return parts.join(" · ");
  }

  // Alarms as areas, versions as lines with names; they are drawn into the chart.
  function areas(series) {
    const first = series.points.length ? seconds(series.points[0].start) : 0;
    const last = series.points.length ? seconds(series.points.at(-1).end) : 0;
    const alarms = series.alarms.filter((a) => !a.withdrawn)
      .map((a) => [Math.max(seconds(a.began), first), Math.min(a.ended ? seconds(a.ended) : last, last)])
      .filter(([from, to]) => from <= to && from <= last && to >= first);
    const versions = series.versions.slice(1).map((v) => ({ x: seconds(v.start), name: "version " + v.version.slice(0, 20) }));
    return { alarms, versions };
  }

  function plugin({ alarms, versions }) {
    return {
      hooks: {
        drawClear: (u) => {
          u.ctx.save();
          u.ctx.globalAlpha = 0.12;
          u.ctx.fillStyle = css("--alarm");
          for (const [from, to] of alarms) {
            const left = u.valToPos(from, "x", true);
            u.ctx.fillRect(left, u.bbox.top, Math.max(u.valToPos(to, "x", true) - left, 2), u.bbox.height);
          }
          u.ctx.restore();
        },
        draw: (u) => {
          u.ctx.save();
          u.ctx.strokeStyle = css("--ink");
          u.ctx.fillStyle = css("--muted");
          u.ctx.font = 11 * devicePixelRatio + "px system-ui, sans-serif";
          u.ctx.setLineDash([2, 3]);
          versions.forEach((version, k) => {
            const left = u.valToPos(version.x, "x", true);
            u.ctx.beginPath();
            u.ctx.moveTo(left, u.bbox.top);
            u.ctx.lineTo(left, u.bbox.top + u.bbox.height);
            u.ctx.stroke();
            if (k >= versions.length - MOST_NAMED) u.ctx.fillText(version.name, left + 4, u.bbox.top + 12 * devicePixelRatio);
          });
          u.ctx.restore();
        },
      },
    };
  }

  // Key below the chart, as text that wraps and that screen readers read.
  function key(drawn, versions) {
    const list = document.getElementById("chart-key");
    list.replaceChildren(...drawn.filter((s) => !s.hidden).map((s) => {
      const item = document.createElement("li"), mark = document.createElement("span");
      if (s.fill) Object.assign(mark.style, { background: css(s.fill), height: "10px" });
      else if (s.mark) Object.assign(mark.style, { background: css(s.stroke), width: "8px", height: "8px", borderRadius: "4px" });
      else mark.style.borderTop = Math.max(s.width, 1.5) + "px " + (!s.dash || !s.dash.length ? "solid" : s.dash[0] > 4 ? "dashed" : "dotted") + " " + css(s.stroke);
      item.append(mark, s.name);
      return item;
    }));
    if (versions.length) {
      const item = document.createElement("li");
      item.append(versions.slice(-MOST_NAMED).map((v) => v.name).join(", "));
      list.append(item);
    }
  }

  let series = null, chart = null;
  function draw() {
    if (!series) return;
    const { merged, drawn, x } = columns(series);
    const more = areas(series);
    const zone = place.dataset.zone;
    key(drawn, more.versions);
    const number = (name) => 1 + drawn.findIndex((s) => s.name === name);
    const axis = { stroke: css("--ink"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line"), width: 1 }, font: "12px system-ui, sans-serif" };
    const options = {
      width: place.clientWidth, height: place.clientHeight, legend: { show: false }, plugins: [plugin(more)],
      tzDate: (time) => uPlot.tzDate(new Date(1000 * time), zone),
      scales: { x: { time: true }, y: { range: (u, low, high) => [Math.max(Math.floor(low / 5 - 0.05) * 5, 0), Math.min(Math.ceil(high / 5 + 0.05) * 5, 101)] } },
      axes: [{ ...axis, values: DATES, label: zone === "UTC" ? null : zone, labelSize: 20 }, { ...axis, size: 52, values: (u, values) => values.map((v) => v + "%") }],
      cursor: { points: { size: 8 }, drag: { x: true, y: false } },
      series: [{}, ...drawn.map((s) => ({
        label: s.name, stroke: s.stroke ? css(s.stroke) : "transparent", width: s.width || 0, dash: s.dash, spanGaps: false, points: s.points || { show: false },
        ...(s.mark ? { paths: () => null } : {}),
      }))],
      bands: drawn.filter((s) => s.band).map((s) => ({ series: [number(s.name), number(s.band)], fill: css(s.fill) })),
      hooks: { setCursor: [(u) => { tip.textContent = u.cursor.idx === null || u.cursor.left < 0 ? "" : about(merged[u.cursor.idx], zone); }] },
    };
    if (chart) chart.destroy();
    place.replaceChildren();
    const tip = document.createElement("div");
    tip.className = "tip";
    chart = new uPlot(options, [x, ...drawn.map((s) => s.values)], place);
    place.append(tip);
    let pressed = null;
    chart.over.addEventListener("mousedown", (event) => { pressed = event.clientX; });
    chart.over.addEventListener("click", (event) => {
      if (Math.abs(event.clientX - pressed) > 4) return; // the end of a zoom
      const near = chart.posToIdx(event.offsetX);
      const at = [near, near - 1, near + 1].map((k) => merged[k]).find((row) => row && row.point);
      if (at) window.location.assign("/windows/" + Number(at.point.window));
    });
    place.drawn = { series: Object.fromEntries(drawn.map((s) => [s.name, { x, y: s.values }])), ...more, chart };
    place.dataset.state = "drawn";
  }

  // Recall, precision and F1 that rules name: a chart of each, beneath the one of the accuracy.
  const beneath = [];
  function drawMeasures() {
    const zone = place.dataset.zone, section = document.getElementById("measures");
    beneath.splice(0).forEach((one) => one.destroy());
    section.replaceChildren();
    section.hidden = !series.measures.some((m) => m.points.length);
    for (const one of series.measures.filter((m) => m.points.length)) {
      const name = { recall: "Recall", precision: "Precision", f1: "F1" }[one.measure] + " of " + one.class;
      const figure = document.createElement("figure"), caption = document.createElement("figcaption"), box = document.createElement("div");
      const newest = one.points.at(-1);
      caption.textContent = name + ": " + percent(newest.value) + " (" + percent(newest.low) + " to " + percent(newest.high) + ") in the newest window, least " + percent(one.least);
      box.className = "chart small";
      box.setAttribute("role", "img");
      box.setAttribute("aria-label", caption.textContent);
      figure.append(caption, box);
      section.append(figure);
      const axis = { stroke: css("--ink"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line"), width: 1 }, font: "12px system-ui, sans-serif" };
      const values = (key) => one.points.map((p) => 100 * p[key]);
      beneath.push(new uPlot({
        width: box.clientWidth, height: box.clientHeight, legend: { show: false },
        tzDate: (time) => uPlot.tzDate(new Date(1000 * time), zone),
        scales: { x: { time: true }, y: { range: [0, 101] } },
        axes: [{ ...axis, values: DATES }, { ...axis, size: 52, values: (u, ticks) => ticks.map((v) => v + "%") }],
        series: [{}, { label: "high" }, { label: "low" }, { label: name, stroke: css("--accent"), width: 2 }, { label: "least", stroke: css("--alarm"), width: 1.2, points: { show: false } }],
        bands: [{ series: [1, 2], fill: css("--band") }],
      }, [one.points.map((p) => seconds(p.start)), values("high"), values("low"), values("value"), one.points.map(() => 100 * one.least)], box));
    }
  }

  fetch(place.dataset.series, { credentials: "same-origin" })
    .then((answer) => (answer.ok ? answer.json() : Promise.reject(new Error(answer.status))))
    .then((found) => {
      series = found;
      performance.mark("chart");
      draw();
      drawMeasures();
      performance.measure("chart", "chart");
      new ResizeObserver(() => {
        chart.setSize({ width: place.clientWidth, height: place.clientHeight });
        beneath.forEach((one) => one.setSize({ width: one.root.parentElement.clientWidth, height: one.root.parentElement.clientHeight }));
      }).observe(place);
    })
    .catch(() => { place.textContent = "The series could not be loaded."; });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { draw(); if (series) drawMeasures(); });
})();
