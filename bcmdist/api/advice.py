"""What somebody might do about a fit, and why: one sentence of each adviser who has something to say.

A further one is a function of a snapshot that gives a sentence, or None where all is well, in `ADVISERS`.
"""

from collections.abc import Callable

import numpy as np

from bcmdist.committee.cells import outside_in_words, rows_outside
from bcmdist.committee.committee import query_advice, query_limits
from bcmdist.committee.snapshot import Snapshot
from bcmdist.prediction.errors.error_distribution import error_distribution_of, residuals_of

# Share of rows that repeat inputs from which on it is said: fewer say little about the noise of all.
TOLD_SHARE = 0.05
# Errors of means, in their standard deviations, that are worth a word.
TOLD_ERROR = 1e-3
# Errors so many times as wide as most are worth a word.
WIDE = 2.0
# Whole values that targets take, at most, to be taken for labels or counts; and rows of each, at least. Arbitrary.
FEW_VALUES, ROWS_OF_EACH = 20, 5
_NOISE = "your noise is not Gaussian (intervals allow for it): "


def of_query(snapshot: Snapshot) -> str:
    """Whether there are enough query points; always said."""
    facts, shared = snapshot.facts, snapshot.model.shared
    functions = shared.functions // max(1, len(shared.members))
    asked = facts.query_asked if shared.fewer else functions
    loss = facts.halving_loss if facts.method == "local" else None
    how = {"of": shared.noun, "advised": shared.advised, "fewer": shared.fewer, "loss": loss}
    return query_advice(snapshot.degrees_of_freedom, functions, asked, facts.degrees_estimated, **how)


def of_learning_again(snapshot: Snapshot) -> str | None:
    """What need not be done again where the query set limits a fit whose hyper-parameters were learned."""
    facts, shared = snapshot.facts, snapshot.model.shared
    asked = facts.query_asked if shared.fewer else shared.functions
    limited = query_limits(snapshot.degrees_of_freedom, shared.functions, asked)
    learned = facts.evaluations and facts.degrees_estimated is None and facts.method != "local"
    if not learned or not limited or "--query" not in shared.advised:
        return None
    given = f"--no-learn --kernel '{snapshot.model.kernel_name}' --mean {shared.mean.name}"
    return (
        f"another --model with more of them need not learn again: {given}, and --set with each of the hyperparameters"
    )


def of_targets(snapshot: Snapshot) -> str | None:
    """Targets of a regression that look like something else."""
    count = snapshot.facts.whole_targets or 0
    many = snapshot.committee.total.rows >= ROWS_OF_EACH * count
    if not many or not 2 < count <= FEW_VALUES or snapshot.model.likelihood.task != "regression":
        return None
    return (
        f"these targets look like classes or counts, they take {count} whole values only: if that is what they are, "
        "--task classification or --task counts says so"
    )


def of_solution(snapshot: Snapshot) -> str | None:
    """A mean that was not solved for as well as predictions ask."""
    error = snapshot.committee.posterior.told.get("mean_error", 0.0)
    if error <= TOLD_ERROR:
        return None
    return f"means are solved for within {error:.2g} of their standard deviations, where rounding or gaps hold them up"


def of_repeats(snapshot: Snapshot) -> str | None:
    """Rows whose inputs others have too: no kernel predicts what these disagree by."""
    found = snapshot.facts.repeats
    if not found or found["share"] < TOLD_SHARE or snapshot.model.likelihood.task != "regression":
        return None
    if found["deviation"] == 0.0:
        return (
            f"{found['share']:.0%} of rows repeat inputs and targets of others: if they are copies, leave them out, "
            "since each counts as a measurement of its own"
        )
    return (
        f"{found['share']:.0%} of rows repeat inputs: the noise is what repeats disagree by, a standard deviation of "
        f"{found['deviation']:.3g}"
    )


def of_labels(snapshot: Snapshot) -> str | None:
    """Inputs whose values say nothing of each other."""
    found = [
        f"{name} has {count} distinct values and a lengthscale at its bound: it is used as a label"
        for name, count in (snapshot.facts.labels or {}).items()
    ]
    return "; ".join(found) or None


def of_errors(snapshot: Snapshot) -> str | None:
    """How errors differ from normal ones of one scale: predictions have it, users may want to know."""
    told = errors(snapshot)
    if told is None:
        return None
    found = []
    if told["scale"] == "varying" and told["gain"] > 0:
        found.append(f"errors are larger in some places than in others: that gains {told['gain']:.2g} nats a row")
    weights, scales = np.array(told["shape"]["weights"]), np.array(told["shape"]["scales"])
    most = scales[np.argmax(weights)]
    kind = "normal" if snapshot.model.likelihood.normal else "the likelihood says"
    wide = scales >= WIDE * most
    if wide.any():
        times = np.sqrt(weights[wide] @ scales[wide] ** 2 / weights[wide].sum()) / most
        share = f"{weights[wide].sum():.0%} of rows are {times:.2g} times as wide"
        found.append(f"{_NOISE if kind == 'normal' else ''}errors are heavier than {kind}: {share}")
    return "; ".join(found) or None


def errors(snapshot: Snapshot) -> dict | None:
    """How errors are spread about predictions of the method of a model, JSON-ready; None where it was not measured."""
    facts = snapshot.facts
    if facts.spread is None:
        return None
    spread = error_distribution_of(snapshot, facts.method)
    shape = spread.shape
    return {
        "scale": "constant" if spread.scale is None else "varying",
        "gain": facts.spread["gain"],
        "gain_error": facts.spread["gain_error"],
        "shape": {"weights": list(shape.weights), "scales": list(shape.scales)},
        "residuals": residuals_of(facts, snapshot.ledger, facts.method).count,
    }


def of_rows_outside(snapshot: Snapshot) -> str | None:
    """Rows that local prediction does not find around new points."""
    rows = rows_outside(snapshot)
    return outside_in_words(rows, snapshot.committee.total.rows) if rows else None


ADVISERS: tuple[Callable[[Snapshot], str | None], ...] = (
    of_query,
    of_learning_again,
    of_solution,
    of_targets,
    of_repeats,
    of_labels,
    of_errors,
    of_rows_outside,
)


def advised(snapshot: Snapshot) -> list[str]:
    """What each adviser who has something to say says."""
    return [said for adviser in ADVISERS if (said := adviser(snapshot))]


def advice(snapshot: Snapshot) -> str:
    """All advice, as sentences."""
    return ". ".join(advised(snapshot))
