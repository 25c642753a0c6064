"""What-if on the live page in Chromium: sliders, bands, start values, maps and alarms."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from browsers import browser, opened
from services import Server, fitted, httpx

from bcmdist import GBCM, Settings
from bcmdist.storage.blobs import canonical_json
from bcmdist.storage.leases import this_process

NARROW = {"width": 360, "height": 740}
POINTS = 50
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def chromium():
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("what-if") / "models"
    fitted(folder)
    fitted(folder, "kinds", task="classification")
    return folder


@pytest.fixture
def server(models, tmp_path):
    shutil.copytree(models, tmp_path / "models")
    server = Server(tmp_path / "models", "--jobs", str(tmp_path / "jobs"))
    yield server
    server.end(9)


def shown(page, name="wave"):
    page.wait_for_selector(f"#model option[value={name}]", state="attached")
    page.select_option("#model", name)
    page.wait_for_selector("#band svg")


def slide(page, field, value):
    """Set a slider as a user does, with its event."""
    move = "(one, value) => { one.value = value; one.dispatchEvent(new Event('input', {bubbles: true})); }"
    page.locator(f"#slider{field}").evaluate(move, value)


def number(text):
    return float(text.replace(",", ""))


def test_a_slider_redraws_the_band_as_the_service_answers(chromium, server):
    with opened(chromium, server.url) as (page, bad):
        shown(page)
        before = page.get_attribute("#band .band", "d")
        slide(page, 1, "1.5")
        page.wait_for_function(
            "before => document.querySelector('#band .band')?.getAttribute('d') !== before", arg=before
        )
        page.wait_for_selector("#field1:focus, .field.along #field1", state="attached")
        page.wait_for_selector("#density svg")
        cells = page.locator("#values tbody td").all_text_contents()
        first = number(page.input_value("#field0"))
        answer = page.text_content("#answer strong")
        assert bad == []
    drawn = np.array([number(cell) for cell in cells]).reshape(POINTS, 4)
    places = np.linspace(*(float(drawn[k, 0]) for k in (0, -1)), POINTS)
    X = [[first, place] for place in [*places, 1.5]]
    found = httpx.post(f"{server.url}/models/wave/predict", json={"X": X}).json()["predictions"]
    for column, name in enumerate(("observation_mean", "lower95", "upper95"), start=1):
        np.testing.assert_allclose(drawn[:, column], found[name][:POINTS], rtol=6e-3, atol=2e-3)
    assert number(answer) == pytest.approx(found["observation_mean"][POINTS], rel=6e-3, abs=2e-3)


def test_one_request_is_in_flight(chromium, server):
    """While one is being answered, sliders that move leave one more to be sent, not one for each move."""
    with opened(chromium, server.url) as (page, _):
        shown(page)
        page.wait_for_selector("#density svg")
        held, sent = [], []
        page.on("request", lambda request: sent.append(request.post_data) if request.method == "POST" else None)
        page.route("**/predict", lambda route: held.append(route), times=1)
        for value in np.linspace(-1.5, 1.5, 40):
            slide(page, 0, f"{value:.2f}")
        page.wait_for_timeout(300)
        assert len(sent) == len(held) == 1
        with page.expect_response("**/predict"):
            held[0].continue_()
        page.wait_for_timeout(1500)
    first, last = (body for body in map(json.loads, sent) if len(body["X"]) > 1)
    assert len(first["X"]) == len(last["X"]) == POINTS + 1
    assert (first["X"][-1][0], last["X"][-1][0]) == (-1.5, 1.5)


def test_a_form_starts_where_the_service_says(chromium, server):
    start = httpx.get(f"{server.url}/models/wave?start=true").json()["start"]["row"]
    with opened(chromium, server.url) as (page, _):
        shown(page)
        inputs = [number(page.input_value(f"#field{k}")) for k in range(2)]
        slide(page, 0, "1")
        page.click("#again")
        page.wait_for_function("text => document.getElementById('field0')?.value === text", arg=f"{inputs[0]:.7g}")
    assert inputs == pytest.approx(start, rel=1e-6)


def test_maps_come_first_with_their_uncertainty_and_set_the_form(chromium, server):
    with opened(chromium, server.url) as (page, bad):
        shown(page)
        page.wait_for_selector("#maps svg")
        titles = page.locator("#maps figcaption").all_text_contents()
        below = "document.getElementById('maps').getBoundingClientRect().bottom"
        assert page.evaluate(f"{below} <= document.getElementById('asking').getBoundingClientRect().top")
        before = page.input_value("#field0")
        page.locator("#maps rect").nth(20).click()
        assert page.input_value("#field0") != before
        assert titles == ["Prediction", "Uncertainty: standard deviation"]
        shown(page, "kinds")
        page.wait_for_selector("#maps figcaption:has-text('Probability of class 1')")
        assert bad == []


def test_an_alarm_says_what_to_do(chromium, models, tmp_path):
    shutil.copytree(models, tmp_path / "models")
    storage = GBCM.load(tmp_path / "models" / "wave").store.storage
    server = Server(tmp_path / "models", "--jobs", str(tmp_path / "jobs"))
    try:
        with opened(chromium, server.url) as (page, bad):
            shown(page)
            assert page.is_hidden("#alarms")
            content = {"model": storage.url, "source": "rows", "process": this_process() | {"pid": -1}}
            storage.put_if_absent(f"ingesters/{0:032x}-00000000", canonical_json(content))
            page.wait_for_selector("#alarms li:has-text('start bcmdist ingest --watch again')")
            top = "document.getElementById('alarms').getBoundingClientRect().bottom"
            assert page.evaluate(f"{top} < document.getElementById('models').getBoundingClientRect().top")
            assert bad == []
    finally:
        server.end(9)


@pytest.mark.parametrize("name", ["wave", "kinds"])
def test_nothing_is_wider_than_a_small_screen(chromium, server, name):
    with opened(chromium, server.url, viewport=NARROW) as (page, bad):
        shown(page, name)
        page.wait_for_selector("#figures:not([hidden])")
        page.wait_for_selector(".card.empty:has-text('bcmdist ingest')")
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
        page.wait_for_selector("#density svg" if name == "wave" else "#band svg")  # the last request is answered
        page.click("#theme")
        dark = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        page.reload()
        assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == dark == "rgb(17, 20, 23)"
        assert bad == []


def test_times_with_seconds_are_values_of_the_form(chromium, tmp_path):
    times = pd.date_range("2026-03-01T13:20:37Z", periods=60, freq="61s").strftime("%Y-%m-%dT%H:%M:%SZ")
    frame = pd.DataFrame({"at": times, "load": np.arange(60.0)})
    settings = Settings(partition="chunks", query=20, kernel="se", learn=False)
    GBCM.fit(frame, np.sin(frame["load"]), settings, model=tmp_path / "models" / "loads")
    server = Server(tmp_path / "models", "--jobs", str(tmp_path / "jobs"))
    try:
        with opened(chromium, server.url) as (page, bad):
            shown(page, "loads")
            assert page.input_value("#field0").startswith("2026-03-01T")
            page.wait_for_selector("#density svg")
            slide(page, 0, page.get_attribute("#slider0", "min"))
            page.wait_for_selector("#band text:has-text('03-01 ')")
            assert page.input_value("#field0").startswith("2026-03-01T13:20:")
            assert page.locator("#values tbody td").first.text_content().startswith("2026-03-01T13:20:")
            page.fill("#field1", "")
            page.wait_for_selector("#answer .alarm")
            assert page.text_content("#answer").startswith("load:")
        assert not bad
    finally:
        server.end(9)


def test_a_day_slides_and_the_globe_has_a_map(chromium, tmp_path, rng):
    days = pd.date_range("2026-03-01", periods=60).strftime("%Y-%m-%d")
    frame = pd.DataFrame({"day": days, "lon": rng.uniform(-180, 180, 60), "lat": rng.uniform(-80, 80, 60)})
    settings = Settings(partition="chunks", query=20, kernel="se", learn=False)
    GBCM.fit(frame, frame["lat"], settings, sphere=("lon", "lat"), model=tmp_path / "models" / "globe")
    server = Server(tmp_path / "models", "--jobs", str(tmp_path / "jobs"))
    try:
        with opened(chromium, server.url) as (page, bad):
            shown(page, "globe")
            page.wait_for_selector("#maps figcaption:has-text('other columns')")
            page.locator("#maps rect").nth(20).click()
            assert page.input_value("#field1") == page.input_value("#slider1")
            page.wait_for_selector("#density svg")
            slide(page, 0, "20530")
            assert page.input_value("#field0") == "2026-03-18"
            page.wait_for_selector("#band text:has-text('2026-03-')")
            assert page.locator("#values tbody td").first.text_content() == "2026-03-01"
            page.wait_for_timeout(500)
        assert not bad
    finally:
        server.end(9)
