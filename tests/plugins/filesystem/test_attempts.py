"""Attempts to leave a root: by path, by link, by exchange, by what is not a file. None may succeed.

Paths are lines of `paths.txt`; scenes that need something on the disk are functions here. Each
is tried by every action, resolved by the kernel and part by part.
"""

import ast
import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from delf.errors import DelfError
from delf_filesystem import Filesystem

SECRET = "s3cret-7731"
LINES = (Path(__file__).parent / "paths.txt").read_text().splitlines()
PATHS = [line for line in LINES if line and not line.startswith("#")]

pytestmark = pytest.mark.usefixtures("way")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text(SECRET)
    return folder


@pytest.fixture
def files(notes: Path, out: Path, outside: Path) -> Filesystem:
    return Filesystem(
        roots={
            "notes": {"root": str(notes), "mode": "rw"},
            "out": {"root": str(out), "mode": "rw", "hidden": True},
        }
    )


def everything(files: Filesystem, path: str) -> list[Callable[[], object]]:
    return [
        lambda: files.read_file(path),
        lambda: files.read_file(path, start=1, lines=5),
        lambda: files.read_bytes(path),
        lambda: files.find(SECRET[:4], path=path),
        lambda: files.find(SECRET[:4]),
        lambda: files.write_file(path, "owned"),
        lambda: files.edit_file(path, SECRET, "owned"),
        lambda: files.replace(SECRET, "owned", path=path),
        lambda: files.replace(SECRET, "owned"),
        lambda: files.list_files(path),
    ]


def outcome(attempt: Callable[[], object]) -> str:
    try:
        return str(attempt())
    except DelfError as error:
        return str(error)


def assert_outside_is_safe(files: Filesystem, path: str, outside: Path) -> None:
    """Try a path with every action; assert that no outside file is revealed, changed or created."""
    before = sorted(os.listdir(outside.parent))
    for attempt in everything(files, path):
        assert SECRET not in outcome(attempt)
    assert (outside / "secret.txt").read_text() == SECRET
    assert os.listdir(outside) == ["secret.txt"]
    assert sorted(os.listdir(outside.parent)) == before


@pytest.mark.parametrize("line", PATHS)
def test_path_cannot_leave_its_root(line: str, files: Filesystem, outside: Path) -> None:
    path = ast.literal_eval(f'"{line}"').replace("OUTSIDE", str(outside))
    assert_outside_is_safe(files, path, outside)


LINKS: dict[str, Callable[[Path, Path], str]] = {
    "a link to a file": lambda root, outside: link(root / "a", outside / "secret.txt"),
    "a relative link": lambda root, outside: link(root / "a", Path("../outside/secret.txt")),
    "a link to a folder": lambda root, outside: link(root / "a", outside, "a/secret.txt"),
    "a link to the folder above": lambda root, outside: link(
        root / "a", Path(".."), "a/outside/secret.txt"
    ),
    "a link to a link": lambda root, outside: (
        link(root / "b", outside),
        link(root / "a", root / "b", "a/secret.txt"),
    )[1],
    "a link in a folder": lambda root, outside: link(
        root / "deep" / "a", outside, "deep/a/secret.txt"
    ),
    "a link to the root of the system": lambda root, outside: link(
        root / "a", Path("/"), f"a{outside}/secret.txt"
    ),
    "a link through proc": lambda root, outside: link(
        root / "a", Path(f"/proc/self/root{outside}"), "a/secret.txt"
    ),
    "a link to an open descriptor": lambda root, outside: link(
        root / "a", Path("/proc/self/fd"), "a/0"
    ),
    "a link to where the program works": lambda root, outside: link(
        root / "a", Path("/proc/self/cwd"), "a/pyproject.toml"
    ),
    "a link to itself": lambda root, outside: link(root / "a", root / "a"),
    "a link that leads nowhere yet": lambda root, outside: link(root / "a", outside / "new.txt"),
    "a link with the name of a suffix": lambda root, outside: link(
        root / "a.md", outside / "secret.txt", "a.md"
    ),
    "a hidden link": lambda root, outside: link(root / ".a", outside, ".a/secret.txt"),
    "a hard link": lambda root, outside: hard(root / "a", outside / "secret.txt", "a"),
    "a hard link in a folder": lambda root, outside: hard(
        root / "deep" / "a", outside / "secret.txt", "deep/a"
    ),
}


