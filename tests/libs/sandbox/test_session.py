import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from delf.errors import SandboxUnavailableError
from delf.protocols.sandbox import (
    Crashed,
    Done,
    Failed,
    LimitReached,
    Raised,
    Rerun,
    Returned,
    ToolMessage,
)
from delf_sandbox import budget as budget_module
from delf_sandbox.session import WireSession
from support.until import until

from .guests import LIMITS, FakeProcess

DONE = ["done", None, {}]


# -- a guest that does what it should ----------------------------------------------------


async def test_script_runs_to_its_end(guest):
    running = await guest.start()
    await guest.send(["print", "a"], ["print", "b"], ["done", {"x": (1, 2)}, {"n": "int"}])
    assert await running == Done(value={"x": (1, 2)}, variables={"n": "int"})
    assert guest.host.text == "ab"
    assert guest.session.alive


@pytest.mark.slow
async def test_large_frame_parse_lets_other_tasks_run(open_guest):
    """This holds for any parse time; frames behind the large one wait."""
    guest = await open_guest(frame_bytes=10_000_000)
    turns = 0

    async def count():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = await guest.start()
    paths = [Path("a/b")] * 100_000
    counting = asyncio.create_task(count())
    await guest.send(["print", "a"], ["done", paths, {}], ["print", "too late"])
    assert (await running).value == paths
    counting.cancel()
    assert turns > 20
    assert guest.host.text == "a"


async def test_large_unknown_frame_ends_the_sandbox(open_guest):
    guest = await open_guest(frame_bytes=10_000_000)
    running = await guest.start()
    await guest.send(["nonsense", "x" * 1_000_000], ["print", "too late"])
    message = "the sandbox sent an unknown frame 'nonsense'"
    assert await running == Crashed(message=message, by_script=True)
    assert not guest.session.alive


@pytest.mark.parametrize(
    ("frame", "outcome"),
    [
        (
            ["failed", "E", "m", 3, "x", {}, 7],
            Failed(kind="E", message="m", line=3, source="x", call_id=7),
        ),
        (["failed", "E", "m", None, None, {}, None], Failed(kind="E", message="m")),
        (
            ["limit", "memory", "m", 1, "s", {}],
            LimitReached(limit="memory", message="m", line=1, source="s"),
        ),
        (["rerun", "c", "r", ["x"], {}], Rerun(context="c", remaining="r", carry=("x",))),
    ],
)
async def test_session_reports_every_end_of_a_script(guest, frame, outcome):
    running = await guest.start()
    await guest.send(frame)
    assert await running == outcome


@pytest.mark.parametrize(
    ("answer", "frame"),
    [
        (Returned({"a": 1}), ["return", 5, {"a": 1}]),
        (Returned(None, b'{"a":1}'), ["return", 5, {"a": 1}]),
        (ToolMessage("no"), ["message", 5, "no"]),
        (Raised("ToolError", "bad"), ["raise", 5, "ToolError", "bad"]),
    ],
)
async def test_session_delivers_every_answer_to_a_call(guest, answer, frame):
    async def tool():
        return answer

    guest.host.tools["shop.find"] = tool
    running = await guest.start()
    await guest.send(["call", 5, "shop", "find", [], {}, False, 0])
    assert await guest.receive() == frame
    await guest.send(DONE)
    await running


@pytest.mark.parametrize(
    ("value", "problem"),
    [(object(), "object cannot be passed"), ("x" * 200_000, "too large")],
)
async def test_result_that_cannot_be_encoded_raises_in_the_script(guest, value, problem):
    async def tool():
        return value

    guest.host.tools["echo"] = tool
    running = await guest.start()
    await guest.send(["call", 1, "echo", "", [], {}, False, 0])
    frame = await guest.receive()
    assert frame[:3] == ["raise", 1, "ToolError"]
    assert problem in frame[3]
    await guest.send(DONE)
    assert isinstance(await running, Done)


async def test_host_failure_raises_in_the_script(guest, caplog):
    async def tool():
        raise LookupError("oops")

    guest.host.tools["echo"] = tool
    running = await guest.start()
    await guest.send(["call", 1, "echo", "", [], {}, False, 0])
    assert (await guest.receive())[:3] == ["raise", 1, "ToolError"]
    assert "oops" in caplog.text
    await guest.send(DONE)
    await running


