"""The zipapp's entry: ``python -I -S guest.pyz [READ_FD WRITE_FD]``, else standard streams."""

from __future__ import annotations

import os
import sys

from delf_sandbox.guest.serve import Server


def main(arguments: list[str]) -> None:
    """Serve a session with the host on two file descriptors.

    Without arguments, the session uses standard input and output. The script then gets
    ``/dev/null`` as standard input and output.

    Args:
        arguments: The numbers of the descriptors for reading and writing, or nothing.
    """
    if arguments:
        read_fd, write_fd = (int(number) for number in arguments[:2])
    else:
        read_fd = os.dup(0)
        write_fd = os.dup(1)
        null_device = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1):
            os.dup2(null_device, descriptor)
        os.close(null_device)
    Server().serve(read_fd, write_fd)


if __name__ == "__main__":
    main(sys.argv[1:])
