"""Further passes over the data: from the GBCM as published to the global Laplace approximation.

In the first pass every expert linearises its likelihood at its own mode. In later passes it linearises at the shared
values of the committee, which makes the passes Newton's iteration for the joint mode of the PITC model
p(v) prod_i p(f_i | v) p(y_i | f_i)     (SYSTEMS I.5). Their limit is the Laplace approximation of that model; evidence,
mean and covariance then no longer depend on where each expert linearised first.

Gaussian likelihoods are exact after one pass.
"""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from bcmdist.committee.absorbed import absorbed_partitions
from bcmdist.committee.committee import Committee, next_mean
from bcmdist.committee.facts import Facts, Pass
from bcmdist.committee.fading import weights
from bcmdist.committee.row_copies import copied
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.partition import Partition
from bcmdist.errors import BcmdistWarning
from bcmdist.experts.contributions import Contribution, EPExpert, RunningExpert, belief_arrays
from bcmdist.linalg.arrays import FloatArray
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.model import Model
from bcmdist.runtime.interface import Runtime
from bcmdist.runtime.timing import StageTimer
from bcmdist.storage.commits import BlobReference
from bcmdist.storage.entry import RUNNING, Entry
from bcmdist.storage.fields import damaged

# A pass is the last one if no prediction moves by more than this share of its standard deviation. Newton's iteration
# doubles the digits with each pass, so the remaining error is about the square of this.
TOLERANCE = 1e-3
# Passes continue while `PATIENCE` of them reduce the smallest change to at most `PAYING_SHARE` of itself.
PATIENCE, PAYING_SHARE = 10, 0.9
# With a running belief: number of absorbed partitions for each of those that are linearised under it at the same time.
ABSORBED_PER_PARTITION = 10
HALVINGS = 10  # most halvings of one step; after these the step is taken even if the objective falls
# A pass of expectation propagation whose change exceeds `SLOW_SHARE` of the previous one may be oscillating: the sites
# of the next pass are damped by `DAMPED_STEP`.
SLOW_SHARE, DAMPED_STEP = 0.7, 0.7
# Relative decrease of the objective that rounding alone can cause.
ROUNDING = 1e-12


def first_pass(facts: Facts) -> dict[str, Any]:
    """Facts to change when messages of a first pass are added: the numbering of passes starts again."""
    done = facts.linearisation.passes
    fresh = not done or done[-1].change is not None
    return {"passes": (*done, Pass(1)) if fresh else done, "objective": None}


def passes_made(facts: Facts) -> int:
    """Number of passes since first-pass messages were last added, including the first pass."""
    return facts.linearisation.passes[-1].number if facts.linearisation.passes else 0


def log_evidence(model: Model, facts: Facts, ledger: Sequence[Entry], committee: Committee) -> float | None:
    """log p of all targets in their original unit, in nats, comparable between likelihoods and units of the data.

    Each density adds the Jacobian -log y_scale to the committee's evidence of scaled targets. None if the ledger does
    not record the number of densities (older versions did not), or where rows observe several outputs, each in a unit
    of its own. For a mixture, the mean over its members.
    """
    if model.outputs:
        return None
    log_evidence = committee.log_evidence / (max(1, len(model.shared.members)) if model.shared.mixture else 1)
    jacobian = cast(float, model.scaling.log_jacobian(model.likelihood.units))  # of one output
    if jacobian == 0.0:
        return log_evidence
    count = densities(model, facts, ledger)
    return None if count is None else log_evidence + count * jacobian


def densities(model: Model, facts: Facts, ledger: Sequence[Entry]) -> float | None:
    """Number of target densities in the evidence of a committee; None if the ledger does not record it."""
    counts = weights(facts.fading, ledger)
    rows = [e.rows if e.densities is None and model.likelihood.exact else e.densities for e in ledger]
    recorded = [n for n in rows if n is not None]
    if len(recorded) < len(rows):
        return None
    return sum(counts[e.key] * n for e, n in zip(ledger, recorded, strict=True))


