"""Choose how inputs are warped before they are scaled: as users ask, or by rows that are left out.

A pilot compares the inputs as they are with all skewed columns warped by their logarithms, or by ranks. Each is learned
from a few small blocks of a uniform sample, the warped ones starting where the first ended; rows and blocks left out of
larger parts of the sample decide. Warped inputs are taken where they predict decisively better (`select`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bcmdist.data.schema import UNNAMED, Schema
from bcmdist.errors import InvalidOption
from bcmdist.learning.blocks.blocks import SampleBlocks
from bcmdist.learning.cross_validation import DECISIVE_NATS, densities_of
from bcmdist.learning.decisions import ROWS_LEFT_OUT, Decision
from bcmdist.learning.evidence.local_tasks import BlocksOfSample, LeftOut, LocalEvidence
from bcmdist.learning.evidence.objectives import LocalObjective
from bcmdist.learning.hyperparameters import first_kernel, first_mean
from bcmdist.learning.left_out.blocks import SAMPLES, by_size, shares_of
from bcmdist.learning.left_out.score import Score, margin
from bcmdist.learning.outputs import ONE_OUTPUT, OutputColumns
from bcmdist.learning.point import Point, expanded
from bcmdist.learning.search import Effort, polish
from bcmdist.learning.survey import SurveyResult
from bcmdist.model.kernel_columns import KernelColumns
from bcmdist.model.kernels import metric, parse_kernel
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.scaling import (
    Moments,
    Scaling,
    column_moments,
    scaling_from,
    scaling_to_array,
    without_errors,
)
from bcmdist.model.units import Units
from bcmdist.model.warping import (
    AUTO,
    LINEAR_BELOW,
    LOG,
    NONE,
    RANK,
    SIGNED_LOG,
    Log,
    Log1p,
    Rank,
    SignedLog,
    Warp,
    Warping,
    parse_warp,
)
from bcmdist.runtime.interface import Runtime
from bcmdist.storage.commits import BlobReference, ModelStore

# Skewness, in absolute value, above which a column is a candidate; that of an exponential distribution is 2.
SKEWED = 1.0
# Fewest rows with which warps are compared.
LEAST_ROWS = 200
# The pilot: share of the rows of `Effort` that it learns from, rows of a block, and iterations with one lengthscale and
# with lengthscales per input; maximum rows that are left out, and rows of their blocks.
PILOT_SHARE, PILOT_BLOCK, PILOT_STEPS = 0.2, 500, (8, 20)
LEFT_OUT_ROWS, LEFT_OUT_BLOCK = 4000, 500
# Standard errors that a gain must exceed.
DECISIVE_ERRORS = 2.0


def requested_warps(settings, surveyed: SurveyResult, schema, where: str) -> dict[int, str]:
    """Return the kind asked for each input, by number: "auto" where left-out rows are to decide.

    Constant columns, columns of two values, which any map only shifts and scales, inputs of categories and of points on
    a sphere, and columns of periodic kernels stay as they are.

    Raises
    ------
    InvalidOption
        A column is unknown or a category, or has negative values whose logarithm is asked for.
    """
    common, by_column = parse_warp(settings.warp)
    names = list(schema.columns) or [f"X[{k}]" for k in range(len(surveyed.x.mean))]
    several = [schema.groups.count(group) > 1 for group in schema.groups]
    categories = np.array(several) if several else np.zeros(len(names), bool)
    plain = ~(surveyed.x.constant | surveyed.x.two_valued | categories)
    kinds = {k: common if able else NONE for k, able in enumerate(plain)}
    for column, kind in by_column.items():
        k = names.index(column) if column in names else int(column) if column.isdecimal() else -1
        if not 0 <= k < len(names) or categories[k]:
            raise InvalidOption(
                f"{where}: expected a numeric column with --warp ({', '.join(names[:8])}{', ...' * (len(names) > 8)}; "
                f"or its number), got {column!r}; correct it"
            )
        row = surveyed.logarithms.negative[k]
        if kind == LOG and row >= 0:
            raise InvalidOption(
                f"{where}: expected no negative value for --warp {column}=log, got one in {schema.column(k)} at row "
                f"{row}; give {column}={SIGNED_LOG}, {column}={RANK} or {column}={NONE}"
            )
        kinds[k] = kind if plain[k] else NONE
    return kinds | dict.fromkeys(KernelColumns(len(names), schema).cyclic(settings.kernel), NONE)


def warped_scaling(
    surveyed: SurveyResult,
    kinds: Mapping[int, str],
    units: Units,
    schema: Schema = UNNAMED,
    outputs: OutputColumns = ONE_OUTPUT,
) -> Scaling:
    """Return the scaling of inputs that are warped by the kinds asked for, by column, and of targets by output."""
    x, warps = surveyed.x, {}
    mean, squares, low, high = (np.array(values) for values in (x.mean, x.squares, x.low, x.high))
    for k, kind in kinds.items():
        found = _warp(surveyed, k, kind)
        if found is None:
            continue
        warps[k], own = found
        mean[k], squares[k], low[k], high[k] = own
    scaling = scaling_from(
        Moments(x.count, mean, squares, low, high),
        without_errors(surveyed.y, surveyed.sample.obs),
        surveyed.exposure,
        units,
        schema.groups,
        Warping(warps),
        (*schema.gaps, *outputs.columns),
    )
    return replace(scaling, outputs=outputs.scaled(surveyed.of_outputs, units)) if outputs else scaling


def _warp(surveyed, k, kind) -> tuple[Warp, tuple[float, ...]] | None:
    """Return the map of a column, with mean, centred sum of squares, minimum and maximum of its images."""
    logs, least = surveyed.logarithms, surveyed.x.low[k]
    if kind == RANK:  # from the sample, as the map is
        warp = Rank.of_sample(surveyed.sample.X[:, k])
        if warp is None:
            return None
        of = column_moments(warp(surveyed.sample.X[:, k])[:, None])
        ends = warp(np.array([least, surveyed.x.high[k]]))
        return warp, (of.mean[0], of.squares[0] * surveyed.x.count / of.count, *ends)
    if kind == LOG and least > 0.0:
        of, log = logs.log, Log(LINEAR_BELOW * float(least))
        return log, (of.mean[k], of.squares[k], of.low[k], of.high[k])
    if kind in (LOG, SIGNED_LOG):
        of, signed = logs.signed, Log1p() if least >= 0.0 else SignedLog()
        return signed, (of.mean[k], of.squares[k], of.low[k], of.high[k])
    return None


def choose_warps(case, store: ModelStore, url: str) -> tuple[Scaling, list[dict[str, Any]]]:
    """Choose the warps left to learning: the scaling of a `FitContext` with them, and the decision, JSON-ready.

    Left-out rows choose while learning from exact inputs.
    """
    surveyed, settings, units, method = case.surveyed, case.settings, case.likelihood.units, case.method
    able = settings.learn and not method.capabilities.input_errors
    others = candidates(surveyed, case.warps) if able and case.data.rows >= LEAST_ROWS else {}
    if not others:
        return case.scaling, []
    of_target = {name: getattr(case.scaling, name) for name in ("y_mean", "y_scale", "transform", "outputs")}
    scalings = {NONE: case.scaling} | {
        name: replace(warped_scaling(surveyed, {**case.warps, **kinds}, units, case.schema, case.outputs), **of_target)
        for name, kinds in others.items()
    }
    name, decision = pilot_of(case, store, url).select(scalings, of="warp")
    return scalings[name], [decision.to_json()]


def pilot_of(case, store: ModelStore, url: str, *, by_blocks=True) -> "Pilot":
    """Return the pilot of a `FitContext`; `url`: directory, readable by all workers, for the sampled rows."""
    surveyed, settings = case.surveyed, case.settings
    learned_as = case.likelihood.learned_as()
    classes = case.classes or ((0.0, 1.0) if learned_as is not case.likelihood else None)
    first = first_kernel(settings, case.outputs), first_mean(settings, case.outputs)
    of_model = (learned_as, classes, *first, case.schema.groups)
    return Pilot(
        surveyed, *of_model, case.effort, case.data.companions, case.runtime, store, url, case.places, by_blocks
    )


def candidates(surveyed: SurveyResult, kinds: Mapping[int, str]) -> dict[str, dict[int, str]]:
    """Return the alternatives to columns as they are: kinds by column, by name of the alternative.

    Candidates are the skewed columns among those asked for as "auto"; logarithms only where they are less skewed.
    """
    X = surveyed.sample.X
    open_to_it = [k for k, kind in kinds.items() if kind == AUTO and abs(skewness(X[:, k])) > SKEWED]
    logs = {k: LOG for k in open_to_it if _logarithm_is_less_skewed(surveyed, k)}
    found = {LOG: logs, RANK: dict.fromkeys(open_to_it, RANK)}
    return {name: kinds for name, kinds in found.items() if kinds}


def _logarithm_is_less_skewed(surveyed, k):
    x, found = surveyed.sample.X[:, k], _warp(surveyed, k, LOG)
    return found is not None and abs(skewness(found[0](x))) < abs(skewness(x))


def skewness(x: np.ndarray) -> float:
    """Return the third standardised moment of values (n,); 0 where they are equal."""
    away = x - x.mean()
    sd = np.sqrt((away**2).mean())
    return float(((away / sd) ** 3).mean()) if sd > 0.0 else 0.0


@dataclass(frozen=True)
class _First:
    """What is learned of columns as they are, and by which blocks all warps are compared."""

    point: Point
    reference: BlobReference
    """reference of their scaling"""
    unit: tuple[float, ...]
    """metric of the blocks, (D,)"""
    shares: tuple[float, ...]
    """weights of single rows and of blocks of each size"""


@dataclass(frozen=True)
class Pilot:
    """What the comparison of scalings needs of a fit."""

    surveyed: SurveyResult
    likelihood: Likelihood
    """with which hyper-parameters are learned"""
    classes: tuple[float, ...] | None
    kernel: str
    mean: str
    groups: tuple[int, ...]
    effort: Effort
    companions: tuple[str, ...]
    runtime: Runtime
    store: ModelStore
    url: str
    """directory, readable by all workers, for the sampled rows"""
    places: np.ndarray | None = None
    """inputs at which predictions will be needed, (m, D), in original units; None if unknown"""
    by_blocks: bool = True
    """whether blocks of rows are left out, too, and scored as Gaussian"""

    def select(self, scalings: Mapping[str, Scaling], *, of: str) -> tuple[str, Decision]:
        """Return the name of the scaling that predicts left-out rows best, and the decision.

        The first, of columns or targets as they are, is kept unless a later one gains more than `DECISIVE_NATS` a row
        and `DECISIVE_ERRORS` standard errors; in the same way that one is kept against those after it.

        Parameters
        ----------
        of : what is decided, for the record
        """
        scores: dict[str, Score] = {}
        first: _First | None = None
        with self.store.transient({name: scaling_to_array(one) for name, one in scalings.items()}) as references:
            for name, reference in references.items():
                point = self._learned(reference, first.point if first else None)
                first = first or self._first(point, reference, scalings[name])
                scores[name] = self._score(reference, point, first)
        taken, *others = scores
        for name in others:
            gain = margin(scores[name], scores[taken])
            if gain.nats > max(DECISIVE_NATS, DECISIVE_ERRORS * (gain.error or 0.0)):
                taken = name
        over = {name: margin(scores[taken], score) for name, score in scores.items() if name != taken}
        return taken, Decision(of, taken, ROWS_LEFT_OUT, over)

    def _learned(self, reference, begun: Point | None) -> Point:
        """Learn from small blocks: from the start, or from the better of a learned point and the start."""
        rows = int(PILOT_SHARE * self.effort.rows)
        parts = self._blocks("learning", rows, PILOT_BLOCK)
        inputs, (first_steps, steps) = self.surveyed.sample.X.shape[1], PILOT_STEPS
        objective = LocalObjective(
            self.runtime, parts, scaling=reference, mean=self.mean, classes=self.classes, task=LocalEvidence
        )
        kernel = parse_kernel(self.kernel, inputs=inputs).isotropic()
        start = Point(self.kernel, kernel, self.likelihood, -np.inf, groups=self.groups)
        if begun is None:
            rough = polish(objective, start, inputs=inputs, steps=first_steps)
            begun = expanded(replace(start, kernel=rough.kernel, likelihood=rough.likelihood), inputs)
        else:
            begun = max(begun, expanded(start, inputs), key=lambda point: objective(point.kernel, point.likelihood)[0])
        found = polish(objective, begun, inputs=inputs, steps=steps)
        return replace(begun, kernel=found.kernel, likelihood=found.likelihood, objective=found.objective)

    def _first(self, point, reference, scaling) -> "_First":
        """Draw the blocks that are left out: compact in the metric of columns as they are."""
        unit = metric(point.kernel, len(scaling.x_scale))
        places = None if self.places is None else scaling.inputs(self.places) / unit
        sample = scaling.inputs(self.surveyed.sample.X) / unit
        return _First(point, reference, tuple(unit.tolist()), shares_of(sample, places))

    def _score(self, reference, point, first) -> Score:
        parts = self._blocks("left-out", min(LEFT_OUT_ROWS, self.effort.rows), LEFT_OUT_BLOCK)
        about = reference, point.kernel, self.mean, point.likelihood, self.classes
        values = self.runtime.sum(LeftOut(*about, LEFT_OUT_BLOCK), parts, label="judge").values
        rows, steepness = densities_of(point.likelihood, values)
        if not self.by_blocks:
            return Score((rows,))
        blocks = BlocksOfSample(*about, first.reference, first.unit)
        by_blocks = by_size(self.runtime.sum(blocks, parts[:SAMPLES], label="blocks").values, steepness)
        return Score((rows, *by_blocks), first.shares)

    def _blocks(self, name, rows, size):
        sample = self.surveyed.sample
        some = np.arange(min(rows, len(sample.X)))  # the sample is in random order
        blocks = SampleBlocks(sample.X[some], sample.obs[some], self.companions, f"{self.url}/{name}", size=size)
        return blocks.cut(size)
