"""Choose the transform of targets: as users ask, or by rows that are left out.

Skewed positive targets are compared as they are, as logarithms and as powers, in the way of input warps
(`bcmdist.learning.input_warping`), by the densities of targets in original units. Single rows decide, whose errors have
a fitted distribution: a few gross errors of targets have no say.
"""

from dataclasses import replace
from typing import Any

from bcmdist.data.observations import TARGET_VARIANCE
from bcmdist.data.tables.series import lags_of
from bcmdist.errors import UnsupportedTarget
from bcmdist.learning.input_warping import LEAST_ROWS, choose_warps, pilot_of, skewness
from bcmdist.model.scaling import Scaling
from bcmdist.model.target_transform import NEGLIGIBLE, TargetTransform, likeliest_power

# Skewness above which positive targets are compared with their transforms; that of an exponential distribution is 2.
SKEWED = 0.5
AUTO, NONE, LOG, POWER = "auto", "none", "log", "power"


def choose_scaling(case, store, url: str) -> tuple[Scaling, list[dict[str, Any]]]:
    """Choose the transform of targets, then the warps of inputs: the scaling of a `FitContext`, and the decisions.

    Raises
    ------
    UnsupportedTarget
        A transform is asked for, and there are targets of 0 or less.
    """
    asked, decisions = case.settings.target_transform, []
    if asked in (LOG, POWER):
        _refuse_others(case, asked)
        case = replace(case, scaling=transforms(case)[asked])
    elif asked == AUTO and (others := _candidates(case)):
        pilot = pilot_of(case, store, f"{url}/target", by_blocks=False)
        taken, decision = pilot.select({NONE: case.scaling} | others, of="target")
        decisions = [decision.to_json()]
        case = replace(case, scaling=others.get(taken, case.scaling))
    scaling, of_warps = choose_warps(case, store, f"{url}/warp")
    return scaling, decisions + of_warps


def transforms(case) -> dict[str, Scaling]:
    """Return the scalings of transformed targets, by the name of the transform; all targets are positive."""
    surveyed, y, X = case.surveyed, case.surveyed.sample.obs.y, case.surveyed.sample.X
    of_all = {"least": surveyed.y.low[0], "mean": surveyed.y.mean[0]}
    powers = {LOG: 0.0} if case.outputs else {LOG: 0.0, POWER: likeliest_power(y)}  # a power depends on the unit
    return {
        name: case.scaling.with_transform(TargetTransform.of_targets(power, **of_all), y, X)
        for name, power in powers.items()
    }


def _candidates(case) -> dict[str, Scaling]:
    """The alternatives to skewed positive targets as they are, less skewed than these.

    None for series whose inputs are their last values: forecasts need normal errors.
    """
    method = case.method
    able = case.settings.learn and case.likelihood.normal and not method.capabilities.input_errors
    able = able and TARGET_VARIANCE not in case.data.companions  # in the unit of the target itself
    able = able and case.data.rows >= LEAST_ROWS and not lags_of(case.schema.columns)
    skewed = _skewness(case, case.scaling)
    if not able or case.surveyed.y.low[0] <= 0.0 or skewed <= SKEWED:
        return {}
    found = {name: one for name, one in transforms(case).items() if abs(_skewness(case, one)) < skewed}
    power = found[POWER].transform.power if POWER in found else 0.0  # type: ignore[union-attr]
    if not NEGLIGIBLE < power < 1.0 - NEGLIGIBLE:
        found.pop(POWER, None)
    return found


def _skewness(case, scaling):
    """Skewness of sampled targets, each scaled as those of its output."""
    sample = case.surveyed.sample
    return skewness(scaling.observations(sample.obs, case.likelihood.units, sample.X).y)


def _refuse_others(case, asked):
    least, sample = case.surveyed.y.low[0], case.surveyed.sample
    if least <= 0.0:
        rows = sample.row[sample.obs.y <= 0.0]
        where = f" (row {rows.min()} is such a one)" if len(rows) else ""
        raise UnsupportedTarget(
            f"{case.data.url}: expected positive targets in {case.settings.y} with --target-transform {asked}, got "
            f"{least:g} as the least{where}; give --target-transform none, or leave out these rows"
        )
