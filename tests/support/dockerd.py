"""A real Docker engine for tests, and a base image made of this machine's own Python."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from support.server import Recipe, find_program, new_folder, session_folder, shared_server

BASE_IMAGE = "delf-test-python:latest"
WHEELS = "/opt/wheels"
_LEFT_OUT = re.compile(
    r"(^|/)(test|tests|idlelib|tkinter|turtledemo|lib2to3|ensurepip|site-packages|dist-packages"
    r"|config-[^/]+|pydoc_data|distutils|unittest|_test[^/]*|[^/]+\.opt-[12]\.pyc)(/|$)"
)
_LIBRARY = re.compile(r"(?:=> )?(/\S+) \(0x")
_WHEEL = "delf_test_lib-1.0-py3-none-any.whl"


@dataclass(frozen=True)
class DockerEngine:
    """The address of the engine, and an image with Python."""

    url: str
    folder: str
    base_image: str = BASE_IMAGE

    @property
    def pid(self) -> int:
        """The engine's process."""
        return int(pathlib.Path(self.folder, "docker.pid").read_text())

    def client(self):
        """A client of the SDK; the caller closes it."""
        import docker

        return docker.APIClient(base_url=self.url, version="auto")


def engine_recipe(dockerd: str) -> Recipe:
    """The command for an engine in a folder of its own."""
    folder = new_folder("delf-engine-", None)
    driver = "overlay2" if _can_overlay(folder) else "vfs"
    serve = [dockerd, f"--storage-driver={driver}", "--iptables=false", "--ip6tables=false"]
    serve += ["--bridge=none", f"--data-root={folder}/data", f"--exec-root={folder}/exec"]
    serve += [f"--host=unix://{folder}/docker.sock", f"--pidfile={folder}/docker.pid"]
    return Recipe(
        folder=folder,
        setup=[],
        serve=[*serve, "--log-level=warn"],
        socket=f"{folder}/docker.sock",
        user=None,
        stop="SIGTERM",
        facts={"url": f"unix://{folder}/docker.sock", "folder": folder},
    )


def _can_overlay(folder: str) -> bool:
    """True if overlay file systems work here; in some containers they do not."""
    probe = pathlib.Path(folder, "probe")
    places = {name: probe / name for name in ("lower", "upper", "work", "merged")}
    for place in places.values():
        place.mkdir(parents=True)
    options = "lowerdir={lower},upperdir={upper},workdir={work}".format_map(places)
    mount = ["mount", "-t", "overlay", "overlay", "-o", options, str(places["merged"])]
    mounted = subprocess.run(mount, check=False, capture_output=True).returncode == 0
    if mounted:
        subprocess.run(["umount", str(places["merged"])], check=True, capture_output=True)
    shutil.rmtree(probe)
    return mounted


@contextlib.contextmanager
def docker_session(factory: pytest.TempPathFactory) -> Iterator[DockerEngine]:
    """The session's engine with the base image; skips where none can run."""
    dockerd = find_program("dockerd")
    for helper in ("containerd", "runc"):
        find_program(helper)
    if os.getuid() != 0:
        pytest.skip("dockerd needs root")
    with contextlib.ExitStack() as opened:
        server = shared_server("docker", factory, lambda: engine_recipe(dockerd))
        try:
            facts = opened.enter_context(server)
        except pytest.fail.Exception as error:
            pytest.skip(f"dockerd cannot run here: {error}")
        engine = DockerEngine(**facts)
        with (session_folder(factory) / "docker.image").open("ab") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            import_base(engine)
            _build_sandbox(engine)
        yield engine


def _build_sandbox(engine: DockerEngine) -> None:
    """Build the sandbox's image once, for all workers."""
    from delf_sandbox_docker.engine import Engine
    from delf_sandbox_docker.image import Recipe, build, is_built

    opened, recipe = Engine(engine.url), Recipe(base=engine.base_image)
    if not is_built(opened, recipe):
        build(opened, recipe)
    opened.close()


def import_base(engine: DockerEngine) -> None:
    """Give the engine the base image, unless it has it."""
    import docker

    client = engine.client()
    try:
        client.inspect_image(BASE_IMAGE)
    except docker.errors.ImageNotFound:
        _import(client)
    finally:
        client.close()


