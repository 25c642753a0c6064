"""What a user sees of the sums of a fit."""

import pytest

from bcmdist.app.cli.options import MANY, ProgressBar


@pytest.mark.parametrize("label", MANY)
def test_sums_that_learning_makes_many_of_fill_no_screen(label, capsys):
    bar = ProgressBar()
    for _ in range(500):
        bar(label, 0, 3)
        bar(label, 3, 3)
    assert capsys.readouterr().err == ""
    bar.terminal = True
    bar("learn", 3, 3)
    assert capsys.readouterr().err == "\rlearn        evaluation 501, 0 s"
    bar.terminal = False
    bar("experts", 0, 3)
    assert capsys.readouterr().err == "learn        501 evaluations in 0.0 s\n"
    bar("experts", 3, 3)
    assert capsys.readouterr().err.startswith("experts      3 partitions in")


def test_other_stages_have_a_line_each(capsys):
    bar = ProgressBar()
    for done in range(4):
        bar("experts", done, 3)
    assert capsys.readouterr().err.startswith("experts      3 partitions in 0.0 s")
