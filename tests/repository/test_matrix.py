"""The page of what works with which expert says what happens when it is tried."""

import re

import pytest
from matrix import CAPABILITIES, EXPERTS, MISSING, PAGE, outcomes

from bcmdist.learning.experts import experts

ROW = re.compile(r"^\|(.*)\|$", re.MULTILINE)
NOTE = re.compile(r"^(\d+)\. ((?:.+\n(?:   )?)+?)(?=\d+\. |\Z)", re.MULTILINE)


def stated() -> dict[str, dict[str, str]]:
    """What the page says: "yes" or a sentence, by expert and capability."""
    text = PAGE.read_text()
    notes = {number: " ".join(note.split()) for number, note in NOTE.findall(text)}
    (_, *names), _, *rows = ([cell.strip() for cell in row.split("|")] for row in ROW.findall(text))
    cells = {what: dict(zip(names, row, strict=True)) for what, *row in rows}
    assert list(cells) == list(CAPABILITIES)
    return {name.strip("`"): {what: notes.get(row[name], row[name]) for what, row in cells.items()} for name in names}


def test_the_page_has_every_expert():
    own = {name for name in experts() if not name.startswith("toy")}  # those that other tests register
    assert set(stated()) == set(EXPERTS) == own


def test_every_refusal_names_a_way():
    found = {text for each in stated().values() for text in each.values()} - {"yes"}
    assert len(found) > 5
    for text in found:
        assert re.search("expected|cannot", text), text
        assert re.search("; (or )?(fit|give|leave|take|hold|choose|use)", text), text


@pytest.mark.slow
@pytest.mark.parametrize("expert", EXPERTS)
def test_each_cell_is_what_happens(expert, monkeypatch):
    """However short the training of layers is."""
    monkeypatch.setattr("bcmdist.methods.deep.adam.ROUND", 10)
    monkeypatch.setattr("bcmdist.methods.deep.adam.STEPS", {"quick": 50})
    found = {what: " ".join(text.split()) for what, text in outcomes(expert).items() if text != MISSING}
    assert len(found) >= len(CAPABILITIES) - 1, "all but ONNX need no package beyond those of the tests"
    assert found == {what: text for what, text in stated()[expert].items() if what in found}
