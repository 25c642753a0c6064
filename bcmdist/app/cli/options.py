"""Options that commands share, and the configuration file that holds them."""

import functools

import click

from bcmdist.errors import InvalidOption


class Command(click.Command):
    """A command that refuses a second value for an option that has one; click would keep the last."""

    def parse_args(self, ctx, args):
        *_, given = self.make_parser(ctx).parse_args(list(args))
        for option in given:
            if isinstance(option, click.Option) and _has_one_value(option) and given.count(option) > 1:
                named = "/".join((*option.opts, *option.secondary_opts))
                raise click.UsageError(f"expected {named} once, got it {given.count(option)} times; give one", ctx)
        return super().parse_args(ctx, args)


def _has_one_value(option):
    """Whether saying an option again could mean something else."""
    return not option.multiple and (not option.is_flag or bool(option.secondary_opts))


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")


# What `fit --help` ends with; f is the latent function, and click leaves the lines of such a block as they are.
FAMILIES = """\b
Families and the parameters that are learned, of scaled targets; f is the latent function:
  gaussian           y = f + noise, variance noise_variance / weight
  student_t          y = f + sqrt(noise_variance) t, degrees_of_freedom of t
  gamma              mean exp(f), variance mean^2 / shape
  inverse_gaussian   mean exp(f), variance dispersion mean^3
  poisson            mean = variance = exposure exp(f)
  negative_binomial  mean exposure exp(f), variance mean + mean^2 / shape
  weibull            P(T > t) = exp(-(t / scale)^shape), scale exp(f)
  exponential        a weibull of shape 1
  bernoulli, binomial  log odds f;  probit: P(y = 1) = Phi(f)

\b
A row's weight w divides the noise variance of gaussian and onehot (a precision: y is a mean of w); of all
other families the row counts as w equal ones (a frequency).
"""


class Task(click.Choice):
    """Tasks: ours by name, and those of likelihoods that other packages register."""

    def __init__(self):
        super().__init__(["regression", "classification", "counts", "lifetimes", "binomial"])

    def convert(self, value, param, ctx):
        """The task, if there are likelihoods for it."""
        if value not in self.choices:
            from bcmdist.model.likelihoods import tasks  # quick start

            if value in tasks(value):
                return value
        return super().convert(value, param, ctx)


def runtime_options(command):
    """--scheduler, --workers, --serial; the command gets `make_runtime`.

    Everything a command refuses without a cluster it refuses before it calls `make_runtime`: at that call jobs, which
    put a function of their own in the context's `obj`, stop when they are submitted and watch when they run.
    """

    @click.option("--scheduler", metavar="ADDRESS", help="Work on the Dask cluster at this address.")
    @click.option("--workers", type=int, help="Worker processes of a cluster on this machine [default: cores].")
    @click.option("--serial", is_flag=True, help="Work in this process, without a cluster.")
    @functools.wraps(command)
    def wrapped(*args, scheduler, workers, serial, **options):
        context = click.get_current_context()
        given = {"scheduler": scheduler, "workers": workers, "serial": serial or None}
        typed = {n for n in given if context.get_parameter_source(n) is click.core.ParameterSource.COMMANDLINE}
        # What the command line says wins over a configuration file.
        chosen = [n for n, v in given.items() if v is not None and (n in typed or not typed)]
        if len(chosen) > 1:
            raise click.UsageError("expected one of --scheduler, --workers and --serial, got several")
        where = (v if n in chosen else None for n, v in given.items())
        return command(*args, make_runtime=functools.partial(context.obj or _runtime, *where), **options)

    return wrapped


def _runtime(scheduler, workers, serial):
    from bcmdist.app.cli.progress import ProgressBar  # quick start

    if serial:
        from bcmdist.runtime.serial import SerialRuntime  # quick start

        return SerialRuntime(progress=ProgressBar())
    from bcmdist.runtime.dask.cluster import DaskRuntime  # quick start

    return DaskRuntime(scheduler, workers=workers, progress=ProgressBar())


method_option = click.option(
    "--method",
    type=click.Choice(["committee", "local"]),
    help="From the committee alone, or with the rows around each new point [default: local where cells were fitted].",
)


def read_config(ctx, _, path):
    """Options from a TOML file become defaults: what the command line says wins."""
    if path is None:
        return
    import tomllib

    try:
        with open(path, "rb") as file:
            values = tomllib.load(file)
    except ValueError as error:  # not TOML, or not even text
        raise InvalidOption(f"{path}: expected TOML, got {error}; correct the file") from error
    options = [p for p in ctx.command.params if isinstance(p, click.Option)]
    names = {name.removeprefix("--"): p for p in options for name in p.opts}
    negated = {name.removeprefix("--"): p for p in options for name in p.secondary_opts}
    unknown = sorted(set(values) - set(names) - set(negated))
    if unknown:
        raise InvalidOption(f"{path}: expected names of options, got {', '.join(unknown)}; see --help")
    for name, value in values.items():
        option = names.get(name) or negated[name]
        wanted = _other_than(option, value)
        if wanted:
            raise InvalidOption(f"{path}: expected {wanted} for {name}, got {_toml(value)}; correct the file")
        if name in negated and option.opts[0].removeprefix("--") in values:
            raise InvalidOption(f"{path}: expected {option.opts[0]} once, got {name} too; leave out one of them")
    defaults = {names[n].name: v for n, v in values.items() if n in names}
    defaults |= {negated[n].name: not v for n, v in values.items() if n in negated}
    if "set" in values:
        defaults["given"] = [f"{n}={text}" for n, text in _assignments(values["set"])]
    ctx.default_map = defaults


def _other_than(option, value):
    """What an option takes, in words, where a value of TOML is none of it."""
    if option.multiple:
        return None if isinstance(value, dict) else "a table of numbers by name"
    if option.is_flag:
        return None if isinstance(value, bool) else "true or false"
    if isinstance(value, str):  # which is read as on the command line
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
    """A value about as it stands in the file."""
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _assignments(table, prefix=""):
    """Names and values of a TOML table, whose dotted keys are tables in tables."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _assignments(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", ",".join(map(str, value)) if isinstance(value, list) else str(value)


def parse_set(_, __, assignments):
    """`name=1.5` or `name=1,2,3` into numbers by name."""
    given = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        try:
            values = [float(v) for v in text.split(",")]
        except ValueError:
            equals = ""
        if not equals:
            raise click.BadParameter(f"expected NAME=NUMBER or NAME=NUMBER,NUMBER,..., got {assignment!r}")
        if name.strip() in given:
            raise click.BadParameter(f"expected {name.strip()} once, got it again; give one")
        given[name.strip()] = values if len(values) > 1 else values[0]
    return given


def parse_query(_, __, text):
    """A number, `auto`, or None."""
    try:
        return text if text in ("auto", None) else int(text)
    except ValueError as error:
        raise click.BadParameter(f"expected a whole number or auto, got {text!r}") from error