def link(at: Path, to: Path, path: str = "a") -> str:
    at.parent.mkdir(exist_ok=True)
    at.symlink_to(to)
    return path


def hard(at: Path, to: Path, path: str) -> str:
    at.parent.mkdir(exist_ok=True)
    at.hardlink_to(to)
    return path


@pytest.mark.parametrize("root", ["notes", "out"])
@pytest.mark.parametrize("scene", LINKS)
def test_link_cannot_leave_its_root(
    scene: str, root: str, files: Filesystem, outside: Path, tmp_path: Path
) -> None:
    path = LINKS[scene](tmp_path / root, outside)
    assert_outside_is_safe(files, f"{root}/{path}", outside)


def test_write_does_not_follow_a_planted_temporary_link(
    files: Filesystem, out: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secrets.token_hex", Mock(return_value="guessed"))
    (out / ".delf-guessed").symlink_to(outside / "secret.txt")
    with pytest.raises(DelfError):
        files.write_file("out/a.txt", "owned")
    assert (outside / "secret.txt").read_text() == SECRET


@pytest.mark.parametrize("kind", ["fifo", "socket", "device", "folder"])
def test_special_file_is_not_opened(kind: str, files: Filesystem, out: Path, outside: Path) -> None:
    place = out / "x"
    with contextlib.ExitStack() as stack:
        if kind == "fifo":
            os.mkfifo(place)
        elif kind == "socket":
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            folder = os.open(out, os.O_RDONLY)
            stack.callback(os.close, folder)
            server.bind(f"/proc/self/fd/{folder}/x")
        elif kind == "device":
            try:
                os.mknod(place, 0o666 | 0o020000, os.makedev(1, 5))
            except PermissionError:
                pytest.skip("only root makes device files")
        else:
            place.mkdir()
        with pytest.raises(DelfError):
            files.read_file("out/x")
        with pytest.raises(DelfError):
            files.write_file("out/x", "owned")
        assert files.list_files("out") == []
        assert_outside_is_safe(files, "out/x", outside)


def test_search_stays_on_one_file_system(files: Filesystem, out: Path, outside: Path) -> None:
    mounted = out / "mounted"
    mounted.mkdir()
    command = ["mount", "-t", "tmpfs", "tmpfs", str(mounted)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        (mounted / "name").write_text(SECRET)
        assert_outside_is_safe(files, "out/mounted/name", outside)
        assert (mounted / "name").read_text() == SECRET
        assert files.list_files("out") == []
    finally:
        subprocess.run(["umount", str(mounted)], check=True)


@pytest.mark.parametrize("change", ["folder and link", "file and link"])
def test_file_replaced_during_a_read_cannot_leave_its_root(
    change: str, files: Filesystem, out: Path, outside: Path
) -> None:
    """Another process keeps replacing the file at the path while the path is used."""
    harmless = out / "harmless"
    harmless.mkdir()
    (harmless / "secret.txt").write_text("harmless")
    if change == "folder and link":
        path, honest, evil = out / "swap", harmless, outside
        asked = "out/swap/secret.txt"
    else:
        path, honest, evil = out / "swap", harmless / "secret.txt", outside / "secret.txt"
        asked = "out/swap"
    swapper = f"""
import os, sys
path, honest, evil = {str(path)!r}, {str(honest)!r}, {str(evil)!r}
parked = path + ".parked"
os.rename(honest, parked)
print("ready", flush=True)
while True:
    os.rename(parked, path); os.rename(path, parked)
    os.symlink(evil, path); os.unlink(path)
"""
    process = subprocess.Popen([sys.executable, "-c", swapper], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        for _ in range(250):
            for attempt in (
                lambda: files.read_file(asked),
                lambda: files.find(SECRET, path="out"),
                lambda: files.write_file(asked, "harmless"),
            ):
                with contextlib.suppress(DelfError):
                    assert SECRET not in str(attempt())
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    assert (outside / "secret.txt").read_text() == SECRET
    assert os.listdir(outside) == ["secret.txt"]


def test_concurrent_escape_attempts_fail(files: Filesystem, outside: Path) -> None:
    threads = [
        threading.Thread(target=assert_outside_is_safe, args=(files, p, outside))
        for p in PATHS[:12]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (outside / "secret.txt").read_text() == SECRET
