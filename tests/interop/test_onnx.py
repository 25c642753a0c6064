"""ONNX graphs beside the predictions that they stand for.

Tolerance 1e-6 of the deviation of the targets, as promised; explicit inverses of the factors cost some digits.
"""

import numpy as np
import pytest

from bcmdist import GBCM, Settings
from bcmdist.data.tables.importing import import_file
from bcmdist.data.tables.roles import Roles
from bcmdist.errors import DataExists, InvalidOption

onnx = pytest.importorskip("onnx", reason="ONNX: pip install 'bcmdist[interop]'")
runtime = pytest.importorskip("onnxruntime", reason="ONNX: pip install 'bcmdist[interop]'")

QUICK = {"query": 40, "learn": False, "rows_per_expert": 60, "seed": 1}
KERNELS = ["se", "matern12", "matern32", "matern52-iso", "rq", "linear", "poly3", "se*linear+constant"]
KERNELS += ["matern32(1) + periodic(0, period=3)", "onehot(0, 1) + linear(1)", "se + white*linear(1)"]
TOLERANCE = 1e-6


def run(path, X):
    """Outputs of a graph at rows X, by name."""
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1  # of whose pool nothing is left behind
    session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {"X": X}), strict=True))


def rows(rng, count=400):
    X = rng.uniform(-2, 2, (count, 2))
    return X, 30.0 + 5.0 * np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.standard_normal(count)


def assert_same(gbcm, path, X, y, *, method=None):
    said, told = gbcm.predict(X, method=method), run(path, X)
    wanted = {"mean": said["mean"], "std": np.sqrt(said["variance"])}
    if "observation_std" in told:
        wanted |= {"observation_std": np.sqrt(said["observation_variance"])}
        wanted |= {name: said[name] for name in ("lower95", "upper95")}
    assert told.keys() == wanted.keys()
    for name, values in wanted.items():
        assert told[name].dtype == np.float64
        np.testing.assert_allclose(told[name], values, rtol=TOLERANCE, atol=TOLERANCE * y.std(), err_msg=name)


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel(kernel, rng, tmp_path):
    X, y = rows(rng)
    gbcm = GBCM.fit(X, y, Settings(partition="chunks", kernel=kernel, mean="linear", **QUICK))
    gbcm.to_onnx(tmp_path / "model.onnx")
    new = np.vstack([rng.uniform(-3, 3, (50, 2)), gbcm.model.scaling.original_inputs(gbcm.model.query.points)])
    assert_same(gbcm, tmp_path / "model.onnx", new, y)


@pytest.mark.parametrize("warp", ["log", "rank", "none,0=rank,1=signed-log"])
def test_warped_inputs(warp, rng, tmp_path):
    X, y = rows(rng)
    X = np.column_stack([np.exp(X[:, 0]), X[:, 1], X[:, 0].clip(0.0)])
    gbcm = GBCM.fit(X, y, Settings(partition="chunks", kernel="se", warp=warp, **QUICK))
    gbcm.to_onnx(tmp_path / "model.onnx")
    assert_same(gbcm, tmp_path / "model.onnx", np.vstack([X[:50], rng.uniform(-9, 9, (50, 3))]), y)


@pytest.mark.parametrize("noise", ["constant", "varying"])
def test_rows_with_gaps(noise, rng, tmp_path):
    pytest.importorskip("pyarrow", reason="tables: pip install 'bcmdist[tables]'")
    X, gaps = rng.uniform(-2, 2, (1500, 3)), np.column_stack([np.zeros(1500), rng.random((1500, 2)) < 0.2])
    y = X @ [1.0, 1.0, 3.0] + 0.2 * rng.standard_normal(1500)
    lines = [",".join(map(str, row)) for row in np.column_stack([np.where(gaps, np.nan, X), y])]
    (tmp_path / "a.csv").write_text("\n".join(["a,b,c,y", *lines]).replace("nan", "") + "\n")
    import_file(tmp_path / "a.csv", str(tmp_path / "a.zarr"), roles=Roles("y", missing="indicate"))
    settings = Settings(
        partition="chunks", kernel="se", noise=noise, query=60, learn=False, set={"kernel.lengthscale": 2.0}
    )
    gbcm = GBCM.fit(str(tmp_path / "a.zarr"), settings, model=tmp_path / "model")
    ratios = gbcm.info()["errors"]["gaps"]
    assert len(set(ratios.values())) > 1
    assert min(ratios.values()) > 1.5
    gbcm.to_onnx(tmp_path / "model.onnx")
    filled = np.where(gaps, 0.0, X)
    coded = np.column_stack([filled[:, :2], gaps[:, 1], filled[:, 2], gaps[:, 2]])
    assert_same(gbcm, tmp_path / "model.onnx", coded, y)


