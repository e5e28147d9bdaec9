"""How a report looks: light and dark, on a screen and on paper."""

__all__ = ["STYLE"]

STYLE = """
:root { color-scheme: light dark;
  --paper: #f6f7f9; --card: #ffffff; --ink: #1b2430; --soft: #5b6776; --line: #dfe4ea;
  --a: #2f6fde; --b: #d9822b; --c: #2a9d8f; --change: #c2410c; --know: #2f6fde; --good: #2e7d4f; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #12161c; --card: #1a2029; --ink: #e6eaf0; --soft: #96a2b2; --line: #2b3441;
  --a: #6ea3ff; --b: #f0a55a; --c: #5cc7ba; --change: #ff9b6a; --know: #6ea3ff; --good: #6fd09a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); overflow-wrap: anywhere;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 26px; margin: 0 0 2px; letter-spacing: -.01em; } h2 { font-size: 21px; margin: 44px 0 4px; }
h3 { font-size: 14px; margin: 0 0 8px; font-weight: 600; } p { margin: 0 0 10px; }
.soft, figcaption { color: var(--soft); } figcaption { font-size: 12.5px; margin-top: 6px; }
code, .mono { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: .92em; }
a { color: var(--a); text-decoration: none; } a:hover { text-decoration: underline; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 20px 0; }
.tile, .card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 14px 16px; }
.tile b { display: block; font-size: 22px; font-weight: 650; letter-spacing: -.02em; }
.tile span { color: var(--soft); }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr));
  gap: 14px; margin-top: 14px; }
figure { margin: 0; min-width: 0; container-type: inline-size; } .wide { grid-column: 1 / -1; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 500; color: var(--soft); font-size: 12.5px; padding: 4px 10px 4px 0;
  white-space: nowrap; }
td { padding: 5px 10px 5px 0; border-top: 1px solid var(--line); white-space: nowrap; } .n { text-align: right; }
td.key { max-width: 200px; overflow: hidden; text-overflow: ellipsis; }
td.topic { white-space: normal; min-width: 140px; max-width: 360px; }
.track { position: relative; width: 120px; height: 9px; background: var(--line); border-radius: 5px;
  display: inline-block; }
.track i { position: absolute; inset: 0 auto 0 0; background: var(--a); border-radius: 5px; }
.track i.hot { background: var(--b); }
ul.advice { list-style: none; margin: 0; padding: 0; }
ul.advice li { padding: 7px 0 7px 14px; border-left: 3px solid var(--line); margin: 6px 0; }
 ul.advice li.change { border-color: var(--change); } ul.advice li.know { border-color: var(--know); }
ul.advice li.good { border-color: var(--good); } .tag { font-size: 12px; font-weight: 600; margin-right: 6px; }
.change .tag { color: var(--change); } .know .tag { color: var(--know); } .good .tag { color: var(--good); }
svg { display: block; width: 100%; height: auto; overflow: visible; } svg text { fill: var(--soft); font-size: 11px; }
svg line { stroke: var(--line); } svg .a { fill: var(--a); } svg .b { fill: var(--b); } svg .c { fill: var(--c); }
svg .area { opacity: .75; } svg .hit { fill: transparent; } svg .hit:hover { fill: var(--ink); opacity: .12; }
svg rect:hover { opacity: .8; } svg.spark { width: 120px; height: 24px; }
td.cell { text-align: right; padding: 5px 10px; background: color-mix(in srgb, var(--c) var(--how, 0%), transparent); }
td.now { outline: 2px solid var(--a); outline-offset: -2px; border-radius: 4px; } td.best { font-weight: 700; }
@container (max-width: 440px) { svg text { font-size: 17px; } .track { width: 60px; } td.key { max-width: 110px; } }
footer { margin-top: 50px; color: var(--soft); font-size: 13px; }
@media print { body { background: #fff; } .card, .tile { break-inside: avoid; } }
"""
