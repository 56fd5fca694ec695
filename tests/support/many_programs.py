"""The program, several times in one process: what it imports is imported once.

python many_programs.py '[["run", "a task"], ["runs", "list"]]'

After each run a line with ``MARK`` and its exit status goes to stdout and to stderr.
"""

from __future__ import annotations

import json
import sys

from delf_cli.main import run_program

MARK = "\x1e exit status "


def main() -> None:
    """Run the program with each list of arguments."""
    for arguments in json.loads(sys.argv[1]):
        sys.argv[:] = ["delf", *arguments]
        status = run_program()
        for stream in (sys.stdout, sys.stderr):
            stream.write(f"{MARK}{status}\n")
            stream.flush()


if __name__ == "__main__":
    main()
