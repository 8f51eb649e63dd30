"""HTTP downloads with the certificates, proxy and credentials that pip or npm is configured with."""

from __future__ import annotations

import base64
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import cast
from urllib.response import addinfourl

from tecoinfer_modelzoo.progress import progress
from tecoinfer_modelzoo.text import reason_of
from utils.fetch.package import UnreachableError

_CHUNK = 2**20
MOST_PAGE = 2**26
"""Maximum index page, in bytes."""

PATIENCE, SLOWEST = 15.0, 1024
"""Minimum bytes per second, and the seconds over which they are measured."""


@dataclass(frozen=True)
class Access:
    """Network settings of a registry.

    Attributes:
        certificates: file of trusted certificates; empty for the system's.
        proxy: for http and https; empty for the system's (``https_proxy`` etc.).
        timeout: seconds without data after which a connection fails.
    """

    certificates: str = ""
    proxy: str = ""
    timeout: float = 20.0

    def page(self, url: str, accept: str = "*/*") -> tuple[str, str]:
        """Return the text of a page and its URL after redirects; raise UnreachableError on failure."""
        found = bytearray()
        with _readable(url), self._open(url, accept) as answer:
            for chunk in _pieces(answer, url):
                found += chunk
                if len(found) > MOST_PAGE:
                    raise UnreachableError(f"{shown(url)}: the page has more than {MOST_PAGE} bytes")
            return found.decode("utf-8", "replace"), str(answer.geturl())

    def save(self, url: str, path: Path, size: int) -> None:
        """Download a file of ``size`` bytes; raise UnreachableError on failure or for another size."""
        with path.open("wb") as file:
            for chunk in progress(self._chunks(url, size), "MiB", path.name, -(-size // _CHUNK)):
                file.write(chunk)

    def save_at_most(self, url: str, path: Path, most: int) -> None:
        """Download a file of unknown size; raise UnreachableError on failure or if it has more than ``most`` bytes."""
        with path.open("wb") as file, _readable(url), self._open(url, "*/*") as answer:
            for chunk in progress(_pieces(answer, url), "MiB", path.name):
                most -= len(chunk)
                if most < 0:
                    raise UnreachableError(f"{shown(url)}: has more bytes than a zoo may have")
                file.write(chunk)

    def _chunks(self, url: str, size: int) -> Iterator[bytes]:
        with _readable(url), self._open(url, "*/*") as answer:
            left = size
            for chunk in _pieces(answer, url):
                left -= len(chunk)
                if left < 0:
                    raise UnreachableError(f"{shown(url)}: has more than {size} bytes")
                yield chunk
            if left:
                raise UnreachableError(f"{shown(url)}: ended {left} bytes early")

    def _open(self, url: str, accept: str) -> addinfourl:
        bare, credentials = _split(url)
        if urllib.parse.urlsplit(bare).scheme not in ("http", "https", "file"):
            raise UnreachableError(f"{shown(url)}: only http, https and file URLs are supported")
        proxies = urllib.request.ProxyHandler({"http": self.proxy, "https": self.proxy} if self.proxy else None)
        trust = ssl.create_default_context(cafile=self.certificates or None)
        opener = urllib.request.build_opener(proxies, urllib.request.HTTPSHandler(context=trust))
        request = urllib.request.Request(bare, headers={"Accept": accept, "User-Agent": "teco-fetch"})  # noqa: S310 -- checked above
        if credentials:
            # Not sent to the server of a redirect.
            request.add_unredirected_header("Authorization", f"Basic {base64.b64encode(credentials.encode()).decode()}")
        return cast("addinfourl", opener.open(request, timeout=self.timeout))


def _pieces(answer: addinfourl, url: str) -> Iterator[bytes]:
    """Yield the answer in chunks of 1 MiB; raise UnreachableError if it is too slow (:data:`PATIENCE`)."""
    last, came, piece = time.monotonic(), 0, bytearray()
    while chunk := answer.read1(_CHUNK):
        piece += chunk
        came += len(chunk)
        if len(piece) >= _CHUNK:
            yield bytes(piece)
            piece = bytearray()
        now = time.monotonic()
        if now - last >= PATIENCE:
            if came < SLOWEST * (now - last):
                raise UnreachableError(f"{shown(url)}: too slow, {came} bytes in {now - last:.0f} s; try again later")
            last, came = now, 0
    if piece:
        yield bytes(piece)


def shown(url: str) -> str:
    """Return a URL without credentials."""
    return _split(url)[0]


def _split(url: str) -> tuple[str, str]:
    """Return a URL without credentials, and ``user:password`` (may be empty)."""
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:  # an invalid URL, which is reported when it is opened
        return url, ""
    user, at, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=host).geturl() if at else url, urllib.parse.unquote(user)


@contextmanager
def _readable(url: str) -> Iterator[None]:
    try:
        yield
    except UnreachableError:
        raise
    except urllib.error.HTTPError as error:
        error.close()  # it is also the response
        raise UnreachableError(f"{shown(url)}: {error.code} {error.reason}") from error
    except (OSError, HTTPException, ValueError, RecursionError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) and str(error.reason) else error
        text = reason_of(reason) if isinstance(reason, BaseException) else reason
        raise UnreachableError(f"{shown(url)}: {text}") from error
