"""Files of the user: a failed replacement leaves the old file."""

import subprocess
import sys
from pathlib import Path

FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from delf.errors import ConfigurationError
from delf.machine.own_files import replace_file
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    replace_file(Path(sys.argv[1]), "new" * 100)
except ConfigurationError as error:
    print(error.message)
"""


def test_file_stays_whole_if_its_replacement_does_not_fit_the_disk(tmp_path: Path) -> None:
    file = tmp_path / "cases.yaml"
    file.write_text("old" * 100)
    command = [sys.executable, "-c", FULL_DISK, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "cases.yaml cannot be written: File too large" in done.stdout
    assert file.read_text() == "old" * 100
    assert list(tmp_path.iterdir()) == [file]


CHANGES = """
import sys
from pathlib import Path
from delf.machine.own_files import locked, write_private
file = Path(sys.argv[1])
for _ in range(200):
    with locked(file):
        number = int(file.read_text()) if file.exists() else 0
        write_private(file, str(number + 1).encode())
"""


def test_processes_that_change_a_locked_file_lose_no_change(tmp_path: Path) -> None:
    file = tmp_path / "own" / "number"
    command = [sys.executable, "-c", CHANGES, str(file)]
    processes = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert file.read_text() == "600"


FORK = """
import os, sys
from pathlib import Path
from delf.machine.own_files import locked
file = Path(sys.argv[1])
end_of_parent, keep_open = os.pipe()
with locked(file):
    if os.fork() == 0:
        os.close(keep_open)
        os.read(end_of_parent, 1)
        os._exit(0)
with locked(file):
    print("locked again")
"""


def test_forked_process_does_not_keep_a_lock(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORK, str(tmp_path / "own" / "number")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout == "locked again\n"
