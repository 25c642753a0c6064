"""Advice about a fit, the worst first: what the user might change, and why.

Each adviser is a function of a snapshot that returns a sentence, or None where it has no advice. To add one, write
the function and list it in `ADVISERS`, whose order is that of the sentences. `info`, `fit`, reports, notebooks and the
service show the same sentences.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from bcmdist.api.comparison import remarks
from bcmdist.committee.cells import outside_in_words, rows_outside
from bcmdist.committee.committee import query_advice, query_limits
from bcmdist.committee.measurements import Accuracy
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.observations import TARGET_VARIANCE
from bcmdist.data.schema import few
from bcmdist.learning.first_look import FAR_TARGETS
from bcmdist.model.kernel_columns import kernel_columns
from bcmdist.model.model import Model, named_parameters
from bcmdist.prediction.errors.error_distribution import error_distribution_of, residuals_of
from bcmdist.prediction.errors.gap_scale import GapScale
from bcmdist.prediction.errors.scale_mixture import NORMAL, Shape

# What to do about too few query points in a committee that has grown or was merged, whose number was not asked for.
ADVISED_LATER = "add some with --grow of ingest, or refit the model"
# Least share of replicated rows (rows with equal inputs) to report: fewer do not determine the noise of all rows.
REPORTED_SHARE = 0.05
# Least error of the solved posterior means to report, in posterior standard deviations.
REPORTED_ERROR = 1e-3
# Errors are reported as heavier than normal if more than this share lies beyond so many deviations (by their middle
# half), and as on one side if that side has so many times the share of the other.
HEAVY, FAR, SKEWED = 0.02, 3.0, 5.0
# Least ratio of the deviations of errors at rows with gaps and without that is reported.
REPORTED_RATIO = 1.1
# Scales of the error distribution with a smaller weight are not listed.
LEAST_WEIGHT = 0.005
QUANTILES = (0.025, 0.25, 0.5, 0.75, 0.975)
# Targets look like labels or counts if they have at most this many distinct values, all whole, and on average at
# least so many rows per value. Arbitrary.
FEW_VALUES, ROWS_OF_EACH = 20, 5
SHORT = {"weighted_rmse": "RMSE, weighted by known variances,", "rmse": "RMSE"}
_NOISE = "your noise is not Gaussian (intervals allow for it): "


def of_better_models(snapshot: Snapshot) -> str | None:
    """Warn that simple baselines or boosted trees predict rows left out as well as the model, or better."""
    found = snapshot.facts.errors.accuracy
    if found is None:
        return None
    scores, others = _losses(found)
    how: dict[str, Any] = {"margin": max(remarks.AS_GOOD, found.rows**-0.5), "where": " of rows left out"}
    sentences = remarks.of_better_models(scores, others, found.learned_from, **how)
    return "; ".join(filter(None, sentences)) or None


def _losses(accuracy: Accuracy) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Losses of the model and of the baselines, as scores by name."""
    loss = accuracy.loss
    return {loss: accuracy.model}, {name: {loss: value} for name, value in accuracy.baselines.items()}


def of_left_out(snapshot: Snapshot) -> str | None:
    """Report the loss at rows left out, beside those of baselines."""
    found = snapshot.facts.errors.accuracy
    if found is None:
        return None
    ordered = sorted(found.baselines.items(), key=lambda one: -one[1])
    others = ", ".join(f"{name} {value:.4g}" for name, value in ordered)
    replicates = snapshot.facts.survey.replicates
    repeated = replicates is not None and replicates.share >= REPORTED_SHARE
    flattered = ", which rows that repeat others flatter" if repeated else ""
    called = SHORT.get(found.loss, remarks.CALLED[found.loss])
    now = snapshot.committee.total.rows == found.absorbed
    others_then = "the others" if now else f"the others of {found.absorbed:,} rows absorbed then"
    rows = f"left out: {found.rows:,} rows predicted from {others_then}"
    return f"{rows}: {called} {found.model:.4g}; {others}{flattered}"


def of_outliers(snapshot: Snapshot) -> str | None:
    """Repeat what the data showed about targets far away from all others."""
    return next((line for line in snapshot.facts.survey.look or [] if FAR_TARGETS in line), None)


def of_few_rows(snapshot: Snapshot) -> str | None:
    """Warn of a fit to few rows."""
    rows = snapshot.committee.total.rows
    if not 0 < rows < remarks.FEW_ROWS:
        return None
    return f"{rows} rows are few: hyper-parameters and intervals are uncertain"


def of_time(snapshot: Snapshot) -> str | None:
    """Report what learning left out to keep its time."""
    cut = snapshot.facts.learning.unfinished
    if cut is None:
        return None
    gain = cut.gain_per_second
    rising = f", its log evidence still rose by {gain:.2g} nats a second" if gain and gain > 0.0 else ""
    steps = few(cut.steps)
    return f"learning ended after its {cut.seconds:g} s: {steps} cut short{rising}; give --effort thorough or --seconds"


