"""What arrives is compared with what the model would have said of rows it was fitted to: from the first arrival on."""

import json
import shutil
import warnings
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from scipy.stats import norm, poisson

from bcmdist import GBCM, SerialRuntime, Settings
from bcmdist.app.cli.main import cli
from bcmdist.committee.absorbed import absorbed_partitions
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.committee.measurements import ExpectedLoss
from bcmdist.data.writing import write_dataset
from bcmdist.errors import BcmdistWarning
from bcmdist.experts.contributions import Expert
from bcmdist.prediction.errors.arrival_watch import ArrivalWatch
from bcmdist.prediction.errors.arrivals import Withheld
from bcmdist.prediction.errors.drift import drift_report
from bcmdist.prediction.scoring import excess_loss
from bcmdist.prediction.scoring.excess_loss import Change, Expected, changes, expected, of_classes, of_numbers
from bcmdist.prediction.scoring.pit import Places
from bcmdist.storage.entry import Entry
from bcmdist.storage.fields import decode

ROWS = 50
GIVEN = Settings(
    partition="chunks",
    kernel="se",
    learn=False,
    set={"kernel.lengthscale": 0.7, "likelihood.noise_variance": 0.006},
    query=25,
    rows_per_expert=ROWS,
)
ONE_EACH = IngestOptions(commit_every=1)


def smooth(X):
    return np.sin(2 * X[:, 0]) + X[:, 1]


def some_rows(rng, partitions, *, shift=0.0):
    X = rng.uniform(-2, 2, (ROWS * partitions, 2))
    return {"X": X, "y": smooth(X) + shift + 0.1 * rng.standard_normal(len(X))}


def stored(path, columns):
    write_dataset(path, columns, rows_per_chunk=ROWS)
    return str(path)


@pytest.fixture
def fitted(tmp_path, rng):
    return GBCM.fit(stored(tmp_path / "train.zarr", some_rows(rng, 20)), GIVEN, model=tmp_path / "model")


def test_surprise_is_nothing_on_average_where_the_model_is_right(rng):
    """Means of 200,000 rows within 4 standard errors: numbers, counts, censored lifetimes and classes."""
    n = 200_000
    seen = np.ones(n, dtype=bool)
    u = rng.uniform(size=n)
    k = rng.poisson(2.0, n)
    censored = rng.uniform(size=n)
    counts = Places(poisson.cdf(k - 1, 2.0), poisson.cdf(k, 2.0), seen)
    lifetimes = Places(np.minimum(u, censored), np.where(u < censored, u, 1.0), u < censored)
    for where in (Places(u, u, seen), counts, lifetimes):
        found, variance = of_numbers(where)
        assert abs(found.mean()) < 4 * np.sqrt(0.5 / n) + 1e-3  # normal scores end at 4: 0.0005 of (z^2 - 1) / 2
        assert found.var() <= 1.05 * variance.mean()
    p = rng.dirichlet(np.ones(3), n)
    found, variance = of_classes(p, (rng.uniform(size=n)[:, None] > p.cumsum(axis=1)).sum(axis=1))
    assert abs(found.mean()) < 4 * np.sqrt(variance.mean() / n)


def test_surprise_of_numbers_is_that_of_their_normal_score():
    z = np.array([-3.0, 0.0, 1.5])
    u = norm.cdf(z)
    found, _ = of_numbers(Places(u, u, np.ones(3, dtype=bool)))
    np.testing.assert_allclose(found, 0.5 * (z**2 - 1), rtol=1e-12)
    everything, _ = of_numbers(Places(np.zeros(1), np.ones(1), np.ones(1, dtype=bool)))
    assert everything == pytest.approx(0.0, abs=1e-3)  # scores end at 4
    for level in (0.0, 1.0):  # further away than a double can tell
        edge = np.full(1, level)
        assert of_numbers(Places(edge, edge, np.ones(1, dtype=bool)))[0] == 0.5 * (excess_loss.LARGEST_Z**2 - 1)


def test_changes_add_up_and_end():
    assert changes([0.5] * 100) == []
    assert changes([0.0, 0.0, 99.0, 0.0, 0.0]) == []  # one bad partition is none
    assert changes([0.0, 0.0, 99.0, 99.0]) == [Change(2, None)]
    assert changes([0.0] * 7 + [4.0] * 4) == [Change(7, None)]
    assert changes([0.0] * 6 + [1.1] + [9.0] * 4) == [Change(7, None)]  # a little more than SLACK is none of it
    assert changes([0.0] * 6 + [3.0] * 3 + [99.0]) == [Change(6, None)]
    (change,) = changes([0.0] * 7 + [9.0] * 30 + [0.0] * 40)
    assert change.start == 7
    assert 37 < change.stop < 60


