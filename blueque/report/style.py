"""The style of a report: one accent, red for failure, and the colours of the states as everywhere
in Blueque.
"""

from __future__ import annotations

_LIGHT = """
  --ground: #f6f8fa; --surface: #ffffff; --edge: #d8dee4; --grid: #e7ebef; --text: #1f2328; --muted: #59636e;
  --accent: #0b5cad; --failed: #b42318; --failed-line: #ffffff; --quiet: #9aa4af;
"""
_DARK = """
  --ground: #0d1117; --surface: #12161c; --edge: #2b323b; --grid: #232a32; --text: #e6edf3; --muted: #9da7b3;
  --accent: #58a6ff; --failed: #ff7b72; --failed-line: #12161c; --quiet: #6b7683;
"""

STYLE = f"""
:root {{ color-scheme: light dark; {_LIGHT} }}
@media screen and (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}
* {{ box-sizing: border-box; }}
body {{
  margin: 0; background: var(--ground); color: var(--text);
  font: 14px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}}
main {{ max-width: 1240px; margin: 0 auto; padding: 24px 20px 40px; }}
h1 {{ font-size: 22px; line-height: 1.25; margin: 0; overflow-wrap: anywhere; }}
h2 {{ font-size: 16px; margin: 0 0 12px; }}
h3 {{ font-size: 14px; margin: 0 0 10px; overflow-wrap: anywhere; }}
h3 .muted {{ font-weight: normal; white-space: nowrap; }}
p {{ margin: 0 0 10px; }}
header p {{ margin: 4px 0 18px; overflow-wrap: anywhere; }}
.muted {{ color: var(--muted); }}
.note {{ border-left: 3px solid var(--accent); padding: 2px 0 2px 12px; margin: 0 0 16px; }}
section, .tiles {{ background: var(--surface); border: 1px solid var(--edge); border-radius: 8px; margin: 0 0 16px; }}
section {{ padding: 16px 18px; }}
.tiles {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(128px, 1fr)); padding: 4px; }}
.tiles > div {{ padding: 10px 12px; }}
dt {{ color: var(--muted); white-space: nowrap; }}
dd {{ margin: 0; font-variant-numeric: tabular-nums; }}
dd.muted {{ font-size: 12px; }}
dd.value {{ font-size: 22px; line-height: 1.3; font-weight: 600; white-space: nowrap; }}
dd.bad {{ color: var(--failed); }}
.grid {{ display: grid; gap: 18px 28px; }}
.two {{ grid-template-columns: repeat(auto-fit, minmax(min(100%, 430px), 1fr)); }}
.three {{ grid-template-columns: repeat(auto-fit, minmax(min(100%, 270px), 1fr)); }}
.card + .card {{ border-top: 1px solid var(--edge); margin-top: 16px; padding-top: 14px; }}
figure {{ margin: 0; min-width: 0; break-inside: avoid; }}
figcaption {{ margin-bottom: 18px; }}
figcaption b {{ display: block; }}
figcaption span {{
  display: block; color: var(--muted); font-size: 12px; white-space: nowrap; overflow: hidden; text-overflow: ellipsis;
}}
svg {{ display: block; }}
svg.defs {{ position: absolute; }}
.plot {{ width: calc(100% - 46px); margin-left: 46px; overflow: visible; }}
.plot svg, .lanes {{ overflow: visible; }}
.tick {{ font-size: 11px; fill: var(--muted); font-variant-numeric: tabular-nums; }}
.middle {{ text-anchor: middle; }}
.end {{ text-anchor: end; }}
.start {{ text-anchor: start; }}
.grid line, line.grid {{ stroke: var(--grid); stroke-width: 1; shape-rendering: crispEdges; }}
line.quantile {{ stroke: var(--muted); stroke-dasharray: 2 3; }}
.complete {{ fill: var(--accent); }}
.cancelled {{ fill: var(--quiet); }}
.other {{ fill: none; stroke: var(--quiet); }}
.failed {{ fill: url(#hatch); }}
.hatch-ground {{ fill: var(--failed); }}
.hatch-line {{ fill: var(--failed-line); opacity: .35; }}
.bin {{ stroke: var(--surface); stroke-width: 1; }}
.hits {{ fill: transparent; }}
.hits rect:hover {{ fill: var(--muted); fill-opacity: .12; }}
.dot {{ fill: none; stroke: var(--accent); vector-effect: non-scaling-stroke; stroke-linecap: round; stroke-width: 5px; }}
.dot.p90 {{ opacity: .6; }}
.dot.p99 {{ opacity: .35; }}
.line {{
  fill: none; stroke: var(--accent); vector-effect: non-scaling-stroke; stroke-linejoin: round; stroke-linecap: round;
}}
.line.p50 {{ stroke-width: 2.2px; }}
.line.p90 {{ stroke-width: 1.4px; opacity: .6; }}
.line.p99 {{ stroke-width: 1.2px; opacity: .6; stroke-dasharray: 1 4; }}
.legend {{ display: flex; flex-wrap: wrap; gap: 4px 18px; color: var(--muted); font-size: 12px; }}
.legend span {{ display: inline-flex; align-items: center; gap: 6px; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }}
td {{ text-align: right; }}
th, td.text {{ text-align: left; }}
th, td {{
  padding: 5px 10px; border-bottom: 1px solid var(--grid); white-space: nowrap; vertical-align: top;
}}
thead th {{ color: var(--muted); font-weight: normal; font-size: 12px; border-color: var(--edge); }}
tbody th {{ font-weight: 600; max-width: 260px; overflow: hidden; text-overflow: ellipsis; }}
th:first-child, td:first-child {{ padding-left: 0; }}
tbody tr:last-child > * {{ border-bottom: 0; }}
th.n {{ text-align: right; }}
.bar {{ min-width: 130px; width: 22%; vertical-align: middle; }}
.name {{ max-width: 220px; overflow: hidden; text-overflow: ellipsis; }}
.id {{ color: var(--muted); }}
.range line.thin {{ stroke: var(--accent); stroke-width: 1.4; opacity: .6; }}
.range .thick {{ fill: var(--accent); opacity: .35; }}
.range .mark {{ fill: var(--accent); }}
.above > * {{ border-bottom: 0; padding-bottom: 1px; }}
td.message {{ white-space: normal; overflow-wrap: anywhere; padding: 0 0 8px; }}
code, .id {{ font: 12px/1.4 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }}
details {{ margin-top: 12px; }}
summary {{ color: var(--muted); cursor: pointer; font-size: 12px; }}
details[open] summary {{ margin-bottom: 8px; }}
.row {{
  display: grid; grid-template-columns: 150px minmax(0, 1fr) 210px; gap: 0 14px; align-items: center; padding: 5px 0;
}}
.row .host {{ overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }}
.row .facts {{ color: var(--muted); font-size: 12px; text-align: right; font-variant-numeric: tabular-nums; }}
footer {{ color: var(--muted); font-size: 12px; }}
@media (max-width: 1080px) {{ .ranges {{ display: none; }} }}
@media (max-width: 700px) {{
  main {{ padding: 16px 10px 28px; }}
  section {{ padding: 14px 12px; }}
  .tiles {{ grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); }}
  .row {{ grid-template-columns: minmax(0, 1fr) auto; padding: 5px 0; }}
  .row svg {{ grid-row: 2; grid-column: 1 / -1; margin-top: 3px; }}
  .minor, .bar {{ display: none; }}
  .message div {{ position: sticky; left: 0; max-width: calc(100vw - 50px); }}
}}
@media print {{
  body {{ background: none; font-size: 11px; }}
  main {{ max-width: none; padding: 0; }}
  section, .tiles {{ border-radius: 0; break-inside: auto; }}
  tr, .row, .card, .tiles > div {{ break-inside: avoid; }}
  h2, .legend, .above {{ break-after: avoid; }}
  .row {{ grid-template-columns: 90px minmax(0, 1fr) 110px; }}
  .tiles {{ grid-template-columns: repeat(7, 1fr); }}
  .tiles > div {{ padding: 6px; }}
  dd.value {{ font-size: 14px; }}
  dd.muted, figcaption span, .row .facts, footer {{ font-size: 9px; }}
  .two {{ grid-template-columns: 1fr 1fr; }}
  .three {{ grid-template-columns: repeat(3, 1fr); gap: 12px; }}
  .plot {{ width: calc(100% - 34px); margin-left: 34px; }}
  .tick {{ font-size: 8px; }}
  details:not([open]) {{ display: none; }}
  .scroll {{ overflow: visible; }}
  * {{ print-color-adjust: exact; -webkit-print-color-adjust: exact; }}
}}
"""
