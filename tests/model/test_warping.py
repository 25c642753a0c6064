"""Maps of single columns: strictly increasing, invertible, with their derivatives, and the same after storage."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcmdist.errors import InvalidOption
from bcmdist.model.scaling import Scaling, scaling_from_array, scaling_to_array
from bcmdist.model.warping import (
    MOST_KNOTS,
    UNWARPED,
    Log,
    Log1p,
    Rank,
    SignedLog,
    Warping,
    parse_warp,
    warping_from_array,
)

SAMPLE = np.exp(2.0 * np.random.default_rng(5).standard_normal(800))
TIED = np.concatenate([np.zeros(300), np.repeat([1.0, 2.0, 7.0], 50), SAMPLE[:50]])
WARPS = {
    "log": Log(0.2),
    "log1p": Log1p(),
    "signed-log": SignedLog(),
    "rank": Rank.of_sample(SAMPLE),
    "rank of ties": Rank.of_sample(TIED),
    "rank of two values": Rank.of_sample(np.array([1.0, 1.0, 4.0])),
}
# Within and beyond the values seen, for streams may hold any; the kinks at 0 and .2 among them.
PLACES = np.concatenate([[-1e6, -30.0, -1.0, 0.0, 0.1, 0.2, 1e3, 1e6], np.geomspace(1e-3, 200.0, 300)])


@pytest.mark.parametrize("warp", WARPS.values(), ids=WARPS)
def test_maps_increase_and_have_inverses(warp):
    x = np.unique(PLACES)
    z = warp(x)
    assert np.all(np.isfinite(z))
    assert np.all(np.diff(z) > 0)
    # Both directions round relative to the largest number on the way, 1e6 where the map is linear.
    np.testing.assert_allclose(warp.inverse(z), x, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(warp(warp.inverse(z)), z, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("warp", WARPS.values(), ids=WARPS)
def test_slopes_are_derivatives(warp):
    x, step = np.array([-40.0, -2.03, 0.0613, 0.517, 3.333, 41.7, 5e3]), 1e-7
    central = (warp(x + step) - warp(x - step)) / (2 * step)
    # Central differences of numbers up to 100 by steps of 1e-7 keep six digits of the slope.
    np.testing.assert_allclose(warp.slope(x), central, rtol=1e-5, atol=1e-6)


def test_logarithms_are_exact_where_they_are_defined():
    x = np.geomspace(0.2, 1e5, 50)
    np.testing.assert_array_equal(Log(0.2)(x), np.log(x))
    np.testing.assert_array_equal(Log1p()(x), np.log1p(x))
    np.testing.assert_array_equal(SignedLog()(-x), -np.log1p(x))


def test_ranks_have_normal_scores():
    z = Rank.of_sample(SAMPLE)(SAMPLE)
    # Lines between knots .1 apart follow the scores of 800 values to a few hundredths, less well at the ends.
    assert abs(z.mean()) < 0.02
    assert abs(z.std() - 1.0) < 0.02
    assert len(Rank.of_sample(SAMPLE).knots) <= MOST_KNOTS


def test_ties_share_the_score_of_their_mean_rank():
    from scipy.special import ndtri

    warp = Rank.of_sample(np.array([0.0, 0.0, 0.0, 5.0]))
    np.testing.assert_allclose(warp(np.array([0.0, 5.0])), ndtri([1.5 / 4, 3.5 / 4]), rtol=1e-14)
    assert Rank.of_sample(np.full(9, 3.0)) is None


@given(st.lists(st.floats(-1e6, 1e6).map(lambda x: round(x, 3)), min_size=2, max_size=300))
def test_ranks_of_any_sample_increase(values):
    sample = np.array(values)
    warp = Rank.of_sample(sample)
    if len(np.unique(sample)) < 2:
        assert warp is None
        return
    x = np.unique(np.concatenate([sample, sample - 1.0, sample + 1.0]))
    z = warp(x)
    assert np.all(np.diff(z) >= 0)
    gap = np.ptp(sample)
    np.testing.assert_allclose(warp.inverse(z), x, atol=1e-9 * (1.0 + gap), rtol=1e-9)


def test_a_stored_warping_is_the_same():
    warping = Warping(dict(zip([5, 0, 1, 3, 2, 7], WARPS.values(), strict=True)))
    again = warping_from_array(warping.to_array())
    X = np.tile(PLACES[:, None], (1, 8))
    np.testing.assert_array_equal(again(X), warping(X))
    np.testing.assert_array_equal(again(X)[:, [4, 6]], X[:, [4, 6]])
    assert again.kinds() == {0: "log1p", 1: "signed-log", 2: "rank", 3: "rank", 5: "log", 7: "rank"}
    assert not warping_from_array(UNWARPED.to_array())


def test_scalings_of_warped_inputs_invert_and_are_stored():
    mean, scale = np.array([0.5, -1.0, 2.0]), np.array([1.5, 0.3, 10.0])
    scaling = Scaling(mean, scale, 3.0, 2.0, Warping({0: WARPS["log"], 2: WARPS["rank"]}))
    X = np.abs(np.random.default_rng(1).standard_normal((40, 3))) + 0.01
    again = scaling_from_array(scaling_to_array(scaling))
    np.testing.assert_array_equal(again.inputs(X), scaling.inputs(X))
    np.testing.assert_allclose(scaling.original_inputs(scaling.inputs(X)), X, rtol=1e-10, atol=1e-12)
    assert (again.y_mean, again.y_scale) == (3.0, 2.0)
    # to first order: the covariance of the images of small errors
    S = np.diag([1.0, 4.0, 9.0])
    np.testing.assert_allclose(
        scaling.input_covariances(X, np.tile(np.diag(S), (40, 1))), scaling.input_covariances(X, np.tile(S, (40, 1, 1)))
    )
    step = 1e-7
    moved = (scaling.inputs(X + step) - scaling.inputs(X - step)) / (2 * step)
    np.testing.assert_allclose(scaling.slopes(X), moved, rtol=1e-5)


@pytest.mark.parametrize(
    ("text", "common", "by_column"),
    [
        ("auto", "auto", {}),
        ("rank", "rank", {}),
        ("none, income=log ,rooms=none", "none", {"income": "log", "rooms": "none"}),
        ("a=b=signed-log", "auto", {"a=b": "signed-log"}),
    ],
)
def test_warps_are_read_by_column(text, common, by_column):
    assert parse_warp(text) == (common, by_column)


@pytest.mark.parametrize("text", ["", "ln", "income=ln", "income=log,rank", "=log", "a=log,a=rank"])
def test_other_warps_are_refused(text):
    with pytest.raises(InvalidOption, match="warp: expected one of auto, none, log, signed-log, rank"):
        parse_warp(text)
