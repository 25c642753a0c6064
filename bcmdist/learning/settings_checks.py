"""Refuse invalid settings of a fit: values that are not among the choices, and what cannot be combined (`RULES`)."""

from dataclasses import replace
from numbers import Integral
from typing import Any

from bcmdist.errors import InvalidOption
from bcmdist.experts.residual import RESIDUALS, refuse_coupled_classes
from bcmdist.learning.column_roles import NO_INPUTS
from bcmdist.learning.decisions import LEAVE_ONE_OUT
from bcmdist.learning.experts import FIRST, experts, method_of
from bcmdist.learning.method import left_out_errors
from bcmdist.learning.method_options import method_options
from bcmdist.learning.option_fields import choices_of, fits, hints_of, types_of
from bcmdist.learning.query_selection import BEGUN, PLACED, TARGETED, has_working_targets
from bcmdist.learning.rules import TWO_CLASSES, Combination, Excludes, Requires, Rule, Supports
from bcmdist.model.kernels import check_expression
from bcmdist.model.likelihoods import LIKELIHOODS, Likelihood, make_likelihood, tasks
from bcmdist.model.model import FIRST_PRECISION
from bcmdist.model.warping import parse_warp
from bcmdist.storage.bounds import SEED, refuse_outside

# Options that are names, several names separated by commas, or expressions.
TEXTS = ("kernel", "warp", "x", "y", "coordinates", "output")
TAKE_FIRST = f"leave it out, or take --expert {FIRST}"


# --- Situations ---


def several_processes(c: Combination) -> bool:
    """Whether each row has several latent values that are not approximated one at a time."""
    return c.likelihood is not None and not c.likelihood.single


def without_targets(c: Combination) -> bool:
    """Whether the likelihood, or the first of the task, has no regression targets for f."""
    return not has_working_targets(c.likely)


def climbs_nothing(c: Combination) -> bool:
    """Whether the objective is the evidence of the committee, and the method has no gradient of it."""
    climbs = c.able.climbs
    if c.settings.objective != "committee":
        return False
    return not climbs or not (RESIDUALS[climbs].couples or c.likelihood is None or c.likelihood.normal)


def tries_no_sums(c: Combination) -> bool:
    """Whether learning chooses no kernel, or only among kernels of all columns."""
    settings = c.settings
    chooses = settings.learn and settings.kernel == "auto" and c.able.sums
    return not chooses or settings.effort == "quick" or settings.objective == "subset"


