"""The audit file: what is in it, and what of it cannot be changed unnoticed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from delf import Agent, tool
from delf.errors import ConfigurationError
from delf.events import ASKED_FROM, CallStarted, TaskQueued, TaskStarted
from delf.testing import DelfProject, ObserverContract, ScriptedModel, TestHost
from delf_audit.observer import AuditObserver, trail_at
from delf_audit.trail import AuditTrail, AuditTrailError
from delf_cli.main import cli


@tool(effect="read", confirm=False)
def stock(product: str) -> int:
    """Pieces in the warehouse."""
    return {"lamp": 4}[product]


@tool(effect="irreversible")
def pay(amount: float) -> str:
    """Pay an amount."""
    return f"paid {amount:g}"


async def test_audit_records_the_address_of_the_requester(path: Path) -> None:
    at = {"task_id": "t", "at": 1.0, "task": "count", "setup": {ASKED_FROM: "10.0.0.7"}}
    observer = AuditObserver(path=str(path))
    await observer.observe(TaskQueued(**at, seq=1))
    await observer.observe(TaskStarted(**at, seq=2))
    assert [record["from"] for record in lines(path)] == ["10.0.0.7", "10.0.0.7"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "audit.jsonl"


@pytest.fixture
def trail(path: Path) -> AuditTrail:
    trail = AuditTrail(path)
    for number in range(5):
        trail.append({"what": "call", "call": number})
    return trail


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_audit_records_requester_approver_and_calls(tmp_path: Path) -> None:
    place = tmp_path / "audit.jsonl"
    (tmp_path / "delf.toml").write_text(
        f'[agent]\nllm = "scripted"\nobservers = ["audit"]\n[plugins.audit]\npath = "{place}"\n'
    )
    host = TestHost.discover(environ={})
    model = ScriptedModel().writes(
        "print(await stock('lamp'), await pay(20, desc='the bill'))\nawait pay(30)"
    )
    host.provide(model.spec, model.factory)
    project = Agent.from_project(
        tmp_path,
        tools=[stock, pay],
        host=host,
        on_confirm=lambda request: request.arguments["amount"] < 25,
        retry_count=0,
    )
    async with project as agent:
        await agent.arun("Pay the bill.")
    records = lines(place)
    assert [record["what"] for record in records] == [
        "task", "call", "read", "question", "decision", "call", "done", "question", "decision",
        "done", "end",
    ]  # fmt: skip
    assert records[0]["text"] == "Pay the bill."
    assert (records[0]["user"], bool(records[0]["account"])) == ("local", True)
    assert records[3]["arguments"] == {"amount": 20}
    assert records[3]["shown"] == {"description": "the bill"}
    assert [record["decision"] for record in records if "decision" in record] == [
        "approved",
        "rejected",
    ]
    assert records[-1]["state"] == "failed"
    assert trail_at(str(place)).check().records == len(records)
    assert place.stat().st_mode & 0o777 == 0o600


def test_relative_audit_path_begins_at_the_settings_file(delf_project: DelfProject) -> None:
    folder = delf_project.root.parent  # delf runs in a subfolder of the project
    delf_project.environ["DELF_TRUST"] = str(folder)
    delf_project.write("../delf.toml", '[plugins.audit]\npath = "logs/audit.jsonl"\n')
    model = delf_project.install_model("print(1)")
    delf_project.run("run", "Count.", "--llm", model, "--observe", "audit").succeeded()
    assert lines(folder / "logs/audit.jsonl")
    assert "Count." in delf_project.run("audit", "show").succeeded().stdout


async def test_audit_records_possible_foreign_influence(tmp_path: Path) -> None:
    @tool(effect="read", confirm=False)
    def bill() -> str:
        """Read a bill."""
        return "pay 4711 euros"

    place = tmp_path / "audit.jsonl"
    (tmp_path / "delf.toml").write_text(
        f'[agent]\nllm = "scripted"\nobservers = ["audit"]\n[plugins.audit]\npath = "{place}"\n'
    )
    host = TestHost.discover(environ={})
    model = ScriptedModel().writes("rerun(bill(), 'pay it')", "await pay(4711)")
    host.provide(model.spec, model.factory)
    project = Agent.from_project(
        tmp_path, tools=[bill, pay], host=host, on_confirm=lambda _: True, retry_count=0
    )
    async with project as agent:
        await agent.arun("Pay the bill.")
    (question,) = [record for record in lines(place) if record["what"] == "question"]
    assert question["flow"] == "amount: in part from bill (call 1); others wrote it"
    assert question["origins"]["amount"].endswith("it read what others wrote")


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: [rows[0].replace(b'"call":0', b'"call":9'), *rows[1:]],
        lambda rows: [rows[0], *rows[2:]],
        lambda rows: [*rows[:2], rows[1], *rows[2:]],
        lambda rows: [rows[1], rows[0], *rows[2:]],
        lambda rows: [b'{"what":"call","prev":"' + b"0" * 64 + b'"}\n', *rows],
        lambda rows: rows[1:],
    ],
    ids=["changed", "taken out", "doubled", "exchanged", "put in", "first gone"],
)
def test_changed_record_breaks_the_chain(
    trail: AuditTrail, path: Path, change: Callable[[list[bytes]], list[bytes]]
) -> None:
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
    with pytest.raises(AuditTrailError, match=r"audit\.jsonl:\d: the chain is broken"):
        trail.check()


def test_removed_lines_are_detected_by_a_noted_digest(trail: AuditTrail, path: Path) -> None:
    noted = trail.check().head
    trail.append({"what": "end"})
    assert trail.check(noted).records == 6
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:4]))
    trail.check()
    with pytest.raises(AuditTrailError, match="no line has the digest"):
        trail.check(noted)


def test_rewritten_file_is_detected_by_the_key(path: Path) -> None:
    AuditTrail(path, b"key").append({"what": "call"})
    assert AuditTrail(path, b"key").check().records == 1
    path.unlink()
    AuditTrail(path, b"guess").append({"what": "call"})
    AuditTrail(path).check()
    with pytest.raises(AuditTrailError, match="not written with this key"):
        AuditTrail(path, b"key").check()


def test_truncated_last_record_is_reported_and_skipped(trail: AuditTrail, path: Path) -> None:
    os.truncate(path, path.stat().st_size - 7)
    with pytest.raises(AuditTrailError, match="the last line is cut off"):
        trail.check()
    trail.append({"what": "end"})
    checked = trail.check()
    assert (checked.records, checked.damaged_line_numbers) == (5, (5,))


def test_full_disk_leaves_no_partial_record(trail: AuditTrail, path: Path) -> None:
    program = f"""
