"""A web server that fails in the ways that servers do."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


@dataclass
class Server:
    """What it serves, how it fails, and what it was asked for."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    # After so many bytes of the answer the connection breaks: one number a request, then no more.
    drops: list[int] = field(default_factory=list)
    ranges: bool = True
    tags: bool = True
    requests: list[tuple[str, str | None]] = field(default_factory=list)  # path and Range


@contextmanager
def serve() -> Iterator[Server]:
    server = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.lstrip("/")
            asked = self.headers.get("Range")
            server.requests.append((name, asked))
            if name not in server.files:
                self.send_error(404)
                return
            content, start = server.files[name], 0
            tag = f'"{hashlib.md5(content).hexdigest()}"'
            if asked and server.ranges and self.headers.get("If-Range", tag) == tag:
                start = int(asked.removeprefix("bytes=").rstrip("-"))
                if start >= len(content):
                    self.send_error(416)
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            else:
                self.send_response(200)
            if server.tags:
                self.send_header("ETag", tag)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            rest = content[start:]
            if server.drops:
                rest = rest[: server.drops.pop(0)]
            self.wfile.write(rest)

        def log_message(self, *arguments: object) -> None:
            pass

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    server.url = f"http://127.0.0.1:{listener.server_address[1]}/"
    try:
        with pytest.MonkeyPatch.context() as environment:
            for name in ("no_proxy", "NO_PROXY"):  # a proxy knows no server of this machine
                environment.setenv(name, "*")
            yield server
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()
