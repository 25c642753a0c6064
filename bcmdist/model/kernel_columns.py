"""Columns in kernel expressions: names and original units for users, numbers and scaled units in models.

    category(district) + periodic(hour, period=24)    ->    onehot(0, 1, 2) + periodic(3, period=3.46)

where the table's column `district` became three one-hot inputs, and `hour` is divided by its standard deviation.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bcmdist.data.schema import UNNAMED, Schema, few
from bcmdist.data.tables.coding import Category
from bcmdist.errors import InvalidOption
from bcmdist.linalg.arrays import FloatArray
from bcmdist.model.kernels import KERNELS, Coregionalised, Levels, OneHot, check_expression, option_value
from bcmdist.model.kernels.grammar import LEARNED, Factor, parsed, quoted, written
from bcmdist.model.model import Model

# A kernel with numbers of columns, alone or within an expression or the name of a parameter.
NUMBERED = re.compile(r"([a-z][a-z0-9_]*)((?:-iso)?)\((\d+(?:, \d+)*)((?:, [a-z]+=~?[0-9.e+-]+)*)\)")


@dataclass(frozen=True)
class KernelColumns:
    """The columns of a model's inputs, as kernels refer to them."""

    inputs: int
    """number D of inputs"""
    schema: Schema = UNNAMED
    scale: FloatArray | None = None
    """(D,) divisors of the inputs; None where they are not known yet"""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the inputs, or X[0], X[1], ..."""
        return self.schema.columns or tuple(f"X[{k}]" for k in range(self.inputs))

    def numbered(self, expression: str) -> str:
        """The expression with numbers of inputs, and options in scaled units, for `parse_kernel`.

        Raises
        ------
        InvalidOption
            There is no such column; the message lists those that exist.
        """
        terms = check_expression(expression)
        if all(factor.columns is None and not factor.options for term in terms for factor in term):
            return expression
        return written(tuple(tuple(self._numbered(factor) for factor in term) for term in terms))

    def cyclic(self, expression: str) -> list[int]:
        """Numbers of the inputs for which an expression, named or numbered, has an option in their unit: a period."""
        if expression == "auto":  # only the data show which kernel it becomes
            return []
        factors = (factor for term in parsed(self.numbered(expression)) for factor in term)
        own = (factor for factor in factors if KERNELS[factor.name].options)
        return [int(number) for factor in own for number in factor.columns or ()]

    def unused(self, expression: str) -> list[str]:
        """Names of the inputs that no kernel of a numbered expression uses."""
        factors = [factor for term in check_expression(expression) for factor in term]
        used = {number for factor in factors for number in factor.columns or ()}
        if not used or any(factor.columns is None and factor.name != "constant" for factor in factors):
            return []
        return [name for number, name in enumerate(self.names) if number not in used]

    def shown(self, text: str) -> str:
        """An expression, or the name of a parameter, with names and original units in place of those of the model."""
        return NUMBERED.sub(self._shown, text)

    def _numbered(self, factor: Factor) -> Factor:
        base = KERNELS[factor.name]
        if factor.columns is None and not base.options:
            return factor
        words = range(self.inputs) if factor.columns is None else factor.columns
        points = self.schema.coding.points if self.schema.coding else ()
        named = {code.lat for _, code in points if code.lon in words}  # by the longitude
        groups = [self._inputs_of(word, factor, single=bool(base.options)) for word in words if word not in named]
        columns = tuple(number for group in groups for number in group)
        if len(set(columns)) < len(columns):
            raise InvalidOption(f"kernel: expected each column of {factor.text:.80} once, got one twice; leave one out")
        name = factor.name
        if name == Coregionalised.name and not all(map(self._is_one_hot, groups)):
            raise InvalidOption(
                f"kernel: expected a category, whose levels are the outputs, in {factor.text:.80}, got a number; give "
                "--category NAME where the table is imported, or write the outputs as texts"
            )
        if name == Levels.name:
            coded = {self._is_one_hot(group) for group in groups}
            if len(coded) > 1:
                raise InvalidOption(
                    f"kernel: expected categories stored alike in {factor.text:.80}, got some as one-hot columns and "
                    "some as numbers; multiply a category() of each"
                )
            name = OneHot.name if coded == {True} else name
        return replace(factor, name=name, columns=columns, options=tuple(self._scaled(factor, columns)))

    def _scaled(self, factor: Factor, columns: Sequence[int]) -> Iterator[tuple[str, str]]:
        for name, value in factor.options:
            if name in KERNELS[factor.name].counts:
                yield name, value
                continue
            number = option_value(name, value, factor.name) / (1.0 if self.scale is None else self.scale[columns[0]])
            yield name, LEARNED * value.startswith(LEARNED) + repr(float(number))

    def _inputs_of(self, word: str | int, factor: Factor, *, single: bool) -> tuple[int, ...]:
        """Numbers of the inputs of a column: of a table's column all inputs that it became."""
        if isinstance(word, int) and word < self.inputs:
            return (word,)
        names: dict[str | int, tuple[int, ...]] = {name: (number,) for number, name in enumerate(self.names)}
        if not single:
            names |= {name: numbers for columns, numbers, _ in self._codes() for name in columns}
        if word in names:
            return names[word]
        named = dict.fromkeys([name for columns, _, _ in self._codes() for name in columns] or self.names)
        raise InvalidOption(
            f"kernel: expected columns of the data ({few(named, 30)}), or numbers below {self.inputs}, got {word!r} in "
            f"{factor.text:.80}; correct it"
        )

    def _codes(self) -> list[tuple[tuple[str, ...], tuple[int, ...], bool]]:
        """Columns of the table that the inputs were made from: names (two of a point on a sphere), numbers of inputs,
        whether one-hot."""
        found: list[tuple[tuple[str, ...], tuple[int, ...], bool]] = []
        first = 0
        for code in self.schema.coding.codes if self.schema.coding else ():
            numbers = tuple(range(first, first + len(code.inputs)))
            found.append((code.columns, numbers, isinstance(code, Category)))
            first += len(numbers)
        return found

    def _is_one_hot(self, group: Sequence[int]) -> bool:
        return any(set(group) <= set(numbers) for _, numbers, one_hot in self._codes() if one_hot)

    def _shown(self, found: re.Match[str]) -> str:
        name, iso, text, options = found.groups()
        left = list(map(int, text.split(", ")))
        columns, categories, first = list[str](), True, left[0]
        while left:
            whole = next((c for c in self._codes() if left[: len(c[1])] == list(c[1])), None)
            single = bool(KERNELS[name].options)
            columns += map(quoted, whole[0]) if whole else [self._name(left[0], single=single)]
            categories &= bool(whole and whole[2])
            left = left[len(whole[1]) if whole else 1 :]
        if name == OneHot.name and categories:
            name = Levels.name
        shown = self._original(options, first) if KERNELS[name].options else filter(None, options.split(", "))
        return f"{name}{iso}({', '.join([*columns, *shown])})"

    def _name(self, number: int, *, single: bool) -> str:
        """Name of one input; its number where the name means several."""
        if number >= len(self.names):
            return str(number)
        name = self.names[number]
        several = not single and any(name in of and len(numbers) > 1 for of, numbers, _ in self._codes())
        return str(number) if several else quoted(name)

    def _original(self, options: str, column: int) -> Iterator[str]:
        """Options in original units, to ten digits."""
        for option in filter(None, options.split(", ")):
            name, value = option.split("=")
            scale = 1.0 if self.scale is None else float(self.scale[column])
            yield f"{name}={LEARNED * value.startswith(LEARNED)}{float(value.removeprefix(LEARNED)) * scale:.10g}"


def kernel_columns(model: Model) -> KernelColumns:
    """The columns of a `Model`."""
    return KernelColumns(model.inputs, model.schema, model.scaling.x_scale)