RULES: tuple[Rule, ...] = (
    Excludes(
        "query_method",
        TARGETED,
        without_targets,
        "kmeans or pivoted with {likely.name}, got {value}; give one of these",
    ),
    Excludes("approximation", ("ep",), several_processes, "laplace with {likelihood.name}, got {value}; leave it out"),
    Excludes(
        "approximation",
        ("ep",),
        lambda c: c.settings.linearise != "own",
        "laplace with {settings.linearise}, got {value}; leave it out",
    ),
    Excludes("linearise", ("running",), several_processes, "own with {likelihood.name}, got {value}; leave it out"),
    Excludes(
        "linearise",
        ("running",),
        lambda c: c.settings.passes == "auto",
        "own with several passes, got {value}; leave out one of them",
    ),
    Requires(
        "objective",
        (None, "local"),
        lambda c: not c.settings.learn,
        "local with --no-learn, got {value}; leave out one of them",
    ),
    Excludes(
        "objective",
        ("committee",),
        lambda c: c.settings.partition == "spatial",
        "local or subset with spatial cells, got {value}; give one",
    ),
    Excludes(
        "objective", ("committee",), several_processes, "local or subset with {likelihood.name}, got {value}; give one"
    ),
    Excludes(
        "objective",
        (LEAVE_ONE_OUT,),
        lambda c: c.likelihood and not c.likelihood.learned_as().exact,
        "local, committee or subset with the likelihood {likelihood.name}, got {value}, which is for normal errors, "
        "and for classes that are learned as measurements (onehot, softmax, svm); give one",
    ),
    *(
        Excludes(
            "query_method",
            (name,),
            lambda c: c.objective != "committee",
            "objective committee with {value}, got {objective}; give --objective committee, or --query-method "
            + initial,
        )
        for name, initial in BEGUN.items()
    ),
    Requires(
        "query_from",
        (None,),
        lambda c: c.query_method not in PLACED,
        f"query_method {' or '.join(PLACED)}, whose points may lie anywhere, got {{query_method}}, which "
        "chooses among training rows; leave out one of them",
    ),
    Requires(
        "set",
        ({},),
        lambda c: c.settings.learn,
        "learn=False (--no-learn) with given hyper-parameters, got learn=True; add it",
    ),
    Requires(
        "coordinates",
        (None, NO_INPUTS),
        tries_no_sums,
        "no coordinates with {method.name}, --kernel {settings.kernel}, --effort {settings.effort} and --objective "
        "{objective}, got {value!s:.80}: they are for sums of kernels, which learning tries with --kernel "
        "auto, --effort normal or thorough, and without --objective subset; give these, or leave it out",
    ),
    Requires(
        "target_transform",
        ("auto", "none"),
        lambda c: not c.likely.normal,
        "auto or none with the likelihood {likely.name}, got {value}, which is for measurements with normal errors; "
        "leave it out, or give --likelihood gaussian",
    ),
    Excludes(
        "target_transform",
        ("power",),
        lambda c: c.settings.output is not None,
        "auto, log or none with output, whose targets have different units, got {value}; give log or none",
    ),
    Requires(
        "output",
        (None,),
        lambda c: c.likely.per_class,
        "a likelihood of one latent function, got {likely.name}, which has one of each class; leave it out, or give "
        "--likelihood gaussian",
    ),
    *(
        Requires(
            name,
            (None,),
            lambda c: not c.settings.grow,
            f"{name} with --grow, got {{value}} without it; add it, or leave {name} out",
        )
        for name in ("grow_share", "query_most")
    ),
    Requires(
        "query_most",
        (None,),
        lambda c: isinstance(c.settings.query, Integral) and c.settings.query_most < c.settings.query,
        "at least the {settings.query} query points of --query, got {value}; give more",
    ),
    Requires(
        "grow",
        (False,),
        lambda c: not c.able.query_from or c.able.input_errors,
        "query points of exact inputs, that can be added to, got the expert {method.name}; " + TAKE_FIRST,
    ),
    Requires(
        "grow",
        (False,),
        lambda c: (c.settings.approximation, c.settings.linearise) != ("laplace", "own"),
        "query points that can be added to, got --approximation {settings.approximation} and --linearise "
        "{settings.linearise}, whose messages depend on each other; leave out one of them",
    ),
    # What the method can do.
    Requires(
        "output",
        (None,),
        lambda c: not c.able.climbs or c.able.input_errors,
        "an expert that shares values at query points of exact inputs (bcm, fitc, sor, rrgp_star), got {method.name}; "
        + TAKE_FIRST,
    ),
    Supports(
        "kernel", ("auto",), "kernels", "{able.kernels} with the expert {method.name}, got {value}; give one of these"
    ),
    Supports(
        "query_method",
        (None,),
        "query_methods",
        "{able.query_methods} with the expert {method.name}, which has no query points, got {value}; " + TAKE_FIRST,
    ),
    Requires(
        "mean",
        ("auto", "zero"),
        lambda c: not c.able.mean,
        "auto or zero with the expert {method.name}, got {value}; " + TAKE_FIRST,
    ),
    Requires(
        "query_from",
        (None,),
        lambda c: not c.able.query_from,
        "an expert that shares values at query points, got {method.name}; " + TAKE_FIRST,
    ),
    Requires(
        "query",
        (None,),
        lambda c: c.method.size != "query",
        "--{method.size} with {method.name}, which has no query points, got {value}; give that instead",
    ),
    Requires(
        "noise",
        ("auto",),
        lambda c: not left_out_errors(c.method, c.settings),
        "auto with {method.name}, whose errors at left-out rows are not prediction errors, got {value}; " + TAKE_FIRST,
    ),
    Requires("linearise", ("own",), lambda c: not c.able.running, "own with {method.name}, got {value}; leave it out"),
    Excludes(
        "approximation",
        ("ep",),
        lambda c: not RESIDUALS[c.method.residual].couples,
        "an expert that couples the rows of a partition (residual block, as bcm) with {value}, got residual "
        f"{{method.residual}}; take --approximation laplace, or --expert {FIRST}",
    ),
    Requires(
        "likelihood",
        (None,),
        lambda c: c.likelihood and c.likelihood.independent_processes and c.likelihood.name not in c.able.likelihoods,
        "the expert {readers} with {value}, got {method.name}; give --expert {readers[0]}, or --likelihood onehot",
    ),
    Supports(
        "likelihood",
        (None,),
        "likelihoods",
        "{able.likelihoods} with the expert {method.name}, got {value}; give one of these, or take "
        f"--expert {FIRST}",
    ),
    Requires(
        "expert",
        (),
        lambda c: c.settings.partition == "spatial" and not c.able.local,
        "{local} with spatial partitions, which predict from the rows around a new point, got {value}; give "
        "--partition chunks, or one of these",
    ),
    Requires(
        "expert",
        (),
        climbs_nothing,
        f"{FIRST} with the objective committee, or fitc, sor or rrgp_star with normal errors, got {{value}}; give "
        "--objective local, or leave out --expert",
    ),
    # Only Gaussian covariances of a partition's rows are factored in single precision: where modes are searched, the
    # message depends on where the iterations end, and so on the last digits.
    Requires(
        "precision",
        (FIRST_PRECISION,),
        lambda c: c.method.residual != "block",
        f"{FIRST_PRECISION} with residual {{method.residual}}, got {{value}}, which is for --expert {FIRST}; leave it "
        "out",
    ),
    Requires(
        "precision",
        (FIRST_PRECISION,),
        lambda c: c.likelihood and not c.likelihood.exact,
        f"{FIRST_PRECISION} with likelihood {{likelihood.name}} and residual {{method.residual}}, got {{value}}, which "
        "is for Gaussian noise and onehot; leave it out",
    ),
    Requires(
        "precision",
        (FIRST_PRECISION,),
        lambda c: (c.settings.approximation, c.settings.linearise) != ("laplace", "own"),
        f"{FIRST_PRECISION} with --approximation ep or --linearise running, got {{value}}; leave one of them out",
    ),
    Excludes(
        "partition",
        ("spatial",),
        lambda c: c.likelihood and c.likelihood.coupled,
        "chunks with {likelihood.name}, got {value}, whose local experts treat classes independently; give "
        "--partition chunks, or --likelihood softmax or onehot",
    ),
    Excludes(
        "noise",
        ("varying",),
        lambda c: c.likelihood and c.likelihood.corrected_by != "errors",
        "numbers as targets for --noise varying, got the likelihood {likelihood.name}; leave it out",
    ),
)