def of_bounds(snapshot: Snapshot) -> str | None:
    """Report hyper-parameters that ended at a bound, by the names of their columns."""
    found = at_bounds(snapshot)
    if not found:
        return None
    listed = few(f"{name} ({side})" if side else name for name, side in found.items())
    unused = any("lengthscale" in name and side == "upper" for name, side in found.items())
    meaning = "; a column at the upper bound of its lengthscale has no influence" if unused else ""
    return f"hyper-parameters at bounds: {listed}{meaning}"


def at_bounds(snapshot: Snapshot) -> dict[str, str]:
    """The bound, "lower" or "upper", of each hyper-parameter that ended at one, by name, with the name of a column in
    place of its number; "" for parameters of methods, which are neither the kernel's nor the likelihood's."""
    model = snapshot.model
    kernel, likelihood = model.shared.kernel, model.likelihood
    values = named_parameters(kernel, likelihood)
    bounds = {f"kernel.{name}": pair for name, pair in kernel.bounds.items()}
    bounds |= {f"likelihood.{name}": pair for name, pair in likelihood.bounds.items()}
    shown, found = kernel_columns(model).shown, {}
    for parameter in snapshot.facts.learning.at_bounds:
        name, _, place = parameter.removesuffix("]").partition("[")
        side = ""
        if name in values and name in bounds:
            low, high = bounds[name]
            side = "upper" if values[name][int(place or 0)] ** 2 > low * high else "lower"
        found[shown(_by_column(model, name, place))] = side
    return found


def _by_column(model: Model, name: str, place: str) -> str:
    """The name of a parameter such as kernel.lengthscale[3] with that of the column in place of its number."""
    columns = model.shared.kernel.lengthscale_columns(model.inputs).get(name.removeprefix("kernel."))
    if not place or columns is None or not model.schema.columns:
        return f"{name}[{place}]" if place else name
    return f"{name}[{model.schema.columns[np.arange(model.inputs)[columns][int(place)]]}]"


def of_query(snapshot: Snapshot) -> str:
    """Whether there are enough query points (always reported)."""
    facts, shared = snapshot.facts, snapshot.model.shared
    functions = shared.functions // max(1, len(shared.members))
    asked = facts.query.query_asked if shared.fewer else functions
    loss = facts.query.query_loss if facts.method == "local" else None
    advised = ADVISED_LATER if snapshot.model.earlier else shared.advised
    degrees = snapshot.degrees_of_freedom, functions, asked, facts.query.degrees_estimated
    return query_advice(*degrees, of=shared.noun, advised=advised, fewer=shared.fewer, loss=loss)


def of_learning_again(snapshot: Snapshot) -> str | None:
    """How to refit with more query points but the learned hyper-parameters, where there are too few query points."""
    facts, shared = snapshot.facts, snapshot.model.shared
    asked = facts.query.query_asked if shared.fewer else shared.functions
    limited = query_limits(snapshot.degrees_of_freedom, shared.functions, asked)
    learned = facts.learning.evaluations and facts.query.degrees_estimated is None and facts.method != "local"
    if not learned or not limited or "--query" not in shared.advised:
        return None
    return f"another --model with more of them need not learn again: fit it with --like {snapshot.url}"


def of_targets(snapshot: Snapshot) -> str | None:
    """Return advice if the targets of a regression model look like classes or counts, else None.

    They do if they take 3 to `FEW_VALUES` distinct values, all whole, with at least `ROWS_OF_EACH` rows per value on
    average.
    """
    count = snapshot.facts.survey.whole_targets or 0
    many = snapshot.committee.total.rows >= ROWS_OF_EACH * count
    if not many or not 2 < count <= FEW_VALUES or snapshot.model.likelihood.task != "regression":
        return None
    return (
        f"these targets look like classes or counts, they take {count} whole values only: if that is what they are, "
        "--task classification or --task counts says so"
    )


def of_solution(snapshot: Snapshot) -> str | None:
    """Warn that the iterative solution for the posterior mean is inaccurate."""
    error = snapshot.committee.posterior.accuracy.get("mean_error", 0.0)
    if error <= REPORTED_ERROR:
        return None
    return f"means are solved for within {error:.2g} of their standard deviations, where rounding or gaps hold them up"


def of_replicates(snapshot: Snapshot) -> str | None:
    """Report replicates (rows with equal inputs): the scatter of their targets bounds what a kernel can predict."""
    found = snapshot.facts.survey.replicates
    if not found or found.share < REPORTED_SHARE or snapshot.model.likelihood.task != "regression":
        return None
    if found.deviation == 0.0:
        return (
            f"{found.share:.0%} of rows repeat inputs and targets of others: if they are copies, leave them out, "
            "since each counts as a measurement of its own"
        )
    known = (
        "noise and known errors are" if TARGET_VARIANCE in (snapshot.facts.survey.companions or []) else "the noise is"
    )
    return (
        f"{found.share:.0%} of rows repeat inputs: {known} what repeats disagree by, a standard deviation of "
        f"{found.deviation:.3g}"
    )


