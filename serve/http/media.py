"""Media types of bodies that tasks answer, and the endings of the files that they would be."""

from __future__ import annotations

from serve.errors import ServeError

ENDINGS = {
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "image/bmp": ".bmp",
    "image/webp": ".webp",
    "image/tiff": ".tif",
    "audio/wav": ".wav",
    "audio/x-wav": ".wav",
    "audio/vnd.wave": ".wav",
    "audio/flac": ".flac",
    "audio/x-flac": ".flac",
    "audio/ogg": ".ogg",
    "audio/mpeg": ".mp3",
    "text/plain": ".txt",
    "text/csv": ".csv",
    "text/tab-separated-values": ".tsv",
    "application/json": ".json",
    "application/jsonl": ".jsonl",
    "application/x-ndjson": ".jsonl",
    "application/x-npz": ".npz",
}
"""File ending by media type. Formats that can hold code, such as pickles, are not among them."""

IMAGES = tuple(media for media in ENDINGS if media.startswith("image/"))
TEXTS = ("text/plain",)


def media_of(kind: str) -> str:
    """Return the media type of a content type, without its parameters, in lower case."""
    return kind.partition(";")[0].strip().lower()


def ending_of(kind: str) -> str:
    """Return the file ending of a content type. Raises ServeError for unknown ones."""
    found = ENDINGS.get(media_of(kind))
    if found is None:
        listed = ", ".join((*ENDINGS, "multipart/form-data"))
        raise ServeError("media", f"content type {kind[:60]!r} must be one of: {listed}")
    return found
