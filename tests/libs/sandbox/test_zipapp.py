import io
import json
import os
import subprocess
import sys
import zipfile

import pytest

from delf.protocols.sandbox import SessionSpec
from delf.values.encoding import loads
from delf_sandbox import zipapp
from delf_sandbox.guest.frames import FrameReader
from delf_sandbox.wire import exec_frame, init_frame


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    path = tmp_path_factory.mktemp("guest") / "guest.pyz"
    path.write_bytes(zipapp.guest_zipapp())
    return path


def test_zipapp_is_reproducible():
    code = "from delf_sandbox.zipapp import *; import hashlib; print(hashlib.sha256(guest_zipapp()).hexdigest(), guest_digest())"
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1


def test_zipapp_contains_only_the_guest():
    names = zipfile.ZipFile(io.BytesIO(zipapp.guest_zipapp())).namelist()
    plain = {name for name in names if name.endswith(".py")}
    parents = {f"{name}/__init__.py" for name in ("delf", "delf/machine", "delf/values")}
    modules = {
        f"delf/{n}.py" for n in ("values/conversion", "machine/filenames", "values/encoding")
    }
    outside = {name for name in plain if not name.startswith("delf_sandbox/guest/")}
    assert outside == parents | modules | {"__main__.py", "delf_sandbox/__init__.py"}
    assert set(names) == plain | {f"{name}c" for name in plain}
    assert len(zipapp.guest_zipapp()) < 1_000_000


def test_sandbox_process_imports_only_the_standard_library(archive):
    code = (
        "import sys, json; sys.path.insert(0, sys.argv[1]); import delf_sandbox.guest.session, "
        "delf_sandbox.guest.__main__; print(json.dumps({n: getattr(m, '__file__', None) for n, m in "
        "sys.modules.items()}))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-W", "error", "-c", code, str(archive)],
        capture_output=True, text=True, check=True, env={}, cwd="/",
    )  # fmt: skip
    for name, file in json.loads(done.stdout).items():
        root = name.partition(".")[0]
        assert root in sys.stdlib_module_names or root == "__main__" or str(archive) in file, name


@pytest.mark.parametrize("style", ["standard streams", "descriptors"])
def test_guest_serves_over_pipes_and_descriptors(archive, style):
    spec = SessionSpec(tools=(), modules=("math",))
    sent = encode_all(spec)
    command = [sys.executable, "-I", "-S", str(archive)]
    if style == "descriptors":
        read, our_write = os.pipe()
        our_read, write = os.pipe()
        command += [str(read), str(write)]
        process = subprocess.Popen(command, pass_fds=(read, write), env={}, cwd="/")
        os.close(read)
        os.close(write)
        with os.fdopen(our_write, "wb") as out:
            out.write(sent)
            out.flush()
            with os.fdopen(our_read, "rb") as back:
                frames = read_until_done(back)
        assert process.wait(50) == 0
    else:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={}, cwd="/"
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(sent)
        process.stdin.flush()
        frames = read_until_done(process.stdout)
        process.stdin.close()
        assert process.wait(50) == 0
        assert process.stdout.read() == b""
        process.stdout.close()
    ready, *printed, done = frames  # on a slow machine, a line is sent in two parts
    assert (ready, done) == (["ready"], ["done", 4, {}])
    assert {kind for kind, _ in printed} == {"print"}
    assert "".join(text for _, text in printed) == "3\n"


def encode_all(spec):
    return init_frame(spec, "/nowhere", [], {}) + exec_frame(
        1, "import math\nprint(math.floor(3.5))\n2 + 2", 10_000
    )


def read_until_done(stream):
    reader, frames = FrameReader(10_000), []
    while not frames or frames[-1][0] != "done":
        data = os.read(stream.fileno(), 10_000)
        assert data, frames
        frames += [loads(payload) for payload in reader.feed(data)]
    return frames
