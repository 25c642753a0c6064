"""The command `fit`: fit a committee to a data set."""

import time
from collections.abc import Callable
from dataclasses import fields

import click

from bcmdist.api.requests import FitRequest, request_of
from bcmdist.app.cli.config import config_option
from bcmdist.app.cli.fields import option_of, options_of
from bcmdist.app.cli.options import Command, json_option, runtime_options
from bcmdist.app.cli.output import report
from bcmdist.data.registry import load_packages
from bcmdist.data.tables.options import TableOptions
from bcmdist.learning.method_options import method_options
from bcmdist.learning.option_fields import hints_of
from bcmdist.learning.settings import Settings

# The end of `fit --help`; f is the latent function. After \b click does not rewrap the lines of a block.
FAMILIES = """\b
Families and the parameters that are learned, of scaled targets; f is the latent function:
  gaussian           y = f + noise, variance noise_variance / weight + target variance
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
other families the row counts as w equal ones (a frequency). --target-variance, for gaussian only, is a known
variance in the squared unit of the target, added to the learned one.
"""


MODEL = {"task", "likelihood", "kernel", "mean", "warp", "target_transform", "noise", "coordinates", "like"}
COMMITTEE = {"partition", "expert", "query", "query_method", "query_from", "rows_per_expert", "passes"}
COMMITTEE |= {"approximation", "linearise", "precision", "grow", "grow_share", "query_most"}


class Fit(Command):
    """A command with the options of methods after those of all fits; its help is in groups, columns of tables first."""

    def format_options(self, ctx, formatter) -> None:
        """Write the options under headings."""
        tables, experts = {one.name for one in fields(TableOptions)}, set(method_options())
        headings: dict[str, Callable[[str], bool]] = {
            "Data, and the columns of a table": lambda name: name in {"model", "x", "y"} | tables,
            "Model of the target": lambda name: name in MODEL,
            "Committee": lambda name: name in COMMITTEE,
            "Learning": lambda name: name in hints_of(Settings) or name in hints_of(FitRequest),
            "Options of single experts": lambda name: name in experts,
            "Where to run, and output": lambda name: True,
        }
        groups: dict[str, list] = {heading: [] for heading in headings}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record:
                name = parameter.name or ""
                groups[next(heading for heading, holds in headings.items() if holds(name))].append(record)
        for heading, records in groups.items():
            with formatter.section(heading):
                formatter.write_dl(records)

    def get_params(self, ctx) -> list[click.Parameter]:
        """Return the command's parameters. Methods, also of other packages, are asked for theirs when first needed."""
        names = [parameter.name for parameter in self.params]
        load_packages()
        added = [option_of(one) for name, one in method_options().items() if name not in names]
        last = max(number for number, name in enumerate(names, 1) if name in hints_of(Settings))
        self.params[last:last] = added
        return super().get_params(ctx)


@click.command(cls=Fit, epilog=FAMILIES)
@config_option
@options_of(FitRequest, arguments=("data",))
@runtime_options
@json_option
def fit(make_runtime, as_json, **options) -> dict:
    """Fit a committee to DATA: a Zarr data set, or a table (.csv, .parquet, ...) whose target --y names.

    Example: bcmdist fit houses.csv --y price --model model
    """
    started = time.perf_counter()
    from bcmdist.api.carry_out import carry_out  # quick start

    return report(carry_out(request_of(FitRequest, options), make_runtime, started=started), as_json)
