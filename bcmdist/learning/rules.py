"""Rules of what options cannot be combined, as data: an option, the values that are refused, where, and the error text.

    Excludes("linearise", ("running",), several_processes, "own with {likelihood.name}, got {value}; leave it out")

The error is "linearise: expected own with softmax, got running; leave it out": its text names attributes of the
`Combination`, and the option's value.
"""

import string
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bcmdist.errors import InvalidOption
from bcmdist.model.likelihoods import Likelihood, make_likelihood, tasks

TWO_CLASSES = 2  # number of classes assumed while it is unknown
OBJECTIVE, QUERY_METHOD = "local", "kmeans"  # of methods without defaults of their own


@dataclass(frozen=True)
class Combination:
    """Settings with their method, and the likelihood where it is known."""

    settings: Any
    method: Any
    likelihood: Likelihood | None
    methods: Callable[[], dict[str, Any]]
    """returns all methods by name, for texts"""

    def value(self, option: str) -> Any:
        """Return the value of an option, also of a likelihood that was chosen by default."""
        return self.likelihood.name if option == "likelihood" and self.likelihood else getattr(self.settings, option)

    @property
    def likely(self) -> Likelihood:
        """The likelihood, or the first of the task where it is not known."""
        return self.likelihood or make_likelihood(tasks()[self.settings.task or "regression"][0], TWO_CLASSES)

    @property
    def objective(self) -> str:
        """The objective, also where it is the default."""
        defaults, learns = self.method.defaults, self.settings.learn and self.likely.normal
        return self.settings.objective or (defaults.objective if learns else OBJECTIVE)

    @property
    def query_method(self) -> str:
        """How query points are chosen, also by default."""
        defaults = self.method.defaults
        usual = defaults.query_method if self.objective == defaults.objective else QUERY_METHOD
        return self.settings.query_method or usual

    @property
    def able(self) -> Any:
        """The capabilities of the method."""
        return self.method.capabilities

    @property
    def local(self) -> list[str]:
        """Experts that predict from the rows around a new point."""
        return [name for name, method in self.methods().items() if method.capabilities.local]

    @property
    def readers(self) -> list[str]:
        """Experts for the likelihood, of those that list the likelihoods that they can use."""
        name = self.likelihood.name if self.likelihood else ""
        return [one for one, method in self.methods().items() if name in method.capabilities.likelihoods]


Situation = Callable[[Combination], Any]
"""Condition on a combination, under which a rule applies."""


class Rule(ABC):
    """Refuses values of an option."""

    option: str
    text: str

    @abstractmethod
    def refuses(self, value: Any, combination: Combination) -> bool:
        """Whether the rule refuses this value of its option."""

    def check(self, combination: Combination) -> None:
        """Raise `InvalidOption` for a combination that the rule refuses."""
        value = combination.value(self.option)
        if self.refuses(value, combination):
            raise InvalidOption(_Texts(combination).format(f"{self.option}: expected {self.text}", value=value))


@dataclass(frozen=True)
class Excludes(Rule):
    """Refuses these values of an option where `where` holds."""

    option: str
    values: tuple[Any, ...]
    where: Situation
    text: str
    """the error after "expected" """

    def refuses(self, value, combination) -> bool:
        return value in self.values and bool(self.where(combination))


@dataclass(frozen=True)
class Requires(Rule):
    """Refuses all values of an option but these where `where` holds."""

    option: str
    values: tuple[Any, ...]
    where: Situation
    text: str
    """the error after "expected" """

    def refuses(self, value, combination) -> bool:
        return value not in self.values and bool(self.where(combination))


@dataclass(frozen=True)
class Supports(Rule):
    """Refuses all values of an option but these and those that the method lists, if it lists any."""

    option: str
    values: tuple[Any, ...]
    capability: str
    """field of `Capabilities` that lists them"""
    text: str
    """the error after "expected" """

    def refuses(self, value, combination) -> bool:
        listed = getattr(combination.able, self.capability)
        return bool(listed) and value not in (*self.values, *listed)


class _Texts(string.Formatter):
    """Fills in attributes of a combination; several names are alternatives."""

    def __init__(self, combination: Combination):
        self.combination = combination

    def get_value(self, key, args, kwargs) -> Any:
        return kwargs[key] if key in kwargs else getattr(self.combination, str(key))

    def format_field(self, value, format_spec) -> Any:
        return " or ".join(value) if isinstance(value, tuple | list) else super().format_field(value, format_spec)
