"""Roles: how the columns of a file are used in a data set.

In a table, one column is the target, others have a role given by the user, and all remaining columns are inputs: a
number, a date or a category (`look`). The arrays of an .npz are selected by name (`arrays`). Unused columns are
reported with the reason.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bcmdist.data.dataset import COMPANIONS
from bcmdist.data.schema import NO_INPUT, few, found_instead, warn
from bcmdist.data.tables.coding import Coding
from bcmdist.data.tables.dates import PERIODS
from bcmdist.data.tables.options import TableOptions
from bcmdist.errors import DataNotFound, InvalidData, InvalidOption
from bcmdist.storage.bounds import option_name

# Names that data sets and predictions use themselves.
RESERVED = {"X", "y", "row", "column", "class", *COMPANIONS, "mean", "variance", "probability", "label"}
RESERVED |= {"observation_mean", "observation_variance", "lower95", "upper95"}
# Why a column is not used, where a user has asked for it.
OF_TRAINING = "the target of training"
ASKED = ("--drop", "--x", OF_TRAINING)
# Valid names of row identifiers: they become arrays of a Zarr group, which CF lists separated by blanks.
ROW_NAME = re.compile(r"(?!\.|zarr\.json$)[^\s/\\:%\0]{1,60}")


@dataclass(frozen=True)
class Roles:
    """Roles of the columns of a file; columns without a role are inputs."""

    y: str = "y"
    """name of the target"""
    target: bool = True
    """False: rows to predict at; the column `y` is left out if it exists"""
    companions: Mapping[str, str] = field(default_factory=dict)
    """columns by role: weight, exposure, trials, event, target_variance"""
    id: str | None = None
    """row identifiers, copied to predictions"""
    drop: Sequence[str] = ()
    """columns to leave out"""
    inputs: tuple[str, ...] = ()
    """names of the inputs; () for all columns without a role"""
    coding: Coding | None = None
    """coding by a model"""
    category: Sequence[str] = ()
    """inputs that are categories, even if they look like numbers"""
    date: Mapping[str, str] = field(default_factory=dict)
    """strptime formats of inputs that are dates"""
    cyclic: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """cycles of inputs that are dates: day, week, year"""
    sphere: Sequence[tuple[str, str]] = ()
    """inputs that are longitude and latitude, as points on the unit sphere"""
    missing: str = "error"
    """treatment of rows with gaps: error, drop, indicate, or auto (indicate gaps of inputs, drop rows with others)"""
    lenient: bool = False
    """whether columns that cannot be inputs are left out, with a warning; else they are refused"""
    unseen: str | None = None
    """treatment of unknown categories: error or other; None: as in the coding"""
    separator: str | None = None
    """separator of a .csv file"""
    lags: int | None = None
    """number of preceding target values to use as inputs of each row (`series`)"""
    x_lags: int = 0
    """number of preceding values of each input to add"""

    def __post_init__(self):
        if self.coding is not None:
            object.__setattr__(self, "inputs", self.coding.columns)
            object.__setattr__(self, "missing", self.coding.missing)
        named = [*self.companions.values(), *([self.id] if self.id else []), *self.drop, *self.inputs]
        if self.target or self.y not in self.inputs:
            named.append(self.y)
        twice = next((name for name, count in Counter(named).items() if count > 1), None)
        twice = twice or next((name for name in self.type_options if name in {*named} - {*self.inputs}), None)
        if twice:
            raise InvalidOption(
                f"roles: expected one role for a column, got {twice!r} for several; leave out the others"
            )
        on_spheres = Counter(name for pair in self.sphere for name in pair)
        others = {*self.category, *self.date, *self.cyclic}
        twice = next((name for name, count in on_spheres.items() if count > 1 or name in others), None)
        if twice:
            raise InvalidOption(
                f"--sphere: expected columns of no other type, each once, got {twice!r} twice; correct the names"
            )
        if self.x_lags and self.lags is None:
            raise InvalidOption(f"--x-lags: expected --lags with it, got {self.x_lags} alone; add --lags")
        if self.id is not None and (self.id in RESERVED or not ROW_NAME.fullmatch(self.id)):
            raise InvalidOption(
                "--id: expected a name that data sets do not have, without blanks, '/', '\\', ':', '%' and '.' in "
                f"front, of at most 60 characters, got {self.id!r}; rename the column"
            )

    @property
    def drops(self) -> bool:
        """Whether rows without a target or a companion are left out, with a warning: they cannot be used."""
        return self.missing in ("drop", "auto") or (self.coding is not None and self.target)

    @property
    def type_options(self) -> dict[str, str]:
        """Inputs whose type was given by an option, with that option."""
        return (
            dict.fromkeys(self.category, "--category")
            | dict.fromkeys(self.date, "--date")
            | dict.fromkeys(self.cyclic, "--cyclic")
            | {name: "--sphere" for pair in self.sphere for name in pair}
        )

    @property
    def texts(self) -> frozenset[str]:
        """Columns to read as unparsed texts, so that 007 does not become 7."""
        texts = () if self.coding is None else self.coding.texts
        return frozenset([*self.category, *self.date, *texts, *([self.id] if self.id else [])])


def roles_of(options: TableOptions, y, *, x=None, target=True, lags=None, x_lags=0) -> Roles:
    """Convert options to roles of columns.

    Parameters
    ----------
    x : comma-separated names of the inputs; by default all columns without a role

    Raises
    ------
    InvalidOption
    """
    date = dict(_assigned("--date", one) for one in options.date)
    cyclic: dict[str, tuple[str, ...]] = {}
    for name, text in (_assigned("--cyclic", one) for one in options.cyclic):
        odd = [period for period in text.split(",") if period not in PERIODS]
        if odd:
            raise InvalidOption(f"--cyclic: expected {', '.join(PERIODS)}, got {odd[0]!r} for {name!r}; give one")
        cyclic[name] = (*cyclic.get(name, ()), *text.split(","))
    sphere = [pair_of(text) for text in options.sphere]
    inputs = tuple(name.strip() for name in x.split(",")) if x else ()
    if inputs:
        inputs = tuple(dict.fromkeys([*inputs, *(name for pair in sphere for name in pair)]))
    names = {role: getattr(options, role) for role in COMPANIONS}
    companions = {role: name for role, name in names.items() if name is not None}
    return Roles(
        y,
        target,
        companions,
        options.id,
        options.drop,
        inputs=inputs,
        category=options.category,
        date=date,
        cyclic=cyclic,
        sphere=sphere,
        missing="error" if options.strict and options.missing == "auto" else options.missing,
        lenient=not options.strict,
        unseen=options.unseen or ("error" if options.strict else "other"),
        separator=options.separator,
        lags=lags,
        x_lags=x_lags,
    )


def pair_of(sphere) -> tuple[str, str]:
    """Return the names of longitude and latitude, from "LON,LAT" or a pair of names.

    Raises
    ------
    InvalidOption
    """
    names = sphere.split(",") if isinstance(sphere, str) else sphere
    names = [str(name).strip() for name in names] if isinstance(names, (list, tuple)) else []
    if len(names) != 2 or not all(names) or names[0] == names[1]:
        raise InvalidOption(
            f"sphere: expected the names of two different columns, LON,LAT, got {sphere!r:.80}; name that of "
            "longitudes, then that of latitudes"
        )
    return names[0], names[1]


def _assigned(option, text):
    name, equals, value = text.rpartition("=") if option == "--cyclic" else text.partition("=")
    if not equals or not name or not value:
        raise InvalidOption(f"{option}: expected COLUMN=VALUE, got {text!r}; see --help")
    return name, value


def named_columns(names, file, roles: Roles, *, besides=()) -> tuple[list[str], dict[str, str]]:
    """Return the input columns, and the reason for which other columns are not used, by name.

    Parameters
    ----------
    names : names of all columns
    besides : columns that select rows

    Raises
    ------
    DataNotFound, InvalidData
    """
    named = {"--y": roles.y} if roles.target else {}
    named |= {option_name(role): name for role, name in roles.companions.items()}
    named |= {"--id": roles.id} if roles.id else {}
    names = [name for name in names if name not in besides]
    for option, name in named.items():
        if name not in names:
            # `--id` also names the column of `score --by`.
            remedy = "correct the name" if option == "--id" else f"name another with {option}"
            raise DataNotFound(f"{file}: expected a column {name!r}, found {found_instead(name, names)}; {remedy}")
    for name, option in (dict.fromkeys(roles.drop, "--drop") | roles.type_options).items():
        if name not in names:
            what = " to drop" if option == "--drop" else ""
            found = found_instead(name, names)
            raise DataNotFound(f"{file}: expected a column {name!r}{what}, found {found}; correct {option}")
    unused = dict.fromkeys(roles.drop, "--drop")
    if not roles.target and roles.y in names and roles.y not in roles.inputs:
        unused[roles.y] = OF_TRAINING if roles.coding else "the target, --no-target"
    inputs = [name for name in names if name not in {*named.values(), *unused}]
    if roles.inputs:
        inputs, unused = _named_inputs(names, inputs, unused, file, roles)
    if not inputs:
        raise InvalidData(f"{file}: expected columns besides {', '.join(named.values())}, found none; add inputs")
    return inputs, unused


def _named_inputs(names, inputs, unused, file, roles):
    """Restrict the possible inputs to `roles.inputs`; also return why other columns are not used."""
    missing = [name for name in roles.inputs if name not in inputs]
    if missing:
        if roles.coding is None:
            found = found_instead(missing[0], names)
            raise DataNotFound(f"{file}: expected a column {missing[0]!r}, found {found}; correct --x")
        raise InvalidData(
            f"{file}: expected the inputs of training ({few(roles.inputs)}), {few(map(repr, missing))} "
            f"not found among {few(names)}; add what is missing under its name in training"
        )
    others = (name for name in inputs if name not in roles.inputs)
    return list(roles.inputs), unused | dict.fromkeys(others, NO_INPUT if roles.coding else "--x")


def warn_of_roles(inputs, file) -> None:
    """Warn of inputs that have the name of a role without having been given it."""
    for name in inputs:
        role = name.strip().casefold()
        if role in (*COMPANIONS, "id"):
            what = f"give {option_name(role)} {name} if it is the {role.replace('_', ' ')} of rows"
            warn(f"{file}: {name!r} is taken for an input; {what}")


def warn_of_unused(unused, file) -> None:
    """Warn of unused columns, with the reason, unless the reason is an option that leaves them out."""
    for reason in dict.fromkeys(why for why in unused.values() if why not in ASKED):
        names = few(repr(name) for name, why in unused.items() if why == reason)
        warn(f"{file}: {names} not used: {reason}")
