"""Runs one server for as long as somebody holds the lock file, then stops it.

Started as a process of its own by :mod:`support.server`. The kernel releases a lock when its
holder ends, however it ends, so no server outlives the tests that used it.
"""

from __future__ import annotations

import fcntl
import json
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
from typing import Any

READY_SECONDS = 25.0


def main() -> int:
    """Start the server of the specification in ``argv``, report it, and wait for the end."""
    spec = json.loads(sys.argv[1])
    folder = pathlib.Path(spec["folder"])
    server: subprocess.Popen[bytes] | None = None
    try:
        log = (folder / "server.log").open("wb")
        for command in spec["setup"]:
            subprocess.run(command, check=True, stdout=log, stderr=log, **_user(spec))
        server = subprocess.Popen(spec["serve"], stdout=log, stderr=log, **_user(spec))
        _wait_until_ready(server, spec["socket"])
    except (OSError, subprocess.CalledProcessError, RuntimeError) as error:
        tail = (folder / "server.log").read_text(errors="replace")[-1500:]
        print(json.dumps({"failed": f"{error}\n{tail}"}), flush=True)
        return _end(spec, server, 1)
    print(json.dumps({"ready": True}), flush=True)
    sys.stdout.close()
    with open(spec["lock"], "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _end(spec, server, 0)


def _user(spec: dict[str, Any]) -> dict[str, Any]:
    if spec["user"] is None:
        return {}
    return {"user": spec["user"], "group": spec["user"], "extra_groups": [], "cwd": spec["folder"]}


def _wait_until_ready(server: subprocess.Popen[bytes], path: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"the server ended with {server.returncode}")
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(path)
            except OSError:
                time.sleep(0.02)
            else:
                return
    raise RuntimeError("the server was not ready in time")


def _end(spec: dict[str, Any], server: subprocess.Popen[bytes] | None, status: int) -> int:
    pathlib.Path(spec["state"]).unlink(missing_ok=True)
    if server is not None and server.poll() is None:
        server.send_signal(getattr(signal, spec["stop"]))
        try:
            server.wait(15)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
    shutil.rmtree(spec["folder"], ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
