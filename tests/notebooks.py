"""Notebooks of two tutorials: made from the guide's pages, and run.

    python tests/notebooks.py [--write]

Runs them side by side, each in a kernel and a scratch directory of its own. `--write` makes those of examples/notebooks
anew instead.
"""

import argparse
import json
import re
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from snippets import BLOCK

EXAMPLES = Path(__file__).parent.parent / "examples"
# Sections that are left out by page, so that both notebooks take less than a minute on two cores.
PAGES = {"tables": ("Import once, use often",), "maps": ()}
SECONDS = 120  # of a cell
# Links between pages of the guide, from where notebooks are.
LINK = re.compile(r"\]\((\w+\.md)")


def cells(text: str) -> list[dict]:
    """Cells of a page: its text, its Python, and its lines of shell, which end with the first that fails."""
    found, last = [], 0
    for match in BLOCK.finditer(text):
        found += [markdown(text[last : match.start()])]
        shell = "%%bash -e\n" if match[1] == "bash" else ""
        found += [
            {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": shell + match[2]}
        ]
        last = match.end()
    found = [cell for cell in [*found, markdown(text[last:])] if cell["source"]]
    return [{"id": f"cell{k}", **cell, "source": cell["source"].strip("\n")} for k, cell in enumerate(found)]


def without(text: str, sections) -> str:
    """A page without these sections of the second level."""
    parts = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    return "".join(part for part in parts if part.partition("\n")[0].removeprefix("## ") not in sections)


def markdown(text) -> dict:
    return {"cell_type": "markdown", "metadata": {}, "source": LINK.sub(r"](../guide/\1", text).strip("\n")}


def notebook(page: str) -> str:
    """The notebook of a page, as text."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    found = cells(without((EXAMPLES / "guide" / f"{page}.md").read_text(encoding="utf-8"), PAGES[page]))
    what = {"cells": found, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(what, indent=1, ensure_ascii=False) + "\n"


def path_of(page: str) -> Path:
    return EXAMPLES / "notebooks" / f"{page}.ipynb"


def run(page: str) -> str:
    """Run the notebook of a page; a cell that fails is an error. What to print."""
    import nbformat
    from nbclient import NotebookClient

    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        what = nbformat.read(path_of(page), as_version=4)
        NotebookClient(what, timeout=SECONDS, resources={"metadata": {"path": folder}}).execute()
    return f"-- {page}.ipynb: {time.perf_counter() - started:.0f} s"


def main(write) -> None:
    if write:
        for page in PAGES:
            path_of(page).write_text(notebook(page), encoding="utf-8")
    else:
        with ProcessPoolExecutor(len(PAGES)) as pool:
            for line in pool.map(run, PAGES):
                print(line, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="make the notebooks anew instead")
    main(parser.parse_args().write)
