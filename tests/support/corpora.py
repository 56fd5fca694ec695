"""Runs the corpora of ../shared in any sandbox: honest scripts, and attempts to escape.

python corpora.py CORPUS FOLDER PART OF     the attempts, in sandbox-local; prints how many, and what escaped
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from delf.protocols.sandbox import (
    Crashed,
    Done,
    Limits,
    Outcome,
    Raised,
    Rerun,
    SandboxBackend,
    SandboxSession,
    SessionSpec,
    ToolNames,
)
from support.scripting import NotingHost
from support.workspace import ROOT

CORPUS = ROOT.parent / "shared" / "data" / "sandbox"
if __name__ == "__main__":
    CORPUS = Path(sys.argv[1])
TOOLS = (
    ToolNames(name="sql", methods=("query",)),
    ToolNames(name="gmail", methods=("read", "send")),
    ToolNames(name="add"),
)
SECRETS = (
    "DELF-SECRET-FILE-7f3a9c1e",
    "DELF-SECRET-ENV-51be02d4",
    "DELF-SECRET-HOST-c44d1e0b",
)
HOST_SECRET = SECRETS[2]
FOR_ALL_USERS_ALIKE = ("exhaust_cpu", "exhaust_memory", "exhaust_output")
"""Access that limits of its own deny to a process, for every user."""
_WRITES = {"153_file_append_lines.py": ("todo.txt",)}
_RESOURCES = re.compile("exhaust|hang|kill|crash")
_LISTENED = "DELF-LISTENER"
_SECONDS = 0.3
"""Of a processor, for an attempt on resources."""


def entries(kind: str) -> list[dict[str, Any]]:
    """The entries of ``benign`` or ``escape`` whose files are here; none without ../shared."""
    index = CORPUS / kind / "index.json"
    if not index.exists():
        return []
    content = json.loads(index.read_text("utf-8"))
    found = content["scripts" if kind == "benign" else "payloads"]
    return [entry for entry in found if (CORPUS / kind / entry["file"]).exists()]


def need_corpora() -> None:
    """Skip a module of tests where the corpora are not."""
    import pytest

    if not CORPUS.is_dir():
        pytest.skip("needs ../shared", allow_module_level=True)


def _stub() -> Any:
    spec = importlib.util.spec_from_file_location("stub_tools", CORPUS / "stub_tools.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _tools(env: Any, failure: type[Exception]) -> dict[str, Any]:
    def answering(tool: Any) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return await tool(*args, **kwargs)
            except (failure, TypeError) as error:
                return Raised("ToolError", str(error))

        return call

    return {
        f"{tool.name}.{method}".rstrip("."): answering(
            getattr(env.namespace[tool.name], method or "__call__")
        )
        for tool in TOOLS
        for method in tool.methods or ("",)
    }


async def _fill(session: Any, host: NotingHost) -> None:
    """Write the corpus's files to the script's own folder, through a script."""
    for path in (CORPUS / "workspace").iterdir():
        code = f"with open({path.name!r}, 'wb') as f: f.write({path.read_bytes()!r})\nf = None"
        outcome = await session.execute(code, host)
        assert isinstance(outcome, Done), outcome


# -- honest scripts -------------------------------------------------------------------------


async def run_honest(backend: SandboxBackend, scripts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Run honest scripts one after another; what was other than outside, by their files.

    They share a session where they can, which costs less. One whose end is another after all that
    the others left there is judged by its end in a session of its own.
    """
    found: dict[str, Any] = {}
    session: SandboxSession | None = None
    try:
        for entry in scripts:
            is_first = session is None or not session.alive
            session = session if session is not None and session.alive else await _open(backend)
            problems = await _run_honest(session, entry)
            if problems and not is_first:
                await session.aclose()
                session = await _open(backend)
                problems = await _run_honest(session, entry)
            if problems:
                found[entry["file"]] = problems
    finally:
        if session is not None:
            await session.aclose()
    return found


async def _open(backend: SandboxBackend) -> SandboxSession:
    session = await backend.open(SessionSpec(tools=TOOLS))
    await _fill(session, NotingHost())
    return session


async def _run_honest(session: SandboxSession, entry: dict[str, Any]) -> list[str]:
    stub = _stub()
    env = stub.make_tools()
    host = NotingHost(_tools(env, stub.ToolError))
    try:
        code = (CORPUS / "benign" / entry["file"]).read_text("utf-8")
        outcome = await session.execute(code, host)
    finally:
        env._db.close()  # noqa: SLF001 - the corpus's own stub has no other way
    if not isinstance(outcome, Done | Rerun):
        return [str(getattr(outcome, "message", outcome))]
    reruns = [(outcome.context, outcome.remaining)] if isinstance(outcome, Rerun) else []
    scratch = _WRITES.get(entry["file"], ())  # its own files are handed over, too
    files = {name: data.decode() for name, data in host.files.items() if name not in scratch}
    found = {
        "stdout": (host.text, entry["expected_stdout"]),
        "files": (files, entry["expected_files"]),
        "calls": (env.calls, entry["tool_calls"]),
        "sent": (env.sent, entry["expected_sent"]),
        "reruns": (reruns, [(r["context"], r["remaining"]) for r in entry["expected_reruns"]]),
    }
    return [f"{what}: {a!r} is not {b!r}" for what, (a, b) in found.items() if a != b]