def of_labels(snapshot: Snapshot) -> str | None:
    """Report inputs that are treated as unordered labels, since nearby values are unrelated."""
    found = [
        f"{name} has {count} distinct values and a lengthscale at its bound: it is used as a label"
        for name, count in (snapshot.facts.survey.labels or {}).items()
    ]
    return "; ".join(found) or None


def of_errors(snapshot: Snapshot) -> str | None:
    """Report heteroscedastic or heavy-tailed errors; predictions account for them already."""
    figures = errors(snapshot)
    if figures is None:
        return None
    found = []
    if figures["scale"] == "varying" and figures["gain"] > 0:
        found.append(f"errors are larger in some places than in others: that gains {figures['gain']:.2g} nats a row")
    if larger := {name: ratio for name, ratio in (figures["gaps"] or {}).items() if ratio > REPORTED_RATIO}:
        ratios = ", ".join(f"{name} {ratio:.2g} times" for name, ratio in larger.items())
        found.append(f"errors of rows with gaps are larger than those of others (intervals allow for it): {ratios}")
    shape = error_distribution_of(snapshot, snapshot.facts.method).shape
    kind = "normal" if snapshot.model.likelihood.normal else "the likelihood says"
    low, middle, high = (shape.quantile(q) for q in (0.25, 0.5, 0.75))
    far = FAR * (high - low) / (NORMAL.quantile(0.75) - NORMAL.quantile(0.25))
    above, below = 1.0 - float(shape.cdf(middle + far)), float(shape.cdf(middle - far))
    if above + below > HEAVY:
        prefix = _NOISE if kind == "normal" else ""
        side = "above" if above > SKEWED * below else "below" if below > SKEWED * above else "from"
        found.append(
            f"{prefix}errors are heavier than {kind}: {above + below:.1%} of rows lie more than {FAR:g} deviations "
            f"{side} the median (of normal ones .3%)"
        )
    return "; ".join(found) or None


def errors(snapshot: Snapshot) -> dict[str, Any] | None:
    """Return the error distribution of the model's predictions, JSON-ready; None where it was not measured."""
    facts = snapshot.facts
    scale, trained = facts.errors.error_scale, facts.errors.trained_errors
    if scale is None and trained is None:
        return None
    found = trained.scale if trained else scale
    distribution = error_distribution_of(snapshot, facts.method)
    shape = distribution.shape
    return {
        "scale": "constant" if distribution.scale is None else "varying",
        "gain": found and found.gain,
        "gain_error": found and found.gain_error,
        "gaps": distribution.gaps and _gap_deviations(snapshot.model, distribution.gaps),
        "left_out": facts.errors.left_out_ratio,
        "shape": _components(shape),
        "residuals": trained.rows if trained else residuals_of(facts, snapshot.ledger, facts.method).count,
    }


def _gap_deviations(model: Model, gaps: GapScale) -> dict[str, float]:
    """Standard deviation of errors at rows with gaps, relative to that at rows without, by the column that is missing
    and, for rows that miss several values, as "several"."""
    names = [model.schema.columns[number] for number in gaps.inputs]
    names += ["several"] * (len(names) > 1)
    return dict(zip(names, np.exp(0.5 * gaps.log_factors[1:]).tolist(), strict=False))


def _components(shape: Shape) -> dict[str, Any]:
    """The weight of each scale of a mixture, without those below `LEAST_WEIGHT`, and its quantiles; JSON-ready."""
    scales, where = np.unique(shape.scales, return_inverse=True)
    weights = np.bincount(where, shape.weights)
    used = weights >= LEAST_WEIGHT
    return {
        "weights": (weights[used] / weights[used].sum()).tolist(),
        "scales": scales[used].tolist(),
        "quantiles": {f"{q:g}": shape.quantile(q) for q in QUANTILES},
    }


def of_rows_outside(snapshot: Snapshot) -> str | None:
    """Report absorbed rows that local prediction does not use."""
    rows = rows_outside(snapshot)
    return outside_in_words(rows, snapshot.committee.total.rows) if rows else None


ADVISERS: tuple[Callable[[Snapshot], str | None], ...] = (
    of_better_models,
    of_outliers,
    of_few_rows,
    of_time,
    of_rows_outside,
    of_targets,
    of_replicates,
    of_bounds,
    of_labels,
    of_solution,
    of_errors,
    of_left_out,
    of_query,
    of_learning_again,
)


def advised(snapshot: Snapshot) -> list[str]:
    """Return the sentences of all advisers that have advice."""
    return [advice for adviser in ADVISERS if (advice := adviser(snapshot))]


def advice(snapshot: Snapshot) -> str:
    """Return all advice as one string."""
    return ". ".join(advised(snapshot))