@pytest.mark.parametrize("mean", ["zero", "constant"])
@pytest.mark.parametrize("expert", ["fitc", "sor"])
def test_other_means_and_experts(expert, mean, rng, tmp_path):
    X, y = rows(rng)
    gbcm = GBCM.fit(X, y, Settings(partition="chunks", kernel="se", mean=mean, expert=expert, **QUICK))
    gbcm.to_onnx(tmp_path / "model.onnx")
    assert_same(gbcm, tmp_path / "model.onnx", rng.uniform(-3, 3, (50, 2)), y)


def test_a_scale_that_varies_and_a_shape(rng, tmp_path):
    X = rng.uniform(-2, 2, (3000, 2))
    y = np.sin(X[:, 0]) + np.exp(1.5 * X[:, 1]) * 0.1 * rng.standard_t(3, 3000)
    gbcm = GBCM.fit(
        X, y, Settings(partition="chunks", kernel="se", mean="zero", noise="varying", query=60, learn=False)
    )
    spread = gbcm.info()["errors"]
    assert spread["scale"] == "varying"
    gbcm.to_onnx(tmp_path / "model.onnx")
    assert_same(gbcm, tmp_path / "model.onnx", rng.uniform(-2.5, 2.5, (200, 2)), y)


def test_a_latent_function_of_counts(rng, tmp_path):
    X = rng.uniform(-2, 2, (300, 1))
    y = rng.poisson(np.exp(X[:, 0])).astype(float)
    gbcm = GBCM.fit(X, y, Settings(partition="chunks", task="counts", likelihood="poisson", kernel="se", **QUICK))
    assert gbcm.to_onnx(tmp_path / "model.onnx") == ("mean", "std")
    assert_same(gbcm, tmp_path / "model.onnx", rng.uniform(-3, 3, (50, 1)), y)


def test_the_file_says_what_it_is(rng, tmp_path):
    X, y = rows(rng, 100)
    gbcm = GBCM.fit(X, y, Settings(partition="chunks", kernel="se", **QUICK))
    names = gbcm.to_onnx(tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx")
    assert [output.name for output in model.graph.output] == list(names)
    assert model.producer_name == "bcmdist"
    said = {one.key: one.value for one in model.metadata_props}
    assert said["kernel"] == "se"
    assert said["likelihood"] == "gaussian"


def test_what_cannot_be_written(rng, tmp_path):
    X, y = rows(rng)
    path = tmp_path / "model.onnx"
    arcsine = GBCM.fit(X, y, Settings(partition="chunks", kernel="arcsine", **QUICK))
    with pytest.raises(InvalidOption, match=r"expected a kernel of se, .* got arcsine; fit with another"):
        arcsine.to_onnx(path)
    classes = GBCM.fit(
        X, np.digitize(y, [28, 32]), Settings(partition="chunks", task="classification", kernel="se", **QUICK)
    )
    with pytest.raises(InvalidOption, match="expected a likelihood of one latent function, got onehot with 3"):
        classes.to_onnx(path)
    assert not path.exists()
    path.write_text("mine")
    with pytest.raises(DataExists, match="choose another name"):
        GBCM.fit(X, y, Settings(partition="chunks", kernel="se", **QUICK)).to_onnx(path)
    assert path.read_text() == "mine"


def test_local_predictions_read_rows(rng, tmp_path):
    X, y = rows(rng, 600)
    gbcm = GBCM.fit(X, y, Settings(kernel="se", partition="spatial", **QUICK), model=tmp_path / "model")
    with pytest.raises(InvalidOption, match="give method='committee'"):
        gbcm.to_onnx(tmp_path / "model.onnx")
    gbcm.to_onnx(tmp_path / "model.onnx", method="committee")
    assert_same(gbcm, tmp_path / "model.onnx", X[:20], y, method="committee")