def refuse(settings) -> None:
    """Raise `InvalidOption` for settings that are invalid or cannot be combined."""
    _refuse_all_but_texts(settings)
    read = method_options(named=settings.options) if settings.options else {}
    kinds = dict.fromkeys(kind for name in settings.options for kind in read[name].kinds)
    for options in (settings, *map(settings.of, kinds)):
        _refuse_choices(options)
        refuse_outside(options)
    if isinstance(settings.seed, Integral):
        refuse_seed(settings.seed)
    _refuse_likelihood(settings)
    for name in settings.options:
        if settings.expert not in read[name].experts:
            raise InvalidOption(
                f"{name}: expected the expert {' or '.join(read[name].experts)} with it, got {settings.expert}; leave "
                f"it out, or take --expert {read[name].experts[0]}"
            )
    refuse_combinations(settings, settings.likelihood and make_likelihood(settings.likelihood, TWO_CLASSES))
    parse_warp(settings.warp)
    if settings.kernel != "auto":
        check_expression(settings.kernel)


def refuse_combinations(settings, likelihood: Likelihood | None) -> None:
    """Raise `InvalidOption` for settings that cannot be combined with each other, their method or a likelihood.

    Parameters
    ----------
    likelihood : None where it has not been chosen yet
    """
    method = method_of(settings)
    combination = Combination(settings, method, likelihood, experts)
    method.refuse(settings, likelihood)
    for rule in (*method.rules, *RULES):
        rule.check(combination)
    if likelihood:
        refuse_coupled_classes(method.residual, likelihood)


def with_objective(settings, likelihood: Likelihood) -> Any:
    """Return the settings with the objective and the way to choose query points, where these are not given."""
    chosen = Combination(settings, method_of(settings), likelihood, experts)
    return replace(settings, objective=chosen.objective, query_method=chosen.query_method)


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


def _refuse_all_but_texts(settings):
    """Refuse anything but a text, or None where that is the default, as a name, names or an expression."""
    hints = hints_of(type(settings))
    for name in TEXTS:
        value = getattr(settings, name)
        if not (isinstance(value, str) or fits(value, hints[name])):
            raise InvalidOption(
                f"{name}: expected a text, got {value!r:.80}; give one, with commas between names if there are several"
            )


def _refuse_choices(options):
    """Refuse a text that is not one of the choices of its field, if the field has choices."""
    for name, hint in hints_of(type(options)).items():
        value, choices = getattr(options, name), choices_of(hint)
        if choices and not fits(value, hint) and (isinstance(value, str) or int not in types_of(hint)):
            _expect_one_of(name, value, choices)


def _refuse_likelihood(settings):
    """Refuse a task and a likelihood that do not exist, or not together."""
    task, likelihood, by_task = settings.task, settings.likelihood, tasks()
    _expect_one_of("task", task, (None, *by_task))
    if likelihood not in (None, *LIKELIHOODS) and likelihood not in LIKELIHOODS:
        _expect_one_of("likelihood", likelihood, tuple(LIKELIHOODS))
    if task and likelihood not in (None, *by_task[task]):
        raise InvalidOption(
            f"likelihood: expected one of {', '.join(by_task[task])} for {task}, got {likelihood}; leave out one of "
            "them"
        )


def _expect_one_of(name, value, allowed):
    if value not in allowed:
        words = ", ".join(choice for choice in allowed if choice is not None)
        raise InvalidOption(f"{name}: expected one of {words}, got {value!r:.80}; give one of these")