def test_few_partitions_expect_little():
    sample = ((-1.0, 0.95, 0.5), (0.0, 0.01))
    few, many = expected([[sample] * 2] * 2), expected([[sample] * 4] * 16)
    assert many.dispersion < few.dispersion < 1.0
    assert few.figures == (-1.0, 0.95, 0.5)
    assert few.standardised([(0.3, 0.01)])[0] < many.standardised([(0.3, 0.01)])[0]
    assert excess_loss.SLACK < many.slack < few.slack == excess_loss.SLACK + 1.0
    assert expected([[((), ())]]) == excess_loss.UNKNOWN


def scored(rng, rows=50):
    """What is noted of some rows of a model that is right."""
    u = rng.uniform(size=rows)
    scores = excess_loss.totals(of_numbers(Places(u, u, np.ones(rows, dtype=bool)))) | {"rows": rows}
    return excess_loss.mean_with_variance(scores)


@pytest.mark.slow
@pytest.mark.parametrize("withheld", [1, 4, 16])
def test_less_than_one_sequence_in_a_hundred_alarms_for_nothing(rng, withheld):
    alarmed = 0
    for _ in range(200):
        base = expected([[((0.0,), scored(rng)) for _ in range(min(4, withheld))] for _ in range(withheld)])
        alarmed += bool(changes(base.standardised([scored(rng) for _ in range(60)]), base.slack))
    assert alarmed <= 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "task"), [("kin40k", "regression"), ("bike_hourly_counts", "counts"), ("magic", "classification")]
)
def test_real_rows_are_expected_until_they_shift(real_data, tmp_path, rng, name, task):
    """Rows in random order; of the last third counts and numbers are a standard deviation larger, labels permuted."""
    with np.load(real_data(name)) as arrays:
        X, y = (arrays[key if key in arrays else f"{key}_train"].astype(float) for key in "Xy")
    order = rng.permutation(len(y))[:10_000]
    X, y = X[order], y[order]
    train, good, bad = slice(0, 4000), slice(4000, 8000), slice(8000, None)
    given = Settings(partition="chunks", task=task, query=200, rows_per_expert=200, kernel="matern32", effort="quick")

    def part(rows, name, y):
        write_dataset(tmp_path / name, {"X": X[rows], "y": y}, rows_per_chunk=200)
        return tmp_path / name

    gbcm = GBCM.fit(part(train, "train.zarr", y[train]), given, model=tmp_path / "model")
    fine, _ = gbcm.ingest(gbcm.source(part(good, "good.zarr", y[good])))  # a warning would be an error
    assert fine.info()["drift"]["verdict"] == "as expected"
    shift = np.round(y[train].std()) if task == "counts" else y[train].std()
    other = rng.permutation(y[bad]) if task == "classification" else y[bad] + shift
    with pytest.warns(BcmdistWarning, match="worse than expected since partition 21 "):
        after, _ = fine.ingest(fine.source(part(bad, "bad.zarr", other)), IngestOptions(max_partitions=5))
    assert after.info()["drift"]["worse"]


def test_a_partition_withheld_is_as_if_it_had_not_been_heard(fitted):
    """An exact identity: forgotten and ingested again, its rows are scored by the same belief."""
    key = fitted.ledger[3].key
    (part,) = [part for part in absorbed_partitions(fitted.snapshot) if part.key == key]
    noted = SerialRuntime().sum(
        Withheld(Expert(fitted.snapshot.reference), fitted.snapshot.reference), [part], label="test"
    )
    ((digest, samples),) = noted.by_key.values()
    assert digest == fitted.ledger[3].digest
    less = fitted.forget([key])
    again, _ = less.ingest(less.source(fitted.facts["data"]))
    (arrived,) = [entry for entry in again.ledger if entry.key == key]
    # Committees agree to about 1e-10 after a withdrawal; scores of 50 rows add to that.
    np.testing.assert_allclose(samples[0][0], arrived.arrival, rtol=1e-7)
    np.testing.assert_allclose(samples[0][1], arrived.excess_loss, rtol=1e-7)


@pytest.mark.slow
def test_what_is_expected_comes_as_expected_from_the_first_arrival_on(fitted, tmp_path, rng):
    new = stored(tmp_path / "new.zarr", some_rows(rng, 30))
    first, _ = fitted.ingest(fitted.source(new), IngestOptions(max_partitions=1))
    told = first.info()["drift"]
    assert (told["arrivals"], told["verdict"], told["worse"], told["since"]) == (1, "as expected", False, None)
    assert told["expected"]["partitions"] == excess_loss.WITHHELD
    assert 0.9 < told["expected"]["coverage95"] < 1.0
    assert np.isnan(told["log_score_change"])
    every, _ = first.ingest(first.source(new), ONE_EACH)  # a warning would be an error
    assert every.info()["drift"]["verdict"] == "as expected"
    assert every.facts["expected"] == first.facts["expected"]


