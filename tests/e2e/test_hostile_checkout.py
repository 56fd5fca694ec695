"""A stranger's checkout: nothing starts, nothing is sent, nothing is read, for every command."""

from __future__ import annotations

import json
import os
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import pytest

from docs_site.command_line import commands
from support.program import DELF, run
from support.workspace import ROOT

from .hostile import ARGUMENTS, EACH, TRICKS, Checkout, every_command

SECRET = "aws_secret_access_key=hunter2-of-the-person"
TOKEN = "victim-token-0123456789"
KEY = "sk-of-the-person-0123456789"
DRIVER = f"""
import sys
sys.path += [{str(ROOT / "tests")!r}, {str(ROOT / "scripts")!r}]
from e2e.hostile import main
main()
"""


@dataclass
class Recorder:
    """A server that takes down whatever reaches it."""

    address: str = ""
    port: int = 0
    received: list[bytes] = field(default_factory=list)


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    found = Recorder()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.settimeout(1)
            try:
                found.received.append(self.request.recv(65536))
            except OSError:
                found.received.append(b"a connection")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        found.port = server.server_address[1]
        found.address = f"http://127.0.0.1:{found.port}"
        yield found
        server.shutdown()


@dataclass
class Victim:
    """A person, in a checkout of a stranger's."""

    checkout: Checkout
    home: Path
    canary: Path
    recorder: Recorder
    environ: dict[str, str]

    def unharmed(self, trick: str) -> None:
        assert not self.canary.exists(), f"{trick}: something was started"
        assert self.checkout.secret.read_text() == SECRET, trick
        assert not (self.home / "victim").exists(), trick


def victim_of(trick: str, folder: Path, recorder: Recorder, *further: str) -> Victim:
    """Return somebody in a checkout with one or several tricks."""
    home, canary = folder / "home", folder / "canary"
    secret = home / ".aws" / "credentials"
    secret.parent.mkdir(parents=True)
    secret.write_text(SECRET)
    root = folder / "above" / "checkout"
    root.mkdir(parents=True)
    (root / "README").write_text("A stranger's.\n")
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DELF_", "XDG_", "OPENAI_")) and name != "PYTHONPATH"
    }
    environ = {
        **kept,
        "HOME": str(home),
        "OPENAI_API_KEY": KEY,
        "VICTIM_TOKEN": TOKEN,
        "DELF_X_TOKEN": TOKEN,
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    if trick == "a record of trust":
        environ["XDG_STATE_HOME"] = str(root / "state")
    checkout = Checkout(root, recorder.address, f"touch {canary}", secret)
    for name in (trick, *further):
        TRICKS[name](checkout)
    return Victim(checkout, home, canary, recorder, environ)


def test_hostile_folder_tries_every_command():
    assert set(ARGUMENTS) <= set(every_command())
    contexts = commands()
    for words, arguments in every_command().items():
        params = contexts[words].command.params
        required = [each for each in params if isinstance(each, click.Argument) and each.required]
        assert len(arguments) >= len(required), f"{words} needs arguments"


def test_hostile_folder_has_at_least_twenty_tricks():
    assert len(TRICKS) >= 20


PARTS = 2


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(PARTS))
def test_untrusted_folder_starts_nothing_and_sends_nothing(part, tmp_path, recorder):
    tricks = list(TRICKS)[part::PARTS]
    victims = {
        trick: victim_of(trick, tmp_path / str(number), recorder)
        for number, trick in enumerate(tricks)
    }
    asked = [
        {
            "folder": str(victim.checkout.root),
            "environ": victim.environ,
            "secret": str(victim.checkout.secret),
            "first": list(TRICKS).index(trick) % EACH,
        }
        for trick, victim in victims.items()
    ]
    done = subprocess.run(
        [sys.executable, "-P", "-c", DRIVER], cwd=tmp_path, input="\n".join(map(json.dumps, asked)),
        capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    records = [json.loads(line) for line in done.stdout.splitlines()]
    for trick, victim in victims.items():
        victim.unharmed(trick)
        own = [record for record in records if record["folder"] == str(victim.checkout.root)]
        assert len(own) > len(every_command()) / EACH, trick
        for record in own:
            check(trick, record)
    assert recorder.received == [], f"one of {tricks} sent something"


def check(trick: str, record: dict[str, Any]) -> None:
    where = f"{trick}, {record['line']}: {record['status']} {record['err'][:500]}"
    assert record["opened"] == [], where
    assert not str(record["status"]).startswith("TimeoutError"), where
    assert "Traceback" not in record["err"], where
    assert "unexpected" not in record["err"], where
    harmless(record["out"] + record["err"])
    if record["line"][:2] == ["delf", "run"]:
        assert record["status"] in (1, 2), where


def harmless(text: str) -> None:
    """Check that a command's output holds no secret and no control sequence."""
    for planted in (SECRET, "hunter2", TOKEN, KEY, "\x1b[2J", "\x07", "\x1b]0"):
        assert planted not in text


AS_TYPED = (
    ("--version",),
    ("--help",),
    ("plugins",),
    ("plugins", "install", "no-such-plugin-at-all"),
    ("run", "say hi", "--llm", "gpt-4o"),
    ("demo", "--approve", "none"),
)


@pytest.mark.slow
@pytest.mark.parametrize("line", AS_TYPED, ids=" ".join)
def test_program_imports_nothing_from_the_working_folder(line, tmp_path, recorder):
    more = ("modules in the folder", "a command")
    victim = victim_of("plugins in the folder", tmp_path, recorder, *more)
    (victim.checkout.root / ".git").mkdir()
    address = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}  # nobody listens: nothing leaves
    done = subprocess.run(
        [DELF, *line], cwd=victim.checkout.root, env=victim.environ | address,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    victim.unharmed(" ".join(line))
    harmless(done.stdout + done.stderr)
    assert recorder.received == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trick", "line"),
    [
        ("a command", ("inspect", "x")),
        ("a command by variables", ("inspect", "mcp")),
        ("a file of servers", ("inspect", "x")),
        ("tools beside a worker", ("workers", "check")),
        ("a worker with a command", ("workers", "run", "spy", "look", "--llm", "gpt-4o")),
        ("a server at an address", ("inspect", "x")),
        ("a specification at an address", ("inspect", "x")),
    ],
)
def test_hostile_folder_trick_works_once_the_folder_is_trusted(trick, line, tmp_path, recorder):
    """Else the tests above would show nothing."""
    victim = victim_of(trick, tmp_path, recorder)
    trusting = {**victim.environ, "DELF_TRUST": str(tmp_path), "DELF_X_TOKEN": ""}
    run([DELF, *line], cwd=victim.checkout.root, env=trusting)
    assert victim.canary.exists() or recorder.received


def test_environment_key_is_not_sent_from_a_trusted_folder(tmp_path, recorder):
    """The second lock: a file's address needs a key that the file names."""
    victim = victim_of("the address of the model", tmp_path, recorder)
    root = str(victim.checkout.root)
    done = subprocess.run(
        [DELF, "run", "say hi", "--trust", root], cwd=root, env=victim.environ,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert "a file of the project gives the address" in done.stderr
    assert "api_key_for" in done.stderr
    assert recorder.received == []
