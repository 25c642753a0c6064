"""Names of models and data sets, which answers hold in place of paths and URLs."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from bcmdist.storage.ledger import KEY, Entry

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # of models and data sets


def short_name(place: str) -> str:
    """A key, path or URL without the folders that its data set lies in."""
    parts = 2 if KEY.fullmatch(place) else 1
    return "/".join(place.split("/")[-parts:])


def of_figures(found: Mapping[str, Any], ledger: Iterable[Entry]) -> dict[str, Any]:
    """Figures of `bcmdist info`, or some of them, with names: in `drift`, `skipped` and `fading`."""
    named = dict(found)
    if drift := found.get("drift"):
        named["drift"] = drift | {"verdict": _of_text(drift["verdict"], ledger)}
    if fading := found.get("fading"):
        named["fading"] = fading | {"source": short_name(fading["source"])}
    if skipped := found.get("skipped"):
        named["skipped"] = [short_name(key) for key in skipped]
    return named


def _of_text(text, ledger):
    """A text that speaks of partitions."""
    for entry in ledger:
        if entry.key in text:
            text = text.replace(entry.key, short_name(entry.key))
    return text
