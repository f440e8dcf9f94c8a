// Chart of one series: estimate with its interval, the lines of the rules, the truth where labels came, versions, alarms.
"use strict";
(function () {
  const place = document.getElementById("chart");
  if (!place) return;
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const NAMES = { min_accuracy: "floor (min_accuracy)", max_drop: "floor (max_drop)", sequential: "floor of the test" };
  const DASHES = { min_accuracy: "solid", max_drop: "longdash", sequential: "dot" };
  const MOST_NAMED = 8; // versions; more of them are lines without names

  // Parts of the series without a gap; a window alone is as long as it lasts, so that lines and bands of it show.
  function parts(points) {
    const found = [];
    for (const p of points) {
      if (p.gap || !found.length) found.push([]);
      found.at(-1).push(p);
    }
    return found.map((part) => (part.length > 1 ? part : [part[0], { ...part[0], start: part[0].end }]));
  }

  // Values with an empty place before each gap, so that no line crosses it.
  function broken(points, value) {
    return points.flatMap((p) => (p.gap ? [null, value(p)] : [value(p)]));
  }

  function band(points, low, high, color, name, edge) {
    const x = [], y = [];
    for (const part of parts(points)) {
      const there = part.map((p) => p.start);
      x.push(...there, ...there.slice().reverse(), null);
      y.push(...part.map((p) => 100 * p[high]), ...part.map((p) => 100 * p[low]).reverse(), null);
    }
    return { x, y, name, mode: "lines", line: { width: edge || 0, color: css("--accent") }, hoverinfo: "skip", fill: "toself", fillcolor: color };
  }

  function traces({ points, labels, lines }) {
    const x = broken(points, (p) => p.start);
    const level = parts(points).flatMap((part) => [...part, null]);
    const many = points.length > 120;
    const grouped = points.some((p) => p.windows > 1);
    const alone = points.filter((p, k) => (k === 0 || p.gap) && (k + 1 === points.length || points[k + 1].gap));
    const ends = points.length ? [points[0].start, points.at(-1).end] : [];
    const about = (p) => [p.window, p.windows > 1 ? "mean of " + p.windows + " windows, " + (100 * p.lowest).toFixed(1) + " to " + (100 * p.highest).toFixed(1) + "%" : p.rows.toLocaleString("en") + " rows", 100 * p.low, 100 * p.high];
    const several = new Set(labels.map((l) => l.version)).size > 1;
    const estimate = { color: css("--accent"), width: 2 };
    const hover = { customdata: broken(points, about), hovertemplate: "%{x|%Y-%m-%d %H:%M}<br>%{y:.1f}% (%{customdata[2]:.1f} to %{customdata[3]:.1f})<br>%{customdata[1]}<extra></extra>" };
    return [
      band(points, "low", "high", css("--band"), "interval"),
      ...(grouped ? [band(points, "lowest", "highest", css("--band-inner"), "lowest to highest", 0.5)] : []),
      { x: level.map((p) => p && p.start), y: level.map((p) => p && 100 * p.reference_accuracy), mode: "lines", name: "reference",
        line: { color: css("--muted"), dash: "dash", width: 1.2 }, hoverinfo: "skip" },
      ...Object.entries(lines).map(([rule, value]) => ({ x: ends, y: ends.map(() => 100 * value), mode: "lines",
        name: (NAMES[rule] || rule) + " " + (100 * value).toFixed(1) + "%", hoverinfo: "skip",
        line: { color: css("--alarm"), dash: DASHES[rule] || "dashdot", width: 1.2 } })),
      { x, y: broken(points, (p) => 100 * p.accuracy), mode: many ? "lines" : "lines+markers", name: "estimate",
        line: estimate, marker: { size: 5 }, ...hover },
      ...(many && alone.length ? [{ x: alone.map((p) => p.start), y: alone.map((p) => 100 * p.accuracy), mode: "markers",
        name: "estimate", showlegend: false, marker: { size: 5, color: css("--accent") }, customdata: alone.map(about), hovertemplate: hover.hovertemplate }] : []),
      ...(labels.length ? [{ x: labels.map((l) => l.start), y: labels.map((l) => 100 * l.truth), mode: "markers", name: "with labels",
        marker: { color: css("--truth"), symbol: "diamond", size: many ? 5 : 7 },
        text: labels.map((l) => l.rows.toLocaleString("en") + " labels" + (several ? ", version " + l.version : "")),
        hovertemplate: "%{x|%Y-%m-%d %H:%M}<br>%{y:.1f}%<br>%{text}<extra>with labels</extra>" }] : []),
    ].map((trace) => ({ ...trace, text: trace.text && trace.text.map(plain) }));
  }

  // Plotly reads some markup in texts; names of versions are text.
  function plain(text) {
    return text.replace(/&/g, "&amp;").replace(/</g, "&lt;");
  }

  function layout({ points, alarms, versions }) {
    const first = points.length ? points[0].start : null;
    const last = points.length ? points.at(-1).end : null;
    const bands = alarms.filter((a) => !a.withdrawn && last && a.began <= last && (a.ended || last) >= first).map((a) => ({
      type: "rect", xref: "x", yref: "paper", y0: 0, y1: 1, x0: a.began < first ? first : a.began, x1: a.ended && a.ended < last ? a.ended : last,
      fillcolor: css("--alarm"), opacity: 0.1, line: { width: 0 }, layer: "below",
    }));
    const changes = versions.slice(1);
    const marks = changes.map((v) => ({ type: "line", xref: "x", yref: "paper", x0: v.start, x1: v.start, y0: 0, y1: 1,
      line: { color: css("--ink"), width: 1, dash: "dot" } }));
    const named = changes.slice(-MOST_NAMED).map((v) => ({ xref: "x", yref: "paper", x: v.start, y: 1, xanchor: "left", yanchor: "top",
      showarrow: false, text: plain("version " + v.version.slice(0, 20)), font: { size: 11, color: css("--muted") } }));
    const axis = { gridcolor: css("--line"), linecolor: css("--line"), zeroline: false };
    return {
      paper_bgcolor: css("--paper"), plot_bgcolor: css("--paper"),
      font: { color: css("--ink"), family: "system-ui, sans-serif", size: 12 },
      margin: { l: 48, r: 16, t: 20, b: 40 }, hovermode: "closest", shapes: [...bands, ...marks], annotations: named,
      showlegend: false,
      xaxis: { ...axis, type: "date", title: { text: place.dataset.zone === "UTC" ? "" : place.dataset.zone } }, yaxis: { ...axis, ticksuffix: "%" },
    };
  }

  // Key below the chart, as text that wraps and that screen readers read.
  function key(drawn) {
    const list = document.getElementById("chart-key");
    list.replaceChildren(...drawn.filter((t) => t.showlegend !== false).map((t) => {
      const item = document.createElement("li"), mark = document.createElement("span");
      const dash = { solid: "solid", dash: "dashed", longdash: "dashed", dot: "dotted" };
      if (t.fillcolor) Object.assign(mark.style, { background: t.fillcolor, height: "10px" });
      else if (t.mode === "markers") Object.assign(mark.style, { background: t.marker.color, width: "8px", height: "8px", transform: "rotate(45deg)" });
      else mark.style.borderTop = Math.max(t.line.width, 1.5) + "px " + (dash[t.line.dash] || "solid") + " " + t.line.color;
      item.append(mark, t.name);
      return item;
    }));
  }

  let found = null;
  function draw() {
    if (!found) return null;
    const drawn = traces(found);
    key(drawn);
    return Plotly.react(place, drawn, layout(found), { responsive: true, displayModeBar: false });
  }

  fetch(place.dataset.series, { credentials: "same-origin" })
    .then((answer) => (answer.ok ? answer.json() : Promise.reject(new Error(answer.status))))
    .then((series) => {
      found = series;
      performance.mark("chart");
      return draw();
    })
    .then(() => {
      performance.measure("chart", "chart");
      place.on("plotly_click", (event) => {
        const point = event.points.find((p) => p.customdata);
        if (point) window.location.assign("/windows/" + Number(point.customdata[0]));
      });
    })
    .catch(() => { place.textContent = "The series could not be loaded."; });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
