"""A guest's loop and session, made ahead of the wire that they serve."""

from __future__ import annotations

import asyncio
import signal
from typing import NoReturn

from delf_sandbox.guest.loop import GuestLoop
from delf_sandbox.guest.session import GuestSession


class Server:
    """Does all preparation that is independent of the session.

    A template process makes one server and forks; each fork serves one session with it. Until then
    it holds no descriptor and no random state that forks would share.
    """

    def __init__(self) -> None:
        self._loop = GuestLoop()
        asyncio.set_event_loop(self._loop)
        self._session = GuestSession(self._loop)
        self._loop.run_until_complete(self._session.rehearse())

    def serve(self, read_fd: int, write_fd: int, *, threads: bool = True) -> NoReturn:
        """Run a session on two descriptors until the host closes the wire.

        Args:
            read_fd: Where the host's frames arrive.
            write_fd: Where frames go.
            threads: Whether this process may have threads.
        """
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._loop.open(threads=threads)
        main = self._loop.create_task(self._session.serve(read_fd, write_fd))
        while not main.done():
            try:
                self._loop.run_until_complete(main)
            except (SystemExit, KeyboardInterrupt):
                continue  # raised in a task of the script; whoever awaits that task gets it
            except RuntimeError:
                if self._loop.is_closed():
                    break  # else the script only stopped it
        raise SystemExit(70)
