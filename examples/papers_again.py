"""The page guide/papers.md: published figures beside ours, made from the results that `--full` has kept.

    python papers_again.py [--write]

Prints the page, or writes it.
"""

import argparse
from pathlib import Path

import paper000_networks
import paper001_figure1
import paper001_figure2
import paper001_table1
import paper002_classes
import paper002_deep
import paper003_robot_arm
import paper004_figures
import paper004_forecasts
import paper004_mackey_glass
import paper004_mnist
import paper004_noisy_inputs
import paper004_stereo
import paper004_tables

from published.results import FOLDER, Results
from published.tables import text

PAGE = Path(__file__).parent / "guide" / "papers.md"
BEGIN = """# The papers, again

Published figures beside ours, made by `examples/papers_again.py` from the results in `examples/results/`. Ours are
means over splits with their standard errors; methods and sets that were not computed are not shown. Differences are
over the splits that both methods have; those with * are significant at 5 % by Student's paired test (three splits or
more; splits overlap, so that it is too sure). Methods are named as in the papers; `dgp` stands for the defaults of
`--expert dgp`. Ranks (1 is the best) compare the means of each set over the splits that all methods have; mean ranks
that differ by less than the critical difference may differ by chance (Nemenyi's test at 5 %, Demsar 2006, section
3.2.2).
"""
SCRIPTS = (
    paper002_deep,
    paper002_classes,
    paper001_table1,
    paper001_figure1,
    paper001_figure2,
    paper003_robot_arm,
    paper000_networks,
    paper004_tables,
    paper004_figures,
    paper004_mackey_glass,
    paper004_mnist,
    paper004_noisy_inputs,
    paper004_forecasts,
    paper004_stereo,
)


def page(folder=FOLDER) -> str:
    """The page, of all tables with results in a folder."""
    sections = (text(script.TABLES, Results(script.__name__, folder)) for script in SCRIPTS)
    return "\n".join([BEGIN, *filter(None, sections)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true", help="as without")
    if parser.parse_args().write:
        PAGE.write_text(page())
    else:
        print(page())


if __name__ == "__main__":
    main()
