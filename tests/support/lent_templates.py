"""In a program that was forked: its templates are forked, too, by a process it did not start.

Such a template is not a child of the program, so its end is seen by a descriptor of the process.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from delf_sandbox_local import backend, forkserver

_BOOT = forkserver._BOOT.format(source=forkserver._SOURCE)


class LentTemplate:
    """What the sandbox needs of a ``Popen``.

    Args:
        address: Of the process that forks.
        control: The template's socket.
    """

    def __init__(self, address: str, control: int) -> None:
        read, write = os.pipe()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asked:
            asked.connect(address)
            socket.send_fds(asked, [b"t"], [control, write])
            os.close(write)
            number, (self._process,), _, _ = socket.recv_fds(asked, 20, 1)
        os.set_inheritable(self._process, False)
        self.pid = int(number)
        self.returncode: int | None = None
        self.stderr = os.fdopen(read, "rb")

    def kill(self) -> None:
        """End it at once."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it ended already
                signal.pidfd_send_signal(self._process, signal.SIGKILL)

    def wait(self) -> int:
        """Wait for its end."""
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._process, select.POLLIN)
            poll.poll()
            self.returncode = -signal.SIGKILL
            os.close(self._process)
        return self.returncode


class Lender:
    """Starts the process that forks; in forks of this process, sandboxes ask it.

    Before them, this process has one thread and may be forked.
    """

    def __init__(self) -> None:
        self._address = f"\0delf-templates-{uuid.uuid4().hex}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            listening.bind(self._address)
            listening.listen(100)
            template = Path(__file__).with_name("warm_template.py")
            subprocess.Popen(
                [sys.executable, "-P", "-s", "-S", "-X", "utf8", template, forkserver._SOURCE,
                 backend._zipapp_path(), str(listening.fileno())],
                pass_fds=(listening.fileno(),), env=forkserver._ENVIRON, cwd="/",
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip

    def use(self) -> None:
        """Let the local sandbox of this process ask it."""
        forkserver.subprocess = SimpleNamespace(
            Popen=self._start, PIPE=subprocess.PIPE, DEVNULL=subprocess.DEVNULL
        )

    def _start(self, command: list[str], **options: Any) -> Any:
        if command[command.index("-c") + 1] != _BOOT:
            return subprocess.Popen(command, **options)
        return LentTemplate(self._address, options["pass_fds"][0])