async def test_cancelled_script_kills_the_guest(guest):
    running = await guest.start()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert guest.process.kills == 1
    assert await guest.session.execute("again", guest.host) == Crashed(
        message="the sandbox is gone"
    )


async def test_session_runs_one_script_at_a_time(guest):
    running = await guest.start()
    with pytest.raises(RuntimeError, match="one script at a time"):
        await guest.session.execute("other", guest.host)
    await guest.send(DONE)
    await running


async def test_oversized_script_is_refused_and_the_session_survives(guest):
    outcome = await guest.session.execute("x" * 200_000, guest.host)
    assert isinstance(outcome, LimitReached)
    assert guest.session.alive


async def test_output_limit_applies_per_script(guest):
    for _ in range(3):
        running = await guest.start()
        await guest.send(["print", "x" * 9_000], DONE)
        assert isinstance(await running, Done)


# -- a guest that does not ----------------------------------------------------------------


PLAIN = {
    "no JSON": b"garbage",
    "no text": b"\xff\xfe\x00",
    "nothing": b"",
    "no list": b'{"a":1}',
    "an empty list": b"[]",
    "no name": b"[1,2]",
    "an unknown frame": b'["hello"]',
    "a frame of the host": b'["return",1,2]',
    "deep nesting": b'["done",' + b"[" * 40_000 + b"]" * 40_000 + b",{}]",
    "deep objects": b'["done",' + b'{"a":' * 15_000 + b"1" + b"}" * 15_000 + b",{}]",
    "a huge integer": b'["call",' + b"9" * 20_000 + b',"echo","",[],{},false,0]',
    "an unknown tag": b'["done",{"$t":"object","v":"os.system"},{}]',
    "a tag that is not text": b'["done",{"$t":[1],"v":1},{}]',
    "a tag without a value": b'["done",{"$t":"bytes"},{}]',
    "bad base64": b'["done",{"$t":"bytes","v":"a"},{}]',
    "base64 of a number": b'["done",{"$t":"bytes","v":5},{}]',
    "a UUID of a number": b'["done",{"$t":"uuid","v":5},{}]',
    "a bad date": b'["done",{"$t":"datetime","v":"yesterday"},{}]',
    "a bad decimal": b'["done",{"$t":"decimal","v":"x"},{}]',
    "an endless duration": b'["done",{"$t":"timedelta","v":1e400},{}]',
    "a set of lists": b'["done",{"$t":"set","v":[[1]]},{}]',
    "pairs that are none": b'["done",{"$t":"dict","v":[1]},{}]',
    "a dict with a list as key": b'["done",{"$t":"dict","v":[[[1],2]]},{}]',
    "a complex of text": b'["done",{"$t":"complex","v":"ab"},{}]',
    "a print of no text": b'["print",1]',
    "a print of two": b'["print","a","b"]',
    "a call with no number": b'["call","1","echo","",[],{},false,0]',
    "a call with a switch for its number": b'["call",true,"echo","",[],{},false,0]',
    "a call without a method": b'["call",1,"echo",null,[],{},false,0]',
    "a call with text for arguments": b'["call",1,"echo","","ab",{},false,0]',
    "a call with a list for keywords": b'["call",1,"echo","",[],[],false,0]',
    "a call with numbers for keywords": b'["call",1,"echo","",[],{"$t":"dict","v":[[1,2]]},false,0]',
    "a call of too few parts": b'["call",1,"echo",""]',
    "a call of too many": b'["call",1,"echo","",[],{},false,0,1]',
    "a file of no bytes": b'["file","a",true,"text"]',
    "a file without a name": b'["file",1,true,{"$t":"bytes","v":""}]',
    "done without variables": b'["done",1]',
    "done with a list of variables": b'["done",1,[]]',
    "failed with numbers": b'["failed",1,2,3,4,{}]',
    "a limit of too few parts": b'["limit","cpu"]',
    "a rerun without a list": b'["rerun","a","b","c",{}]',
}


@pytest.mark.parametrize("name", PLAIN)
async def test_broken_frame_ends_the_session(guest, name):
    running = await guest.start()
    await guest.send_payload(PLAIN[name])
    outcome = await running
    assert isinstance(outcome, Crashed), outcome
    assert len(outcome.message) < 300
    assert guest.process.kills >= 1
    assert not guest.session.alive


