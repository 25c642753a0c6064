"""Several outputs in a fit: which inputs name a row's output, and the kernel and the mean of all outputs together.

    matern32    ->    coregionalised(0, 1, 2)*matern32(3, 4)
    constant    ->    constant(0, 1, 2)

with inputs 0 to 2 one-hot for three outputs. A kernel that a user writes with `coregionalised` stays as it is. Where
its rank is not given, ranks from 1 upwards are tried, each where it gains enough evidence over the one before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bcmdist.data.schema import Schema, few
from bcmdist.data.tables.coding import OUTPUT, Category
from bcmdist.data.tables.column import is_plain
from bcmdist.errors import InvalidData, InvalidOption
from bcmdist.learning.point import Point
from bcmdist.model.kernels import Constant, Coregionalised, parse_kernel
from bcmdist.model.kernels.coregionalised import first_angles
from bcmdist.model.kernels.grammar import Factor, parsed, written
from bcmdist.model.mean import mean_of_outputs
from bcmdist.model.outputs import Outputs, output_numbers
from bcmdist.model.scaling import Moments, column_moments
from bcmdist.model.units import Units

# Largest rank that is tried, and the evidence that each further parameter must gain (Akaike 1974).
MOST_RANK, AKAIKE = 3, 1.0


@dataclass(frozen=True)
class OutputColumns:
    """The one-hot inputs that name a row's output; false where rows observe one output only."""

    columns: tuple[int, ...] = ()
    """numbers of the inputs, (P,)"""
    inputs: int = 0
    """number D of all inputs"""

    def __bool__(self) -> bool:
        return bool(self.columns)

    def kernel(self, expression: str) -> str:
        """The kernel of all outputs from that of one, with numbers of columns; unchanged where it is of outputs.

        Terms of `white` and `constant` are coregionalised, too.
        """
        terms = parsed(expression)
        if not self or any(factor.name == Coregionalised.name for term in terms for factor in term):
            return expression
        others = tuple(k for k in range(self.inputs) if k not in self.columns)
        of_outputs = Factor(Coregionalised.name, columns=self.columns)

        def on_others(factor):
            everywhere = factor.columns is None and factor.name != Constant.name
            return replace(factor, columns=others) if everywhere else factor

        return written(tuple((of_outputs, *map(on_others, term)) for term in terms))

    def refuse_others(self, expression: str) -> None:
        """Raise `InvalidOption` where a kernel is coregionalised over other inputs than those of the outputs."""
        for factor in (factor for term in parsed(expression) for factor in term):
            if factor.name == Coregionalised.name and (not self or factor.columns != self.columns):
                raise InvalidOption(
                    f"kernel: expected {Coregionalised.name} of the column that names outputs, which output gives, got "
                    f"another in {expression:.80}; give output (--output NAME), or a category() of that column"
                )

    def scaled(self, moments: Mapping[int, tuple[Moments, Moments]], units: Units) -> Outputs:
        """The scaling of each output's targets, from the moments of its targets and exposures, by number."""
        found = [units.found(*moments[k]) for k in range(len(self.columns))]
        mean, scale = (tuple(float(one[k]) for one in found) for k in range(2))
        return Outputs(self.columns, mean, scale, tuple(float(units.training_mean(*one)) for one in found))

    def standardised(self, y, X) -> np.ndarray:
        """Targets (n,) of rows X (n, D), standardised among those of their output; unchanged where there is one."""
        if not self:
            return y
        found, number = np.zeros(len(y)), output_numbers(X, self.columns)
        for k in np.unique(number):
            of = column_moments(y[number == k][:, None])
            found[number == k] = (y[number == k] - of.mean[0]) / of.scale[0]
        return found

    def mean(self, name: str) -> str:
        """The mean of all outputs from that of one."""
        return mean_of_outputs(name, self.columns)


ONE_OUTPUT = OutputColumns()


