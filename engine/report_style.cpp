#include "engine/report_style.h"

namespace triax {

// Blue, orange and green stay apart for colour-blind readers.
const char* const report_style = R"(
:root { color-scheme: light dark; --page: #f5f5f2; --card: #fff; --ink: #1d1d1b; --soft: #65645f; --rule: #e4e3dd;
  --c1: #2a78d6; --c2: #d9581c; --c3: #2f8f5b; --c4: #8a5bc7; --good: #2f8f5b; --bad: #c5303c; --warn: #a86a00; --tint: #eef4fc; }
@media (prefers-color-scheme: dark) {
  :root { --page: #161615; --card: #20201e; --ink: #ecebe6; --soft: #a3a29b; --rule: #383834;
    --c1: #5a9df0; --c2: #f08a4f; --c3: #5cc08a; --c4: #b692ea; --good: #5cc08a; --bad: #ff7b85; --warn: #e0a94a; --tint: #1f2a38; }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 28px 20px 48px; }
header h1 { font-size: 28px; line-height: 1.2; margin: 0 0 4px; overflow-wrap: anywhere; }
header p { margin: 0; color: var(--soft); overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 36px 0 12px; }
h3 { font-size: 15px; margin: 18px 0 8px; }
.state { display: inline-block; font-size: 13px; font-weight: 600; line-height: 22px; padding: 0 10px; border-radius: 11px; border: 1px solid currentColor;
  vertical-align: middle; margin-left: 10px; color: var(--soft); }
.state.running { color: var(--c1); } .state.finished { color: var(--good); } .state.fault { color: var(--bad); } .state.stopped { color: var(--warn); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(220px, 1fr)); gap: 12px; margin: 22px 0 0; }
.tile, figure, .card { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; }
.tile { padding: 12px 14px; }
.tile span { display: block; color: var(--soft); font-size: 13px; }
.tile b { display: block; font-size: 22px; line-height: 1.3; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.charts { display: grid; grid-template-columns: 1fr 1fr; gap: 16px; }
.charts figure:first-child { grid-column: 1 / -1; }
.charts figure:first-child .plot { height: 300px; }
.charts figure:last-child:nth-child(even) { grid-column: 1 / -1; }
figure { margin: 0; padding: 14px 16px 12px; min-width: 0; }
figcaption strong { font-weight: 600; } figcaption small { color: var(--soft); font-size: 13px; }
.keys { font-size: 13px; color: var(--soft); min-height: 20px; }
.key { margin-right: 16px; white-space: nowrap; } .key b { color: var(--ink); font-weight: 600; font-variant-numeric: tabular-nums; }
.key i { display: inline-block; width: 14px; height: 3px; border-radius: 2px; vertical-align: middle; margin-right: 6px; }
.k1 { background: var(--c1); } .k2 { background: var(--c2); } .k3 { background: var(--c3); } .k4 { background: var(--c4); }
.plot { position: relative; height: 210px; margin: 12px 10px 26px 48px; touch-action: pan-y; }
.plot svg { display: block; width: 100%; height: 100%; overflow: visible; }
.plot svg * { vector-effect: non-scaling-stroke; fill: none; stroke-linejoin: round; stroke-linecap: round; }
.rule { stroke: var(--rule); stroke-width: 1; } .mark { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 3 4; }
.s1, .s2, .s3, .s4 { stroke-width: 1.8; } .s1 { stroke: var(--c1); } .s2 { stroke: var(--c2); } .s3 { stroke: var(--c3); } .s4 { stroke: var(--c4); }
.d1, .d2, .d3, .d4 { stroke-width: 7; } .d1 { stroke: var(--c1); } .d2 { stroke: var(--c2); } .d3 { stroke: var(--c3); } .d4 { stroke: var(--c4); }
.plot svg .a1 { fill: var(--c1); fill-opacity: .35; } .plot svg .a2 { fill: var(--c2); fill-opacity: .35; }
.plot span { position: absolute; color: var(--soft); font-size: 12px; line-height: 14px; white-space: nowrap; font-variant-numeric: tabular-nums; }
.plot .y { right: 100%; margin-right: 8px; transform: translateY(-50%); }
.plot .x { top: 100%; margin-top: 8px; transform: translateX(-50%); }
.plot .line { position: absolute; top: 0; bottom: 0; width: 1px; background: var(--soft); pointer-events: none; }
.plot .tip { position: absolute; top: 0; padding: 4px 8px; background: var(--card); border: 1px solid var(--rule); border-radius: 6px; font-size: 12px; line-height: 1.45;
  white-space: nowrap; pointer-events: none; box-shadow: 0 2px 8px rgba(0, 0, 0, .15); z-index: 1; }
.card { padding: 4px 0; min-width: 0; }
.card > p { margin: 10px 16px; }
.note { color: var(--soft); font-size: 14px; margin: 8px 0; }
.table { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { text-align: left; padding: 6px 14px; vertical-align: top; }
th { color: var(--soft); font-weight: 500; font-size: 13px; border-bottom: 1px solid var(--rule); white-space: nowrap; }
td { border-bottom: 1px solid var(--rule); } tbody tr:last-child td { border-bottom: 0; }
.table td { white-space: nowrap; } .table td.long { white-space: normal; min-width: 180px; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
code, .mono { font-family: ui-monospace, "SF Mono", "DejaVu Sans Mono", monospace; font-size: 13px; overflow-wrap: anywhere; }
.changed td { background: var(--tint); } .changed td:first-child { box-shadow: inset 3px 0 var(--c1); }
.section td { font-weight: 600; padding-top: 14px; }
.good { color: var(--good); } .bad { color: var(--bad); } .soft { color: var(--soft); }
.total td { font-weight: 600; }
.meter { display: inline-block; width: 90px; height: 8px; border-radius: 4px; background: var(--rule); overflow: hidden; vertical-align: middle; }
.meter i { display: block; height: 100%; background: var(--c1); }
.wide { overflow-x: auto; background: #fff; border-radius: 10px; border: 1px solid var(--rule); padding: 8px; color: #000; }
.wide svg { display: block; min-width: 760px; width: 100%; height: auto; }
.two { display: grid; grid-template-columns: 1fr 1fr; gap: 16px; align-items: start; } .two > div { min-width: 0; }
footer { margin-top: 36px; color: var(--soft); font-size: 13px; overflow-wrap: anywhere; }
@media (max-width: 760px) {
  main { padding: 18px 12px 32px; }
  header h1 { font-size: 23px; } .state { margin-left: 0; }
  .charts, .two { grid-template-columns: 1fr; gap: 12px; }
  .tiles { grid-template-columns: 1fr 1fr; gap: 8px; } .tile b { font-size: 18px; }
  .charts figure:first-child .plot { height: 240px; } figure { padding: 12px 12px 10px; } .plot { margin-left: 42px; }
  th, td { padding: 6px 10px; }
}
@media print {
  :root { color-scheme: light; --page: #fff; --card: #fff; --ink: #000; --soft: #444; --rule: #ccc; --c1: #1f5fae; --c2: #b8430f; --c3: #23724a; --c4: #6a3fa8;
    --good: #23724a; --bad: #a01f2a; --warn: #7a4d00; --tint: #f1f1f1; }
  @page { margin: 14mm; }
  body { font-size: 11px; print-color-adjust: exact; -webkit-print-color-adjust: exact; } main { max-width: none; padding: 0; }
  header h1 { font-size: 22px; } h2 { font-size: 15px; margin: 20px 0 8px; } table { font-size: 10px; } th, td { padding: 3px 8px; } code, .mono { font-size: 9.5px; }
  h2, h3 { break-after: avoid; } figure, .tile, tr, .wide { break-inside: avoid; } .table, .wide { overflow: visible; } .table td { white-space: normal; } .table td.n { white-space: nowrap; }
  .charts, .two { grid-template-columns: 1fr 1fr; gap: 10px; } .tiles { grid-template-columns: repeat(4, 1fr); gap: 8px; } .tile b { font-size: 16px; }
  .meter { width: 56px; } .plot { height: 150px; } .charts figure:first-child .plot { height: 210px; } .wide svg { min-width: 0; }
}
)";

// Without "<" and "&", so that the page is XML too.
const char* const report_script = R"(
document.querySelectorAll(".plot").forEach(function (plot) {
  var xs = plot.dataset.x.split(" ").map(Number), ys = plot.dataset.y.split(" ").map(Number);
  var lines = Array.from(plot.querySelectorAll("polyline")).reverse().map(function (line) {
    return { name: line.dataset.name, points: line.getAttribute("points").split(" ").map(function (pair) {
      return pair.split(",").map(Number);
    }) };
  });
  var rule = document.createElement("div"), tip = document.createElement("div");
  rule.className = "line"; tip.className = "tip"; rule.hidden = tip.hidden = true;
  plot.append(rule, tip);
  function value(y) {
    var share = 1 - y / 1000;
    return plot.dataset.log ? ys[0] * Math.pow(ys[1] / ys[0], share) : ys[0] + share * (ys[1] - ys[0]);
  }
  function nearest(points, x) {
    return points.reduce(function (best, p) { return Math.abs(best[0] - x) > Math.abs(p[0] - x) ? p : best; });
  }
  plot.addEventListener("pointermove", function (event) {
    var box = plot.getBoundingClientRect(), at = (event.clientX - box.left) / box.width;
    if (0 > at || at > 1) { rule.hidden = tip.hidden = true; return; }
    var found = nearest(lines[0].points, 1000 * at), below = 0;
    rule.hidden = tip.hidden = false;
    rule.style.left = found[0] / 10 + "%";
    tip.textContent = "step " + Math.round(xs[0] + found[0] / 1000 * (xs[1] - xs[0]));
    lines.forEach(function (line) {
      var row = document.createElement("div"), here = value(nearest(line.points, found[0])[1]);
      row.textContent = line.name + " " + Number((here - below).toPrecision(4));
      if (plot.dataset.stacked) below = here;
      tip.append(row);
    });
    tip.style.left = at > 0.5 ? "" : found[0] / 10 + 1 + "%";
    tip.style.right = at > 0.5 ? 101 - found[0] / 10 + "%" : "";
  });
  plot.addEventListener("pointerleave", function () { rule.hidden = tip.hidden = true; });
});
)";

}  // namespace triax
