"""Runs what the pages of examples/guide show, each page from top to bottom in a scratch directory of its own.

    python tests/guide.py [PAGE ...] [--build]

Pages that are a notebook as a whole are run as that (notebooks.py), and here only if they are named.
`--build` renders them instead (`pip install 'bcmdist[docs]'`), with warnings as errors; no network is needed.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import notebooks
from snippets import run_page

EXAMPLES = Path(__file__).parent.parent / "examples"
WHOLE = [name for name, left_out in notebooks.PAGES.items() if not left_out]
PAGES = sorted(page for page in (EXAMPLES / "guide").glob("*.md") if page.stem not in WHOLE)


def build(site) -> None:
    """Render all pages into a directory."""
    how = ["--strict", "--config-file", str(EXAMPLES / "mkdocs.yml"), "--site-dir", str(site)]
    subprocess.run([sys.executable, "-m", "mkdocs", "build", *how], check=True)
    assert (Path(site) / "index.html").is_file()


def main(pages) -> None:
    for page in pages:
        started = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            count = run_page(page, folder)
        print(f"-- {page.name}: {count} blocks in {time.perf_counter() - started:.0f} s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", type=lambda name: EXAMPLES / "guide" / name, help="all by default")
    parser.add_argument("--build", action="store_true", help="render the pages instead")
    asked = parser.parse_args()
    if asked.build:
        with tempfile.TemporaryDirectory() as site:
            build(site)
    else:
        main(asked.pages or PAGES)
