"""Bodies to answer: one file, or a form with several (``multipart/form-data``, as of HTML and ``curl -F``)."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from serve.errors import ServeError, invalid
from serve.http.bodies import read_body
from serve.http.media import ENDINGS, ending_of, media_of
from serve.settings import Limits

if TYPE_CHECKING:
    from fastapi import Request
    from starlette.datastructures import UploadFile

FORM = "multipart/form-data"

logging.getLogger("python_multipart").setLevel(logging.ERROR)  # of a wrong form, the client gets a line


class File(NamedTuple):
    """A file of a request; ``name``: as the form names it, empty: it is the body. ``ending``: such as ``.jpg``."""

    name: str
    content: bytes
    ending: str


async def sent_files(request: Request, limits: Limits) -> list[File]:
    """Return the files of a request: its body, or those of a form; a field without a file name is a text.

    Raises ServeError: a content type is unknown (``media``); a file is empty, or the form is wrong, or has none or too
    many (``invalid``).
    """
    kind = request.headers.get("content-type", "")
    if media_of(kind) != FORM:
        ending = ending_of(kind)
        files = [File("", await read_body(request, limits), ending)]
    else:
        files = await files_of_form(kind, await read_body(request, limits), limits)
    empty = next((file for file in files if not file.content), None)
    if empty is not None:
        raise invalid(f"file {empty.name!r} is empty" if empty.name else "the body is empty; send a file")
    return files


async def files_of_form(kind: str, body: bytes, limits: Limits) -> list[File]:
    """Return the files of a form; ``kind``: its content type, with the boundary. Raises as :func:`sent_files`."""
    from starlette.datastructures import Headers
    from starlette.formparsers import MultiPartException, MultiPartParser

    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    most = {"max_files": limits.samples, "max_fields": limits.samples, "max_part_size": limits.body}
    try:
        form = await MultiPartParser(Headers({"content-type": kind}), stream(), **most).parse()
    except (MultiPartException, KeyError) as error:  # KeyError: without a boundary
        reason = error.message if isinstance(error, MultiPartException) else "its content type has no boundary"
        raise invalid(f"the form cannot be read: {reason}") from error
    try:
        parts = form.multi_items()
        if not parts:
            raise invalid("the form holds no file; send one, such as curl -F file=@image.jpg")
        if len(parts) > limits.samples:
            raise invalid(f"the form has {len(parts)} files, and at most {limits.samples} are taken (--max_samples)")
        return [
            File(name, part.encode(), ".txt") if isinstance(part, str) else await _file(name, part)
            for name, part in parts
        ]
    finally:
        await form.close()


async def _file(field: str, part: UploadFile) -> File:
    name, ending = part.filename or field, PurePosixPath(part.filename or "").suffix.lower()
    if media_of(part.content_type or "") in ENDINGS:
        ending = ending_of(part.content_type or "")
    elif ending not in ENDINGS.values():
        raise ServeError("media", f"file {name[:100]!r} has neither a known content type nor a known ending")
    return File(name[:200], await part.read(), ending)
