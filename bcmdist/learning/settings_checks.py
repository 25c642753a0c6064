"""Refuse invalid settings of a fit: values that are not among the choices, and invalid combinations."""

from numbers import Integral

from bcmdist.errors import InvalidOption
from bcmdist.experts.precision import refuse_single
from bcmdist.experts.residual import refuse_coupled_classes, refuse_uncoupled
from bcmdist.learning.decisions import LEAVE_ONE_OUT
from bcmdist.learning.experts import (
    FIRST,
    experts,
    method_of,
    refuse_climbing,
    refuse_likelihood,
    refuse_unable,
)
from bcmdist.learning.method import left_out_errors
from bcmdist.learning.method_options import method_options
from bcmdist.learning.option_fields import choices_of, fits, said, types_of
from bcmdist.learning.query_selection import BEGUN, PLACED, TARGETED, has_working_targets
from bcmdist.model.kernels import parse_kernel
from bcmdist.model.likelihoods import LIKELIHOODS, Likelihood, make_likelihood, tasks
from bcmdist.model.model import FIRST_PRECISION
from bcmdist.model.warping import parse_warp
from bcmdist.storage.bounds import SEED, refuse_outside

TWO_CLASSES = 2  # number of classes assumed while it is unknown


def refuse(settings) -> None:
    """Raise `InvalidOption` for settings that are invalid or cannot be combined."""
    read = method_options(named=settings.options) if settings.options else {}
    kinds = dict.fromkeys(kind for name in settings.options for kind in read[name].kinds)
    for options in (settings, *map(settings.of, kinds)):
        _refuse_choices(options)
        refuse_outside(options)
    if isinstance(settings.seed, Integral):
        refuse_seed(settings.seed)
    _refuse_likelihood(settings)
    _refuse_approximation(settings)
    _refuse_learning(settings)
    _refuse_expert(settings)
    _refuse_precision(settings)
    wanted = _wanted(settings)
    if settings.partition == "spatial" and wanted and wanted.coupled:
        raise InvalidOption(
            f"partition: expected chunks with {settings.likelihood}, got spatial, whose local experts keep classes "
            "apart; give --partition chunks, or --likelihood softmax or onehot"
        )
    parse_warp(settings.warp)
    if settings.kernel != "auto":
        parse_kernel(settings.kernel, inputs=1)


def usual_rows(settings) -> int:
    """Return the default rows of a partition."""
    defaults = method_of(settings).defaults
    return defaults.cell_rows if settings.partition == "spatial" else defaults.rows


def refuse_seed(seed) -> None:
    """Raise `InvalidOption` for a seed outside the range of all random number generators in use."""
    if not SEED.least <= seed <= SEED.most:
        raise InvalidOption(
            f"seed: expected at least {SEED.least} and at most {SEED.most}, got {seed}; give another one"
        )


def _wanted(settings) -> Likelihood | None:
    """Return the requested likelihood, or None."""
    return settings.likelihood and make_likelihood(settings.likelihood, TWO_CLASSES)


def _refuse_choices(options):
    """Refuse a text that is not one of the choices of its field, if the field has choices."""
    for name, hint in said(type(options)).items():
        value, choices = getattr(options, name), choices_of(hint)
        if choices and not fits(value, hint) and (isinstance(value, str) or int not in types_of(hint)):
            _expect_one_of(name, value, choices)


def _refuse_likelihood(settings):
    task, likelihood, known = settings.task, settings.likelihood, tasks()
    _expect_one_of("task", task, (None, *known))
    if likelihood not in (None, *LIKELIHOODS) and likelihood not in LIKELIHOODS:
        _expect_one_of("likelihood", likelihood, tuple(LIKELIHOODS))
    if task and likelihood not in (None, *known[task]):
        raise InvalidOption(
            f"likelihood: expected one of {', '.join(known[task])} for {task}, got {likelihood}; leave out one of them"
        )
    likely = _wanted(settings) or make_likelihood(known[task or "regression"][0], TWO_CLASSES)
    if settings.query_method in TARGETED and not has_working_targets(likely):
        raise InvalidOption(
            f"query_method: expected kmeans or pivoted with {likely.name}, got {settings.query_method}; give one of "
            "these"
        )


def _refuse_approximation(settings):
    likelihood = settings.likelihood
    wanted = _wanted(settings)
    own_way = wanted is not None and not wanted.single
    if settings.approximation == "ep" and (own_way or settings.linearise != "own"):
        raise InvalidOption(
            f"approximation: expected laplace with {likelihood or settings.linearise}, got ep; leave it out"
        )
    if settings.linearise == "running" and own_way:
        raise InvalidOption(f"linearise: expected own with {likelihood}, got running; leave it out")
    if settings.linearise == "running" and settings.passes == "auto":
        raise InvalidOption("linearise: expected own with several passes, got running; leave out one of them")


