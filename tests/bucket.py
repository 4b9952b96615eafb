"""An S3 server on loopback for a test's time, and one before it that refuses some requests."""

import http.client
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import boto3
import pytest

BUCKET = "corpora"
OTHERS = ("AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_ENDPOINT_URL_S3", "AWS_DEFAULT_REGION")


def variables(endpoint: str) -> dict[str, str]:
    """What a user sets."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "someone",
        "AWS_SECRET_ACCESS_KEY": "something",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@contextmanager
def served() -> Iterator[str]:
    """The address of a server with one empty bucket."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        while True:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            assert server.poll() is None
            assert time.monotonic() < end
            time.sleep(0.05)
        client(f"http://127.0.0.1:{port}").create_bucket(Bucket=BUCKET)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def client(endpoint: str):
    """Another library's view of the bucket."""
    told = variables(endpoint)
    keys = {
        "aws_access_key_id": told["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": told["AWS_SECRET_ACCESS_KEY"],
        "region_name": told["AWS_REGION"],
    }
    return boto3.client("s3", endpoint_url=endpoint, **keys)


@contextmanager
def environment(endpoint: str) -> Iterator[None]:
    """The usual variables, set for the block's time."""
    with pytest.MonkeyPatch.context() as patch:
        for name in OTHERS:
            patch.delenv(name, raising=False)
        for name, value in variables(endpoint).items():
            patch.setenv(name, value)
        yield


class Faulty:
    """
    A server before another one: it answers `status` in its place, so many times; the rest it passes on.

    `seen` counts requests by method.
    """

    def __init__(self, behind: str) -> None:
        self.behind, self.status, self.times, self.seen = behind, 503, 0, Counter()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self._answer))
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> "Faulty":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def refuse(self, status: int, times: int) -> None:
        """From now on."""
        self.status, self.times = status, times
        self.seen.clear()

    def _answer(self, method: str, path: str, headers: dict[str, str], body: bytes):
        self.seen[method] += 1
        if self.times:
            self.times -= 1
            code = "SlowDown" if self.status == 503 else "AccessDenied"
            text = f"<Error><Code>{code}</Code><Message>refused</Message></Error>".encode()
            return self.status, {}, b"" if method == "HEAD" else text
        connection = http.client.HTTPConnection(urlsplit(self.behind).netloc)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()


def _handler(answer: Callable[..., tuple[int, dict[str, str], bytes]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None: ...

        def _any(self) -> None:
            if self.headers.get("Expect"):
                self.send_response_only(100)
                self.end_headers()
            body = self._body()
            kept = {k: v for k, v in self.headers.items() if k.lower() not in ("transfer-encoding", "content-length")}
            status, headers, text = answer(self.command, self.path, {**kept, "Content-Length": str(len(body))}, body)
            self.send_response(status)
            headers = {name.lower(): value for name, value in headers.items()}
            for name in ("connection", "transfer-encoding", "date", "server"):
                headers.pop(name, None)
            for name, value in {"content-length": str(len(text)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text)

        def _body(self) -> bytes:
            if "chunked" not in self.headers.get("Transfer-Encoding", ""):
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _any

    return Handler
