"""URLs of object stores: their schemes, normal form, a check that they hold no secrets, and errors that name them."""

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from bcmdist.errors import InvalidOption, StorageUnreachable

Location = str | os.PathLike[str]
"""a path, or the URL of an object store"""


@dataclass(frozen=True)
class Provider:
    """A kind of object store, and the variables of the environment that lead to one."""

    form: str
    """of URLs, with the scheme that stands for all others"""
    schemes: tuple[str, ...]
    environment: tuple[str, ...]
    """beginnings of the names of variables"""
    endpoints: tuple[str, ...]
    """variables with the URL of the store; the first that is set holds"""
    keys: str
    """variables with credentials, for errors"""
    location: str
    """further variables, for errors"""

    @property
    def scheme(self) -> str:
        """The scheme of normal URLs."""
        return self.form.partition("://")[0]


S3 = Provider(
    form="s3://BUCKET/PREFIX",
    schemes=("s3",),
    environment=("AWS_",),
    endpoints=("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    keys="AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    location="AWS_ENDPOINT_URL, AWS_REGION",
)
GCS = Provider(
    form="gs://BUCKET/PREFIX",
    schemes=("gs", "gcs"),
    environment=("GOOGLE_",),
    endpoints=("GOOGLE_BASE_URL",),
    keys="GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT",
    location="GOOGLE_BASE_URL",
)
AZURE = Provider(
    form="az://CONTAINER/PREFIX",
    schemes=("az", "abfs", "abfss"),
    environment=("AZURE_", "AZURITE_", "IDENTITY_", "MSI_"),
    endpoints=("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
    keys="AZURE_STORAGE_ACCOUNT_KEY or AZURE_CLIENT_ID, AZURE_CLIENT_SECRET and AZURE_TENANT_ID",
    location="AZURE_STORAGE_ACCOUNT_NAME",
)
PROVIDERS = {scheme: provider for provider in (S3, GCS, AZURE) for scheme in provider.schemes}
FORMS = "s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"


def provider_of(url: Location) -> Provider | None:
    """Return the kind of object store of a URL; None if it is of none."""
    scheme, separator, _ = str(url).partition("://")
    return PROVIDERS.get(scheme) if separator else None


def on_objects(url: Location) -> bool:
    """Whether a URL is of an object store, which has no directories."""
    return provider_of(url) is not None


def normal_url(url: Location) -> str:
    """Return the URL of an object store as in `Provider.form`, without empty parts: each location has one name.

    Raises
    ------
    InvalidOption
        The URL contains a user or a password.
    """
    refuse_secrets(url)
    scheme, _, place = str(url).partition("://")
    return f"{PROVIDERS[scheme].scheme}://" + "/".join(part for part in place.split("/") if part)


def refuse_secrets(url: Location) -> None:
    """Raise `InvalidOption` if a URL contains a user or a password: URLs appear in models, jobs and errors.

    An S3 secret may contain a `/`, with the `@` after it. Therefore a `:` is refused too: no bucket name contains one.
    An account before the host, as in abfss://CONTAINER@ACCOUNT.dfs.core.windows.net, is refused like a user.
    """
    scheme, _, after = str(url).partition("://")
    place, provider = after.partition("/")[0], provider_of(url)
    if "@" in place or (provider and ":" in place):
        remedy = provider.keys if provider else "the environment of its protocol"
        account = f" ({provider.location} and {provider.form})" if provider is AZURE else ""
        raise InvalidOption(
            f"{scheme}://...: expected a URL without user and password, which would be kept with models and jobs, got "
            f"one with them; leave them out and set {remedy} on every machine{account}"
        )


def without_users(text: str) -> str:
    """Remove users and passwords from the URLs in a text."""
    return re.sub(r"(?<=://)[^/\s@]*@", "", text)


@contextlib.contextmanager
def answering(url: Location) -> Iterator[None]:
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
        line = re.split(": .?<[?]xml|\n", text)[0]
        code = "".join(re.findall("<Code>(.*?)</Code>", text)[:1])  # error code in the response
        provider = provider_of(url) or S3
        raise StorageUnreachable(
            f"{url}: expected the object store to answer, got {line} {code}; check that it runs and holds the "
            f"{provider.form.split('/')[2].lower()}, and {provider.location}, {provider.keys} on this machine"
        ) from (error if text == str(error) else None)
