"""What was used of late, by any number of threads: the rest is forgotten."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    """At most so many values by key; when it is full the least recently used one goes."""

    def __init__(self, most: int) -> None:
        """Hold nothing yet."""
        self._most = most
        self._values: OrderedDict[object, T] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many there are."""
        return len(self._values)

    def get(self, key: object) -> T | None:
        """The value, if it is known still."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def put(self, key: object, value: T) -> bool:
        """Remember a value; whether another one was forgotten for it."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            return self._trim(lambda: len(self._values) > self._most)

    def forget_while(self, much: Callable[[list[T]], bool], *, least: int) -> bool:
        """Forget the oldest while the others are too `much`, but for the `least` last ones."""
        with self._lock:
            return self._trim(
                lambda: len(self._values) > least and much(list(self._values.values()))
            )

    def _trim(self, full: Callable[[], bool]) -> bool:
        forgotten = False
        while full():
            self._values.popitem(last=False)
            forgotten = True
        return forgotten
