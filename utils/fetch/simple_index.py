"""Download from a Python package index without running code of the package.

``pip download`` would run the ``setup.py`` of an sdist. Here the links are read from the simple indexes (PEP 503,
PEP 691) and ``find-links`` that pip is configured with (``pip config``, ``PIP_*``).
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from html.parser import HTMLParser
from importlib.machinery import PathFinder
from pathlib import Path

from utils.fetch.package import Package, UnreachableError
from utils.fetch.web import Access, shown

PYPI = "https://pypi.org/simple"
_JSON = "application/vnd.pypi.simple.v1+json"
_ACCEPT = f"{_JSON}, text/html;q=0.5"
_SDIST = (".tar.gz", ".tgz", ".zip", ".tar.bz2", ".tar.xz")
_LONGEST = 20.0
_MOST_HTML = 2**23
"""Maximum HTML page, in characters; the parser takes a second for a few MB."""


@dataclass(frozen=True)
class Link:
    """A file of an index: name, URL, and SHA-256 (may be empty)."""

    name: str
    url: str
    sha256: str


class PipSettings:
    """pip's settings for ``pip download``."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    @classmethod
    def read(cls) -> PipSettings:
        """Read the settings from ``pip config``, or from ``PIP_*`` variables without pip."""
        own = {key[4:].lower(): value for key, value in os.environ.items() if key[:4] == "PIP_"}
        given = {f":env:.{key.replace('_', '-')}": value for key, value in own.items()}
        if PathFinder.find_spec("pip") is None:
            return cls(given)
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list"]
        try:
            done = subprocess.run(
                command, capture_output=True, stdin=subprocess.DEVNULL, timeout=_LONGEST, check=False
            ).stdout.decode("utf-8", "replace")
        except (OSError, subprocess.SubprocessError):
            return cls(given)
        pairs = (re.fullmatch(r"(\S+?)=(['\"].*['\"])", line) for line in done.splitlines())
        return cls({pair[1]: _literal(pair[2]) for pair in pairs if pair} | given)

    def value(self, name: str) -> str:
        """Return a setting of the environment, else of the section ``download``, else of ``global``."""
        found = (self._values.get(f"{section}.{name}") for section in (":env:", "download", "global"))
        return next((text for text in found if text is not None), "")

    @cached_property
    def indexes(self) -> list[str]:
        """URLs of the indexes."""
        if self.value("no-index").lower() in ("1", "true", "yes", "on"):
            return []
        own = self.value("index-url").split() or [PYPI]
        return [*own, *self.value("extra-index-url").split()]

    @property
    def access(self) -> Access:
        """pip's certificates, proxy and timeout."""
        timeout = self.value("default-timeout") or self.value("timeout")
        seconds = float(timeout) if re.fullmatch(r"[0-9.]*[0-9]", timeout) else Access.timeout
        return Access(os.path.expanduser(self.value("cert")), self.value("proxy"), max(seconds, 1.0))


def from_index(package: Package, folder: Path) -> Path:
    """Write the archive into a folder and return its path; raise UnreachableError if no index has it."""
    settings = PipSettings.read()
    access, reasons = settings.access, []
    links = settings.value("find-links").split()
    for place, is_index in [*((one, False) for one in links), *((one, True) for one in settings.indexes)]:
        try:
            found = [link for link in _links(place, is_index, package, access) if _is_wanted(link, package)]
        except UnreachableError as error:
            reasons.append(str(error))
            continue
        for link in found:
            if link.sha256 in ("", package.sha256):
                path = folder / link.name
                access.save(_with_user_of(place, link.url), path, package.size)
                return path
        has = f"{shown(place)} has {package.version} with another sha256"
        reasons.append(has if found else f"not in {shown(place)}")
    raise UnreachableError("; ".join(reasons) or "pip is configured with no-index")


def _literal(text: str) -> str:
    """Parse a value of ``pip config``."""
    try:
        return str(ast.literal_eval(text))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text[1:-1]


