import numpy as np
import pytest

from bcmdist.api.pictures.curves import learning_curve
from bcmdist.api.pictures.scores import score_picture
from bcmdist.app.demo import AMPLITUDES, DEFAULT_SEED, WIDTH, draw, make_map, make_rows, new_directory
from bcmdist.errors import MissingExtra
from bcmdist.prediction.scoring.scores import class_scores


def test_map_is_that_of_appendix_c(rng):
    centers = np.random.default_rng(5).uniform(0, 1, (5, 5))
    X = rng.uniform(-1, 1, (20, 5))
    e = np.exp(-((X[:, None] - centers) ** 2).sum(axis=2) / (2 * WIDTH**2))
    np.testing.assert_allclose(make_map(5)(X), (e * AMPLITUDES).sum(axis=1) / e.sum(axis=1), rtol=1e-9)


def test_default_seed_is_balanced_and_parts_differ():
    train, test = (make_rows(5000, sigma=0.0, seed=DEFAULT_SEED, part=part) for part in (0, 1))
    assert 0.35 <= train["y"].mean() <= 0.65
    assert not np.array_equal(train["X"], test["X"])
    np.testing.assert_array_equal(train["y"], train["y_noise_free"])
    noisy = make_rows(5000, sigma=8.0, seed=DEFAULT_SEED, part=0)
    np.testing.assert_array_equal(noisy["y_noise_free"], train["y"])
    assert 0.4 < np.mean(noisy["y"] != train["y"]) < 0.5


def test_new_directory_never_takes_an_old_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert str(new_directory(None)) == "bcmdist-demo"
    (tmp_path / "bcmdist-demo").mkdir()
    assert str(new_directory(None)) == "bcmdist-demo-2"


def test_without_matplotlib_one_line_says_how_to_get_it(monkeypatch, tmp_path):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"pip install 'bcmdist\[plot\]'"):
        draw(tmp_path, {"curve": [], "majority_share": 0.5})


@pytest.mark.slow
def test_pictures_are_written(tmp_path, rng):
    pytest.importorskip("matplotlib")
    curve = [{"rows": 1000 * k, "accuracy": 0.9, "log_loss": 0.1 / k} for k in (1, 2, 4)]
    learning_curve(tmp_path / "a.png", curve, majority_share=0.6)
    p = rng.uniform(size=500)
    two, three = np.column_stack([1 - p, p]), rng.dirichlet(np.ones(3), 500)
    score_picture(tmp_path / "b.png", class_scores((rng.uniform(size=500) < p) * 1, {"probability": two}))
    score_picture(tmp_path / "c.png", class_scores(rng.integers(0, 3, 500), {"probability": three}))
    for name in ("a.png", "b.png", "c.png"):
        assert (tmp_path / name).stat().st_size > 5000