import resource, signal, sys
from pathlib import Path
from delf_audit.trail import AuditTrail
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = Path({str(path)!r})
size = path.stat().st_size + 50
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
try:
    AuditTrail(path).append({{"what": "call", "text": "x" * 500}})
except OSError as error:
    print(error.strerror)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "File too large\n"
    assert trail.check().records == 5


def test_audit_chain_survives_concurrent_writers_and_a_kill(path: Path) -> None:
    program = f"""
from pathlib import Path
from delf_audit.trail import AuditTrail
trail = AuditTrail(Path({str(path)!r}))
for number in range(200):
    trail.append({{"what": "call", "call": number}}, durable=False)
    print(number, flush=True)
"""
    command = [sys.executable, "-c", program]
    writers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert writers[0].stdout is not None
    for _ in range(20):
        writers[0].stdout.readline()
    writers[0].send_signal(signal.SIGKILL)
    for writer in writers:
        writer.communicate()
    checked = AuditTrail(path).check()
    assert checked.records >= 420
    assert checked.damaged_line_numbers == ()


async def test_long_arguments_are_cut_and_their_length_recorded(path: Path) -> None:
    call = CallStarted(
        task_id="t", seq=1, at=1.0, call_id=1, action="send", arguments={"text": "x" * 30_000},
        effect="write", digest="d",
    )  # fmt: skip
    await AuditObserver(path=str(path)).observe(call)
    (record,) = lines(path)
    assert str(record["arguments"]).endswith("… (30,012 characters)")


def invoke(path: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["audit", "--path", str(path), *words])


