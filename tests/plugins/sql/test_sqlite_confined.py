"""The process that has a SQLite file open: it reaches that file, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import delf_confined
from delf_confined import landlock, seccomp

CHILD = """
import sys, socket, subprocess
from pathlib import Path
from delf_sql.sqlite_child import OpenOptions, confine
file, writes, library = sys.argv[1:4]
open_options = OpenOptions("", True, 1.0, 1.0, 1, [], [], 1, [file], [writes] if writes else [], library)
confine(open_options)
exec(sys.argv[4])
"""
pytestmark = pytest.mark.skipif(
    not (landlock.version() and seccomp.is_supported()), reason="there is no Landlock here"
)


@pytest.mark.parametrize(
    ("does", "writes", "works"),
    [
        ("Path(file).read_bytes()", False, True),
        ("Path(file).write_bytes(b'x')", False, False),
        ("Path(file + '-wal').write_bytes(b'x')", False, False),
        ("Path(file).write_bytes(b'x')", True, True),
        ("Path(file + '-journal').write_bytes(b'x')", True, True),
        ("Path('/etc/passwd').read_bytes()", True, False),
        ("Path(file).parent.with_name('elsewhere').write_bytes(b'x')", True, False),
        ("socket.create_connection(('127.0.0.1', 9))", True, False),
        ("subprocess.run(['/bin/true'], check=True)", True, False),
    ],
)
def test_sqlite_process_reaches_only_its_file(
    does: str, writes: bool, works: bool, tmp_path: Path
) -> None:
    folder = tmp_path / "place"
    folder.mkdir()
    file = folder / "a.db"
    file.write_bytes(b"1")
    library = str(Path(delf_confined.__file__).resolve().parents[1])
    arguments = [str(file), str(folder) if writes else "", library, does]
    done = subprocess.run([sys.executable, "-c", CHILD, *arguments], capture_output=True, text=True)
    assert (done.returncode == 0) == works, done.stderr
    assert works or "Permission" in done.stderr or "not permitted" in done.stderr