def _import(client) -> None:
    name, tag = BASE_IMAGE.split(":")
    changes = [
        f"ENV PIP_NO_INDEX=1 PIP_FIND_LINKS={WHEELS} PYTHONPATH=/opt/pip",
        "ENV PATH=/usr/local/bin:/usr/bin:/bin",
    ]
    client.import_image_from_data(python_tree(), repository=name, tag=tag, changes=changes)


def python_tree() -> bytes:
    """A file system with this machine's Python, pip, a wheel, and nothing else."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        tree = _Tree(archive)
        binary = pathlib.Path(os.path.realpath(sys.executable))
        stdlib = pathlib.Path(sysconfig.get_paths()["stdlib"])
        tree.add_file(binary)
        tree.link("/usr/local/bin/python3", str(binary))
        for path in sorted(stdlib.rglob("*")):
            if path.is_file() and not _LEFT_OUT.search(str(path.relative_to(stdlib))):
                tree.add_file(path)
        modules = [path for path in stdlib.rglob("*.so") if path in tree.files]
        for path in _libraries([binary, *modules]):
            tree.add_file(pathlib.Path(path))
        tree.folder("/tmp", 0o1777)
        tree.folder("/proc")
        tree.text("/etc/passwd", "root:x:0:0::/:\nnobody:x:65534:65534::/:\n")
        _add_pip(tree)
        tree.data(f"{WHEELS}/{_WHEEL}", _wheel())
    return out.getvalue()


class _Tree:
    """Writes files below their absolute paths, with folders that everybody may enter."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive
        self._folders: set[str] = {"/"}
        self.files: set[pathlib.Path] = set()

    def folder(self, path: str, mode: int = 0o755) -> None:
        if path in self._folders:
            return
        self.folder(os.path.dirname(path))
        self._folders.add(path)
        info = tarfile.TarInfo(path.lstrip("/"))
        info.type, info.mode = tarfile.DIRTYPE, mode
        self._archive.addfile(info)

    def add_file(self, path: pathlib.Path) -> None:
        """A file of this machine at the same place; a link becomes what it points at."""
        if path in self.files:
            return
        self.files.add(path)
        self.copy(path, str(path), 0o755 if os.access(path, os.X_OK) else 0o644)

    def copy(self, source: pathlib.Path, path: str, mode: int = 0o644) -> None:
        """With its time, by which Python tells whether a module's byte code is of its source."""
        self.data(path, _stripped(source), mode, int(source.stat().st_mtime))

    def data(self, path: str, data: bytes, mode: int = 0o644, mtime: int = 0) -> None:
        self.folder(os.path.dirname(path))
        info = tarfile.TarInfo(path.lstrip("/"))
        info.size, info.mode, info.mtime = len(data), mode, mtime
        self._archive.addfile(info, io.BytesIO(data))

    def text(self, path: str, text: str) -> None:
        self.data(path, text.encode())

    def link(self, path: str, target: str) -> None:
        if path == target:
            return
        self.folder(os.path.dirname(path))
        info = tarfile.TarInfo(path.lstrip("/"))
        info.type, info.linkname = tarfile.SYMTYPE, target
        self._archive.addfile(info)


def _stripped(path: pathlib.Path) -> bytes:
    """A file's content; a large library without its debugging symbols."""
    strip = shutil.which("strip")
    if strip is None or ".so" not in path.name or path.stat().st_size < 2**20:
        return path.read_bytes()
    with tempfile.NamedTemporaryFile() as small:
        done = subprocess.run([strip, "-o", small.name, str(path)], check=False)
        return pathlib.Path(small.name if done.returncode == 0 else path).read_bytes()


def _libraries(files: list[pathlib.Path]) -> list[str]:
    """The shared libraries that programs load, with the loader."""
    message = subprocess.run(
        ["ldd", *map(str, files)], check=False, capture_output=True, text=True
    ).stdout
    return sorted(set(_LIBRARY.findall(message)))


def _add_pip(tree: _Tree) -> None:
    """The pip of this environment, which `make dev` made with one."""
    folder = pathlib.Path(sysconfig.get_paths()["purelib"])
    for path in sorted((folder / "pip").rglob("*")):
        if path.is_file():
            tree.copy(path, f"/opt/pip/{path.relative_to(folder)}")


def _wheel() -> bytes:
    """A library of one module, `delf_test_lib`, as pip takes it."""
    import zipfile

    out = io.BytesIO()
    info = "delf_test_lib-1.0.dist-info"
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("delf_test_lib.py", "def answer():\n    return 42\n")
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: delf-test-lib\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return out.getvalue()
