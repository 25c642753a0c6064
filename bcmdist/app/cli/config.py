"""Configuration files in TOML with options of one command, or of all commands.

Precedence, highest first: command line, environment variables (such as `BCMDIST_FIT_QUERY`), the file of one command,
the file for all commands.
"""

import click

from bcmdist.errors import InvalidOption


def read_config(ctx, _, path) -> None:
    """Use the options in a command's TOML file as defaults."""
    if path is not None:
        ctx.default_map = {**(ctx.default_map or {}), **_defaults(ctx.command, _read(path), path)}


def read_defaults(ctx, path) -> None:
    """Use a TOML file with one table per command as defaults of these commands.

    Raises
    ------
    InvalidOption
    """
    tables = {} if path is None else _read(path)
    for name, values in tables.items():
        if name not in ctx.command.commands or not isinstance(values, dict):
            raise InvalidOption(
                f"{path}: expected tables named as commands, [fit], say, got {name}; see bcmdist --help"
            )
    ctx.default_map = {n: _defaults(ctx.command.commands[n], v, f"{path}: [{n}]") for n, v in tables.items()}


def _read(path):
    import tomllib  # quick start

    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except ValueError as error:  # not TOML, or not even text
        raise InvalidOption(f"{path}: expected TOML, got {error}; correct the file") from error


def _defaults(command, values, path) -> dict:
    """Convert `values`, by option name, into defaults by parameter name; raise `InvalidOption` for wrong ones."""
    parameters = command.get_params(click.Context(command))
    options = [p for p in parameters if isinstance(p, click.Option) and p.name != "help"]
    names = {name.removeprefix("--"): p for p in options for name in p.opts}
    negated = {name.removeprefix("--"): p for p in options for name in p.secondary_opts}
    unknown = sorted(set(values) - set(names) - set(negated))
    if unknown:
        raise InvalidOption(f"{path}: expected names of options, got {', '.join(unknown)}; see --help")
    for name, value in values.items():
        option = names.get(name) or negated[name]
        default = _other_than(option, value)
        if default:
            raise InvalidOption(f"{path}: expected {default} for {name}, got {_toml(value)}; correct the file")
        if name in negated and option.opts[0].removeprefix("--") in values:
            raise InvalidOption(f"{path}: expected {option.opts[0]} once, got {name} too; leave out one of them")
    defaults = {names[n].name: v for n, v in values.items() if n in names}
    defaults |= {negated[n].name: not v for n, v in values.items() if n in negated}
    if "set" in values:
        defaults["set"] = [f"{n}={text}" for n, text in _assignments(values["set"])]
    return defaults


def _other_than(option, value):
    """Describe the values an option takes if `value` is of another type; None if `value` is acceptable."""
    if option.multiple and option.name != "set":
        return None if isinstance(value, list) and all(isinstance(one, str) for one in value) else "a list of texts"
    if option.multiple:
        return None if isinstance(value, dict) else "a table of numbers by name"
    if option.is_flag:
        return None if isinstance(value, bool) else "true or false"
    if isinstance(value, str):  # parsed later, as on the command line
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(option.type, click.types.FloatParamType):
        return None if number else "a number"
    if isinstance(option.type, click.types.IntParamType):
        return None if number and isinstance(value, int) else "a whole number"
    if not number:
        return "a number or a text"
    return None if isinstance(value, int) else "a whole number or a text"


def _toml(value):
    """A value approximately as written in the file."""
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _assignments(table, prefix=""):
    """Yield dotted names and values of a TOML table, whose dotted keys are nested tables."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _assignments(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", ",".join(map(str, value)) if isinstance(value, list) else str(value)


config_option = click.option(
    "--config",
    metavar="FILE.toml",
    callback=read_config,
    is_eager=True,
    expose_value=False,
    help="Options by name; the command line takes precedence.",
)
