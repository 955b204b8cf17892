"""How the report's page looks: wide and narrow, light and dark, and on paper."""

STYLES = """\
:root { --ink: #1d2733; --soft: #55626f; --line: #dde3ea; --paper: #ffffff; --tint: #f2f5f8;
  --accent: #1a66a6; --bar: #8fbde2; --lost: #c9d2db; --up: #2f7fc1; --down: #cf6a1c;
  --warn: #8a5a00; --warn-tint: #fff6e0; color-scheme: light dark; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e9ef; --soft: #a4b1be; --line: #323c47; --paper: #14181d; --tint: #1f262e;
    --accent: #7fbcf0; --bar: #3f79ab; --lost: #46515c; --up: #5aa5e2; --down: #e08a45;
    --warn: #e0b050; --warn-tint: #2c2515; }
  figure img { filter: invert(.9) hue-rotate(180deg); }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink); line-height: 1.55;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, "DejaVu Sans",
  sans-serif; font-size: 1rem; }
main { max-width: 58rem; margin: 0 auto; padding: 2.2rem 1.2rem 4rem; }
header { border-bottom: 2px solid var(--ink); padding-bottom: 1rem; margin-bottom: 1.4rem; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 .4rem; letter-spacing: -.01em; }
h1, h2, h3 { overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.6rem 0 .6rem; padding-top: .2rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 .3rem; }
p { margin: .6rem 0; max-width: 46rem; overflow-wrap: break-word; }
.soft, figcaption, .note { color: var(--soft); font-size: .9rem; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .8rem;
  margin: 1.4rem 0; }
.fact { background: var(--tint); border-radius: .5rem; padding: .8rem 1rem; }
.fact b { display: block; font-size: 1.5rem; line-height: 1.25;
  font-variant-numeric: tabular-nums; }
.fact span { color: var(--soft); font-size: .85rem; }
.warning { background: var(--warn-tint); border-left: 4px solid var(--warn); padding: .6rem 1rem;
  margin: 1rem 0; border-radius: 0 .4rem .4rem 0; }
.warning p { margin: .2rem 0; }
figure { margin: 1rem 0 1.4rem; }
figure img { display: block; max-width: 100%; height: auto; margin: 0 auto; }
figcaption { margin-top: .5rem; max-width: 46rem; }
figure > picture img { width: 40rem; }
.side { display: grid; grid-template-columns: repeat(auto-fit, minmax(19rem, 1fr)); gap: .8rem; }
.side img { margin: 0; }
.wide { overflow-x: auto; }
.wide:focus-visible, pre:focus-visible { outline: 2px solid var(--accent); }
table { border-collapse: collapse; width: 100%; font-size: .93rem; margin: .6rem 0;
  font-variant-numeric: tabular-nums; }
th, td { padding: .38rem .6rem; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap; vertical-align: top; }
thead th { color: var(--soft); font-weight: 600; border-bottom: 1px solid var(--soft);
  white-space: normal; vertical-align: bottom; }
th:first-child { text-align: left; white-space: normal; padding-left: 0; }
tbody th { font-weight: 500; overflow-wrap: anywhere; }
td.words { white-space: normal; }
tr.lost th, tr.lost td { color: var(--soft); }
.ranking tbody th { width: 40%; }
.bar { position: relative; display: block; height: .55rem; margin: .3rem 0 .1rem;
  background: var(--tint); border-radius: .15rem; }
.bar i { position: absolute; top: 0; bottom: 0; background: var(--bar); border-radius: .15rem; }
tr.lost .bar i { background: var(--lost); }
.bar u { position: absolute; top: .23rem; height: 2px; background: var(--accent); }
tr.lost .bar u { background: var(--soft); }
.bar s { position: absolute; top: -.1rem; bottom: -.1rem; width: 1px; background: var(--soft); }
.row { border: 1px solid var(--line); border-radius: .5rem; padding: .2rem 1rem .6rem;
  margin: 1rem 0; }
.row h3 { margin-top: .7rem; } .row p { margin: .2rem 0 .5rem; }
.steps th:first-child { width: 34%; } .steps .value { color: var(--soft); font-weight: 400; }
.unseen { position: absolute; clip-path: inset(50%); width: 1px; height: 1px; overflow: hidden; }
.steps td.track { width: 40%; padding-left: 0; padding-right: 0; }
.steps .bar { background: none; height: 1rem; margin: .15rem 0; }
.steps .up { background: var(--up); } .steps .down { background: var(--down); }
.steps .bar i { min-width: 1px; }
.steps .at { width: 3px; margin-left: -1px; background: var(--ink); border-radius: 0; }
.steps tr.level th, .steps tr.level td { font-weight: 700; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1.2rem; margin: .6rem 0;
  font-size: .93rem; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; min-width: 0; }
pre { background: var(--tint); padding: .8rem 1rem; border-radius: .4rem; overflow-x: auto;
  font-size: .85rem; line-height: 1.5; }
code { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
details { margin: .8rem 0; } summary { cursor: pointer; color: var(--accent); }
footer { border-top: 1px solid var(--line); margin-top: 3rem; padding-top: .8rem; }
@media (max-width: 40rem) {
  main { padding: 1.2rem .9rem 3rem; } h1 { font-size: 1.4rem; }
  th, td { padding: .34rem .3rem; font-size: .82rem; } .extra { display: none; }
  .ranking tbody th { width: 55%; } .row { padding: .1rem .6rem .4rem; }
  .steps td.track { width: 30%; } .scores th:first-child { min-width: 6rem; }
  .scores th, .scores td { padding-left: .15rem; padding-right: .15rem; font-size: .8rem; }
  .facts { grid-template-columns: 1fr 1fr; gap: .6rem; } .fact b { font-size: 1.25rem; }
  dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .5rem; }
}
@media print {
  @page { margin: 16mm; }
  body { font-size: 10pt; } main { max-width: none; padding: 0; }
  .fact, pre, .bar, .bar i, .bar u, .bar s, .warning { -webkit-print-color-adjust: exact;
    print-color-adjust: exact; }
  figure, .facts, tr, .row { break-inside: avoid; } h2, h3 { break-after: avoid; }
  .wide, pre { overflow: visible; white-space: pre-wrap; }
  figure img { max-height: 110mm; } h2 { margin-top: 1.2rem; } p { max-width: none; }
  th, td { padding: .18rem .4rem; } .facts { grid-template-columns: repeat(4, 1fr); }
}
"""
