"""What pictures are drawn on: matplotlib, where it is installed (the extra `plot`); no screen, no global state."""

import io
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from bcmdist.errors import InvalidOption, MissingExtra

HOW_TO_GET = "pictures need matplotlib: pip install 'bcmdist[plot]'"
LINE, QUIET, BAND = "#1f5fa8", "0.6", "#c9dcf2"
MANY_DECADES = 300.0  # a range over which only powers of ten are named
RESOLUTION = 120  # dots an inch
TITLE_WIDTH = 14  # characters of a title in an inch, about
# Texts of an SVG stay texts.
STYLE: Any = {"svg.fonttype": "none", "axes.titlesize": "medium", "font.size": 9.0}


def _matplotlib():
    try:
        import matplotlib.figure as figures
    except ImportError as error:
        raise MissingExtra(HOW_TO_GET) from error
    return figures


def check(path) -> None:
    """Refuse a picture that could not be written, before there is anything to draw.

    Raises
    ------
    MissingExtra, InvalidOption
    """
    known = _matplotlib().Figure().canvas.get_supported_filetypes()
    kind = Path(path).suffix.removeprefix(".").lower()
    if kind not in known:
        raise InvalidOption(f"picture: expected a name that ends in one of {', '.join(sorted(known))}, got {path}")
    if not Path(path).absolute().parent.is_dir():
        raise InvalidOption(f"picture: expected a directory at {Path(path).absolute().parent}, found none; make it")


def available() -> None:
    """Raise `MissingExtra` where nothing can be drawn."""
    _matplotlib()


def styled() -> Any:
    """A context in which pictures are drawn and written."""
    _matplotlib()
    from matplotlib import rc_context

    return rc_context(STYLE)


def sheet(title, *, width, height, **grid) -> tuple[Any, Any]:
    """A figure of so many inches, and its axes, (rows, columns) or one; `grid` as of matplotlib's `subplots`."""
    figure = _matplotlib().Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(wrapped(title, width), fontsize="medium")
    return figure, figure.subplots(**grid)


def wrapped(text, width) -> str:
    """A text in lines of so many inches."""
    return "\n".join(textwrap.wrap(plain(text), int(TITLE_WIDTH * width)))


def plain(text) -> str:
    """A text whose dollars are no formulas, and without control characters."""
    return "".join(c if c.isprintable() else " " for c in str(text)).replace("$", r"\$")


def logarithmic(axes, *, x=False, y=False) -> None:
    """Logarithmic scales with plain numbers at 1, 2 and 5 times powers of ten, or at these where there are many."""
    from matplotlib.ticker import LogLocator, NullFormatter

    for axis, rescale, wanted in ((axes.xaxis, axes.set_xscale, x), (axes.yaxis, axes.set_yscale, y)):
        if wanted:
            rescale("log")
            low, high = axis.get_view_interval()
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < MANY_DECADES * low else (1.0,)))
            axis.set_major_formatter("{x:g}")
            axis.set_minor_formatter(NullFormatter())


def save(figure, path) -> None:
    """Write a picture, of the kind that its name ends in."""
    figure.savefig(Path(path), dpi=RESOLUTION)


def svg(figure) -> str:
    """A picture as an element of a page: no date, no name of a program, texts escaped."""
    file = io.StringIO()
    nobody = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(file, format="svg", metadata=nobody)
    text = file.getvalue()
    return text[text.index("<svg") :]


def shortened(names: Iterable[str], most=28) -> list[str]:
    """Names that axes have room for; `plain`."""
    return [plain(name if len(name) <= most else f"{name[: most - 3]}...") for name in names]


def limits(*values, margin=0.08) -> tuple[float, float]:
    """The range of finite values and a margin of it: what changes fills the axes."""
    found = np.concatenate([np.ravel(v) for v in values])
    low, high = found[np.isfinite(found)].min(), found[np.isfinite(found)].max()
    room = margin * (high - low) or margin * max(abs(high), 1e-12)
    return low - room, high + room