def _refuse_learning(settings):
    objective = settings.objective
    if objective != "local" and not settings.learn:
        raise InvalidOption(f"objective: expected learning, got {objective} with no-learn; leave out one")
    if objective == "committee":
        _refuse_committee_objective(settings)
    if wanted := _wanted(settings):
        refuse_leaving_out(objective, wanted)
    if settings.query_method in BEGUN and objective != "committee":
        raise InvalidOption(
            f"query_method: expected objective committee with {settings.query_method}, got {objective}; give "
            f"--objective committee, or --query-method {BEGUN[settings.query_method]}"
        )
    if settings.query_from is not None and settings.query_method not in PLACED:
        raise InvalidOption(
            f"query_from: expected query_method {' or '.join(PLACED)}, whose points need be no rows, got "
            f"{settings.query_method}, which chooses among training rows; leave out one of them"
        )
    if settings.set and settings.learn:
        raise InvalidOption("set: expected learn=False (--no-learn) with given hyper-parameters; add it")


def _refuse_expert(settings):
    """Refuse what the chosen expert does not support."""
    name, method, wanted = settings.expert, method_of(settings), _wanted(settings)
    residual = method.residual
    refuse_unable(method, settings)
    _refuse_unread(settings)
    method.refuse(settings, wanted)
    _refuse_options(settings, name, method)
    if settings.approximation == "ep":
        refuse_uncoupled(residual, "approximation ep", "take --approximation laplace")
    if wanted:
        refuse_likelihood(method, wanted)
        refuse_coupled_classes(residual, wanted)
    if settings.partition == "spatial" and not method.capabilities.local:
        local = " or ".join(one for one, other in experts().items() if other.capabilities.local)
        raise InvalidOption(
            f"expert: expected {local} with spatial partitions, to which the rows around a new point add, got {name}; "
            "give --partition chunks, or one of these"
        )
    if settings.objective == "committee":
        refuse_climbing(method, wanted)


def _refuse_unread(settings):
    """Refuse options of other methods than the expert's."""
    for option in method_options(named=settings.options).values() if settings.options else ():
        if option.name in settings.options and settings.expert not in option.experts:
            raise InvalidOption(
                f"{option.name}: expected the expert {' or '.join(option.experts)} with it, got {settings.expert}; "
                f"leave it out, or take --expert {option.experts[0]}"
            )


def _refuse_options(settings, name, method):
    """Refuse options that all fits share and the expert does not read."""
    if method.size != "query" and settings.query is not None:
        raise InvalidOption(
            f"query: expected --{method.size} with {name}, which has no query points, got {settings.query}; give that "
            "instead"
        )
    if not left_out_errors(method, settings) and settings.noise != "auto":
        raise InvalidOption(
            f"noise: expected auto with {name}, of which rows that are left out do not tell how errors are spread, got "
            f"{settings.noise}; leave it out, or take --expert {FIRST}"
        )
    if not method.capabilities.running and settings.linearise != "own":
        raise InvalidOption(f"linearise: expected own with {name}, got {settings.linearise}; leave it out")


def _refuse_precision(settings):
    """Refuse mixed precision where experts compute in double precision only."""
    refuse_single(settings.precision, method_of(settings).residual, _wanted(settings))
    ways = (settings.approximation, settings.linearise)
    if settings.precision != FIRST_PRECISION and ways != ("laplace", "own"):
        raise InvalidOption(
            f"precision: expected {FIRST_PRECISION} with --approximation ep or --linearise running, got "
            f"{settings.precision}; leave one of them out"
        )


def refuse_leaving_out(objective, likelihood: Likelihood) -> None:
    """Raise `InvalidOption` for the leave-one-out objective if its log density has no gradient."""
    if objective == LEAVE_ONE_OUT and not likelihood.learned_as().exact:
        raise InvalidOption(
            f"objective: expected local, committee or subset with the likelihood {likelihood.name}, got "
            f"{LEAVE_ONE_OUT}, which is for normal errors, and for classes that "
            "are learned as measurements (onehot, softmax, svm); give one"
        )


def _refuse_committee_objective(settings):
    """Refuse the committee objective if partitions depend on what is learned, or with several latent processes."""
    if settings.partition == "spatial":
        raise InvalidOption("objective: expected local or subset with spatial cells, got committee; give one")
    wanted = _wanted(settings)
    if wanted and not wanted.single:
        raise InvalidOption(f"objective: expected local or subset with {settings.likelihood}, got committee; give one")


def _expect_one_of(name, value, allowed):
    if value not in allowed:
        words = ", ".join(choice for choice in allowed if choice is not None)
        raise InvalidOption(f"{name}: expected one of {words}, got {value!r:.80}; give one of these")