async def test_oversized_header_ends_the_session_before_its_content(guest):
    running = await guest.start()
    await guest.send_bytes(b"\xff\xff\xff\xff")
    outcome = await running
    assert outcome.limit == "frame"
    assert not guest.session.alive


async def test_frame_one_byte_over_the_limit_is_refused(guest):
    running = await guest.start()
    await guest.send_bytes((100_001).to_bytes(4, "big"))
    assert isinstance(await running, LimitReached)


@pytest.mark.parametrize("count", [0, 1, 3, 4, 10])
async def test_truncated_frame_ends_the_session(guest, count):
    running = await guest.start()
    await guest.send_bytes((b"\0\0\0\x20" + b'["print","x"]')[:count])
    guest.close()
    assert await running == Crashed(message="it ended")


@pytest.mark.parametrize("number", [-1, 0, 2**70])
async def test_call_accepts_any_number_as_its_id(guest, number):
    running = await guest.start()
    await guest.send(["call", number, "echo", "", [], {}, False, 0])
    assert (await guest.receive())[1] == number
    await guest.send(["cancel", number], ["cancel", number + 1], DONE)
    assert isinstance(await running, Done)


@pytest.mark.parametrize("what", ["x", None, [1], [[0] * 1000]])
async def test_cancel_frame_without_an_integer_crashes_the_session(guest, what):
    running = await guest.start()
    await guest.send(["cancel", what])
    assert isinstance(await running, Crashed)


async def test_frames_after_the_script_end_are_ignored(guest):
    running = await guest.start()
    await guest.send(
        ["print", "in time"],
        DONE,
        ["print", "late"],
        ["file", "late.txt", True, b"x"],
        ["call", 9, "shop", "send", [], {}, False, 0],
        ["done", "other", {}],
    )
    assert await running == Done()
    assert guest.host.text == "in time"
    assert guest.host.files == {}
    assert guest.host.calls == []
    assert (await guest.receive())[:3] == ["raise", 9, "ToolError"]
    assert isinstance(guest.session.alive, bool)


async def test_session_ignores_frames_between_scripts(guest):
    await guest.send(
        ["print", "x"], ["call", 3, "echo", "", [], {}, False, 0], ["file", "a", True, b""], DONE
    )
    assert (await guest.receive())[:3] == ["raise", 3, "ToolError"]
    running = await guest.start()
    await guest.send(["done", 1, {}])
    assert await running == Done(value=1)
    assert guest.host.order == []


async def test_frames_after_a_crash_are_ignored(guest):
    running = await guest.start()
    await guest.send_bytes(
        b'\0\0\0\x02[]\0\0\0\x0d["print","x"]\0\0\0\x23["call",1,"echo","",[],{},false,0]  '
    )
    assert isinstance(await running, Crashed)
    assert guest.host.order == []


async def test_output_over_the_limit_ends_the_session(guest):
    running = await guest.start()
    await guest.send(*(["print", "x" * 1_000] for _ in range(20)))
    outcome = await running
    assert outcome.limit == "output"
    assert len(guest.host.text) <= 12_500


@pytest.mark.parametrize(
    "name",
    [
        "../a",
        "/etc/passwd",
        "a/../b",
        "..",
        "a\\b",
        "C:x",
        "a\0b",
        "",
        " ",
        "~/x",
        "a//b",
        "n" * 300,
    ],
)
async def test_unsafe_output_file_name_crashes_the_session(guest, name):
    running = await guest.start()
    await guest.send(["file", name, True, b"x"], DONE)
    assert isinstance(await running, Crashed)
    assert guest.host.files == {}


@pytest.mark.parametrize(
    "frames",
    [
        [["file", "a", False, b"x" * 5_001]],
        [["file", "a", False, b"x" * 3_000], ["file", "a", True, b"x" * 3_000]],
        [["file", "a", True, b"x" * 5_000], ["file", "b", True, b"x" * 5_000]],
    ],
)
async def test_files_over_the_limit_end_the_session(guest, frames):
    running = await guest.start()
    await guest.send(*frames)
    assert (await running).limit == "file"


async def test_flood_of_files_ends_the_session(guest):
    running = await guest.start()
    await guest.send(*(["file", f"f{n}", True, b""] for n in range(LIMITS.max_files + 1)))
    assert (await running).limit == "file"
    assert len(guest.host.files) == LIMITS.max_files


