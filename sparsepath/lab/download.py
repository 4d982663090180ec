"""Fetches published data files: broken downloads go on where they stopped, checksums decide."""

import fcntl
import http.client
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sparsepath.errors import BadInput
from sparsepath.lab.official import Source, md5_of

Seen = Callable[[str, int, int | None], None]
"""Told a file's name, how many of its bytes are here, and how many there are if that is known."""

_CHUNK = 1 << 18


def download(
    sources: Sequence[Source],
    folder: Path,
    *,
    seen: Seen = lambda name, done, total: None,
    attempts: int = 5,
    pause: float = 2.0,
    timeout: float = 30.0,
) -> None:
    """Fetch what `folder` lacks; give up on a file after `attempts` in a row that brought nothing.

    Unfinished files stay beside the finished as `.part`, and the next call goes on from them.
    """
    for source in sources:
        target = folder / source.name
        if target.exists():
            _check(target, source, remedy="delete it and run the same command again")
            seen(source.name, target.stat().st_size, target.stat().st_size)
            continue
        with _Part.claimed(target.with_name(f"{target.name}.part")) as part:
            _fetch(source, part, seen=seen, attempts=attempts, pause=pause, timeout=timeout)
            try:
                _check(part.path, source, remedy="it was thrown away: run the same command again")
            except BadInput:
                part.path.unlink()
                raise
            part.become(target)


def _check(path: Path, source: Source, *, remedy: str) -> None:
    try:
        found = md5_of(path)
    except OSError as error:
        raise BadInput(
            f"{str(path)!r} cannot be read ({error.strerror}): move it away, or choose another "
            "folder."
        ) from error
    if found != source.md5:
        raise BadInput(
            f"{str(path)!r} is not the published {source.name}: its MD5 is {found}, not "
            f"{source.md5}; {remedy}."
        )


class _Part:
    """What has come of a file so far; every failure to write it is one sentence."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._writing():
            path.parent.mkdir(parents=True, exist_ok=True)
            self.file = path.open("ab", buffering=0)

    @classmethod
    @contextmanager
    def claimed(cls, path: Path) -> Iterator["_Part"]:
        """Such a part, this process's alone until the block ends."""
        part = cls(path)
        with part.file as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    raise BlockingIOError  # finished by another between our opening and locking it
            except OSError as error:
                raise BadInput(
                    f"Another process is fetching {str(path)!r}; wait for it, or choose another "
                    "folder."
                ) from error
            yield part

    @property
    def size(self) -> int:
        return os.fstat(self.file.fileno()).st_size

    def write(self, chunk: bytes) -> None:
        with self._writing():
            left = memoryview(chunk)
            while left:  # a disk with room for some of the chunk takes that much
                left = left[self.file.write(left) :]

    def empty(self) -> None:
        with self._writing():
            self.file.truncate(0)

    def become(self, target: Path) -> None:
        with self._writing():
            os.fsync(self.file.fileno())
            self.path.replace(target)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            kept = self.path.stat().st_size if self.path.is_file() else 0
            raise BadInput(
                f"{str(self.path)!r} cannot be written ({error.strerror}); {kept:,} bytes are "
                "kept: make room and run the same command again, or choose another folder."
            ) from error


def _fetch(
    source: Source, part: _Part, *, seen: Seen, attempts: int, pause: float, timeout: float
) -> None:
    """Fill the part, asking again for the rest whenever the connection breaks."""
    failed = 0
    while failed < attempts:
        if failed:
            time.sleep(pause)
        before = part.size
        try:
            if _continue(source, part, seen=seen, timeout=timeout):
                return
            reason = "the connection broke off"
        except urllib.error.HTTPError as error:
            error.close()
            if error.code < 500:  # asking again would not change the answer
                raise BadInput(
                    f"{source.url} answered {error.code} {error.reason}; fetch {source.name} "
                    f"elsewhere and put it into {str(part.path.parent)!r}."
                ) from error
            reason = f"it answered {error.code} {error.reason}"
        except (OSError, http.client.HTTPException) as error:  # timeouts are OSErrors, too
            reason = str(getattr(error, "reason", error)) or type(error).__name__
        failed = 1 if part.size > before else failed + 1
    raise BadInput(
        f"{source.url} did not come through ({reason}); {part.size:,} bytes are kept in "
        f"{str(part.path)!r}: run the same command again to go on from there."
    )


def _continue(source: Source, part: _Part, *, seen: Seen, timeout: float) -> bool:
    """Ask once for what is missing and write what comes; whether the file is now complete."""
    done = part.size
    # A place in a file means nothing in a compressed answer: hence identity.
    headers = {"Accept-Encoding": "identity", "User-Agent": "sparsepath"}
    if done:
        headers["Range"] = f"bytes={done}-"
    request = urllib.request.Request(source.url, headers=headers)
    try:
        answer = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not done:
            raise
        error.close()
        # There is nothing beyond these bytes: all is here, or they are of another file.
        if md5_of(part.path) == source.md5:
            return True
        part.empty()
        return False
    with answer:
        if done and answer.status != 206:
            _refuse_a_page(answer, source, part)
            part.empty()  # the server knows no ranges and sends the whole
            done = 0
        start, total = _range(answer.headers["Content-Range"]) if done else (0, None)
        if start != done:
            part.empty()
            return False
        if total is None and answer.length is not None:
            total = done + answer.length
        seen(source.name, done, total)
        while chunk := answer.read1(_CHUNK):  # what has come by now, so that a stall loses nothing
            part.write(chunk)
            done += len(chunk)
            seen(source.name, done, total)
    return total is None or done == total


def _refuse_a_page(answer: http.client.HTTPResponse, source: Source, part: _Part) -> None:
    """Throw nothing away for what is not the file, as the page of a network that wants a login."""
    short = answer.length is not None and answer.length < part.size
    if short or answer.headers.get_content_type() == "text/html":
        raise BadInput(
            f"{source.url} answered with something shorter than the {part.size:,} bytes that are "
            f"here already, or with a page: they are kept in {str(part.path)!r}; look there with a "
            "browser and run the same command again, or delete them to begin anew."
        )


def _range(content_range: str | None) -> tuple[int | None, int | None]:
    """Where the bytes of a partial answer begin, and how many the file has: it may end before."""
    found = re.match(r"bytes (\d+)-\d+/(\d+)?", content_range or "")
    if not found:
        return None, None
    return int(found[1]), int(found[2]) if found[2] else None