# -- attempts to escape ---------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """Targets of attempts: a folder with a secret and a socket, and the host's own memory.

    Args:
        folder: The folder.
        received: The bytes that the sockets received.
    """

    folder: Path
    received: list[Any]


class Targets:
    """A context with a :class:`Target`: listeners run, secrets are in place.

    Args:
        folder: A fresh folder.
        setenv: Sets a variable of the environment.
    """

    def __init__(self, folder: Path, setenv: Callable[[str, str], object]) -> None:
        self._folder = folder
        self._servers: list[asyncio.AbstractServer] = []
        self.received: list[Any] = []
        (folder / "secret.txt").write_text(SECRETS[0], "utf-8")
        setenv("DELF_SECRET", SECRETS[1])

    async def __aenter__(self) -> Target:
        self._servers = [
            await asyncio.start_unix_server(self._came, str(self._folder / "l.sock")),
        ]
        return Target(self._folder, self.received)

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
            await server.wait_closed()

    async def _came(self, _reader: Any, writer: asyncio.StreamWriter) -> None:
        self.received.append("unix")
        writer.write(_LISTENED.encode())
        writer.close()


async def run_escapes(
    backend: SandboxBackend, attempts: Sequence[dict[str, Any]], target: Target
) -> dict[str, str]:
    """Run attempts under limits, one after another, each for resources in a session of its own.

    Those come last, ordered by their limits: the others share a session as long as it lives, and
    what a backend starts ahead fits the next one.

    Returns:
        How those succeeded that did, by their files.
    """
    found: dict[str, str] = {}
    session: SandboxSession | None = None
    try:
        for entry in sorted(attempts, key=_is_alone):
            alone = _is_alone(entry)
            if session is None or alone or not session.alive:
                if session is not None:
                    await session.aclose()
                session = await backend.open(_escape_spec(_SECONDS if alone else 5))
            problem = await _run_escape(session, entry, target)
            if problem:
                found[entry["file"]] = problem
            if alone:
                await session.aclose()
    finally:
        if session is not None:
            await session.aclose()
    return found


def _is_alone(entry: dict[str, Any]) -> bool:
    return bool(_RESOURCES.search(entry["goal"]))


def _escape_spec(seconds: float) -> SessionSpec:
    limits = Limits(cpu_seconds=seconds, memory_bytes=256 * 2**20, output_bytes=2**20, calls=1000)
    return SessionSpec(tools=TOOLS, limits=limits)


async def _run_escape(session: SandboxSession, entry: dict[str, Any], target: Target) -> str | None:
    stub = _stub()
    stub.HOST_SECRET = HOST_SECRET
    env = stub.make_tools()
    env.host_token = HOST_SECRET
    host = NotingHost(_tools(env, stub.ToolError))
    source = (CORPUS / "escape" / entry["file"]).read_text("utf-8")
    source = source.replace("@CORPUS@/listener.sock", str(target.folder / "l.sock"))
    source = source.replace("@CORPUS@", str(target.folder))
    outcome: Outcome
    try:
        async with asyncio.timeout(2):
            outcome = await session.execute(source, host)
            if session.alive:
                await session.execute("print('[second script]', 6 * 7)", host)
    except TimeoutError:
        await session.aclose()
        outcome = Crashed(message="it went on until it was stopped")
    finally:
        env._db.close()  # noqa: SLF001 - the corpus's own stub has no other way
    return _judge(entry, host, env, outcome, target)


def _judge(
    entry: dict[str, Any], host: NotingHost, env: Any, outcome: Outcome, target: Target
) -> str | None:
    words = f"{host.text}\n{outcome}"
    sent = f"{words}{env.sent}{env.calls}{host.files}"
    left = [path.name for path in target.folder.glob(f"pwned_{entry['id']}*")]
    if left:
        return f"left {left}"
    if target.received:
        return f"reached a socket of the host: {target.received}"
    leaked = [secret for secret in SECRETS if secret in sent]
    if leaked:
        return f"passed on {leaked}"
    if len(host.text) > 25 * 2**20:
        return f"printed {len(host.text)} characters"
    if entry.get("soft"):
        return None
    found = re.search(r"(?m)^ESCAPED [^\n]{0,200}", host.text)
    return found.group() if found else None


async def _main(folder: Path, part: int, of: int) -> list[Any]:
    from delf_sandbox_local.backend import LocalBackend

    backend = LocalBackend(pool_size=1)
    async with Targets(folder, os.environ.__setitem__) as target:
        attempts = [e for e in entries("escape") if e["goal"] not in FOR_ALL_USERS_ALIKE][part::of]
        escaped = await run_escapes(backend, attempts, target)
        await backend.aclose()
    return [len(attempts), escaped]


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_main(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))))
