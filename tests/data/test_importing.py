import numpy as np
import pytest
import zarr

from bcmdist.data.schema import found_instead
from bcmdist.data.tables.importing import Split, import_file
from bcmdist.data.tables.roles import Roles
from bcmdist.errors import DataExists, DataNotFound, InvalidData, InvalidDtype, InvalidOption


def read(path):
    group = zarr.open_group(path, mode="r")
    return {name: group[name][...] for name in group.array_keys()}


@pytest.fixture
def npz(tmp_path, rng):
    """An .npz without a split: path and arrays."""
    arrays = {
        "X": rng.standard_normal((30, 3)).astype("f4"),
        "y": rng.standard_normal(30),
        "weight": rng.uniform(1, 2, 30),
        "test_mask": np.array([[1, 0] * 15, [0, 0, 1] * 10], dtype="u1"),
        "feature_names": np.array(["a", "b", "c"]),
    }
    np.savez(tmp_path / "a.npz", **arrays)
    return tmp_path / "a.npz", arrays


def test_npz_whole(npz, tmp_path):
    path, arrays = npz
    figures = import_file(path, tmp_path / "a.zarr")
    assert figures == {
        "rows": 30,
        "inputs": 3,
        "part": "all",
        "out": str(tmp_path / "a.zarr"),
        "columns": ["a", "b", "c"],
        "target": "y",
        "classes": [],
        "roles": {"weight": "weight"},
        "unused": {"test_mask": "no role has that name"},
    }
    written = read(tmp_path / "a.zarr")
    assert sorted(written) == ["X", "column", "row", "weight", "y"]
    assert written["column"].tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(written["row"], np.arange(30))
    for name in ("X", "weight", "y"):
        np.testing.assert_array_equal(written[name], arrays[name])
        assert written[name].dtype == arrays[name].dtype


def test_holdout_is_the_stated_permutation(npz, tmp_path):
    path, arrays = npz
    order = np.random.default_rng(7).permutation(30)
    for part, rows in [("test", order[:9]), ("train", order[9:])]:
        import_file(path, tmp_path / f"{part}.zarr", split=Split(part, holdout=0.3, seed=7))
        np.testing.assert_array_equal(read(tmp_path / f"{part}.zarr")["X"], arrays["X"][rows])


def test_mask_row(npz, tmp_path):
    path, arrays = npz
    import_file(path, tmp_path / "test.zarr", split=Split("test", mask="test_mask", mask_row=1))
    np.testing.assert_array_equal(read(tmp_path / "test.zarr")["y"], arrays["y"][2::3])
    import_file(path, tmp_path / "train.zarr", split=Split("train", mask="test_mask"))
    np.testing.assert_array_equal(read(tmp_path / "train.zarr")["y"], arrays["y"][1::2])


def test_own_split(tmp_path, rng):
    arrays = {
        f"{n}_{p}": rng.standard_normal((k, 2) if n == "X" else k) for n in "Xy" for p, k in [("train", 5), ("test", 3)]
    }
    np.savez(tmp_path / "a.npz", **arrays)
    for part, rows in [("train", 5), ("test", 3), ("all", 8)]:
        assert import_file(tmp_path / "a.npz", tmp_path / f"{part}.zarr", split=Split(part))["rows"] == rows
    np.testing.assert_array_equal(read(tmp_path / "test.zarr")["X"], arrays["X_test"])
    with pytest.raises(InvalidOption, match="brings its own split"):
        import_file(tmp_path / "a.npz", tmp_path / "x.zarr", split=Split("test", holdout=0.5))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_tables(tmp_path, suffix):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.5, 2.5], "name": ["u", "v"], "yield": [3, 4], "b": [5, 6], "event": [1, 0]})
    path = tmp_path / f"a.{suffix}"
    frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    import_file(path, tmp_path / "a.zarr", roles=Roles("yield", companions={"event": "event"}, drop=("name",)))
    written = read(tmp_path / "a.zarr")
    assert written["column"].tolist() == ["a", "b"]
    np.testing.assert_array_equal(written["X"], [[1.5, 5], [2.5, 6]])
    np.testing.assert_array_equal(written["y"], [3, 4])
    np.testing.assert_array_equal(written["event"], [1, 0])


def test_npy_last_column_is_the_target(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(6.0).reshape(2, 3))
    import_file(tmp_path / "a.npy", tmp_path / "a.zarr")
    np.testing.assert_array_equal(read(tmp_path / "a.zarr")["y"], [2.0, 5.0])


