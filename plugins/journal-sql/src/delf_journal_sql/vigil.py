"""Looks after statements that wait for a server which takes what it is sent and answers nothing."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any, Final

_LOOK_SECONDS: Final = 1.0


class Vigil:
    """Breaks the connections of statements that wait for long, where the server does not answer.

    A driver waits forever for a server that is stopped, as its kernel takes what is sent.

    Args:
        answers: Asks the server by another connection; it may take seconds.
        patience: Seconds that a statement takes before that is asked.
        look: Seconds between two looks.
    """

    def __init__(
        self, answers: Callable[[], bool], patience: float, look: float = _LOOK_SECONDS
    ) -> None:
        self._answers = answers
        self._patience = patience
        self._look = look
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[Any, float]] = {}
        self._thread: threading.Thread | None = None
        self._over = threading.Event()

    @contextmanager
    def over(self, connection: Any) -> Generator[None]:
        """Look after a statement of a connection that has a ``fileno``; None is nothing to do."""
        if connection is None:
            yield
            return
        key = id(connection)
        with self._lock:
            self._waiting[key] = connection, time.monotonic()
            if self._thread is None:
                self._over = threading.Event()
                self._thread = threading.Thread(
                    target=self._run, args=(self._over,), name="delf-journal-vigil", daemon=True
                )
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._waiting.pop(key, None)

    def end(self) -> None:
        """Look no more, until another statement begins."""
        with self._lock:
            self._over.set()
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(self._look)  # it ends at once, unless it asks a server that is silent

    def _run(self, over: threading.Event) -> None:
        while not over.wait(self._look):
            late = self._late(time.monotonic() - self._patience)
            if late:
                self._judge(late, broken=not self._answers())

    def _late(self, since: float) -> dict[int, float]:
        with self._lock:
            return {key: began for key, (_, began) in self._waiting.items() if began < since}

    def _judge(self, late: dict[int, float], *, broken: bool) -> None:
        """Break the connections that still wait for the same statement, or let them wait on."""
        with self._lock:
            for key, began in late.items():
                connection, now = self._waiting.get(key, (None, 0.0))
                if connection is None or now != began:
                    continue
                if not broken:
                    self._waiting[key] = connection, time.monotonic()
                    continue
                with suppress(OSError):
                    _shut_down(connection.fileno())


def _shut_down(descriptor: int) -> None:
    """Shut a connection down whose descriptor stays the driver's."""
    borrowed = socket.socket(fileno=descriptor)
    try:
        borrowed.shutdown(socket.SHUT_RDWR)
    finally:
        borrowed.detach()
