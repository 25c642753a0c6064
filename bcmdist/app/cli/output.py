"""How commands print what they have found: one JSON object, or a table."""

import json

import click

from bcmdist.app.finite import finite

WARNINGS = "bcmdist.warnings"


def note_warning(text) -> None:
    """Print a warning, and keep it for the JSON object of the command."""
    context = click.get_current_context(silent=True)
    if context:
        context.meta.setdefault(WARNINGS, []).append(text)
    click.echo(f"bcmdist: warning: {text}", err=True)


def report(figures, as_json, text=None) -> dict:
    """Print figures as JSON, with the warnings that there were, or as a table; the figures, which a job keeps."""
    if as_json:
        warned = click.get_current_context().meta.get(WARNINGS)
        click.echo(json.dumps(finite(figures | ({"warnings": warned} if warned else {}))))
        return figures
    width = max(len(name) for name in figures)
    for name, value in (text or in_words(figures)).items():
        click.echo(f"{name:{width}}  {one_line(readable(value))}")
    return figures


def one_line(text) -> str:
    """A text whose control characters are escaped: paths may hold newlines, and what a terminal obeys."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def readable(value) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    if isinstance(value, dict):
        return ", ".join(f"{n} {readable(v)}" for n, v in value.items())
    if isinstance(value, list):
        return " ".join(readable(v) for v in value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def in_words(figures) -> dict:
    """Figures for a table: shared lengthscales are one, and decisions and what is known of errors are sentences."""
    if "decisions" not in figures:  # of no fit, or of a mixture
        return figures
    shared = figures["shared_lengthscales"]
    values = {
        name: f"{readable(value[0])} (shared by {shared[name]} inputs)" if name in shared else value
        for name, value in figures["hyperparameters"].items()
    }
    said = "; ".join(map(_decision, figures["decisions"])) or None
    told = figures | {"hyperparameters": values, "decisions": said, "errors": _errors(figures.get("errors"))}
    return {name: value for name, value in told.items() if name != "shared_lengthscales"}


def _errors(told):
    """Shape and scale of errors, in a line."""
    if told is None:
        return None
    pairs = zip(told["shape"]["weights"], told["shape"]["scales"], strict=True)
    shape = " + ".join(f"{weight:.0%} N(0, {scale:.2f}^2)" for weight, scale in pairs)
    gain = "" if told["gain"] is None else f" ({told['gain']:.2g} +- {told['gain_error']:.2g} nats a row)"
    return f"{told['scale']} scale{gain}; in units of the predicted deviation {shape}, of {told['residuals']} rows"


def _decision(decision):
    """Who took what, and by how much over the others; or what was kept although others are no worse."""
    margins = decision["over"].values()
    counted = any(found["error"] is not None for found in margins)  # by rows
    unit = decision.get("unit", "nats a row" if counted else "nats")  # which models of before do not tell
    kept = any(found["nats"] is not None and found["nats"] < 0.0 for found in margins)
    form = "({})" if kept else "by {}"
    over = ", ".join(f"{name} {_margin(found, unit, form)}" for name, found in decision["over"].items())
    taken = f"{decision['of']}: {decision['taken']}"
    return f"{taken} kept over {over}: no decisive gain" if kept else f"{taken} over {over}, by {decision['judge']}"


def _margin(found, unit, form):
    if found["nats"] is None:
        return "(which failed)"
    error = "" if found["error"] is None else f" +- {readable(found['error'])}"
    return form.format(f"{readable(found['nats'])}{error} {unit}")