def test_bits_are_checked_and_zeros_are_stored(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.zeros((8, 2)), y=np.arange(8.0))
    import_file(tmp_path / "a.npz", tmp_path / "a.zarr", rows_per_chunk=4)
    chunk = tmp_path / "a.zarr/X/c/1/0"
    assert chunk.exists()
    data = bytearray((tmp_path / "a.zarr/y/c/1").read_bytes())
    data[3] ^= 4
    (tmp_path / "a.zarr/y/c/1").write_bytes(data)
    with pytest.raises(ValueError, match="checksum"):
        read(tmp_path / "a.zarr")


def save(tmp_path, **arrays):
    np.savez(tmp_path / "bad.npz", **arrays)
    return tmp_path / "bad.npz"


@pytest.mark.parametrize(
    ("arrays", "split", "error", "text"),
    [
        ({"X": np.ones((3, 2))}, None, DataNotFound, "expected arrays X and y, found X; name the target with --y"),
        (
            {"X": np.ones((3, 2)), "y": np.ones((3, 2))},
            None,
            InvalidData,
            r"one target per row in y, got shape \(3, 2\)",
        ),
        ({"X": np.ones((3, 2)), "y": np.ones(4)}, None, InvalidData, "expected 3 rows in y as in X, got 4"),
        ({"X": np.ones((3, 2)), "y": np.ones(3) + 1j}, None, InvalidDtype, "numbers in y, got dtype complex128"),
        ({"X": np.ones((3, 2)) + 1j, "y": np.ones(3)}, None, InvalidDtype, "numbers in X, got dtype complex128"),
        ({"X": np.ones(3), "y": np.ones(3)}, None, InvalidData, r"X with shape \(N, D\), got \(3,\)"),
        (
            {"X": np.ones((3, 2)), "y": np.ones(3)},
            Split("test"),
            InvalidOption,
            "part 'test' needs --holdout or --mask",
        ),
        ({"X": np.ones((3, 2)), "y": np.ones(3)}, Split("test", holdout=0.1), InvalidData, "there are none; change"),
        (
            {"X": np.ones((3, 2)), "y": np.ones(3)},
            Split("test", mask="m"),
            DataNotFound,
            "expected a mask 'm', found X, y",
        ),
    ],
)
def test_refused_with_the_way_out(tmp_path, arrays, split, error, text):
    with pytest.raises(error, match=text):
        import_file(save(tmp_path, **arrays), tmp_path / "a.zarr", split=split)
    assert not (tmp_path / "a.zarr").exists()


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(DataNotFound, match="expected a file, there is none"):
        import_file(tmp_path / "a.npz", tmp_path / "a.zarr")
    for name, content in [("a.npz", b"PK garbage"), ("a.csv", b""), ("a.parquet", b"PAR1"), ("a.npy", b"NUMPY")]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InvalidData, match=rf"{name}: expected a .* file of numbers, .*; save it again"):
            import_file(tmp_path / name, tmp_path / "a.zarr")
    np.savez(tmp_path / "objects.npz", X=np.ones((1, 1)), y=np.array([print], dtype=object))
    with pytest.raises(InvalidData, match=r"cannot be read .*allow_pickle"):
        import_file(tmp_path / "objects.npz", tmp_path / "a.zarr")
    (tmp_path / "a.txt").touch()
    with pytest.raises(
        InvalidOption, match=r"ends in .npz, .npy, .csv, .parquet, .tsv, .csv.gz, .tsv.gz, .nc, .nc4, .cdf, .zarr"
    ):
        import_file(tmp_path / "a.txt", tmp_path / "a.zarr")
    with pytest.raises(InvalidOption, match="a fraction between 0 and 1, got 2"):
        Split(holdout=2)


def test_nothing_is_overwritten(npz, tmp_path):
    path, _ = npz
    import_file(path, tmp_path / "a.zarr")
    with pytest.raises(DataExists, match=r"expected a new path, .*a.zarr exists"):
        import_file(path, tmp_path / "a.zarr")


@pytest.mark.parametrize(
    ("name", "names", "found"),
    [
        ("prise", ["id", "area", "price"], "price, id, area (did you mean 'price'?)"),
        ("y", ["a", "b", "c"], "a, b, c"),
        ("Price", [f"c{k}" for k in range(20)] + ["price"], "price, c0, c1, c2, c3, c4, c5, c6 and 13 more (did you"),
        ("target", [f"c{k}" for k in range(20)] + ["rent"], "c0, c1, c2, c3, c4, c5, rent, c6 and 13 more"),
    ],
)
def test_names_like_the_missing_one_and_the_last_are_shown(name, names, found):
    assert found_instead(name, names).startswith(found)
