"""Names of models and data sets, which responses contain in place of paths and URLs."""

import re
from collections.abc import Mapping
from typing import Any

from bcmdist.prediction.errors.drift import MOST_ARRIVALS
from bcmdist.storage.entry import KEY
from bcmdist.storage.ledger import Ledger

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # of models and data sets


def short_name(place: str) -> str:
    """Shorten a partition key, path or URL: remove the folders above its data set."""
    parts = 2 if KEY.fullmatch(place) else 1
    return "/".join(place.split("/")[-parts:])


def of_figures(found: Mapping[str, Any], ledger: Ledger) -> dict[str, Any]:
    """Return figures of `bcmdist info` with names in place of paths, in `drift`, `skipped` and `fading`."""
    named = dict(found)
    if drift := found.get("drift"):
        named["drift"] = drift | {"verdict": _of_text(drift["verdict"], ledger)}
    if fading := found.get("fading"):
        named["fading"] = fading | {"source": short_name(fading["source"])}
    if skipped := found.get("skipped"):
        named["skipped"] = [short_name(key) for key in skipped]
    return named


def _of_text(text, ledger):
    """Shorten the partition keys in a text."""
    for entry in ledger.latest_arrivals(MOST_ARRIVALS):
        if entry.key in text:
            text = text.replace(entry.key, short_name(entry.key))
    return text
