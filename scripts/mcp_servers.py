"""Start ten servers of npm and PyPI through the connection `mcp`, use each, and make the table.

    .venv/bin/python scripts/mcp_servers.py            print it
    .venv/bin/python scripts/mcp_servers.py --write    and write it into docs/mcp.md

Each is started, listed and called, ended, started again and called again, by the plugin alone. They
are installed into .cache by npm and uv; what they work on is a folder of the moment, and a page on
loopback.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from delf.errors import DelfError
from delf_mcp import MCP

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache" / "mcp-servers"
PAGE = ROOT / "docs" / "mcp.md"
BEGIN, END = "<!-- servers -->\n", "<!-- end of servers -->"
START_SECONDS = 300.0
HEAD = (
    "| server | from | actions | its own hints: read, write, irreversible | call |",
    "|---|---|---|---|---|",
)
EFFECTS = ("read", "write", "irreversible")


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server, a call of it, and what the answer has to hold.

    ``{folder}`` and ``{page}`` stand for what it works on.
    """

    package: str
    tool: str
    holds: str
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    args: Sequence[str] = ()
    needs: Sequence[str] = ()
    npm: bool = False
    program: str | None = None


SERVERS = [
    Server(
        package="mcp-server-time",
        tool="convert_time",
        arguments={"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
        holds="21:00",
    ),
    Server(
        package="mcp-server-git",
        args=["--repository", "{folder}"],
        tool="git_log",
        arguments={"repo_path": "{folder}"},
        holds="the first of all",
    ),
    Server(
        package="mcp-server-fetch",
        args=["--ignore-robots-txt", "--allow-private-ips"],
        tool="fetch",
        arguments={"url": "{page}"},
        holds="lamps of the shop",
    ),
    Server(
        package="mcp-server-sqlite",
        needs=["mcp<2"],
        args=["--db-path", "{folder}/shop.db"],
        tool="read_query",
        arguments={"query": "SELECT 6 * 7 AS answer"},
        holds="42",
    ),
    Server(
        package="mcp-server-calculator",
        tool="calculate",
        arguments={"expression": "6 * 7"},
        holds="42",
    ),
    Server(
        npm=True,
        package="@modelcontextprotocol/server-filesystem",
        program="mcp-server-filesystem",
        args=["{folder}"],
        tool="read_text_file",
        arguments={"path": "{folder}/note.txt"},
        holds="a note",
    ),
    Server(
        npm=True,
        package="@modelcontextprotocol/server-everything",
        program="mcp-server-everything",
        tool="echo",
        arguments={"message": "are you there?"},
        holds="are you there?",
    ),
    Server(
        npm=True,
        package="@modelcontextprotocol/server-memory",
        program="mcp-server-memory",
        tool="read_graph",
        holds="entities",
    ),
    Server(
        npm=True,
        package="@modelcontextprotocol/server-sequential-thinking",
        program="mcp-server-sequential-thinking",
        tool="sequentialthinking",
        arguments={
            "thought": "One.",
            "nextThoughtNeeded": False,
            "thoughtNumber": 1,
            "totalThoughts": 1,
        },
        holds="thoughtNumber",
    ),
    Server(
        npm=True,
        package="mcp-server-sqlite-npx",
        args=["{folder}/shop.db"],
        tool="list_tables",
        holds="[",
    ),
]


def install() -> None:
    """Install the npm servers; uv creates an environment when it starts a PyPI server."""
    CACHE.mkdir(parents=True, exist_ok=True)
    packages = [server.package for server in SERVERS if server.npm]
    if not all((CACHE / "node_modules" / package).exists() for package in packages):
        subprocess.run(["npm", "install", "--prefix", CACHE, *packages], check=True)


def connection(server: Server, places: Mapping[str, str]) -> MCP:
    """Make the connection to a server."""
    args = [put(arg, places) for arg in server.args]
    if server.npm:
        name = server.program or server.package
        command = str(CACHE / "node_modules" / ".bin" / name)
    else:
        command = str(Path(sys.executable).with_name("uv"))
        given = [option for need in server.needs for option in ("--with", need)]
        args = ["tool", "run", "--quiet", *given, server.package, *args]
    passed = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    passed |= {key: value for key, value in os.environ.items() if key.startswith(("UV_", "SSL_"))}
    passed["MEMORY_FILE_PATH"] = places["folder"] + "/memory.jsonl"
    return MCP(name="server", command=command, args=args, env=passed, start_timeout=START_SECONDS)


def put(value: Any, places: Mapping[str, str]) -> Any:
    """Replace the names of places in a text by their values."""
    return value.format(**places) if isinstance(value, str) else value


async def use(server: Server, places: Mapping[str, str]) -> str:
    """A row of the table: the server was started and used twice.

    Raises:
        DelfError: When it was not.
    """
    made = connection(server, places)
    arguments = {key: put(value, places) for key, value in server.arguments.items()}
    counts: Counter[str] = Counter()
    for _ in range(2):
        try:
            actions = {action.name: action for action in await made.actions()}
            action = actions[server.tool]
            answer = str(await action.call(**action.validate(arguments)))
            if server.holds not in answer:
                raise DelfError(f"{server.package} answered {answer[:300]!r}")
            own = len(actions) - len(made.claimed_effects)  # what reads resources
            counts = Counter({"read": own}) + Counter(made.claimed_effects.values())
        finally:
            await made.aclose()
    effects = ", ".join(str(counts[effect]) for effect in EFFECTS)
    start = "npm" if server.npm else " ".join(["PyPI", *(f"(`{need}`)" for need in server.needs)])
    return f"| `{server.package}` | {start} | {counts.total()} | {effects} | `{server.tool}` |"


@contextmanager
def page() -> Generator[str]:
    """Serve a page on loopback; yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"<html><body><article><p>The lamps of the shop.</p></article></body></html>"
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/lamps"
        server.shutdown()
        thread.join()


def prepare(folder: Path) -> None:
    """Create a note, and a repository with one change."""
    (folder / "note.txt").write_text("a note")
    who = ["-c", "user.name=Anna", "-c", "user.email=anna@example.com"]
    for command in (
        ["init", "-q"],
        ["add", "note.txt"],
        [*who, "commit", "-qm", "the first of all"],
    ):
        subprocess.run(["git", "-C", folder, *command], check=True)


async def main() -> int:
    """Use all servers; return the number of failures."""
    install()
    rows: list[str] = []
    failed = 0
    with tempfile.TemporaryDirectory() as folder, page() as address:
        prepare(Path(folder))
        for server in SERVERS:
            try:
                rows.append(await use(server, {"folder": folder, "page": address}))
            except DelfError as error:
                failed += 1
                rows.append(f"| `{server.package}` | | | | fails: {error.message[:200]} |")
            print(rows[-1], flush=True)
    if "--write" in sys.argv:
        before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        table = "".join(f"{row}\n" for row in (*HEAD, *rows))
        PAGE.write_text(f"{before}{BEGIN}{table}{END}{after}", "utf-8")
    return failed


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