def test_audit_commands_verify_and_show(trail: AuditTrail, path: Path) -> None:
    trail.append(
        {
            "at": "2026-01-01T10:00:00.000+00:00",
            "task": "t1",
            "what": "task",
            "text": "\x1b[31mMüller  & Co\n",
        }
    )
    head = trail.check().head
    message = invoke(path, "verify")
    assert message.exit_code == 1  # nothing is proven
    assert message.stdout == f"6 records in order in {path}\ndigest of the last line: {head}\n"
    assert json.loads(invoke(path, "verify", "--json").stdout)["head"] == head
    assert invoke(path, "show", "t1").stdout == (
        '2026-01-01T10:00:00  t1  task      text="\\u001b[31mMüller  & Co\\n"\n'
    )
    assert len(invoke(path, "show", "-n", "2", "--json").stdout.splitlines()) == 2
    path.write_bytes(path.read_bytes().replace(b'"call":1', b'"call":7'))
    broken = invoke(path, "verify")
    assert broken.exit_code == 1
    assert "the chain is broken" in broken.stderr


@pytest.mark.parametrize("typed", ["3f9a2b1", "task_3f9a2b1", "task_3f9a2b1c0"])
def test_audit_show_takes_and_prints_short_task_ids(
    trail: AuditTrail, path: Path, typed: str
) -> None:
    for task_id in ("task_3f9a2b1c0", "task_3f9aaaaaa"):
        trail.append({"at": "2026-01-01T10:00:00", "task": task_id, "what": "end"})
    assert invoke(path, "show", typed).stdout == "2026-01-01T10:00:00  3f9a2b1  end     \n"


def test_audit_show_prints_the_reason_no(trail: AuditTrail, path: Path) -> None:
    trail.append({"task": "t1", "what": "decision", "reason": "no", "remember": "no"})
    shown = invoke(path, "show", "t1").stdout
    assert 'reason="no"' in shown
    assert "remember" not in shown


def keyed(path: Path) -> AuditTrail:
    trail = AuditTrail(path, b"key")
    for number in range(4):
        trail.append({"what": "call", "call": number})
    return trail


@pytest.mark.parametrize("line", ['{"prev":"%s","mac":"é\\ud800"}', "[" * 99_999])
def test_hostile_line_is_reported(line: str, path: Path) -> None:
    path.parent.mkdir()
    path.write_text(line.replace("%s", "0" * 64) + "\n")
    with pytest.raises(AuditTrailError, match=":1: the "):
        AuditTrail(path, b"key").check()


@pytest.mark.parametrize("key", [True, False])
@pytest.mark.parametrize("head", [True, False])
def test_unproven_audit_is_reported_with_failure_status(
    key: bool, head: bool, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = keyed(path).check().head
    if key:
        monkeypatch.setenv("DELF_AUDIT_KEY", "key")
    words = ["verify", *(["--head", noted] if head else []), "--json"]
    message = invoke(path, *words)
    assert message.exit_code == (0 if key and head else 1)
    assert ("not proven: who wrote the records" in message.stderr) is not key
    assert ("not proven: that none was taken away" in message.stderr) is not head
    assert len(json.loads(message.stdout)["not_proven"]) == (not key) + (not head)


def test_rewritten_audit_file_fails_verification(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = keyed(path).check().head
    monkeypatch.setenv("DELF_AUDIT_KEY", "key")
    path.unlink()
    AuditTrail(path).append({"what": "call", "call": 0})
    for head in ("0" * 64, noted):
        message = invoke(path, "verify", "--head", head)
        assert message.exit_code == 1
        assert "not written with this key" in message.stderr
    monkeypatch.delenv("DELF_AUDIT_KEY")
    assert invoke(path, "verify", "--head", "0" * 64).exit_code == 1  # the digest of no line
    assert "no line has the digest" in invoke(path, "verify", "--head", noted).stderr


def test_head_command_prints_a_digest_that_verify_accepts(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trail = keyed(path)
    monkeypatch.setenv("DELF_AUDIT_KEY", "key")
    noted = invoke(path, "head").stdout.strip()
    trail.append({"what": "end"})
    message = invoke(path, "verify", "--head", noted)
    assert message.exit_code == 0
    assert "1 of them after the given digest" in message.stdout


def test_missing_audit_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot read") as caught:
        AuditTrail(tmp_path / "none.jsonl").check()
    assert 'observers = ["audit"]' in str(caught.value.hint)


class TestAudit(ObserverContract):
    @pytest.fixture
    def observer(self, path: Path) -> AuditObserver:
        return AuditObserver(path=str(path))
