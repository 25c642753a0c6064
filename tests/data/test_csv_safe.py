"""Texts that spreadsheets would take for formulas."""

import numpy as np
import pytest

from bcmdist.data.tables.writing import write_table

pd = pytest.importorskip("pandas", reason="tables: pip install 'bcmdist[tables]'")

TEXTS = ["=1+1", "+cmd", "-cmd", "@SUM(A1)", "\t=1", "\r=1", "plain", "a=b", "-1.5", "+2", "", "'=1"]
ESCAPED = ["'=1+1", "'+cmd", "'-cmd", "'@SUM(A1)", "'\t=1", "'\r=1", "plain", "a=b", "-1.5", "+2", "", "'=1"]


@pytest.mark.parametrize("kind", [object, str])
def test_texts_are_escaped_and_numbers_are_not(tmp_path, kind):
    columns = {"=name": np.array(TEXTS, kind), "mean": -np.arange(len(TEXTS)) - 0.5, "label": -np.arange(len(TEXTS))}
    write_table(tmp_path / "plain.csv", [columns])
    write_table(tmp_path / "safe.csv", [columns, columns], csv_safe=True)
    options = {"keep_default_na": False, "lineterminator": "\n"}
    plain, safe = (pd.read_csv(tmp_path / name, **options) for name in ("plain.csv", "safe.csv"))
    assert plain["=name"].tolist() == TEXTS
    assert safe["'=name"].tolist() == ESCAPED * 2
    assert safe["mean"].tolist() == columns["mean"].tolist() * 2
    assert safe["label"].tolist() == columns["label"].tolist() * 2


def test_dates_and_gaps_are_written_as_before(tmp_path):
    columns = {"day": np.array(["2026-03-01", "NaT"], "M8[ns]"), "mean": np.array([1.0, np.nan])}
    for name, safe in (("a.csv", False), ("b.csv", True)):
        write_table(tmp_path / name, [columns], csv_safe=safe)
    assert (tmp_path / "a.csv").read_text() == (tmp_path / "b.csv").read_text()
