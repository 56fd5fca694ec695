"""Run MCP's conformance suite against delf's client and `delf mcp serve`, and print the sum.

    make conformance                    both
    make conformance ARGS=client        one of them
    make conformance ARGS=--write       and write the sum into docs/mcp.md

Node and the suite are installed from npm into .cache. Each side is one run of all scenarios that
the revision names. What a project of delf does not offer is told with its reason; anything else
that fails makes the exit status 1.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests" / "plugins" / "mcp"
PAGE = ROOT / "docs" / "mcp.md"
BEGIN, END = "<!-- conformance -->\n", "<!-- end of conformance -->"

SUITE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
NODE = "node@22"
REVISION = "2025-11-25"
TIMEOUT_MS = 200_000
START_SECONDS = 60.0

NOT_OFFERED = {
    "auth/dpop": "tokens that are bound to a key (DPoP)",
    "auth/wif-jwt-bearer": "logging in by a token of a platform",
    "auth/enterprise-managed-authorization": "logging in by a company's identity provider",
    "logging-set-level": "logging, which is deprecated as of 2026",
    "tools-call-with-logging": "logging, which is deprecated as of 2026",
    "completion-complete": "completion",
    "tools-call-sampling": "sampling: a project has a model of its own",
    "elicitation-sep1034-defaults": "forms with choices: what delf asks is an approval",
    "elicitation-sep1330-enums": "forms with choices: what delf asks is an approval",
    "prompts": "prompts",
    "resources": "resources but for the files of tasks",
    "server-sse-polling": "polling over SSE",
    "json-schema-2020-12": "a schema of the suite's own",
}


@dataclass(frozen=True)
class Scenario:
    """The result of a scenario."""

    name: str
    passed: int
    wrong: tuple[str, ...]

    @property
    def missing(self) -> str | None:
        """The feature that it tests and delf does not offer."""
        family = self.name.split("-")[0]
        return NOT_OFFERED.get(self.name) or NOT_OFFERED.get(family)


def installed() -> Path:
    """Return the folder of the suite's programs, including Node."""
    folder = ROOT / ".cache" / "mcp-conformance"
    programs = folder / "node_modules" / ".bin"
    if not (programs / "conformance").exists() or not (programs / "node").exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "install", "--prefix", folder, NODE, SUITE], check=True)
    return programs


def run_suite(programs: Path, side: str, *options: str) -> list[Scenario]:
    """Run all scenarios of a side."""
    environ = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory() as out:
        subprocess.run(
            [programs / "conformance", side, "--requirements", REVISION, "-o", out,
             "--timeout", str(TIMEOUT_MS), *options],
            env=environ, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        found = [scenario_of(side, path, Path(out)) for path in Path(out).rglob("checks.json")]
    return sorted(found, key=lambda scenario: scenario.name)


def scenario_of(side: str, path: Path, out: Path) -> Scenario:
    """Read a scenario's result; the folder's name ends with the time."""
    name = re.sub(r"-\d{4}-\d\d-\d\dT.*$", "", str(path.parent.relative_to(out)))
    name = name.removeprefix("server-") if side == "server" else name
    checks: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))
    kinds = Counter(check["status"] for check in checks)
    wrong = tuple(
        f"{check['id']}: {check.get('errorMessage') or check['description']}"
        for check in checks
        if check["status"] not in ("SUCCESS", "INFO", "SKIPPED")
    )
    return Scenario(name, kinds["SUCCESS"], wrong)


def required(programs: Path) -> dict[str, Any]:
    """Return the names of the scenarios that the revision requires, by side."""
    import yaml

    folder = programs.parent / "@modelcontextprotocol" / "conformance" / "requirements"
    return cast("dict[str, Any]", yaml.safe_load((folder / f"{REVISION}.yaml").read_text("utf-8")))


@contextmanager
def served() -> Generator[str]:
    """Serve the suite's tools with `delf mcp serve`; yield the address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = [sys.executable, TESTS / "conformance_server.py", str(port)]
    with subprocess.Popen(program) as server:
        try:
            end = time.monotonic() + START_SECONDS
            while not _listens(port):
                if server.poll() is not None or time.monotonic() > end:
                    raise SystemExit("the server does not start")
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            server.terminate()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def summary(side: str, found: list[Scenario], wanted: list[str]) -> tuple[list[str], bool]:
    """Return the summary lines of a side, and True if all applicable scenarios passed."""
    without = [s for s in found if s.wrong and s.missing]
    applying = [s for s in found if s not in without]
    passed = {s.name for s in applying if not s.wrong}
    needed = [name for name in wanted if name not in {s.name for s in without}]
    others = [s.name for s in applying if s.name not in wanted]
    checks = sum(s.passed for s in applying)
    of = checks + sum(len(s.wrong) for s in applying)
    first = (
        f"{side}: {len(passed.intersection(needed))} of {len(needed)} required scenarios"
        f"{' that apply' if without else ''}, {len(passed.intersection(others))} of "
        f"{len(others)} that are not scored; {checks} of {of} checks"
    )
    lines = [first]
    lines += [f"  fails: {s.name}: {text}" for s in applying for text in s.wrong]
    lines += [f"  never ran: {name}" for name in wanted if name not in {s.name for s in found}]
    for why in dict.fromkeys(s.missing for s in without):
        names = ", ".join(s.name for s in without if s.missing == why)
        lines.append(f"  does not apply: {why}: {names}")
    return lines, passed.issuperset(needed) and passed.issuperset(others)


def write(lines: list[str]) -> None:
    """Write the summary into the docs page."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    message = "".join(f"{line}\n" for line in lines)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}```text\n{message}```\n{END}{after}", "utf-8")


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("side", nargs="?", choices=("client", "server"))
    parser.add_argument("--write", action="store_true", help="write the sum into docs/mcp.md")
    options = parser.parse_args()
    programs = installed()
    required_names = required(programs)
    lines: list[str] = []
    has_passed = True
    if options.side != "server":
        command = shlex.join([sys.executable, str(TESTS / "conformance_client.py")])
        found = run_suite(programs, "client", "--command", command)
        text, passed = summary("client", found, required_names["client"])
        lines, has_passed = lines + text, has_passed and passed
    if options.side != "client":
        with served() as url:
            found = run_suite(programs, "server", "--url", url)
        text, passed = summary("server", found, required_names["server"])
        lines, has_passed = lines + text, has_passed and passed
    print("\n".join(lines))
    if options.write:
        write(lines)
    sys.exit(not has_passed)


if __name__ == "__main__":
    main()
