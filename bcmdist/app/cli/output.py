"""Print the results of commands as one JSON object or as a table."""

import json
import math
from datetime import UTC, datetime

import click

from bcmdist.app.finite import finite

WARNINGS = "bcmdist.warnings"
MOST_SHOWN = 24  # values of a list in a table
OMITTED = ("shared_lengthscales", "lengthscales", "left_out")  # figures of a fit that other entries of a table contain


def note_warning(text) -> None:
    """Print a warning on stderr, once in a command, and record it for the command's JSON object."""
    context = click.get_current_context(silent=True)
    if context:
        recorded = context.meta.setdefault(WARNINGS, [])
        if text in recorded:
            return
        recorded.append(text)
    click.echo(f"bcmdist: warning: {text}", err=True)


def report(figures, as_json, text=None) -> dict:
    """Print figures as JSON with the recorded warnings, or as a table; return the figures.

    Parameters
    ----------
    text : entries of the table, by name; by default the figures in words (`in_words`)
    """
    if as_json:
        warned = click.get_current_context().meta.get(WARNINGS)
        click.echo(json.dumps(finite(figures | ({"warnings": warned} if warned else {}))))
        return figures
    text = text or _nothing_to_do(figures) or in_words(figures)
    shown = {name: value for name, value in text.items() if not is_nothing(value)}
    width = max((len(name) for name in shown), default=0)
    for name, value in shown.items():
        for number, line in enumerate(value if isinstance(value, Lines) else [readable(value)]):
            click.echo(f"{'' if number else name:{width}}  {one_line(line)}")
    return figures


def _nothing_to_do(figures):
    """Entries of the table of a request that an earlier process had finished; None for others."""
    if figures.get("resumed") != "finished":  # `FINISHED` of carry_out.py, which takes a second to import
        return None
    model, commit = figures["model"], figures["commit"]
    return {"nothing to do": f"already complete (commit {commit}); `bcmdist info {model}` describes it"}


class Lines(tuple[str, ...]):
    """Texts that a table prints on separate lines."""


def is_nothing(value) -> bool:
    """Whether a value is None or empty, so that there is nothing to print."""
    return value is None or (isinstance(value, str | list | tuple | dict) and not value)