async def test_flood_of_unfinished_files_ends_the_session(guest):
    running = await guest.start()
    await guest.send(*(["file", f"f{n}", False, b""] for n in range(100)))
    assert isinstance(await running, Crashed)


@pytest.mark.parametrize(
    "half",
    [b"\xed\xa0\x80", b"\\ud800", b"\\\\\\uDFFF"],
    ids=["raw", "escaped", "behind a backslash"],
)
async def test_lone_surrogates_crash_the_session(guest, half):
    running = await guest.start()
    await guest.send_payload('["print","\U0001f600 한국"]'.encode())
    await guest.send_payload(b'["print","a%bb"]' % half)
    outcome = await running
    assert isinstance(outcome, Crashed)
    assert "unpaired surrogates" in outcome.message
    assert guest.host.text == "\U0001f600 한국"


async def test_long_error_texts_of_the_guest_are_cut(guest):
    running = await guest.start()
    long = "x" * 40_000
    await guest.send(["failed", long, long, 1, None, {f"n{i}": "t" for i in range(500)}, None])
    outcome = await running
    assert len(outcome.kind) == 200
    assert len(outcome.message) < 21_000
    assert len(outcome.variables) == 100


async def test_guest_that_never_becomes_ready_is_killed():
    process = FakeProcess()
    session = WireSession(process, 1000)
    with pytest.raises(SandboxUnavailableError, match=r"did not start within 0\.01 s"):
        await session.ready(0.01)
    assert process.kills == 1


async def test_guest_that_exits_before_ready_is_reported():
    session = WireSession(FakeProcess(), 1000)
    session.connection_lost(None)
    with pytest.raises(SandboxUnavailableError, match="did not start: it ended"):
        await session.ready(5)


# -- what a hostile guest could cost the host ---------------------------------------------


async def test_endless_calls_end_at_the_call_limit(open_guest):
    guest = await open_guest(calls=3)
    running = await guest.start()
    await guest.send(*(["call", number, "echo", "", [], {}, False, 0] for number in range(9)))
    outcome = await running
    assert (outcome.limit, outcome.message) == ("calls", "a task can make 3 tool calls")
    assert len(guest.host.calls) <= 3
    assert guest.process.kills


async def test_unread_answers_are_bounded_in_host_memory(open_guest):
    guest = await open_guest(memory_bytes=10**6)

    async def much():
        return "x" * 90_000

    running = await guest.start()
    guest.host.tools["shop.find"] = much
    await guest.send(*(["call", number, "shop", "find", [], {}, False, 0] for number in range(100)))
    outcome = await running
    assert outcome.limit == "memory"
    assert "unread" in outcome.message


@pytest.mark.parametrize(
    "frames",
    [
        [["ready"]],
        [["cancel", 1]],
        [["clock", []]],
        [["file", "a", False, b""]],
        [["call", 1, "echo", "", [], {}, False, 0], ["cancel", 1]],
        [["print", ""]],
    ],
    ids=["ready", "cancel", "clock", "file", "call", "print"],
)
async def test_flood_of_empty_frames_ends_the_session(open_guest, frames, monkeypatch):
    monkeypatch.setattr(budget_module, "SPARE_MESSAGES", 500)
    guest = await open_guest(calls=500)
    running = await guest.start()
    with suppress(OSError):
        for _ in range(3_000):
            await guest.send(*frames)
    outcome = await running
    assert isinstance(outcome, Crashed | LimitReached), outcome
    assert not guest.session.alive


async def test_flood_between_scripts_ends_the_session(open_guest, monkeypatch):
    monkeypatch.setattr(budget_module, "SPARE_MESSAGES", 500)
    guest = await open_guest(calls=0)
    await guest.send(*[["ready"]] * 1_000)
    await until(lambda: not guest.session.alive)
    assert not guest.session.alive


PADDED = {
    "cancel": b'["cancel",1%b]',
    "print": b'["print",""%b]',
    "clock": b'["clock",[]%b]',
    "ready": b'["ready"%b]',
    "file": b'["file","a",false,{"$t":"bytes","v":""}%b]',
}


@pytest.mark.parametrize("name", PADDED)
async def test_flood_of_padded_frames_ends_the_session(open_guest, name, monkeypatch):
    monkeypatch.setattr(budget_module, "SPARE_BYTES", 100_000)
    guest = await open_guest(calls=10)
    running = await guest.start()
    with suppress(OSError):
        for _ in range(20):
            await guest.send_payload(PADDED[name] % (b" " * 90_000))
    assert isinstance(await running, Crashed)


