"""The look of the report's page: light and dark, wide screens and phones, and paper."""

STYLE = """
:root { color-scheme: light dark; --bg: #fff; --panel: #f6f7f9; --line: #dfe3e8; --text: #1b1f24; --soft: #57606a;
  --good: #1a7f37; --bad: #cf222e; --warn: #9a6700; --odd: #0969da; --none: #6e7781; }
@media (prefers-color-scheme: dark) { :root { --bg: #0f1318; --panel: #171c23; --line: #2c333c; --text: #e6eaef;
  --soft: #9aa5b1; --good: #4ac26b; --bad: #ff7b72; --warn: #e3b341; --odd: #6cb6ff; --none: #8b949e; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--bg); color: var(--text); font: 15px/1.5 system-ui, -apple-system, "Segoe UI",
  Roboto, "Noto Sans", "DejaVu Sans", sans-serif; overflow-wrap: anywhere; }
main, footer { max-width: 76rem; margin: 0 auto; padding: 1.5rem 1.25rem; }
footer { color: var(--soft); font-size: .85rem; padding-top: 0; }
header { padding-bottom: .5rem; }
.id { margin: 0; color: var(--soft); font-family: ui-monospace, Menlo, Consolas, monospace; font-size: .9rem; }
h1 { margin: .1rem 0 0; font-size: 1.4rem; font-weight: 500; line-height: 1.25; }
h1 b { font-size: 2.6rem; font-weight: 700; letter-spacing: -.02em; margin-right: .25rem; }
h2 { font-size: 1.05rem; margin: 2rem 0 .6rem; }
.sub { color: var(--soft); margin: .25rem 0 .9rem; max-width: 60rem; }
.bar { display: flex; gap: 2px; height: .8rem; border-radius: .4rem; overflow: hidden; background: var(--line); }
.bar i { min-width: 3px; }
i.passed { background: var(--good); } i.failed { background: var(--bad); } i.undecided { background: var(--none); }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; padding: 0; margin: .5rem 0 0; }
.legend i { display: inline-block; width: .7rem; height: .7rem; border-radius: 50%; margin-right: .4rem; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(17rem, 1fr)); gap: .6rem; margin: 0 0 1rem; }
dl div { background: var(--panel); border: 1px solid var(--line); border-radius: .5rem; padding: .5rem .8rem; }
dl .long { grid-column: span 2; }
dt { color: var(--soft); font-size: .8rem; } dd { margin: 0; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: .5rem; margin-bottom: .8rem; }
.scroll:focus-visible, summary:focus-visible { outline: 2px solid var(--odd); outline-offset: 2px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
caption { text-align: left; color: var(--soft); font-size: .85rem; padding: .5rem .8rem; }
th, td { text-align: left; vertical-align: top; padding: .4rem .8rem; border-top: 1px solid var(--line); }
th { font-weight: 600; } thead th { font-size: .8rem; color: var(--soft); background: var(--panel); }
thead td { background: var(--panel); }
.n { text-align: right; white-space: nowrap; }
.w { width: 8rem; vertical-align: middle; }
.rates th { white-space: nowrap; }
.tally .w { width: 60%; } .tally th { width: 6rem; }
.share { display: block; height: .6rem; border-radius: .3rem; background: var(--odd); min-width: 2px; }
svg { display: block; } svg .axis { stroke: var(--line); stroke-width: 2; }
svg .range { stroke: var(--odd); stroke-width: 3; } svg circle { fill: var(--odd); }
small { color: var(--soft); font-weight: 400; font-size: .82rem; }
.pairs th small { display: block; } .pairs th[scope=row] { min-width: 11rem; max-width: 26rem; overflow-wrap: anywhere; }
.pairs td:nth-child(2) { max-width: 30rem; overflow-wrap: anywhere; }
.pairs thead th:nth-child(n+4) { text-align: right; }
.why { margin: .2rem 0 0; color: var(--soft); font-size: .88rem; display: -webkit-box; -webkit-line-clamp: 4;
  -webkit-box-orient: vertical; overflow: hidden; }
.s { font-weight: 600; white-space: nowrap; }
.s.failed { color: var(--bad); } .s.no_result { color: var(--warn); } .s.undecided { color: var(--none); }
.s.flaky { color: var(--odd); } .s.passed { color: var(--good); }
.o { display: inline-block; border: 1px solid currentColor; border-radius: .8rem; padding: 0 .5rem; font-size: .78rem;
  line-height: 1.35rem; white-space: nowrap; color: var(--none); }
.o.pass { color: var(--good); } .o.fail { color: var(--bad); } .o.limit, .o.timeout { color: var(--bad); }
.o.infra_error, .o.scorer_error { color: var(--warn); border-style: dashed; } .o.canceled, .o.missing { border-style: dotted; }
summary { cursor: pointer; } details ol, details ul { margin: .4rem 0; padding-left: 1.2rem; font-size: .88rem; }
details li { margin: .15rem 0; } details p { margin: .4rem 0 0; font-size: .88rem; }
pre { white-space: pre-wrap; background: var(--panel); padding: .5rem .7rem; border-radius: .4rem; margin: .4rem 0;
  font-size: .82rem; max-height: 16rem; overflow: auto; }
code { font-size: .82rem; color: var(--soft); }
.more > summary { padding: .3rem 0; font-weight: 600; }
@media (max-width: 42rem) {
  main, footer { padding: 1rem .8rem; } h1 b { display: block; font-size: 2.3rem; } th, td { padding: .4rem .55rem; }
  .pairs td:nth-child(n+4), .pairs thead th:nth-child(n+4) { display: none; }
  .pairs th[scope=row] { min-width: 8rem; } .pairs td:nth-child(2) { min-width: 8rem; } .pairs td:nth-child(3) { min-width: 11rem; } .w { display: none; } dl { grid-template-columns: 1fr 1fr; }
  dl .long { grid-column: span 2; } .rates tr > :nth-child(5) { display: none; }
  thead td { display: none; }
}
@media print { body { font-size: 11px; } .scroll { overflow: visible; border: 0; } details > * { display: block; } }
"""
