"""The live page at / and the page of requests at /docs: static files."""

from importlib.resources import files

from fastapi import APIRouter, Response

router = APIRouter(include_in_schema=False)
TYPES = {"html": "text/html; charset=utf-8", "js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}
SCRIPTS = (
    "alarms.js",
    "charts.js",
    "figures.js",
    "form.js",
    "jobs.js",
    "maps.js",
    "page.js",
    "requests.js",
    "theme.js",
    "token.js",
    "what_if.js",
    "words.js",
)


def _file(name):
    text = files("bcmdist.app.service").joinpath("static", name).read_bytes()
    return Response(text, media_type=TYPES[name.rpartition(".")[2]])


@router.get("/")
async def page() -> Response:
    """The HTML document."""
    return _file("page.html")


@router.get("/docs")
async def docs() -> Response:
    """The page that describes the requests, from the OpenAPI document."""
    return _file("docs.html")


@router.get("/page.css")
async def style() -> Response:
    """The style sheet."""
    return _file("page.css")


def _script(name):
    async def script() -> Response:
        """A script."""
        return _file(name)

    return script


for name in SCRIPTS:
    router.add_api_route(f"/{name}", _script(name))


@router.get("/favicon.ico")
async def icon() -> Response:
    """No content; browsers request an icon by themselves."""
    return Response(status_code=204)
