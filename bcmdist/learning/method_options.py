"""Options of methods: dataclasses whose fields become options of a fit beside the fields of `Settings`.

    @dataclass(frozen=True)
    class DeepOptions:
        layers: Annotated[int, "L", Bounds(1, 100)] = 2
        '''layers of dgp'''

    declare_options("dgp", DeepOptions)

The package's methods declare theirs in `bcmdist.methods.*.options`, which import nothing heavy. Options of other
packages are declared with their methods (`register_method`), so they exist after `load_plugins`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from importlib import import_module
from typing import Any, TypeVar

from bcmdist.data.registry import METHODS, load_plugins
from bcmdist.errors import InvalidOption
from bcmdist.learning.option_fields import hints_of, texts_of

Kind = TypeVar("Kind")
KINDS: dict[str, list[type]] = {}
"""dataclasses of options by the expert that reads them"""
RESERVED: set[str] = set()
"""names of options that all fits share"""


@dataclass(frozen=True)
class NoOptions:
    """The options of a method without any."""


@dataclass(frozen=True)
class MethodOption:
    """An option that some methods read."""

    name: str
    hint: Any
    """its type, as of a dataclass field"""
    default: Any
    experts: tuple[str, ...]
    """experts that read it"""
    kinds: tuple[type, ...]
    """dataclasses that declare it"""

    @property
    def text(self) -> str:
        """The help texts of its dataclasses, each once."""
        return "; ".join(dict.fromkeys(texts_of(kind).get(self.name, "") for kind in self.kinds))


def declare_options(expert: str, kind: type[Kind]) -> type[Kind]:
    """Declare that an expert reads the fields of a dataclass. To declare them again has no effect.

    Raises
    ------
    InvalidOption
        An option has no default or the name of one that all fits have, or another dataclass declares it with another
        type or default.
    """
    before = declared_options()
    for one in fields(kind):  # type: ignore[arg-type]  # a dataclass
        hint, declared = hints_of(kind)[one.name], before.get(one.name)
        _refuse_reserved(one.name)
        if one.default is MISSING:
            raise InvalidOption(f"{one.name}: expected a default in {kind.__name__}, got none; give one")
        if declared and (declared.hint, declared.default) != (hint, one.default):
            raise InvalidOption(
                f"{one.name}: expected the type and default that it has with {' or '.join(declared.experts)}, got "
                f"others in {kind.__name__}; choose another name"
            )
    kinds = KINDS.setdefault(expert, [])
    if kind not in kinds:
        kinds.append(kind)
    return kind


def reserve_names(names: Iterable[str]) -> None:
    """Refuse options of methods with these names, those of options that all fits share."""
    RESERVED.update(names)
    for name in RESERVED & declared_options().keys():
        _refuse_reserved(name)


def _refuse_reserved(name):
    if name in RESERVED:
        raise InvalidOption(f"{name}: expected a name that no option of all fits has, got {name}; choose another")


def declared_options() -> dict[str, MethodOption]:
    """Return the options that are declared so far, by name."""
    found: dict[str, MethodOption] = {}
    for expert, kinds in KINDS.items():
        for kind in kinds:
            for one in fields(kind):
                declared = found.get(one.name)
                readers, declaring = (declared.experts, declared.kinds) if declared else ((), ())
                experts = tuple(dict.fromkeys((*readers, expert)))
                found[one.name] = MethodOption(
                    one.name, hints_of(kind)[one.name], one.default, experts, tuple(dict.fromkeys((*declaring, kind)))
                )
    return found


def method_options(*, named=()) -> dict[str, MethodOption]:
    """Return the options of all methods by name.

    Parameters
    ----------
    named : options that are looked for; other packages are imported only where one is not found
    """
    import_module(METHODS)  # declares those of the package's methods
    found = declared_options()
    if all(name in found for name in named):
        return found
    load_plugins()
    return declared_options()


def option_kinds(expert: str) -> list[type]:
    """Return the dataclasses of the options that an expert reads."""
    import_module(METHODS)
    if expert not in KINDS:
        load_plugins()
    return KINDS.get(expert, [])


def changed_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of methods' options that are not their defaults.

    Raises
    ------
    InvalidOption
        No method has an option of this name.
    """
    if not values:
        return {}
    declared = method_options(named=values)
    for name in values:
        if name not in declared:
            raise InvalidOption(
                f"{name:.80}: expected a field of Settings or an option of a method ({', '.join(declared)}), got "
                "another name; correct it"
            )
    return {name: value for name, value in values.items() if value != declared[name].default}