def one_line(text) -> str:
    """Escape control characters in a text: paths may contain newlines and terminal escape sequences."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def readable(value) -> str:
    """Format a value for people: about four digits, "not known" for NaN, lists and dicts in one line."""
    if isinstance(value, float) and math.isnan(value):
        return "not known"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    if isinstance(value, dict):
        return ", ".join(f"{n} {readable(v)}" for n, v in value.items() if not is_nothing(v) and v == v)  # NaN != NaN
    if isinstance(value, list) and len(value) > MOST_SHOWN and not any(isinstance(v, dict) for v in value):
        return f"{readable(value[:MOST_SHOWN])} ... ({len(value)} in all, see --json)"
    if isinstance(value, list):
        return ("; " if any(isinstance(v, dict) for v in value) else " ").join(readable(v) for v in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def in_words(figures) -> dict:
    """Convert figures into the entries of a table.

    Lengthscales shared by several inputs are shown once, decisions and the error distribution become sentences, and
    each commit, partition and ingester gets a line.
    """
    lines = {name: Lines(map(write, figures[name])) for name, write in LISTED.items() if figures.get(name)}
    figures = figures | lines
    if figures.get("outputs"):
        figures["outputs"] = _outputs(figures["outputs"])
    if (figures.get("lag") or {"rows": 0})["rows"] is None:
        figures["lag"] = "unknown"
    elif figures.get("lag"):
        figures["lag"] = _lag(figures["lag"])
    if "decisions" not in figures:  # not the figures of a fit, or those of a mixture
        return figures
    shared = figures["shared_lengthscales"]
    values = {
        name: f"{readable(value[0])} (shared by {shared[name]} inputs)" if name in shared else value
        for name, value in figures["hyperparameters"].items()
    }
    by_column = figures.get("lengthscales") or {}  # one per category
    values |= {name: f"({readable(found)})" for name, found in by_column.items()}
    decisions = "; ".join(map(_decision, figures["decisions"])) or None
    sentences = filter(None, figures.get("advice", "").split(". "))
    names = figures.get("columns", ())
    more = f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
    words = {"columns": ", ".join(names[:MOST_SHOWN]) + more, "advice": Lines(sentences)}
    words["look"] = Lines(figures.get("look", ()))
    shown = (
        figures | words | {"hyperparameters": values, "decisions": decisions, "errors": _errors(figures.get("errors"))}
    )
    return {name: value for name, value in shown.items() if name not in OMITTED}


def _outputs(outputs):
    """Describe outputs in a line each."""
    columns = (outputs[name] for name in ("names", "mean", "scale", "correlation"))
    return Lines(
        f"{name}: mean {readable(mean)}, scale {readable(scale)}, correlations {readable(row)}"
        for name, mean, scale, row in zip(*columns, strict=True)
    )


def scored_outputs(figures: dict) -> dict:
    """Figures of scores with a line for each output, where there are several."""
    each = figures.get("outputs") or {}
    return figures | ({"outputs": Lines(f"{name}: {readable(one)}" for name, one in each.items())} if each else {})


def _commit(commit):
    """Describe a commit in one line."""
    absorbed = [f"{commit[name]:,} {name}" for name in ("rows", "partitions") if commit.get(name) is not None]
    read = [f"{source} read to {readable(place)}" for source, place in commit["offsets"].items() if source]
    when = f" of {commit['date'].replace('T', ' ').removesuffix('+00:00')} UTC" if commit.get("date") else ""
    made = f" ({commit['operation']})" if commit.get("operation") else ""
    update = [f"innovation {one['innovation']:.2f}, gain {one['gain']:.2f}"] if (one := commit.get("update")) else []
    return ", ".join([f"commit {commit['number']}{made}{when}: {' in '.join(absorbed)}", *update, *read])


def _entry(entry):
    """Describe an absorbed partition in one line."""
    counts = "" if entry["weight"] == 1.0 else f", counts {readable(entry['weight'])} times"
    return f"{entry['key']}: {entry['rows']:,} rows{counts}"


def _lag(lag):
    """Return the lag of ingestion with times in place of seconds since the epoch."""
    sources = {
        name: one and one | {"at": datetime.fromtimestamp(one["at"], UTC).strftime("%Y-%m-%d %H:%M:%S UTC")}
        for name, one in lag["sources"].items()
    }
    return lag | {"sources": sources}


def _ingester(one):
    """Describe a process that ingests from a watched source, alive or dead, in one line."""
    state = "alive" if one["alive"] else "dead, start it again"
    return f"{one['source']}: {state}, seen {one['seconds']:.0f} s ago"


LISTED = {"history": _commit, "ledger": _entry, "ingesters": _ingester}


def _errors(errors):
    """Describe the shape and scale of the error distribution in one line."""
    if errors is None:
        return None
    q = errors["shape"]["quantiles"]
    shape = f"half within {q['0.25']:.2f} to {q['0.75']:.2f}, 95 % within {q['0.025']:.2f} to {q['0.975']:.2f}"
    gain = "" if errors["gain"] is None else f" ({errors['gain']:.2g} +- {errors['gain_error']:.2g} nats a row)"
    gaps = "".join(f", {name} {ratio:.2f} times" for name, ratio in (errors["gaps"] or {}).items())
    scale = f"{errors['scale']} scale{gain}{gaps}"
    text = f"{scale}; in predicted deviations, errors are {shape}, of {errors['residuals']} rows"
    if errors["left_out"] is not None:
        text += f", multiplied by {errors['left_out']:.2f}: errors of rows left out of training are so much larger"
    return text


def _decision(decision):
    """Describe a decision: the choice and its margin over the alternatives, or that a choice was kept because no
    alternative was decisively better."""
    margins = decision["over"].values()
    counted = any(found["error"] is not None for found in margins)  # per row
    unit = decision.get("unit", "nats a row" if counted else "nats")  # not stored by earlier versions
    kept = any(found["nats"] is not None and found["nats"] < 0.0 for found in margins)
    over = ", ".join(_margin(name, found, unit, kept) for name, found in decision["over"].items())
    taken = f"{decision['of']}: {decision['taken']}"
    if not over:
        return f"{taken}, by {decision['judge']}"
    return f"{taken} kept: {over}" if kept else f"{taken} over {over}, by {decision['judge']}"


def _margin(name, found, unit, kept):
    """Describe one alternative: by how much the choice is better, or, where it was kept, what the alternative gains."""
    nats, error = found["nats"], found["error"]
    if nats is None:
        return f"{name} (which failed)" if not kept else f"{name} failed"
    if not kept:
        return f"{name} by {readable(nats)}{'' if error is None else f' +- {readable(error)}'} {unit}"
    verb = "gains only" if nats < 0.0 else "loses"
    return f"{name} {verb} {readable(abs(nats))} {unit}{'' if error is None else f', error {readable(error)}'}"
