"""What is checked of distributions; `tests/distributions.py` builds and installs them."""

import io
import tarfile
import zipfile

import distributions


def test_what_is_missing_or_does_not_belong_there_is_named():
    tracked = ["bcmdist/a.py", "LICENSE"]
    assert distributions.differences([*tracked, "PKG-INFO"], tracked, {"PKG-INFO"}) == []
    names = ["bcmdist/a.py", "bcmdist/__pycache__/a.pyc"]
    lines = ["missing: LICENSE", "not in the repository: bcmdist/__pycache__/a.pyc"]
    assert distributions.differences(names, tracked) == lines


def test_names_in_archives(tmp_path):
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("a-1/bcmdist/a.py"), io.BytesIO())
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as archive:
        archive.writestr("bcmdist/a.py", "")
        archive.writestr("bcmdist-1.dist-info/METADATA", "")
    assert distributions.in_sdist(tmp_path / "a.tar.gz") == ["bcmdist/a.py"]
    assert distributions.in_wheel(tmp_path / "a.whl") == ["bcmdist/a.py"]


def test_without_the_tools_it_is_skipped(monkeypatch, capsys):
    monkeypatch.setattr(distributions, "TOOLS", ("no_such_tool",))
    assert distributions.main(None, False) == 77
    assert capsys.readouterr().out == "skipped: missing no_such_tool\n"
