"""A local web server that serves one file, well or badly."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Serving:
    """What to serve and how; `asked` collects the Range of every request."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.ranges = True
        self.length = True
        self.breaks: list[int] = []  # how many bytes each of the next answers may have
        self.stalls = 0  # how many of the next answers stop halfway without an end
        self.status: list[int] = []  # with what the next answers fail
        self.shift = 0  # a wrong start of partial answers
        self.page: bytes | None = None  # what stands in for the file, as a login does
        self.most: int | None = None  # how many bytes a partial answer has, as it says itself
        self.asked: list[str | None] = []
        self.url = ""
        self.released = threading.Event()


def handler(serving: Serving) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *about: object) -> None:
            pass

        def do_GET(self) -> None:
            wanted = self.headers["Range"]
            serving.asked.append(wanted)
            start = int(wanted[6:-1]) if wanted and serving.ranges else 0
            if serving.status:
                self.send_error(serving.status.pop(0))
                return
            if serving.page is not None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                if serving.length:
                    self.send_header("Content-Length", str(len(serving.page)))
                self.end_headers()
                self.wfile.write(serving.page)
                return
            if start >= len(serving.content) and start:
                self.send_error(416)
                return
            body = serving.content[start + serving.shift * bool(start) :]
            self.send_response(206 if start else 200)
            if start:
                body = body[: serving.most]
                first, whole = start + serving.shift, len(serving.content)
                last = first + len(body) - 1
                self.send_header("Content-Range", f"bytes {first}-{last}/{whole}")
            if serving.length:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if serving.breaks:
                body = body[: serving.breaks.pop(0)]
            if serving.stalls:
                serving.stalls -= 1
                self.wfile.write(body[: len(body) // 2])
                self.wfile.flush()
                serving.released.wait()
                return
            self.wfile.write(body)

    return Handler


@contextmanager
def serving(content: bytes, name: str) -> Iterator[Serving]:
    """Serve this content under this name until the block ends."""
    how = Serving(content)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(how))
    server.daemon_threads = True
    how.url = f"http://127.0.0.1:{server.server_address[1]}/{name}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield how
    finally:
        how.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