@pytest.mark.parametrize(
    "payload",
    [
        b'["file",[%b0]]' % (b'{"$t":"uuid","v":"00000000-0000-0000-0000-000000000000"},' * 1_500),
        b'["call",1,"echo","",["%b"],{},false,0]' % (b"x" * 90_000),
        b'["done","%b",{}]' % (b"x" * 90_000),
    ],
    ids=["file", "call", "done"],
)
async def test_flood_of_frames_after_the_end_ends_the_session(guest, payload):
    running = await guest.start()
    await guest.send(DONE)
    await running
    with suppress(OSError):
        for _ in range(30):
            await guest.send_payload(payload)
    await until(lambda: not guest.session.alive)
    assert not guest.session.alive


async def test_byte_budget_covers_every_frame_kind(open_guest, monkeypatch):
    monkeypatch.setattr(budget_module, "SPARE_BYTES", 5_000)
    guest = await open_guest()
    for _ in range(2):
        running = await guest.start()
        for number in range(100):
            await guest.send(["print", "\x01" * 100])
            await guest.send(["call", number, "echo", "", ["x" * 50_000], {}, False, 0])
            await guest.receive()
        await guest.send(*(["file", "a", part == 3, b"x" * 1_000] for part in range(4)))
        await guest.send(["done", "x" * 99_000, {}])
        assert isinstance(await running, Done)


async def test_total_argument_size_is_limited(guest, monkeypatch):
    monkeypatch.setattr(budget_module, "CALL_BYTES", 200_000)
    running = await guest.start()
    for number in range(4):
        await guest.send(["call", number, "echo", "", ["x" * 60_000], {}, False, 0])
        if number < 3:
            await guest.receive()
    outcome = await running
    assert (outcome.limit, "200,000 bytes" in outcome.message) == ("calls", True)


@pytest.mark.slow
async def test_arguments_are_counted_by_memory_size(guest, monkeypatch):
    monkeypatch.setattr(budget_module, "CALL_BYTES", 20_000_000)
    running = await guest.start()
    with suppress(OSError):  # the session is over before everything is sent
        for number in range(10):
            await guest.send(["call", number, "echo", "", [[{}] * 30_000], {}, False, 0])
    outcome = await running
    assert outcome.limit == "calls"
    assert len(guest.host.calls) <= 4


COSTLY = {
    "a text as a tuple": b'{"$t":"tuple","v":"%b"}' % (b"a" * 90_000),
    "a text as a set": b'{"$t":"set","v":"%b"}' % (b"a" * 90_000),
    "a text as pairs": b'{"$t":"dict","v":"%b"}' % (b"a" * 90_000),
    "bytes as a tuple": b'{"$t":"tuple","v":{"$t":"bytes","v":"%b"}}' % (b"A" * 80_000),
    "a path of many parts": b'{"$t":"path","v":"%b"}' % (b"a/" * 40_000),
    "a long date": b'{"$t":"date","v":"%b"}' % (b"1" * 90_000),
    "a long UUID": b'{"$t":"uuid","v":"%b"}' % (b"-" * 90_000),
}


@pytest.mark.parametrize("name", COSTLY)
async def test_values_larger_in_memory_than_encoded_are_refused(guest, name):
    running = await guest.start()
    await guest.send_payload(b'["done",%b,{}]' % COSTLY[name])
    outcome = await running
    assert isinstance(outcome, Crashed), outcome
    assert "malformed" in outcome.message


async def test_clock_reply_beyond_64_bits_crashes_the_session(guest):
    running = await guest.start()
    await guest.send(["clock", [2**63]])
    assert isinstance(await running, Crashed)


async def test_empty_prints_count_as_output(guest):
    running = await guest.start()
    with suppress(OSError):  # the session is over before everything is sent
        await guest.send(*(["print", ""] for _ in range(20_000)))
    assert (await running).limit == "output"


async def test_keys_made_to_collide_are_refused(guest):
    running = await guest.start()
    items = ",".join(str(number * (2**61 - 1)) for number in range(4_000))
    await guest.send_payload(f'["done",{{"$t":"set","v":[{items}]}},{{}}]'.encode())
    outcome = await running
    assert isinstance(outcome, Crashed)
    assert "cannot be read" in outcome.message
