// Chart of one series: estimate with its interval, the reference, the truth where labels came, alarms as bands.
"use strict";
(function () {
  const place = document.getElementById("chart");
  if (!place) return;
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function traces(points) {
    const x = points.map((p) => p.start);
    const shown = (values) => values.map((v) => (v === null ? null : 100 * v));
    const known = points.filter((p) => p.truth !== null);
    const edge = { mode: "lines", line: { width: 0 }, hoverinfo: "skip", showlegend: false };
    const many = points.length > 120;
    const alone = points.length === 1; // lines and bands need two points
    return [
      { x, y: shown(points.map((p) => p.low)), ...edge },
      { x, y: shown(points.map((p) => p.high)), ...edge, fill: "tonexty", fillcolor: css("--band"), name: "interval", showlegend: true },
      { x, y: shown(points.map((p) => p.reference_accuracy)), mode: alone ? "markers" : "lines", name: "reference",
        line: { color: css("--muted"), dash: "dash", width: 1.2 }, hoverinfo: "skip",
        marker: { symbol: "line-ew-open", size: 40, color: css("--muted") } },
      { x, y: shown(points.map((p) => p.accuracy)), mode: many ? "lines" : "lines+markers", name: "estimate",
        line: { color: css("--accent"), width: 2 }, marker: { size: 5 },
        error_y: { visible: alone, symmetric: false, color: css("--accent"),
          array: points.map((p) => 100 * (p.high - p.accuracy)), arrayminus: points.map((p) => 100 * (p.accuracy - p.low)) },
        customdata: points.map((p) => [p.window, p.windows, p.rows, 100 * p.low, 100 * p.high]),
        hovertemplate: "%{y:.1f} % (%{customdata[3]:.1f} to %{customdata[4]:.1f})<br>%{customdata[2]:,} rows<extra>estimate</extra>" },
      { x: known.map((p) => p.start), y: shown(known.map((p) => p.truth)), mode: "markers", name: "with labels",
        marker: { color: css("--truth"), symbol: "diamond", size: 7 }, hovertemplate: "%{y:.1f} %<extra>with labels</extra>" },
    ];
  }

  function layout(points, alarms) {
    const last = points.length ? points[points.length - 1].start : null;
    const first = points.length ? points[0].start : null;
    const bands = alarms.filter((a) => !a.withdrawn && last && a.began <= last && (a.ended || last) >= first).map((a) => ({
      type: "rect", xref: "x", yref: "paper", y0: 0, y1: 1, x0: a.began < first ? first : a.began, x1: a.ended && a.ended < last ? a.ended : last,
      fillcolor: css("--alarm"), opacity: 0.1, line: { width: 0 }, layer: "below",
    }));
    const day = 86400000;
    const around = first && first === last && [-1, 1].map((k) => new Date(Date.parse(first) + k * day).toISOString());
    const axis = { gridcolor: css("--line"), linecolor: css("--line"), zeroline: false };
    return {
      paper_bgcolor: css("--paper"), plot_bgcolor: css("--paper"),
      font: { color: css("--ink"), family: "system-ui, sans-serif", size: 12 },
      margin: { l: 48, r: 16, t: 40, b: 40 }, hovermode: "closest", shapes: bands,
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
      xaxis: { ...axis, type: "date", ...(around ? { range: around } : {}) }, yaxis: { ...axis, ticksuffix: " %" },
    };
  }

  let found = null;
  function draw() {
    if (!found) return;
    Plotly.react(place, traces(found.points), layout(found.points, found.alarms), { responsive: true, displayModeBar: false });
  }

  fetch(place.dataset.series, { credentials: "same-origin" })
    .then((answer) => (answer.ok ? answer.json() : Promise.reject(new Error(answer.status))))
    .then((series) => {
      found = series;
      draw();
      place.on("plotly_click", (event) => {
        const point = event.points.find((p) => p.customdata);
        if (point) window.location.assign("/windows/" + Number(point.customdata[0]) + "/report");
      });
    })
    .catch(() => { place.textContent = "The series could not be loaded."; });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