def changes_made(facts: Facts) -> list[float]:
    """`Pass.change` of each further pass since first-pass messages were last added."""
    made = passes_made(facts)
    return [entry.change for entry in facts.linearisation.passes[-made:] if entry.change is not None] if made else []


def converged(facts: Facts) -> bool | None:
    """Whether the last pass moved no prediction by more than `TOLERANCE`; None if no further pass was made."""
    changes = changes_made(facts)
    return changes[-1] <= TOLERANCE if changes else None


def within(last: Pass, tolerance: float = TOLERANCE) -> bool:
    """Whether a pass moved no prediction by more than `tolerance` standard deviations; False for a first pass."""
    return last.change is not None and last.change <= tolerance


def _pays(changes: Sequence[float]) -> bool:
    """Whether the changes of passes still decrease (`PATIENCE`, `PAYING_SHARE`)."""
    recent, before = changes[-PATIENCE:], changes[:-PATIENCE]
    return not before or min(recent) < PAYING_SHARE * min(before)


def refine(snapshot: Snapshot, runtime: Runtime, *, most: int | None = None, tolerance: float = TOLERANCE) -> Snapshot:
    """Make and commit passes until the posterior mean moves by less than `tolerance` posterior standard deviations.

    The `change` of a pass is the length of its move in the metric of the posterior precision, which bounds the change
    of every prediction in units of its standard deviation. A step that would lower the joint log density is halved,
    which costs another pass.

    Parameters
    ----------
    most : largest number of passes, the first included; by default passes continue while their changes decrease, and a
        `BcmdistWarning` is issued if they end above the tolerance

    Returns
    -------
    The snapshot of the refined committee; `facts.linearisation.passes` lists change and log evidence of each pass. The
    snapshot is returned unchanged if the likelihood is exact after one pass or needs calibration (svm), if messages are
    linearised at the running posterior or averaged over draws of inputs, or if the ledger is empty.
    """
    likelihood = snapshot.model.likelihood
    once = likelihood.one_pass or snapshot.facts.linearisation.linearise == RUNNING
    if once or snapshot.model.input_errors is not None or not snapshot.ledger:
        return snapshot
    parts = _through_present(absorbed_partitions(snapshot))
    values, halvings = _balanced(snapshot.committee.posterior.mean, likelihood), 0
    at = snapshot.facts.linearisation.linearised_at
    previous = snapshot.store.get_array(at) if at else None
    done = snapshot.facts.linearisation.passes
    if not done:
        raise damaged(f"{snapshot.url}: commit {snapshot.commit}", "a pass in which partitions were absorbed", "none")
    while not within(done[-1], tolerance):
        if not (_pays(changes_made(snapshot.facts)) if most is None else done[-1].number < most):
            break
        stages, number = StageTimer(), done[-1].number + 1
        with stages("passes"):
            absorbed, facts = _next_pass(snapshot, parts, values, runtime, label=f"pass {number}")
        objective, last = facts["objective"], snapshot.facts.linearisation.objective
        fell = last is not None and objective < last - ROUNDING * abs(last)
        if previous is not None and fell and halvings < HALVINGS:
            values, halvings = 0.5 * (values + previous), halvings + 1
            continue
        committee = replace(snapshot.committee, total=absorbed.message)
        moved = next_mean(committee, absorbed.step)
        change = committee.posterior.length(moved - values)
        entries = [_as_before(absorbed.entries[old.key], old) for old in snapshot.ledger]
        evidence = log_evidence(snapshot.model, snapshot.facts, entries, committee)
        done = (*done, Pass(number, change, evidence, halvings))
        snapshot = snapshot.successor(committee, entries, rewrite=True, stages=stages, passes=done, **facts)
        parts = _through_present(absorbed_partitions(snapshot))
        values, previous, halvings = _balanced(moved, likelihood), values, 0
    if most is None and not within(done[-1], tolerance):
        warnings.warn(
            BcmdistWarning(
                f"{snapshot.url}: expected passes until no prediction moves by more than {tolerance:g} of its standard "
                f"deviation, the last of {done[-1].number} still moved one by up to {done[-1].change:.2g} and they "
                "come no closer; take predictions to be as uncertain as that, or fit with --approximation ep or "
                "another --likelihood"
            ),
            stacklevel=2,
        )
    return snapshot