def output_columns(settings, schema: Schema, inputs: int, where: str) -> OutputColumns:
    """Return the inputs that name a row's output, as the settings ask.

    Raises
    ------
    InvalidOption
        There is no such column, or it is no category.
    InvalidData
        It has one level only, or gaps, or there are no other inputs.
    """
    name = settings.output
    if name is None:
        return ONE_OUTPUT
    first = 0
    for code in schema.coding.codes if schema.coding else ():
        if code.name == name and isinstance(code, Category):
            return _checked(code, first, inputs, where)
        first += len(code.inputs)
    known = schema.coding.columns if schema.coding else schema.columns
    if name in known:
        raise InvalidOption(
            f"output: expected a column of names of outputs, or of codes imported as a category, got numbers in "
            f"{name!r} of {where}; import the table with --category {name!r}, or write names"
        )
    listed = few(map(repr, known)) if known else "none, its columns have no names"
    raise InvalidOption(
        f"output: expected a column of {where} ({listed}), got {name!r:.80}; correct it, or give data with this column"
    )


def _checked(code, first, inputs, where) -> OutputColumns:
    measured = next((level for level in code.levels if is_plain(level) and float(level) % 1.0), None)
    if measured is not None:
        raise InvalidData(
            f"{where}: expected names of outputs, or whole numbers as codes, in {code.name!r}, got {measured:.80}; "
            "give the column that names outputs"
        )
    if code.gaps:
        raise InvalidData(
            f"{where}: expected the output of each row in {code.name!r}, got gaps; fill or drop these rows"
        )
    if len(code.levels) < 2 or len(code.levels) == inputs:
        got = "one" if len(code.levels) < 2 else "no other inputs"
        raise InvalidData(
            f"{where}: expected two outputs or more in {code.name!r}, and inputs in other columns, got {got}; leave "
            "out --output, or give other data"
        )
    return OutputColumns(tuple(range(first, first + len(code.levels))), inputs)


def with_output(schema: Schema, name: str | None) -> Schema:
    """Return the schema with the role of the column that names outputs."""
    if name is None or schema.coding is None:
        return schema
    roles = tuple(role for role in schema.coding.roles if role[0] != OUTPUT)
    return replace(schema, coding=replace(schema.coding, roles=(*roles, (OUTPUT, name))))


# --- The rank ---


def with_rank(expression: str, rank: int) -> str:
    """The expression with this rank of each `coregionalised` whose rank is not given."""

    def ranked(factor):
        open_rank = factor.name == Coregionalised.name and not factor.options
        return replace(factor, options=(("rank", str(rank)),)) if open_rank else factor

    return written(tuple(tuple(map(ranked, term)) for term in parsed(expression)))


def ranks_tried(search, points: Sequence[Point], effort) -> tuple[list[Point], list[Point]]:
    """Climb from the best point to higher ranks; return all that were tried, and those that gain enough over the rank
    before."""
    best = max(points, key=lambda point: point.objective)
    tried: list[Point] = []
    gaining: list[Point] = []
    open_to = [factor for term in parsed(best.name) for factor in term if factor.name == Coregionalised.name]
    most = min((len(factor.columns or ()) for factor in open_to if not factor.options), default=1)
    for rank in range(2, min(most, MOST_RANK) + 1):
        simpler = gaining[-1] if gaining else best
        start = _of_rank(search, with_rank(best.name, rank), simpler)
        found = search.climb(start, effort.steps)
        tried.append(found)
        price = AKAIKE * (len(found.kernel.theta) - len(simpler.kernel.theta))
        if found.objective - simpler.objective <= price:
            break
        gaining.append(found)
    return tried, gaining


def _of_rank(search, name, simpler: Point) -> Point:
    """Start of a kernel of a higher rank, near a point of a lower one: its loadings, and small further ones."""
    kernel = parse_kernel(name, inputs=search.inputs)
    values = {}
    for (own, first), found in zip(kernel.parameters.items(), simpler.kernel.parameters.values(), strict=True):
        values[own] = found if len(first) == len(found) else _angles(first, found)
    within = {own: np.clip(value, *kernel.bounds[own]) for own, value in values.items()}
    return search.at(name, kernel.with_parameters(within), simpler.likelihood)


def _angles(first: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Angles (P (R + 1),) with the loadings of angles `found` (P R,), and small ones of a further factor."""
    outputs = len(first) - len(found)  # the rank is one higher
    made = first_angles(outputs, len(first) // outputs)
    lower = found.reshape(outputs, -1)
    made[:, : lower.shape[1]] = lower
    return made.ravel()
