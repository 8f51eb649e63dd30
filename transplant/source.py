"""A Python file: bytes, encoding, text, and check of its syntax."""

from __future__ import annotations

import ast
import codecs
import io
import re
import tokenize
import warnings
from dataclasses import dataclass

_PYTHON_2 = re.compile(
    r"^\s*(?:print\s+[^\s(=,.)\]:]|print\s*>>|exec\s+[\"']|except\s+[\w.]+\s*,\s*\w+\s*:|raise\s+[\w.]+\s*,|.*<>\s)",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Decoded:
    """Text and encoding of a file. ``mark`` is its byte order mark, or empty."""

    text: str
    encoding: str
    mark: bytes

    def encode(self, text: str) -> bytes:
        """Return another text in the same encoding; raise UnicodeEncodeError if the encoding lacks a character."""
        return self.mark + text.encode(self.encoding)


class NotPythonError(ValueError):
    """A file cannot be read as Python 3; the message has the reason and the fix, ``line`` the line."""

    def __init__(self, message: str, line: int = 1) -> None:
        super().__init__(message)
        self.line = line


def decode(content: bytes) -> Decoded:
    """Return the text of a Python file with its line endings.

    Raises:
        NotPythonError: the declared encoding, or UTF-8, does not apply.
    """
    mark = codecs.BOM_UTF8 if content.startswith(codecs.BOM_UTF8) else b""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise NotPythonError("is UTF-16, which Python does not read; save it as UTF-8")
    body = content[len(mark) :]
    try:
        name = tokenize.detect_encoding(io.BytesIO(content).readline)[0]
        encoding = "utf-8" if mark else codecs.lookup(name).name
        text = body.decode(encoding)
        if text.encode(encoding) != body:
            raise NotPythonError(f"is in {encoding}, which does not reproduce its bytes; save it as UTF-8")
    except (SyntaxError, LookupError) as error:
        if b"coding" not in b"".join(body.splitlines()[:2]):
            raise NotPythonError("is not UTF-8, and does not declare another encoding; save it as UTF-8") from error
        raise NotPythonError(f"is in an encoding that Python does not read ({error}); save it as UTF-8") from error
    except UnicodeDecodeError as error:
        line = body[: error.start].count(b"\n") + 1
        message = f"is not {encoding}, its declared or default encoding; save it as UTF-8, or declare its encoding"
        raise NotPythonError(message, line) from error
    return Decoded(text, encoding, mark)


def check(text: str) -> None:
    """Check that Python can parse a text.

    CPython's parser is used first, because its messages are the clearest and it terminates for text of any depth.

    Raises:
        NotPythonError: it cannot; with the line.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes and comparisons in the script
            ast.parse(text)
    except SyntaxError as error:
        line = error.lineno or 1
        near = "\n".join(text.splitlines()[max(0, line - 1) : line + 1])
        if _PYTHON_2.search(near) or "Missing parentheses in call to" in error.msg:
            raise NotPythonError("is Python 2; make it Python 3 first", line) from error
        raise NotPythonError(f"does not parse ({error.msg}); repair it first", line) from error
    except (RecursionError, MemoryError) as error:
        raise NotPythonError("is nested too deeply to be parsed; migrate it by hand") from error
    except ValueError as error:
        raise NotPythonError(f"does not parse ({error}); repair it first") from error
