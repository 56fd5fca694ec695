"""A guest's loop and session, created before the wire is connected."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import NoReturn

from delf_sandbox.guest.loop import GuestLoop
from delf_sandbox.guest.session import GuestSession


class Server:
    """Runs the scripts of one session inside the sandboxed process, the guest.

    The slow preparation happens in ``__init__``, before the session is known. A template process
    creates one server and forks; each forked process serves one session. Before the fork, the
    server opens no descriptor and draws no random numbers, because all forked processes would share
    them.
    """

    def __init__(self) -> None:
        self._loop = GuestLoop()
        asyncio.set_event_loop(self._loop)
        self._session = GuestSession(self._loop)
        self._loop.run_until_complete(self._session.warm_up())

    def serve(self, read_fd: int, write_fd: int, *, threads: bool = True) -> NoReturn:
        """Serve a session on two descriptors until the host closes the connection.

        Args:
            read_fd: The descriptor for reading.
            write_fd: The descriptor for writing.
            threads: Whether the process may start threads.
        """
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._loop.open(threads=threads)
        main = self._loop.create_task(self._session.serve(read_fd, write_fd))
        while not main.done():
            try:
                self._loop.run_until_complete(main)
            except (SystemExit, KeyboardInterrupt):
                # A task of the script raised this. The code that awaits the task gets the same
                # exception, so the session goes on.
                pass
            except (MemoryError, RecursionError) as error:  # an answer of the host did not fit
                self._session.end_after(error)
                break
            except RuntimeError:  # the script closed the loop, or called loop.stop()
                if self._loop.is_closed():  # after loop.stop(), the session goes on
                    break
        # Reached only after a failure: the session itself ends the process when the host closes the
        # connection.
        raise SystemExit(os.EX_SOFTWARE)
