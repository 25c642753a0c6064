"""Helpers around matplotlib (the extra `plot`), the only module that imports it. No display, no global state."""

import io
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bcmdist.data.groups import Location
from bcmdist.errors import InvalidOption, MissingExtra

HOW_TO_GET = "pictures need matplotlib: pip install 'bcmdist[plot]'"
LINE, QUIET, BAND = "#1f5fa8", "0.6", "#c9dcf2"
MANY_DECADES = 300.0  # ratio of axis limits from which on only powers of ten get tick labels
RESOLUTION = 120  # dots per inch
TITLE_WIDTH = 14  # characters of a title per inch, about
# "none": text in an SVG stays text.
STYLE: Any = {"svg.fonttype": "none", "axes.titlesize": "medium", "font.size": 9.0}


def _matplotlib() -> Any:
    try:
        import matplotlib.figure as figures
    except ImportError as error:
        raise MissingExtra(HOW_TO_GET) from error
    return figures


def check(path: Location) -> None:
    """Raise an error where a picture could not be written to `path`, before anything is drawn.

    Raises
    ------
    MissingExtra, InvalidOption
    """
    formats = _matplotlib().Figure().canvas.get_supported_filetypes()
    kind = Path(path).suffix.removeprefix(".").lower()
    if kind not in formats:
        endings = ", ".join(sorted(formats))
        raise InvalidOption(f"picture: expected a name that ends in one of {endings}, got {path}; give another name")
    if not Path(path).absolute().parent.is_dir():
        raise InvalidOption(f"picture: expected a directory at {Path(path).absolute().parent}, found none; make it")


def available() -> None:
    """Raise `MissingExtra` where matplotlib is not installed."""
    _matplotlib()


def styled() -> Any:
    """Return a context manager in which to draw and write pictures, with matplotlib's settings in `STYLE`."""
    _matplotlib()
    from matplotlib import rc_context

    return rc_context(STYLE)


def sheet(title: str, *, width: float, height: float, **grid: Any) -> tuple[Any, Any]:
    """Return a titled figure, `width` by `height` inches, and its axes. `grid`: arguments of `Figure.subplots`."""
    figure = _matplotlib().Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(wrapped(title, width), fontsize="medium")
    return figure, figure.subplots(**grid)


def wrapped(text: str, width: float) -> str:
    """Wrap a text into lines of at most `width` inches, about."""
    return "\n".join(textwrap.wrap(plain(text), int(TITLE_WIDTH * width)))


def plain(text: object) -> str:
    """Escape dollar signs, which start formulas, and replace control characters by spaces."""
    return "".join(c if c.isprintable() else " " for c in str(text)).replace("$", r"\$")


def logarithmic(axes: Any, *, x: bool = False, y: bool = False) -> None:
    """Set logarithmic scales with plain numbers at 1, 2 and 5 times powers of ten; over many decades at powers only."""
    from matplotlib.ticker import LogLocator, NullFormatter

    for axis, rescale, asked in ((axes.xaxis, axes.set_xscale, x), (axes.yaxis, axes.set_yscale, y)):
        if asked:
            rescale("log")
            low, high = axis.get_view_interval()
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < MANY_DECADES * low else (1.0,)))
            axis.set_major_formatter("{x:g}")
            axis.set_minor_formatter(NullFormatter())


def save(figure: Any, path: Location) -> None:
    """Write a figure, in the format of the file name's ending."""
    figure.savefig(Path(path), dpi=RESOLUTION)


def svg(figure: Any) -> str:
    """Return a figure as an SVG element for an HTML page, without date and program name; texts are escaped."""
    file = io.StringIO()
    nobody = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(file, format="svg", metadata=nobody)
    text = file.getvalue()
    return text[text.index("<svg") :]


def shortened(names: Iterable[str], most: int = 28) -> list[str]:
    """Return names cut to `most` characters, escaped by `plain`."""
    return [plain(name if len(name) <= most else f"{name[: most - 3]}...") for name in names]


def limits(*values: ArrayLike, margin: float = 0.08) -> tuple[float, float]:
    """Return axis limits: the range of the finite values, widened on both sides by a share `margin` of the range."""
    found = np.concatenate([np.ravel(v) for v in values])
    low, high = found[np.isfinite(found)].min(), found[np.isfinite(found)].max()
    room = margin * (high - low) or margin * max(abs(high), 1e-12)
    return low - room, high + room
