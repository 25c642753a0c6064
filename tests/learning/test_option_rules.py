"""Rules of options: which values they refuse, where, and with what text."""

import pytest

from bcmdist import Settings
from bcmdist.errors import InvalidOption
from bcmdist.learning.experts import VARIANTS, experts, method_of
from bcmdist.learning.rules import Combination, Excludes, Requires, Supports, _Texts
from bcmdist.learning.settings_checks import RULES
from bcmdist.model.likelihoods import make_likelihood

METHODS = [*experts().values(), *VARIANTS.values()]
OF_METHODS = [rule for method in METHODS for rule in method.rules]


def combined(likelihood="gaussian", **given):
    settings = Settings(**given)
    return Combination(settings, method_of(settings), make_likelihood(likelihood, 3), experts)


@pytest.mark.parametrize("rule", [*RULES, *OF_METHODS])
def test_a_text_says_what_to_do_and_names_what_there_is(rule):
    """One sentence: expected, got; remedy."""
    found = _Texts(combined("one_against_rest")).format(rule.text, value=rule.values and rule.values[0])
    assert ", got " in found
    assert found.count("; ") == 1
    assert "{" not in found


@pytest.mark.parametrize("rule", [*RULES, *OF_METHODS])
def test_a_rule_is_about_an_option(rule):
    assert hasattr(Settings(), rule.option)


def test_values_that_are_excluded_or_required():
    seven, three = combined(seed=7), combined(seed=3)
    in_all, text = bool, "another, got {value}; give it"
    for rule in (Excludes("seed", (7,), in_all, text), Requires("seed", (3, 4), in_all, text)):
        rule.check(three)
        with pytest.raises(InvalidOption, match=r"^seed: expected another, got 7; give it$"):
            rule.check(seven)
    Excludes("seed", (7,), lambda c: c.settings.effort == "quick", text).check(seven)


def test_values_that_a_method_supports():
    rule = Supports("kernel", ("auto",), "kernels", "{able.kernels} with {method.name}, got {value}; give one")
    for given in ({}, {"kernel": "matern32"}, {"expert": "rvm"}, {"expert": "rvm", "kernel": "se-iso"}):
        rule.check(combined(**given))
    with pytest.raises(InvalidOption, match="kernel: expected se or se-iso with rvm, got rq; give one"):
        rule.check(Combination(Settings(kernel="rq"), experts()["rvm"], None, experts))


def test_a_likelihood_chosen_by_default_is_checked_as_one_that_is_given():
    rule = next(one for one in RULES if one.option == "noise" and isinstance(one, Excludes))
    rule.check(combined(noise="varying"))
    with pytest.raises(InvalidOption, match="numbers as targets for --noise varying, got the likelihood bernoulli"):
        rule.check(combined("bernoulli", noise="varying"))


@pytest.mark.parametrize("name", ["coordinates", "output", "kernel", "x"])
def test_lists_of_names_are_no_texts(name):
    with pytest.raises(InvalidOption, match=rf"{name}: expected a text, got \['lon'\]; give one, with commas between"):
        Settings(**{name: ["lon"]})
