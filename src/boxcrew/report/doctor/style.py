"""The style sheet of the doctor's page, for screens, phones and paper."""

from __future__ import annotations

from boxcrew.report.plots.style import ACCENT, INK, PALE

# Thumbnails are sized by height: `--height` times the image's own `--ratio` is its width.
STYLE = f"""
:root {{ --ink: {INK}; --muted: #5a6673; --pale: {PALE}; --accent: {ACCENT}; --warn: #a94a00;
  --good: #00734f; }}
* {{ box-sizing: border-box; }}
html {{ -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }}
body {{ margin: 0; background: #f4f6f8; color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }}
main, header, footer {{ max-width: 1120px; margin: 0 auto; padding: 0 20px; }}
header {{ padding-top: 36px; }}
h1 {{ font-size: 2rem; line-height: 1.2; margin: 4px 0 6px; overflow-wrap: anywhere; }}
h2 {{ font-size: 1.3rem; margin: 0 0 6px; }}
h3 {{ font-size: 1rem; margin: 20px 0 6px; }}
p {{ margin: 0 0 10px; max-width: 75ch; }}
a {{ color: var(--accent); }}
code {{ font: 0.87em ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; overflow-wrap: anywhere; }}
.brand {{ color: var(--muted); font-size: 0.9rem; margin: 0; }}
.facts {{ color: var(--muted); margin: 0 0 14px; max-width: none; }}
.facts b {{ color: var(--ink); font-weight: 600; }}
nav {{ display: flex; flex-wrap: wrap; gap: 4px 18px; font-size: 0.92rem; margin: 18px 0; }}
section {{ background: #fff; border: 1px solid var(--pale); border-radius: 10px; padding: 22px 24px;
  margin: 0 0 18px; }}
.summary {{ border-left: 6px solid var(--good); }}
.summary.todo {{ border-left-color: #e69f00; }}
.summary.bad {{ border-left-color: #d55e00; }}
.summary h2 {{ font-size: 1.45rem; margin-bottom: 12px; }}
.summary .columns {{ display: grid; grid-template-columns: 3fr 2fr; gap: 8px 40px; }}
.summary h3 {{ margin-top: 0; }}
.summary ol, .summary ul {{ margin: 0; padding-left: 1.4em; }}
.summary li {{ margin-bottom: 8px; }}
.summary ul {{ list-style: none; padding-left: 0; }}
.summary ul li {{ padding-left: 1.5em; position: relative; }}
.summary ul li::before {{ content: "\\2713"; color: var(--good); position: absolute; left: 0;
  font-weight: 700; }}
.note {{ color: var(--muted); font-size: 0.92rem; }}
table {{ border-collapse: collapse; width: 100%; font-size: 0.94rem; }}
th {{ text-align: left; font-weight: 600; }}
thead th {{ white-space: nowrap; color: var(--muted); font-size: 0.85rem; font-weight: 500;
  border-bottom: 1px solid var(--pale); }}
th, td {{ padding: 6px 12px 6px 0; vertical-align: top; }}
tbody tr + tr > * {{ border-top: 1px solid #eef1f4; }}
.number {{ text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }}
.kinds td:first-child {{ min-width: 190px; }}
.kinds td:first-child code {{ color: var(--muted); display: block; }}
.kinds td:last-child {{ overflow-wrap: anywhere; padding-right: 0; }}
.kinds ul {{ margin: 0; padding: 0; list-style: none; }}
.done {{ white-space: nowrap; }}
.left {{ color: var(--warn); font-weight: 600; }}
.bars th {{ font-weight: 400; white-space: nowrap; max-width: 15em; overflow: hidden;
  text-overflow: ellipsis; }}
.bars .bar {{ width: 60%; vertical-align: middle; }}
.bars tr.chosen th {{ font-weight: 600; }}
.bars .none {{ color: var(--warn); font-weight: 600; }}
.bars td, .bars th {{ padding-top: 3px; padding-bottom: 3px; }}
.two {{ columns: 2; column-gap: 40px; }}
.two table {{ break-inside: avoid; }}
.strip {{ display: flex; height: 12px; background: #f1f4f7; border-radius: 3px; overflow: hidden; }}
.strip i {{ display: block; min-width: 1px; print-color-adjust: exact; -webkit-print-color-adjust: exact; }}
.key {{ display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 6px;
  vertical-align: -1px;
  print-color-adjust: exact; -webkit-print-color-adjust: exact; }}
.legend {{ display: flex; flex-wrap: wrap; gap: 4px 18px; font-size: 0.9rem; color: var(--muted);
  margin-bottom: 8px; }}
.charts {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(320px, 1fr)); gap: 18px 36px; }}
.charts figure {{ margin: 0; min-width: 0; }}
.charts figcaption {{ font-size: 0.92rem; color: var(--muted); max-width: 60ch; }}
.charts figcaption b {{ display: block; color: var(--ink); }}
.chart {{ display: block; width: 100%; height: auto; font: 12px system-ui, sans-serif; }}
.halo {{ fill: var(--muted); paint-order: stroke; stroke: #fff; stroke-width: 3px; }}
.gallery {{ --height: 158px; display: flex; flex-wrap: wrap; gap: 14px; margin: 8px 0 4px; }}
.gallery figure {{ margin: 0; max-width: 100%; width: min-content; }}
.gallery figcaption {{ font-size: 0.82rem; line-height: 1.35; color: var(--muted); margin-top: 4px;
  overflow-wrap: anywhere; min-width: 130px; }}
.gallery figcaption b {{ display: block; color: var(--ink); font-weight: 600; }}
.large {{ --height: 193px; }}
.small {{ --height: 92px; gap: 6px; }}
.few {{ grid-template-columns: 1fr !important; }}
.few .small {{ --height: 120px; gap: 9px; }}
.picture {{ position: relative; display: block; width: calc(var(--height) * var(--ratio));
  max-width: 100%; line-height: 0; }}
.picture img {{ width: 100%; height: auto; border-radius: 4px; }}
.picture svg {{ position: absolute; inset: 0; width: 100%; height: 100%; overflow: visible; }}
.picture rect {{ fill: none; vector-effect: non-scaling-stroke; }}
.picture .under {{ stroke: #fff; stroke-width: 4.5; stroke-opacity: 0.85; }}
.picture .line {{ stroke-width: 2.2; }}
.samples {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 230px), 1fr));
  gap: 16px 28px; }}
.samples h3 {{ margin: 0; }}
.samples h3 small {{ color: var(--muted); font-weight: 400; }}
.pairs {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 320px), 1fr));
  gap: 18px; }}
.pair {{ display: grid; grid-template-columns: 1fr 1fr; gap: 8px; align-items: end; }}
.pair figure {{ margin: 0; min-width: 0; }}
.pair .picture {{ width: 100%; }}
.pair figcaption {{ font-size: 0.82rem; line-height: 1.35; color: var(--muted); overflow-wrap: anywhere; }}
footer {{ color: var(--muted); font-size: 0.9rem; padding-bottom: 48px; }}
@media (max-width: 700px) {{
  main, header, footer {{ padding-left: 12px; padding-right: 12px; }}
  section {{ padding: 16px 14px; }}
  h1 {{ font-size: 1.5rem; }}
  .summary .columns {{ grid-template-columns: 1fr; }}
  .two {{ columns: 1; }}
  .charts {{ grid-template-columns: 1fr; }}
  .gallery {{ --height: 112px; gap: 10px; }}
  .large {{ --height: 150px; }}
  .few .small {{ --height: 19.5vw; gap: 6px; }}
  .gallery figcaption {{ min-width: 100px; }}
  .kinds, .kinds tbody, .kinds tr, .kinds td {{ display: block; }}
  .kinds thead {{ display: none; }}
  .kinds tr + tr {{ border-top: 1px solid var(--pale); }}
  .kinds td {{ border: 0 !important; padding: 2px 0; }}
  .kinds .number, .kinds .done, .kinds .done div {{ display: inline-block; margin-right: 8px; }}
}}
@media print {{
  body {{ background: #fff; font-size: 11pt; }}
  nav {{ display: none; }}
  section {{ border: 0; padding: 0; margin-bottom: 22px; }}
  .summary {{ padding-left: 14px; border-left: 6px solid; }}
  figure, tr, .card, .pair {{ break-inside: avoid; }}
  h2, h3 {{ break-after: avoid; }}
}}
"""