def _through_present(parts: Iterable[Partition]) -> list[Partition]:
    """The partitions as they are absorbed anew: through the present query set."""
    return [replace(part, query=None) for part in parts]


def _next_pass(
    snapshot: Snapshot, parts: Sequence[Partition], values: FloatArray, runtime: Runtime, *, label: str
) -> tuple[Contribution, dict[str, Any]]:
    """Messages of one more pass, and the facts to change after it."""
    if snapshot.facts.linearisation.approximation == "ep":
        total, changes = (
            snapshot.committee.total,
            [entry.change for entry in snapshot.facts.linearisation.passes if entry.change is not None],
        )
        slow = len(changes) > 1 and changes[-1] > SLOW_SHARE * changes[-2]
        with snapshot.store.transient({"eta": total.eta, "precision": total.precision}) as references:
            task = EPExpert(snapshot.reference, **references, step=DAMPED_STEP if slow else 1.0)
            return snapshot.messages_of(task, parts, runtime, label=label), NO_OBJECTIVE
    at = BlobReference(snapshot.url, snapshot.store.put_arrays({"at": values})["at"])
    absorbed = snapshot.compute_messages(parts, runtime, at=at, label=label)
    objective = absorbed.objective - 0.5 * float(np.vdot(values, values))
    return absorbed, {"objective": objective, "linearised_at": at.digest}


# Expectation propagation maximises no objective that could be compared between passes.
NO_OBJECTIVE: dict[str, Any] = {"objective": None, "linearised_at": None}


def _balanced(values: FloatArray, likelihood: Likelihood) -> FloatArray:
    """Shared values (C, S) of C processes, shifted to sum to zero over processes as they do at the joint mode.

    Unchanged for a single process, (S,), or processes that are independent models (`Likelihood.apart`). At the mode
    every row's scores sum to zero over classes, and with one kernel for all processes so do the values. Messages
    without cross-class terms converge slowly in this direction, and nothing else depends on it.
    """
    return values if values.ndim == 1 or likelihood.independent_processes else values - values.mean(axis=0)


def absorb_in_turn(snapshot: Snapshot, parts: Sequence[Partition], runtime: Runtime) -> Snapshot:
    """Absorb partitions in groups, linearised under the posterior of the groups before, and commit once at the end.

    A group has one partition for each `ABSORBED_PER_PARTITION` before it, at least one. The result is closer to the
    limit of the passes than with all in parallel, but depends on the order (SYSTEMS I.5, last paragraph).
    """
    stages, committee = StageTimer(), snapshot.committee
    entries: list[Entry] = []
    with stages("experts"):
        while len(entries) < len(parts):
            group = parts[len(entries) :][: partitions_at_once(len(snapshot.ledger) + len(entries))]
            label = f"expert {len(entries) + 1} of {len(parts)}"
            with snapshot.store.transient(belief_arrays(committee.total)) as references:
                task = copied(snapshot, RunningExpert(snapshot.reference, **references))
                absorbed = snapshot.messages_of(task, group, runtime, label=label)
            committee = committee.absorb(absorbed.message)
            entries += [absorbed.entries[part.key] for part in group]
    return snapshot.successor(committee, entries, stages=stages, **first_pass(snapshot.facts))


def partitions_at_once(absorbed: int) -> int:
    """Number of partitions that are linearised under the posterior of so many absorbed ones."""
    return max(1, absorbed // ABSORBED_PER_PARTITION)


def _as_before(entry: Entry, old: Entry) -> Entry:
    """The ledger entry of a new pass, with weight, position and recorded observations of the old one."""
    kept = ("weight", "position", "arrival", "excess_loss", "residuals", "copy")
    return replace(entry, **{name: getattr(old, name) for name in kept})
