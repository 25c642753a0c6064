"""The page in Chromium: live, and no word of complaint in its console.

How soon is printed: `pytest -m slow -rP -k shows_by_itself`.
"""

import shutil
import time

import pytest
from browsers import browser, opened
from services import Server, fitted, httpx, new_rows, send

from bcmdist.app.service.tokens import add_token

NARROW = {"width": 360, "height": 740}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def chromium():
    with browser() as found:
        opened_once = found.new_page()  # the first one of a browser takes longer than any later
        opened_once.close()
        yield found


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page") / "models"
    fitted(folder, rows=600)
    fitted(folder, "kinds", task="classification")
    return folder


@pytest.fixture
def server(models, tmp_path):
    shutil.copytree(models, tmp_path / "models")
    server = Server(tmp_path / "models", "--jobs", str(tmp_path / "jobs"))
    yield server
    server.end(9)


def choose(page, name):
    page.wait_for_selector(f"#model option[value={name}]", state="attached")
    page.select_option("#model", name)


def test_an_ingested_batch_shows_by_itself(chromium, server):
    with opened(chromium, "about:blank") as (page, bad):
        begun = time.monotonic()
        page.goto(server.url)
        page.wait_for_selector("#link.live")
        page.wait_for_selector("#models tr")
        live = time.monotonic() - begun
        choose(page, "wave")
        page.wait_for_selector("#counted:has-text('600 rows absorbed')")
        with httpx.Client(base_url=server.url, timeout=20) as http:
            for number in (1, 2):
                assert send(http, new_rows(number), str(number)).status_code == 200
        begun = time.monotonic()
        page.wait_for_selector("#counted:has-text('660 rows absorbed')")
        page.wait_for_selector("#curve svg")
        print(f"live after {live:.2f} s, a batch shown after {time.monotonic() - begun:.2f} s; wanted: 2 s each")
        assert page.text_content("#drift p").startswith("New rows are ")
        assert bad == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_figures_are_drawn_and_said(chromium, server, scheme):
    with opened(chromium, server.url, color_scheme=scheme) as (page, bad):
        choose(page, "wave")
        for name in ("rows", "calibration", "relevance", "maps"):
            page.wait_for_selector(f"#{name} svg")
        page.wait_for_selector("#advice li:has-text('left out:')")
        silent = page.locator("svg:not([aria-label])").count()
        ground = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert (silent, bad) == (0, [])
    assert (ground == "rgb(17, 20, 23)") == (scheme == "dark")


def test_one_row_is_predicted_by_keyboard(chromium, server):
    with opened(chromium, server.url, viewport=NARROW) as (page, bad):
        choose(page, "wave")
        page.wait_for_selector("#inputs input")
        page.focus("#inputs input")
        for key in ("Control+a", "0.5", "Tab", "ArrowRight", "Tab", "Control+a", "1", "Enter"):
            page.keyboard.type(key) if key[0].isdigit() else page.keyboard.press(key)
        assert page.input_value("#inputs input") != "0.5"  # the slider moved it by a step
        page.wait_for_selector("#density svg[aria-label^=Distribution]")
        choose(page, "kinds")
        page.wait_for_selector("#answer svg", state="detached")
        page.wait_for_selector("#inputs input")
        page.press("#inputs input", "Enter")
        page.wait_for_selector("#answer svg[aria-label^=Probabilities]")
        wide, screen = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide <= screen == NARROW["width"]
        unnamed = "[...document.querySelectorAll('input, select')].filter((one) => !one.labels.length).length"
        assert page.evaluate(unnamed) == 0
        assert bad == []


def test_a_token_is_asked_for(chromium, models, tmp_path):
    token = add_token(tmp_path / "tokens.json", "reader", ["read"])
    shutil.copytree(models, tmp_path / "models")
    server = Server(tmp_path / "models", "--token-file", str(tmp_path / "tokens.json"))
    try:
        with opened(chromium, server.url) as (page, bad):
            page.wait_for_selector("#login:not([hidden])")
            page.fill("#token", token)
            page.press("#token", "Enter")
            page.wait_for_selector("#models tr")
            assert [text for text in bad if "401" not in text] == []
    finally:
        server.end(9)


def test_a_service_that_comes_again_is_shown_again(chromium, server):
    with opened(chromium, server.url) as (page, _):
        page.wait_for_selector("#link.live")
        server.end()
        page.wait_for_selector("#link:not(.live)")
        server.start()
        page.wait_for_selector("#link.live")


def test_requests_are_described_with_the_token(chromium, models, tmp_path):
    """Each path and verb of the OpenAPI document, with the fields of its body."""
    token = add_token(tmp_path / "tokens.json", "reader", ["read"])
    shutil.copytree(models, tmp_path / "models")
    server = Server(tmp_path / "models", "--token-file", str(tmp_path / "tokens.json"))
    try:
        with opened(chromium, f"{server.url}/docs") as (page, bad):
            page.wait_for_selector("#message:has-text('A token is needed.')")
            page.fill("#token", token)
            page.click("#login button")
            page.wait_for_selector("#requests section")
            titles = page.locator("#requests h2").all_text_contents()
            body = page.locator("section[aria-label='POST /models/{name}/rows'] table").last.text_content()
        document = httpx.get(f"{server.url}/openapi.json", headers={"Authorization": f"Bearer {token}"}).json()
        expected = [f"{verb.upper()} {path}" for path, verbs in document["paths"].items() for verb in verbs]
        assert titles == expected
        assert all(name in body for name in document["components"]["schemas"]["NewRows"]["properties"])
        assert [one for one in bad if "401" not in one] == []
    finally:
        server.end(9)
