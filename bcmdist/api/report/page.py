"""Self-contained HTML pages: no external resources, no scripts, all texts escaped."""

import html
import math
from collections.abc import Iterable, Sequence

# Content security policy: blocks scripts and external resources even if a name in the page contains HTML.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 68rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; border-bottom: 1px solid #ddd; }
table { border-collapse: collapse; margin: .6rem 0; font-size: .92em; } .wide { overflow-x: auto; }
th, td { padding: .2rem .7rem; border-bottom: 1px solid #e4e4e4; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } th { background: #f4f6f9; font-weight: 600; }
tr.best td { background: #eef5ec; } .note { color: #666; font-size: .9em; }
figure { margin: .8rem 0; } svg { max-width: 100%; height: auto; }
@media print { body { max-width: none; } }
"""
NOTE, OURS = ' class="note"', ' class="best"'


def text(value: object) -> str:
    """Return a value as escaped HTML: numbers to four digits, None and nan as a dash, control characters as spaces."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "&ndash;"
    if isinstance(value, float):
        return number(value).replace("-", "&minus;")
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return html.escape("".join(c if c.isprintable() else " " for c in str(value)))


def number(value: float) -> str:
    """Return a number with four significant digits; large numbers in full."""
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:.4g}" if abs(value) < 1e4 or abs(value) >= 1e12 else f"{value:,.0f}"


def page(title: str, parts: Iterable[str]) -> str:
    """Return a complete page from parts that are HTML already."""
    head = (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{html.escape(POLICY)}">'
        f'<meta name="viewport" content="width=device-width"><title>{text(title)}</title><style>{STYLE}</style>'
    )
    body = "\n".join([f"<h1>{text(title)}</h1>", *parts])
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def heading(title: str) -> str:
    """Return a section heading."""
    return f"<h2>{text(title)}</h2>"


def paragraph(words: str, *, note: bool = False) -> str:
    """Return a paragraph; `note`: in small print."""
    return f"<p{NOTE if note else ''}>{text(words)}</p>"


def sentences(found: Iterable[str]) -> str:
    """Return sentences as a bulleted list."""
    return "<ul>" + "".join(f"<li>{text(one[:1].upper() + one[1:])}.</li>" for one in found) + "</ul>"


def table(names: Iterable[str], rows: Sequence[Iterable[object]], *, first_best: bool = False) -> str:
    """Return a table; `first_best`: highlight the first row, that of the model."""
    head = "".join(f"<th>{text(name)}</th>" for name in names)
    marks = [OURS if first_best and k == 0 else "" for k in range(len(rows))]
    cells = ["".join(f"<td>{text(cell)}</td>" for cell in row) for row in rows]
    body = "".join(f"<tr{mark}>{row}</tr>" for mark, row in zip(marks, cells, strict=True))
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def figure(svg: str, caption: str = "") -> str:
    """Return an SVG element as a figure with a caption."""
    return f"<figure>{svg}</figure>" + (paragraph(caption, note=True) if caption else "")
