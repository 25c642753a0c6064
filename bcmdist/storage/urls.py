"""URLs of object stores: one name for one place, no secrets in them, and errors that name them."""

import contextlib
import re
from collections.abc import Iterator

from bcmdist.errors import InvalidOption, StorageUnreachable

OBJECTS = "s3://"


def on_objects(url) -> bool:
    """Whether a URL is one of an object store, where there are no directories."""
    return str(url).startswith(OBJECTS)


def normal_url(url) -> str:
    """`s3://BUCKET/PREFIX` without empty parts, so that one place has one name.

    Raises
    ------
    InvalidOption
    """
    refuse_secrets(url)
    parts = str(url).removeprefix(OBJECTS).split("/")
    return OBJECTS + "/".join(part for part in parts if part)


def refuse_secrets(url) -> None:
    """Raise `InvalidOption` where a URL holds a user or a password: models, jobs and errors hold URLs.

    An S3 secret may hold a `/`, behind which its `@` stands; the name of a bucket holds no `:`.
    """
    scheme, _, rest = str(url).partition("://")
    place = rest.partition("/")[0]
    if "@" in place or (on_objects(url) and ":" in place):
        way = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" if on_objects(url) else "the environment of its protocol"
        raise InvalidOption(
            f"{scheme}://...: expected a URL without user and password, which would be kept with models and jobs, got "
            f"one with them; leave them out and set {way} on every machine"
        )


def without_users(text) -> str:
    """A text whose URLs name neither users nor passwords."""
    return re.sub(r"(?<=://)[^/\s@]*@", "", text)


@contextlib.contextmanager
def answering(url) -> Iterator[None]:
    """Says which URL it was where an object store does not answer, or refuses.

    Raises
    ------
    StorageUnreachable
    """
    try:
        yield
    except Exception as error:
        if type(error).__module__ != "obstore.exceptions":
            raise
        said = without_users(str(error))
        line = re.split(": <[?]xml|\n", said)[0]
        code = "".join(re.findall("<Code>(.*?)</Code>", said)[:1])  # what S3 answers with
        raise StorageUnreachable(
            f"{url}: expected the object store to answer, got {line} {code}; check that it "
            "runs and holds the bucket, and AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY on this machine"
        ) from (error if said == str(error) else None)
