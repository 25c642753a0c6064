"""Tokens of a file that several change at the same time, and files that are reached by links."""

import math
import os
import stat
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from bcmdist.app.service import tokens
from bcmdist.app.service.tokens import Tokens, add_token, read_tokens, remove_token
from bcmdist.errors import InvalidOption

ADDERS = 7


@pytest.fixture
def slow(monkeypatch):
    """Whoever writes does so a while after he has read."""
    write = tokens._write

    def late(*what):
        time.sleep(0.02)
        write(*what)

    monkeypatch.setattr(tokens, "_write", late)


def test_every_token_that_was_shown_is_kept(tmp_path, slow):
    """However many are added at the same time, and while one is removed, which stays so."""
    path = tmp_path / "tokens.json"
    old = add_token(path, "old", ["read"])
    with ThreadPoolExecutor(ADDERS + 1) as pool:
        made = [pool.submit(add_token, path, f"reader {k}", ["read"]) for k in range(ADDERS)]
        pool.submit(remove_token, path, "old").result()
        shown = [one.result() for one in made]
    known = Tokens(path)
    assert [known.of(token).name for token in shown] == [f"reader {k}" for k in range(ADDERS)]
    assert known.of(old) is None


def test_a_name_is_given_once(tmp_path, slow):
    path = tmp_path / "tokens.json"
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(add_token, path, "reader", ["read"]) for _ in range(2)]
    errors = [one.exception() for one in both if one.exception() is not None]
    assert [type(error) for error in errors] == [InvalidOption]
    assert "'reader' is taken" in str(errors[0])


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_a_link(tmp_path, there):
    """The file that it leads to is changed, also where that is made by it."""
    (tmp_path / "mounted").mkdir()
    file, link = tmp_path / "mounted/tokens.json", tmp_path / "tokens.json"
    if there:
        add_token(file, "old", ["read"])
    link.symlink_to(file)
    add_token(link, "new", ["read"])
    assert link.is_symlink()
    assert [one.name for one in read_tokens(file)] == ["old"] * there + ["new"]
    remove_token(link, "new")
    assert link.is_symlink()
    assert [one.name for one in read_tokens(file)] == ["old"] * there
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600


@pytest.mark.parametrize("days", [math.nan, math.inf, -1, 1e308, 2**63])
def test_days_that_are_none(tmp_path, days):
    with pytest.raises(InvalidOption, match=r"--days: expected .* from 0(\.0)? to 36500"):
        add_token(tmp_path / "tokens.json", "reader", ["read"], days=days)
    assert not (tmp_path / "tokens.json").exists()
