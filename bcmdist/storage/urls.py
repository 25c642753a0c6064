"""URLs of object stores: normal form, a check that they hold no secrets, and errors that name them."""

import contextlib
import re
from collections.abc import Iterator

from bcmdist.errors import InvalidOption, StorageUnreachable

OBJECTS = "s3://"


def on_objects(url) -> bool:
    """Whether a URL is of an object store, which has no directories."""
    return str(url).startswith(OBJECTS)


def normal_url(url) -> str:
    """Return `s3://BUCKET/PREFIX` without empty parts, so that each location has one name.

    Raises
    ------
    InvalidOption
        The URL contains a user or a password.
    """
    refuse_secrets(url)
    parts = str(url).removeprefix(OBJECTS).split("/")
    return OBJECTS + "/".join(part for part in parts if part)


def refuse_secrets(url) -> None:
    """Raise `InvalidOption` if a URL contains a user or a password: URLs appear in models, jobs and errors.

    An S3 secret may contain a `/`, with the `@` after it. Therefore a `:` is refused too: no bucket name contains one.
    """
    scheme, _, after = str(url).partition("://")
    place = after.partition("/")[0]
    if "@" in place or (on_objects(url) and ":" in place):
        remedy = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" if on_objects(url) else "the environment of its protocol"
        raise InvalidOption(
            f"{scheme}://...: expected a URL without user and password, which would be kept with models and jobs, got "
            f"one with them; leave them out and set {remedy} on every machine"
        )


def without_users(text) -> str:
    """Remove users and passwords from the URLs in a text."""
    return re.sub(r"(?<=://)[^/\s@]*@", "", text)


@contextlib.contextmanager
def answering(url) -> Iterator[None]:
    """Turn errors of an object store into `StorageUnreachable`, which names the URL.

    Raises
    ------
    StorageUnreachable
        The object store does not respond, or refuses the request.
    """
    try:
        yield
    except Exception as error:
        if type(error).__module__ != "obstore.exceptions":
            raise
        text = without_users(str(error))
        line = re.split(": <[?]xml|\n", text)[0]
        code = "".join(re.findall("<Code>(.*?)</Code>", text)[:1])  # error code in the response of S3
        raise StorageUnreachable(
            f"{url}: expected the object store to answer, got {line} {code}; check that it "
            "runs and holds the bucket, and AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY on this machine"
        ) from (error if text == str(error) else None)
