"""The page at /: files that are served as they are."""

from importlib.resources import files

from fastapi import APIRouter, Response

router = APIRouter(include_in_schema=False)
TYPES = {"page.html": "text/html; charset=utf-8", "page.js": "text/javascript", "page.css": "text/css"}


def _file(name):
    text = files("bcmdist.app.service").joinpath(name).read_bytes()
    return Response(text, media_type=TYPES[name])


@router.get("/")
async def page() -> Response:
    """The page."""
    return _file("page.html")


@router.get("/page.js")
async def script() -> Response:
    """What it does."""
    return _file("page.js")


@router.get("/page.css")
async def style() -> Response:
    """How it looks."""
    return _file("page.css")


@router.get("/favicon.ico")
async def icon() -> Response:
    """None: browsers ask for one."""
    return Response(status_code=204)
