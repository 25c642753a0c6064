"""A newcomer's first hour, with nothing but README and the guide: in a fresh environment, each step at the first try.

    python tests/newcomer.py [--here]

The demo; a table of one's own with words, dates and gaps, from fit to report; an estimator in a pipeline and a search,
and a map, as the guide has them. `--here` takes this environment instead of making one, and leaves out the pages of
the guide, which `tests/guide.py` runs there.
"""

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

import numpy as np
from snippets import blocks, run_command, run_python

ROOT = Path(__file__).parent.parent
GUIDE = ROOT / "examples" / "guide"
EXTRAS = "sklearn,tables,plot,grids"


def environment(folder) -> str:
    """The interpreter of a new environment with bcmdist in it."""
    venv.create(folder, with_pip=True)
    python = str(Path(folder, "bin", "python"))
    subprocess.run([python, "-m", "pip", "install", "--quiet", f"{ROOT}[{EXTRAS}]"], check=True)
    return python


def demo(folder, python):
    run_command("bcmdist demo --rows 6000 --out demo --json > demo.json", folder, python)
    figures = json.loads(Path(folder, "demo.json").read_text())
    assert (figures["rows"], figures["experts"]) == (6000, 6)
    assert figures["curve"][-1]["accuracy"] > 0.8


def flats(rows, rng):
    """Rents by day, floor, district and area; some areas are not known, and some districts."""
    premium = {"Nord": 0.0, "Sued": 150.0, "Hafen, alt": 320.0}
    for _ in range(rows):
        district, area, floor, day = (
            rng.choice(list(premium)),
            rng.uniform(20, 140),
            rng.integers(0, 7),
            rng.integers(900),
        )
        rent = 250 + 9 * area + 12 * floor + premium[district] + 0.2 * day + 25 * rng.standard_normal()
        known = rng.uniform(size=2) > 0.04
        yield {
            "let on": str(np.datetime64("2022-03-01") + day),
            "district": district if known[0] else "",
            "area": f"{area:.1f}" if known[1] else "",
            "floor": floor,
            "rent": f"{rent:.0f}",
        }


def write(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)


def table(folder, python):
    rng = np.random.default_rng(7)
    write(Path(folder, "flats.csv"), list(flats(1500, rng)))
    later = list(flats(400, rng))
    write(Path(folder, "later.csv"), later)
    write(Path(folder, "new.csv"), [{n: v for n, v in row.items() if n != "rent"} for row in later])
    for line in (
        "bcmdist fit flats.csv --y rent --model rents --missing indicate --effort quick",
        "bcmdist score rents later.csv --json > scores.json",
        "bcmdist predict rents new.csv --out predictions.csv",
        "bcmdist report rents later.csv --out report.html",
        "bcmdist info rents",
    ):
        run_command(line, folder, python)
    scores = json.loads(Path(folder, "scores.json").read_text())
    assert scores["nmse"] < 0.1, scores
    assert 0.9 < scores["coverage95"] < 0.99, scores
    with open(Path(folder, "predictions.csv"), newline="", encoding="utf-8") as file:
        told = list(csv.DictReader(file))
    held = [float(t["lower95"]) < float(row["rent"]) < float(t["upper95"]) for t, row in zip(told, later, strict=True)]
    assert 0.9 < np.mean(held) < 0.99, np.mean(held)
    assert "<html" in Path(folder, "report.html").read_text(encoding="utf-8")


def estimator(folder, python):
    run_python([block for block in blocks(GUIDE / "ecosystem.md") if block.language == "python"], folder, python)


def field(folder, python):
    run_python([block for block in blocks(GUIDE / "maps.md") if block.language == "python"], folder, python)


def main(here) -> None:
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        python = sys.executable if here else environment(Path(place, "venv"))
        print(f"-- environment: {time.perf_counter() - began:.0f} s", flush=True)
        for step in (demo, table) if here else (demo, table, estimator, field):
            started, folder = time.perf_counter(), Path(place, step.__name__)
            folder.mkdir()
            step(folder, python)
            print(f"-- {step.__name__}: {time.perf_counter() - started:.0f} s", flush=True)
    print(f"-- all: {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--here", action="store_true", help="take this environment")
    main(parser.parse_args().here)