def _links(place: str, is_index: bool, package: Package, access: Access) -> Iterator[Link]:
    """Yield the links of a package's index page, or of a ``find-links`` location."""
    if is_index:
        name = re.sub(r"[-_.]+", "-", package.package).lower()  # PEP 503
        place = f"{place.rstrip('/')}/{name}/"
        if place.startswith("file:"):
            place += "index.html"
    try:
        path = urllib.request.url2pathname(urllib.parse.urlsplit(place).path) if place.startswith("file:") else place
    except ValueError as error:
        raise UnreachableError(f"{place}: is not a URL ({error})") from error
    local = Path(path)
    if "://" not in place or place.startswith("file:"):
        if local.is_dir():
            yield from (Link(path.name, path.absolute().as_uri(), "") for path in sorted(local.iterdir()))
            return
        place = local.absolute().as_uri()
    text, base = access.page(place, _ACCEPT)
    yield from _parsed(text, base)


def _parsed(text: str, base: str) -> Iterator[Link]:
    """Yield the links of a page: JSON (PEP 691) or HTML (PEP 503)."""
    if text.lstrip().startswith("{"):
        try:
            files = json.loads(text)["files"]
            found = [
                Link(str(f["filename"]), urllib.parse.urljoin(base, f["url"]), str(f["hashes"].get("sha256", "")))
                for f in files
            ]
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise UnreachableError(f"{shown(base)}: is not an index page") from error
        yield from found
        return
    if len(text) > _MOST_HTML:
        raise UnreachableError(f"{shown(base)}: the page has more than {_MOST_HTML} characters of HTML")
    page = _Page(base)
    try:
        page.feed(text)
    except (AssertionError, ValueError, RecursionError) as error:  # of Python's parser for bad HTML
        raise UnreachableError(f"{shown(base)}: is not an index page") from error
    yield from page.links


class _Page(HTMLParser):
    def __init__(self, base: str) -> None:
        super().__init__()
        self._base = base
        self.links: list[Link] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the link of an anchor."""
        found = dict(attrs)
        target = found.get("href")
        if tag not in ("base", "a") or not target:
            return
        try:
            whole = urllib.parse.urljoin(self._base, target)
            url, fragment = urllib.parse.urldefrag(whole)
            name = urllib.parse.unquote(urllib.parse.urlsplit(url).path.rsplit("/", 1)[-1])
            digest = dict(urllib.parse.parse_qsl(fragment)).get("sha256", "")
        except ValueError:  # not a URL
            return
        if tag == "base":
            self._base = whole
            return
        self.links.append(Link(name, url, digest))


def _is_wanted(link: Link, package: Package) -> bool:
    """Return whether a link is the package's archive, by its file name."""
    lower = link.name.lower()
    if "/" in link.name or link.name.startswith("."):
        return False
    if package.kind == "wheel":
        parts = lower.removesuffix(".whl").split("-")
        named = lower.endswith(".whl") and len(parts) >= 5 and parts[1] == package.version
        return named and _same(parts[0], package.package)
    suffix = next((end for end in _SDIST if lower.endswith(end)), None)
    name, _, version = lower.removesuffix(suffix or "").rpartition("-")
    return suffix is not None and _same(name, package.package) and version == package.version.lower()


def _same(name: str, package: str) -> bool:
    return re.sub(r"[-_.]+", "-", name).lower() == re.sub(r"[-_.]+", "-", package).lower()


def _with_user_of(place: str, url: str) -> str:
    """Add the credentials of the index to a URL on the same server."""
    try:
        own, other = urllib.parse.urlsplit(place), urllib.parse.urlsplit(url)
    except ValueError:
        return url
    user, at, host = own.netloc.rpartition("@")
    same = at and "@" not in other.netloc and (own.scheme, host) == (other.scheme, other.netloc)
    return other._replace(netloc=f"{user}@{host}").geturl() if same else url
