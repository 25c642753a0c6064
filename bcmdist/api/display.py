"""Representation of a fitted model in a notebook: a table on the health of the fit."""

from html import escape

from bcmdist.api.info import info
from bcmdist.committee.snapshot import Snapshot
from bcmdist.model.kernel_columns import kernel_columns
from bcmdist.prediction.errors.error_distribution import Residuals, residuals_of

STYLE = "font-family: sans-serif; font-size: 0.85em; border-collapse: collapse; margin-top: 0.4em"
CELL = "text-align: left; padding: 0.1em 0.8em 0.1em 0"


def summary(snapshot: Snapshot) -> str:
    """Return rows, expert, kernel, likelihood and number of query points as text, for `repr`."""
    model = snapshot.model
    rows, functions = snapshot.committee.total.rows, model.shared.functions
    return (
        f"rows={rows}, expert={snapshot.facts.expert!r}, kernel={kernel_columns(model).shown(model.kernel_name)!r}, "
        f"likelihood={model.likelihood.name!r}, query={functions}"
    )


def health(snapshot: Snapshot) -> dict[str, str]:
    """Return figures to check before trusting predictions, as text by name."""
    figures = info(snapshot)
    shown = {
        "rows": f"{figures['rows']:,} in {figures['partitions']:,} partitions",
        "kernel": "{kernel}, mean {mean}, likelihood {likelihood}, expert {expert}".format_map(figures),
        "query points": f"{figures['query']:,} for {figures['p_eff']:.3g} degrees of freedom",
    }
    if (coverage := covered(snapshot)) is not None:
        shown["rows left out"] = (
            f"{coverage:.1%} of {_left_out(snapshot).count:,} within 1.96 deviations, which intervals allow for"
        )
    return shown | {"advice": figures["advice"]}


def covered(snapshot: Snapshot) -> float | None:
    """Share of held-out rows within 1.96 predicted standard deviations; None where no rows were held out."""
    found = _left_out(snapshot)
    if not found.count:
        return None
    _, z, _ = found.arrays()
    return float((abs(z) < 1.96).mean())


def _left_out(snapshot: Snapshot) -> Residuals:
    return residuals_of(snapshot.facts, snapshot.ledger, snapshot.facts.method)


def health_html(snapshot: Snapshot) -> str:
    """Return `health` as an HTML table."""
    rows = (
        f'<tr><th style="{CELL}">{escape(name)}</th><td style="{CELL}">{escape(text)}</td></tr>'
        for name, text in health(snapshot).items()
    )
    return f'<table style="{STYLE}">{"".join(rows)}</table>'
