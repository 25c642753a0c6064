"""Command-line options generated from the fields of a dataclass: `Settings` and the requests of `bcmdist.api.requests`.

A field `half_life: Annotated[float | None, "ROWS"] = None` with a string below it becomes the option `--half-life ROWS`
with that string as its help. The fields of nested dataclasses become options of the same command.
"""

import functools
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, get_args, get_origin

import click

from bcmdist.learning.method_options import MethodOption
from bcmdist.learning.option_fields import called, choices_of, has_fields, hints_of, texts_of, types_of


class NumberOr(click.ParamType):
    """Parameter type: a whole number, or one of the given words."""

    name = "number"

    def __init__(self, words):
        self.words = words

    def convert(self, value, param, ctx) -> int:
        """Return the number, or the word."""
        if value in self.words:
            return value
        try:
            return int(value)
        except ValueError:
            self.fail(f"expected a whole number or {' or '.join(self.words)}, got {value!r}", param, ctx)


class Named(click.Choice):
    """Parameter type: one of the built-in names, or a name that another package has registered.

    `with_added(value)`, which lists all names, is only called if the value is not a built-in name.
    """

    def __init__(self, choices, with_added):
        super().__init__(choices)
        self.with_added = with_added

    def convert(self, value, param, ctx) -> str:
        """Return the name; an unknown name is a `UsageError`."""
        return value if value in self.choices else click.Choice(self.with_added(value)).convert(value, param, ctx)


def _tasks(method):
    from bcmdist.model.likelihoods import tasks  # quick start

    return list(tasks())


def _methods(method):
    from bcmdist.prediction.predictive_model import PREDICTORS  # quick start

    return [method] if method in PREDICTORS else list(PREDICTORS)


def _kernels(begun):
    """Return the expressions that complete the last kernel of one that was begun."""
    from bcmdist.model.kernels import KERNEL_NAMES  # quick start

    last = max(begun.rfind(sign) for sign in "+* ") + 1
    return [f"{begun[:last]}{name}" for name in ("auto", *KERNEL_NAMES) if name != "auto" or not last]


def _likelihoods(begun):
    from bcmdist.model.likelihoods import LIKELIHOODS  # quick start

    return list(LIKELIHOODS)


def _experts(begun):
    from bcmdist.learning.experts import EXPERTS  # quick start

    return list(EXPERTS)


# For fields of free text: functions that list what a shell offers to complete it.
OFFERED: dict[str, Callable[[str], list[str]]] = {
    "kernel": _kernels,
    "likelihood": _likelihoods,
    "expert": _experts,
    "method": lambda begun: _methods(None),
}


def _offer(field) -> Callable:
    """Return click's completion of an option."""
    return lambda ctx, param, begun: [one for one in OFFERED[field](begun) if one.startswith(begun)]


# For fields whose names other packages may extend: functions that list all names.
ADDED_TO = {"task": _tasks, "method": _methods}


def options_of(kind, *, arguments=(), leave_out=(), **changed) -> Callable[[Callable], Callable]:
    """A decorator that gives a command the fields of a dataclass as options.

    Parameters
    ----------
    kind : the dataclass
    arguments : fields that become positional arguments
    leave_out : fields that do not become options
    changed : attributes of `click.option` that replace the generated ones, by field; `also`: another name
    """
    made = list(_made(kind, arguments, leave_out, changed))

    def decorate(command):
        return functools.reduce(lambda done, parameter: parameter(done), reversed(made), command)

    return decorate


def _made(kind, arguments, leave_out, changed):
    hints, texts = hints_of(kind), texts_of(kind)
    for field in (field for field in fields(kind) if field.name in hints and field.name not in leave_out):
        hint = hints[field.name]
        if has_fields(hint):
            yield from _made(hint, arguments, leave_out, changed)
        elif field.name in arguments:
            yield _argument(field, hint)
        else:
            yield _option(field, hint, texts[field.name], changed.get(field.name, {}))


def _argument(field, hint):
    required = field.default is MISSING
    if any(get_origin(one) is list for one in types_of(hint)):
        return click.argument(field.name, nargs=-1, required=required, callback=lambda _, __, values: list(values))
    return click.argument(field.name, required=required)


def option_of(option: MethodOption) -> click.Option:
    """Return the command-line option for an option of a method."""
    return _option(option, option.hint, option.text, {})(lambda: None).__click_params__[0]


def _option(field, hint, text, changed):
    name, types = f"--{field.name.replace('_', '-')}", types_of(hint)
    how: dict[str, Any] = {"help": f"{text[:1].upper()}{text[1:]}.", "metavar": called(hint)}
    if str in types and choices_of(hint):
        how["metavar"] = f"[{'|'.join(choices_of(hint))}|NAME]"
    origins = {getattr(one, "__origin__", one) for one in types}
    if list in origins:
        how |= {"multiple": True, "callback": lambda _, __, values: list(values)}
        how |= {"type": get_args(next(one for one in types if get_origin(one) is list))[0]}
    elif dict in origins:
        how |= {"multiple": True, "callback": _assigned}
    elif field.default is MISSING:
        how["required"] = True
    elif field.default is True:
        name, how = f"{name}/--no-{name.removeprefix('--')}", how | {"default": True, "show_default": True}
    elif field.default is False:
        how["is_flag"] = True
    elif bool in types:  # undecided by default
        name, how = f"{name}/--no-{name.removeprefix('--')}", how | {"default": None}
    else:
        shown = field.default is not None
        how |= {"default": field.default, "show_default": shown, "type": _type(types, choices_of(hint))}
        if field.name in OFFERED:
            how["shell_complete"] = _offer(field.name)
        if field.name in ADDED_TO:
            how["type"] = Named(choices_of(hint), ADDED_TO[field.name])
    also = [changed["also"]] if "also" in changed else []
    return click.option(name, *also, field.name, **(how | {key: changed[key] for key in changed if key != "also"}))


def _type(types, choices):
    """The click type that parses values of a field."""
    if int in types and choices:
        return NumberOr(choices)
    if choices and str not in types:
        return click.Choice(choices)
    return next(one for one in (float, int, str) if one in types)


def _assigned(_, __, assignments):
    """Parse `name=1.5` or `name=1,2,3` into numbers, or lists of numbers, by name."""
    assigned = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        try:
            values = [float(v) for v in text.split(",")]
        except ValueError:
            equals = ""
        if not equals:
            raise click.BadParameter(f"expected NAME=NUMBER or NAME=NUMBER,NUMBER,..., got {assignment!r}")
        if name.strip() in assigned:
            raise click.BadParameter(f"expected {name.strip()} once, got it again; give one")
        assigned[name.strip()] = values if len(values) > 1 else values[0]
    return assigned
