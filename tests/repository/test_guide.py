"""What holds of the guide without running it: `tests/guide.py` does that."""

import inspect
import re
from pathlib import Path

import click
import notebooks
import pytest
import snippets
from test_layout import names_missing

import bcmdist
import benchmark_options
from bcmdist import errors

EXAMPLES = Path(errors.__file__).parent.parent / "examples"
PAGES = sorted((EXAMPLES / "guide").glob("*.md"))
LONGEST = 130
IMAGES = sorted((EXAMPLES / "guide" / "images").iterdir())
LARGEST_IMAGE = 120_000  # bytes
# Whose length follows from what there is.
LISTS = ("api.md", "benchmarks.md", "matrix.md", "papers.md", "troubleshooting.md")
# Made from results, with tables that have as many columns as methods or figures.
GENERATED = ("benchmarks.md", "papers.md")


def classes():
    return {name for name, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__}


def test_every_error_has_one_entry():
    headings = re.findall(r"^### (\w+)$", (EXAMPLES / "guide" / "troubleshooting.md").read_text(), re.MULTILINE)
    assert sorted(headings) == sorted(classes())
    assert len(headings) > 40


def test_every_page_is_listed():
    listed = re.findall(r"^ +- (?:.*: )?(\w+\.md)$", (EXAMPLES / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == [page.name for page in PAGES]


def test_the_api_page_has_every_public_name():
    """By its home; the errors are those of a whole module."""
    shown = set(re.findall(r"^::: ([\w.]+)$", (EXAMPLES / "guide" / "api.md").read_text(), re.MULTILINE))
    homes = {f"{home}.{name}" for name, home in bcmdist._HOME.items() if home not in shown}
    homes |= {"bcmdist.client.Client", "bcmdist.api.maps.accessor.Accessor", "bcmdist.testing", "bcmdist.errors"}
    assert homes - shown == set()
    assert set(bcmdist._HOME) == set(bcmdist.__all__)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_are_short_and_name_what_is_there(page):
    text = page.read_text()
    assert page.name in LISTS or len(text.splitlines()) <= LONGEST
    assert names_missing(text) == []
    generated = page.name in GENERATED
    assert max(len(line) for line in text.splitlines() if not (generated and line.startswith("|"))) <= 160
    targets = {target.partition("#")[0] for target in re.findall(r"\]\(([^)]+)\)", text)}
    pictures = {f"images/{image.name}" for image in IMAGES} | {path.name for path in (EXAMPLES / "guide").glob("*.svg")}
    assert targets - {other.name for other in PAGES} - pictures <= {""}


@pytest.mark.parametrize("page", notebooks.PAGES)
def test_notebooks_are_those_of_the_pages(page):
    text = notebooks.path_of(page).read_text()
    assert text == notebooks.notebook(page), "python tests/notebooks.py --write makes them anew"
    assert len(text) < 20_000


def test_cells_of_a_page():
    found = notebooks.cells("# A\n\n[b](b.md#c)\n\n```python\nx = 1\n```\n\n```bash\nbcmdist info m\n```\nend\n")
    sources = ["# A\n\n[b](../guide/b.md#c)", "x = 1", "%%bash -e\nbcmdist info m", "end"]
    assert [cell["source"] for cell in found] == sources
    assert [cell["cell_type"] for cell in found] == ["markdown", "code", "code", "markdown"]


def test_images_are_small_shown_and_made_by_code():
    texts = "".join(page.read_text() for page in PAGES)
    script = (EXAMPLES / "pictures.py").read_text()
    for image in IMAGES:
        assert image.stat().st_size < LARGEST_IMAGE
        assert f"(images/{image.name})" in texts
        assert f'"{image.name}"' in script


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_options_exist(page):
    """Options that a page names are those of some command, or of the benchmarks."""
    from bcmdist.app.cli.main import cli

    params = [p for command in cli.commands.values() for p in command.get_params(click.Context(command))]
    known = {name for p in params for name in (*p.opts, *p.secondary_opts)}
    if page.name in ("benchmarks.md", "textbook.md"):
        known |= set(benchmark_options.parser()._option_string_actions)
        known |= {"--rate", "--write", "--kills", "--inputs", "--spatial"}  # of other scripts
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", page.read_text()))
    assert named - known - {"--help", "--version"} == set()


def test_code_blocks_by_line():
    """Where a block begins, and which lines of a shell are run."""
    text = "a\n\n```python\nx = 1\n```\n```bash\npip install x\nbcmdist info m\n```\n```text\nno\n```\n"
    found = snippets.blocks_of(text)
    assert [(one.language, one.line) for one in found] == [("python", 3), ("bash", 6), ("text", 10)]
    assert snippets.commands(found[1]) == ["bcmdist info m"]


def test_a_snippet_that_fails_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\n```\ntext\n```python\nassert x == 2\n```\n")
    with pytest.raises(snippets.subprocess.CalledProcessError):
        snippets.run_page(page, tmp_path)
    page.write_text(page.read_text().replace("== 2", "== 1"))
    assert snippets.run_page(page, tmp_path) == 2
