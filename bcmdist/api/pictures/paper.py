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
RESOLUTION = 120  # dots an inch
TITLE_WIDTH = 11.5  # characters of a title in an inch, about
# Names may hold dollars, which are no formulas; texts of an SVG stay texts.
STYLE: Any = {"text.parse_math": False, "svg.fonttype": "none", "axes.titlesize": "medium", "font.size": 9.0}


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
    return "\n".join(textwrap.wrap(str(text), int(TITLE_WIDTH * width)))


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
    """Names that axes have room for."""
    return [name if len(name) <= most else f"{name[: most - 3]}..." for name in names]


def limits(*values, margin=0.08) -> tuple[float, float]:
    """The range of finite values and a margin of it: what changes fills the axes."""
    found = np.concatenate([np.ravel(v) for v in values])
    low, high = found[np.isfinite(found)].min(), found[np.isfinite(found)].max()
    room = margin * (high - low) or margin * max(abs(high), 1e-12)
    return low - room, high + room
