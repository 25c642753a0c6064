"""Browsers for tests: Chromium of this machine by Playwright, whose console is listened to."""

import contextlib
import os
import shutil

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextlib.contextmanager
def browser():
    """A Chromium without a window; skips where there is none."""
    api = pytest.importorskip("playwright.sync_api", reason="the page in a browser: pip install 'bcmdist[test]'")
    program = os.environ.get("BCMDIST_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip(f"no browser: expected one of {', '.join(NAMES)} to be installed")
    with api.sync_playwright() as playwright:
        # Root, as in containers, cannot use the sandbox; only our own page is opened.
        found = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield found
        finally:
            found.close()


@contextlib.contextmanager
def opened(found, url, **options):
    """A page at a URL, and what its console said that is no good."""
    context = found.new_context(**options)
    page, bad = context.new_page(), []
    page.on("console", lambda message: bad.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: bad.append(str(error)))
    page.on("requestfailed", lambda request: bad.append(request.url) if failed(request) else None)
    try:
        page.goto(url)
        yield page, bad
    finally:
        context.close()


def failed(request):
    """Whether the page did not end a request itself, as it does when another model is chosen before the answer."""
    return "/events" not in request.url and request.failure != "net::ERR_ABORTED"