def test_a_shift_is_told_within_five_partitions(fitted, tmp_path, rng):
    good, bad = some_rows(rng, 10), some_rows(rng, 5, shift=1.0)
    fine, _ = fitted.ingest(fitted.source(stored(tmp_path / "a.zarr", good)))
    assert fine.info()["drift"]["verdict"] == "as expected"
    with pytest.warns(BcmdistWarning, match="what arrives is worse than expected since partition 11"):
        after, _ = fine.ingest(fine.source(stored(tmp_path / "b.zarr", bad)))
    told = after.info()["drift"]
    assert (told["arrivals"], told["worse"], told["since"]) == (15, True, 11)
    assert told["z"] > 5.0
    assert "b.zarr/X[0:50]" in told["verdict"]
    assert "95 % intervals held 0." in told["verdict"]


def test_a_change_that_has_passed_is_told_too():
    def entries(surprises):
        return [
            Entry(f"k{k}", "", 50, arrival=(-1.0, 0.9, 0.5), excess_loss=(s, 0.01)) for k, s in enumerate(surprises)
        ]

    base = Expected(16, 0.0, 1.0, 64, (-1.0, 0.95, 0.5))
    during = drift_report(entries([0.0] * 10 + [1.0] * 4), base)
    assert during["verdict"].startswith("worse than expected since partition 11 (k10): 95 % intervals held 0.90 of the")
    assert during["z"] == pytest.approx(2 * 10)  # 4 partitions, each 1 / sqrt(0.01)
    after = drift_report(entries([0.0] * 10 + [1.0] * 4 + [0.0] * 20), base)
    assert (after["worse"], after["since"]) == (False, None)
    assert after["verdict"].startswith("as expected since partition ")
    assert after["verdict"].endswith(", worse from partition 11 on before")


@pytest.mark.slow
def test_labels_that_are_permuted_are_told(tmp_path, rng):
    def labels(partitions, *, permuted=False):
        columns = some_rows(rng, partitions)
        y = (columns["y"] > 0) * 1.0
        return columns | {"y": rng.permutation(y) if permuted else y}

    given = replace(GIVEN, task="classification", set={"kernel.lengthscale": 0.7}, seed=1)
    gbcm = GBCM.fit(stored(tmp_path / "train.zarr", labels(12)), given, model=tmp_path / "model")
    fine, _ = gbcm.ingest(gbcm.source(stored(tmp_path / "a.zarr", labels(10))))
    told = fine.info()["drift"]
    assert told["verdict"] == "as expected"
    assert 0.8 < told["expected"]["accuracy"] <= 1.0
    with pytest.warns(BcmdistWarning, match="worse than expected since partition 11 .*: accuracy was 0"):
        fine.ingest(fine.source(stored(tmp_path / "b.zarr", labels(5, permuted=True))))


@pytest.mark.slow
def test_a_model_that_had_heard_nothing_compares_with_what_came_first(tmp_path, rng):
    gbcm = GBCM.prepare(stored(tmp_path / "train.zarr", some_rows(rng, 20)), GIVEN, model=tmp_path / "model")
    new, told = gbcm, []
    for _ in range(2):
        new, _ = new.ingest(new.source(tmp_path / "train.zarr"), replace(ONE_EACH, max_partitions=10))
        told.append(new.info()["drift"]["verdict"])
    assert told[0].startswith("not known yet: there was nothing to compare these arrivals with")
    assert told[0].endswith("once a fit or 16 partitions have been absorbed")
    assert told[1] == "as expected"
    assert [bool(entry.excess_loss) for entry in new.ledger] == [False] * 16 + [True] * 4
    with pytest.warns(BcmdistWarning, match="worse than expected since partition 21"):
        new.ingest(new.source(stored(tmp_path / "bad.zarr", some_rows(rng, 4, shift=1.0))))


def test_data_that_are_gone_leave_what_the_model_says_of_itself(fitted, tmp_path, rng):
    shutil.rmtree(tmp_path / "train.zarr")
    fine, _ = fitted.ingest(fitted.source(stored(tmp_path / "a.zarr", some_rows(rng, 10))))
    told = fine.info()["drift"]
    assert (told["verdict"], told["expected"]) == ("as expected", {"partitions": 0})
    with pytest.warns(BcmdistWarning, match="worse than expected since partition 11"):
        fine.ingest(fine.source(stored(tmp_path / "b.zarr", some_rows(rng, 5, shift=1.0))))


