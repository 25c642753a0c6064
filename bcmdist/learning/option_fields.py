"""Types, choices and texts of dataclass fields that users set as command-line options or in JSON.

Options are defined once, as `Settings` and the requests of `bcmdist.api.requests`. Command lines, JSON and checks read
the definitions through this module, which imports nothing heavy.
"""

import ast
import functools
import inspect
import operator
import sys
from collections.abc import Callable
from dataclasses import is_dataclass
from itertools import pairwise
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints


class Further:
    """Marks a field, `Annotated[dict[str, Any], Further]`, whose entries are given in the same way as the fields."""


def hints_of(kind) -> dict[str, Any]:
    """Return the types of a dataclass's fields by name, without functions, class variables and `Further` options."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        name: hint
        for name, hint in hints.items()
        if get_origin(hint) not in (Callable, ClassVar) and Further not in get_args(hint)
    }


def types_of(hint) -> tuple:
    """The types a value may have: int, float, str, bool, a dict, a dataclass, `NoneType`, a `Literal`."""
    if get_origin(hint) is Annotated:
        return types_of(get_args(hint)[0])
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def choices_of(hint) -> tuple[str, ...]:
    """The texts to choose from."""
    return tuple(text for one in types_of(hint) if get_origin(one) is Literal for text in get_args(one))


def has_fields(hint) -> bool:
    """Whether a type is a dataclass, whose fields are given in its place."""
    return is_dataclass(hint)


def called(hint) -> str | None:
    """The placeholder of a value on a command line: `NAME` of `Annotated[str, "NAME"]`; None without one."""
    words = [one for one in get_args(hint)[1:] if isinstance(one, str)] if get_origin(hint) is Annotated else []
    return words[0] if words else None


def texts_of(kind) -> dict[str, str]:
    """Return the docstrings below the fields of a dataclass, also of inherited fields, each on one line, by name."""
    inherited = [texts_of(base) for base in kind.__bases__ if is_dataclass(base)]
    body = _classes(kind.__module__)[kind.__name__].body
    return functools.reduce(operator.or_, inherited, {}) | {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


@functools.cache
def _classes(module):
    """Return the syntax trees of a module's classes, by name."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def fits(value, hint) -> bool:
    """Whether a JSON value has a type; whole numbers are also floats."""
    return any(_is(value, one) for one in types_of(hint))


def _is(value, one):
    origin, arguments = get_origin(one), get_args(one)
    if origin is Literal:
        return isinstance(value, str) and value in arguments
    if origin is list:
        return isinstance(value, list) and all(fits(entry, arguments[0]) for entry in value)
    if origin is dict:
        named = isinstance(value, dict) and all(isinstance(name, str) for name in value)
        return named and all(fits(entry, arguments[1]) for entry in value.values())
    if one is float:
        return type(value) in (int, float)
    return isinstance(value, dict) if has_fields(one) else type(value) is one


def words(hint) -> str:
    """Describe a type in the words of JSON."""
    return " or ".join(_words(one) for one in types_of(hint))


def _words(one):
    if get_origin(one) is Literal:
        return " or ".join(f'"{text}"' for text in get_args(one))
    if get_origin(one) is list:
        return f"a list of {words(get_args(one)[0])}"
    if get_origin(one) is dict or has_fields(one):
        return "an object"
    names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
    return names.get(one, "null")
