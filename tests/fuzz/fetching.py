"""``teco fetch`` with a custom table and a registry on the loopback with planned answers.

``python -m tests.fuzz.fetching FOLDER words of teco``: FOLDER has ``tables/fetch/*.yaml``, and optionally ``plan.json``
for a server: the response for the end of a path, as ``[how, file]``.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HOWS = (
    *("ok", "ok", "404", "500", "html", "gzip", "drip", "endless", "loop", "circle", "long", "short", "huge head"),
    *("many heads", "close", "half", "silent", "odd status", "file", "ftp", "chunks", "odd length", "empty"),
)


class Handler(BaseHTTPRequestHandler):
    """Returns the planned answers."""

    plan: dict[str, tuple[str, str]] = {}  # noqa: RUF012 -- one plan in a process

    def do_GET(self) -> None:
        """Answer."""
        name = self.path.rstrip("/").rpartition("/")[2]
        how, file = self.plan.get(name, self.plan.get("", ("404", "")))
        try:
            self._answer(how, Path(file).read_bytes() if file else b"")
        except OSError:
            return  # the other side has gone

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def _head(self, code: int, size: int | str | None, **more: str) -> None:
        self.send_response(code)
        if size is not None:
            self.send_header("Content-Length", str(size))
        for name, value in more.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def _answer(self, how: str, content: bytes) -> None:
        size, write = len(content), self.wfile.write
        if how in ("404", "500"):
            self._head(int(how), 2)
            write(b"no")
        elif how in ("loop", "circle", "file", "ftp"):
            where = {"loop": self.path, "file": "file:///etc/passwd", "ftp": "ftp://127.0.0.1:9/x"}
            self._head(302, 0, Location=where.get(how, f"{self.path}x" if len(self.path) < 500 else "/"))
        elif how == "html":
            page = b"<html><a href='http://[bad'>x</a><base href='//['><![odd<a href=x" + b"<" * 5000
            self._head(200, len(page))
            write(page)
        elif how == "gzip":
            packed = gzip.compress(content)
            self._head(200, len(packed), Content_Encoding="gzip")
            write(packed)
        elif how == "endless":
            self._head(200, None)
            while True:
                write(bytes(1 << 20))
        elif how == "huge head":
            write(b"HTTP/1.0 200 OK\r\nX: " + b"x" * (1 << 20) + b"\r\n\r\n")
        elif how == "many heads":
            write(b"HTTP/1.0 200 OK\r\n" + b"X: y\r\n" * 5000 + b"\r\n")
        elif how == "odd status":
            write(b"\x1b[31m 99999 \xff\r\n\r\n")
        elif how == "silent":
            time.sleep(100)
        elif how == "drip":
            self._head(200, None)
            for place in range(min(size, 1000)):
                write(content[place : place + 1])
                time.sleep(0.3)
        elif how == "chunks":
            self.protocol_version = "HTTP/1.1"
            self._head(200, None, Transfer_Encoding="chunked")
            write(b"fffffffffffffffff\r\n" + content)
        else:
            lengths: dict[str, int | str] = {"long": size + 1000, "short": max(0, size - 10), "half": size}
            lengths |= {"odd length": "-5"}
            self._head(200, None if how == "empty" else lengths.get(how, size))
            write({"close": b"", "half": content[: size // 2], "empty": b""}.get(how, content))
        self.close_connection = True


def main() -> None:
    """Put the tables on the path, start the server, and run the command."""
    folder, words = Path(sys.argv[1]), sys.argv[2:]
    import utils

    utils.__path__.append(str(folder / "tables"))
    plan = folder / "plan.json"
    if plan.exists():
        Handler.plan = {name: tuple(how) for name, how in json.loads(plan.read_text()).items()}
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        os.environ |= {"PIP_INDEX_URL": f"{url}/simple", "npm_config_registry": url, "TECO_DEBIAN_MIRROR": url}
    from toolkit.cli import main as teco

    sys.argv = ["teco", *words]
    teco()


if __name__ == "__main__":
    main()