def test_ingest_prints_the_verdict(fitted, tmp_path, rng):
    path = stored(tmp_path / "b.zarr", some_rows(rng, 5, shift=1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        said = CliRunner().invoke(cli, ["ingest", fitted.url, path, "--serial", "--json"])
    assert said.exit_code == 0
    assert said.stderr.count("warning: ") == 1
    assert "what arrives is worse than expected since partition 1 (" in said.stderr
    told = json.loads(said.stdout)["drift"]
    assert told["worse"]
    assert told["verdict"].startswith("worse than expected since partition 1 (")
    assert (told["arrivals"], told["log_score_change"]) == (5, None)
    assert GBCM.load(fitted.url).info()["drift"]["verdict"] == told["verdict"]


def test_facts_of_a_commit_say_what_is_expected():
    known = Expected(3, 0.1, 1.2, 12, (-1.0, 0.9, 0.5))
    assert (
        excess_loss.from_facts(
            decode(ExpectedLoss, json.loads(msgspec.json.encode(ExpectedLoss(**vars(known)))), "here")
        )
        == known
    )
    assert excess_loss.from_facts(None) is None


MANY_WITHHELD = Expected(16, 0.0, 1.0, 64, (-1.0, 0.95, 0.5))


def told_of(surprises, base=MANY_WITHHELD):
    numbered = enumerate(surprises, start=1)
    entries = [Entry(f"k{k}", "", 50, arrival=(-1.0, 0.9, 0.5), excess_loss=(s, 0.01)) for k, s in numbered]
    return drift_report(entries, base)


def test_verdict_and_z_agree_on_one_partition_alone():
    """Of standard deviations 0.1: a slack of 1.25, steps of 4.5 and a sum of 8 make a partition of 9.25 far worse."""
    newest = told_of([0.0, 0.0, 4.0])
    assert (newest["worse"], newest["since"], newest["z"]) == (True, 3, pytest.approx(40.0))
    assert newest["verdict"] == (
        "far worse than expected in partition 3 (k3) alone: 95 % intervals held 0.90 of the rows, 0.95 of rows "
        "withheld before, z = 40.0; one more will tell"
    )
    assert told_of([4.0])["verdict"].startswith("far worse than expected in partition 1 (k1) alone")
    doubtful = told_of([0.0, 0.0, 0.7])
    assert (doubtful["worse"], doubtful["since"], doubtful["z"]) == (False, None, pytest.approx(7.0))
    assert doubtful["verdict"].startswith("worse than expected in partition 3 (k3) alone: 95 % intervals held 0.90")
    assert told_of([0.0, 0.0, 0.5])["verdict"] == "as expected"
    assert told_of([0.0, 4.0, 4.0])["verdict"].startswith("worse than expected since partition 2 (k2)")


def test_what_was_worse_alone_is_told_afterwards_with_the_z_of_what_came_since():
    passed = told_of([0.0, 4.0, 0.1, 0.1, 0.1, 0.1])
    assert passed["verdict"] == "as expected since partition 3, far worse in partition 2 (k2) alone (z = 40.0)"
    assert (passed["worse"], passed["since"], passed["last_since"]) == (False, None, 2)
    assert passed["z"] == pytest.approx(2.0)  # 4 of 1 each
    twice = told_of([4.0, *[0.0] * 9, 4.0, 0.0])
    assert twice["verdict"].endswith("far worse in partition 11 (k11) alone (z = 40.0), as in 1 before")
    ended = told_of([0.0] * 10 + [1.0] * 4 + [0.0] * 23)
    assert ended["verdict"].endswith(", worse from partition 11 on before")
    assert ended["z"] == pytest.approx(0.0)
    assert ended["last_since"] == 11


def test_arrivals_after_one_partition_are_not_known():
    one = Expected(1, -0.48, 1.0, 1, (-1.0, 0.95, 0.5))
    told = told_of([-0.1] * 5, one)
    assert told["verdict"].startswith("not known yet: one partition that was absorbed before is too few to compare")
    assert np.isnan(told["z"])
    assert not told["worse"]
    assert told_of([-0.1, 4.0], one)["verdict"].startswith("far worse than expected in partition 2 (k2) alone")


@pytest.mark.parametrize("rows", [10, 50])
@pytest.mark.parametrize("withheld", [1, 4, 16])
@pytest.mark.parametrize("freedom", [None, 5])
def test_less_than_one_sequence_in_a_hundred_has_a_partition_far_worse_alone(rng, withheld, rows, freedom):
    """Of 300 sequences of 100 partitions at most 3; of heavy tails too: t with 5 degrees of freedom, variance 1."""
    samples = withheld * min(4, withheld)
    size = (300, samples + 100, rows)
    y = rng.standard_t(freedom, size) * np.sqrt(1 - 2 / freedom) if freedom else rng.standard_normal(size)
    found = (0.5 * (y.clip(-excess_loss.LARGEST_Z, excess_loss.LARGEST_Z) ** 2 - 1)).mean(axis=-1)
    far = 0
    for row in found:
        noted = [(s, 0.5 / rows) for s in row]
        base = expected([[((0.0,), noted[k]) for k in some] for some in np.split(np.arange(samples), withheld)])
        far += bool(excess_loss.outliers(base, base.standardised(noted[samples:]), []))
    assert far <= 3


@pytest.mark.parametrize("shifts", [[100.0], [0.0, 100.0], [0.0, 0.0, 100.0], [100.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
def test_a_total_shift_of_one_partition_is_told(tmp_path, rng, shifts):
    columns = some_rows(rng, len(shifts))
    columns["y"] += np.repeat(shifts, ROWS)
    gbcm = GBCM.fit(stored(tmp_path / "train.zarr", some_rows(rng, 6)), GIVEN, model=tmp_path / "model")
    number = np.argmax(shifts) + 1
    with pytest.warns(BcmdistWarning, match=rf"what arrives is .*far worse .*in partition {number} \(.* alone"):
        after, _ = gbcm.ingest(gbcm.source(stored(tmp_path / "new.zarr", columns)))
    told = after.info()["drift"]
    assert told["worse"] == (number == len(shifts))
    assert (told["z"] > 9.0) == told["worse"]


def test_what_was_worse_alone_is_said_by_the_ingestion_that_heard_it(fitted, tmp_path, rng):
    columns = some_rows(rng, 3)
    columns["y"][:ROWS] += rng.choice([-1.0, 1.0], ROWS)  # ten times the noise; the function stays, about
    with pytest.warns(BcmdistWarning, match=r"as expected since partition 2, far worse in partition 1 \(.* alone"):
        after, _ = fitted.ingest(fitted.source(stored(tmp_path / "new.zarr", columns)))
    later, _ = after.ingest(
        after.source(stored(tmp_path / "on.zarr", some_rows(rng, 3)))
    )  # a warning would be an error
    assert later.info()["drift"]["verdict"].startswith("as expected since partition 2, far worse in partition 1 (")


def test_one_error_of_a_sure_model_is_not_far_worse_alone():
    """Of classes of probability 0.999 that were all right, in samples of 10 rows."""
    surprises, variance = of_classes(np.array([[0.999, 0.001]] * 2), np.array([0, 1]))
    right, wrong = ((s, variance[0] / 10) for s in (surprises[0], (9 * surprises[0] + surprises[1]) / 10))
    base = expected([[((-0.001, 1.0), right)] * 4] * 16)
    assert excess_loss.outliers(base, base.standardised([right, wrong, right]), []) == []


def test_one_partition_withheld_expects_no_less_than_the_model_says_of_itself(tmp_path, rng):
    low = expected([[((0.0,), (-0.48, 0.01))]])
    assert (low.partitions, low.mean, low.dispersion) == (1, 0.0, excess_loss.UNKNOWN_DISPERSION)
    assert expected([[((0.0,), (0.3, 0.01))]]).mean == 0.3
    gbcm = GBCM.fit(stored(tmp_path / "train.zarr", some_rows(rng, 1)), GIVEN, model=tmp_path / "model")
    after, _ = gbcm.ingest(gbcm.source(stored(tmp_path / "new.zarr", some_rows(rng, 20))))  # no warning
    assert after.info()["drift"]["verdict"].startswith("not known yet: one partition")


def test_arrivals_are_predicted_by_a_commit_of_nearly_all_rows(fitted, tmp_path, rng):
    """Not by each new one: workers need not load it."""
    watch, commits = ArrivalWatch(fitted.snapshot, keep=20), [fitted.snapshot]
    for k in range(4):
        source = fitted.source(stored(tmp_path / f"{k}.zarr", some_rows(rng, 1)))
        fitted, _ = fitted.ingest(source, ONE_EACH)
        commits.append(fitted.snapshot)
    belief = [watch.message_task(Expert(one.reference), one).belief for one in commits]
    assert belief == [commits[k].reference for k in (0, 0, 0, 3, 3)]
    assert ArrivalWatch(commits[0], keep=1).message_task(None, commits[1]).belief == commits[1].reference
