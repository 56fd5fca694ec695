"""The channel on a real pseudo-terminal, in this process."""

import asyncio
import contextlib
import fcntl
import os
import pty
import signal
import struct
import sys
import termios
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from delf.errors import ToolRefusedError
from delf.protocols.approval import AlreadyDone, Answered, Approved, Edited, Rejected
from delf_approval_terminal import TerminalChannel
from delf_approval_terminal.channel import TERMINAL_LOCK
from delf_devkit.testing.requests import question_for
from support.terminal import ESCAPES


class Person:
    """The person at the terminal."""

    def __init__(self, master: int, slave: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self._master = master
        self.slave = slave
        self._monkeypatch = monkeypatch
        self._seen = 0
        self.text = ""
        asyncio.get_running_loop().add_reader(master, self._read)
        self._news = asyncio.Event()

    def channel(self) -> TerminalChannel:
        """Open the channel on this terminal, after pytest's capture has started."""
        self.stdin = os.fdopen(self.slave, closefd=False)
        self.stderr = os.fdopen(self.slave, "w", closefd=False)
        self._monkeypatch.setattr(sys, "stdin", self.stdin)
        self._monkeypatch.setattr(sys, "stderr", self.stderr)
        return TerminalChannel()

    def _read(self) -> None:
        data = os.read(self._master, 65536).decode("utf-8", "replace")
        self.text += ESCAPES.sub("", data).replace("\r\n", "\n")
        self._news.set()

    async def sees(self, wanted: str) -> str:
        while (at := self.text.find(wanted, self._seen)) < 0:
            self._news.clear()
            await self._news.wait()
        shown = self.text[self._seen : at + len(wanted)]
        self._seen = at + len(wanted)
        return shown

    def types(self, text: str) -> None:
        os.write(self._master, text.encode())

    async def answers(self, *pairs: tuple[str, str]) -> None:
        for prompt, text in pairs:
            await self.sees(prompt)
            self.types(text)


@pytest.fixture
async def person(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Person]:
    with contextlib.ExitStack() as stack:
        master, slave = pty.openpty()
        stack.callback(os.close, master)
        stack.callback(os.close, slave)
        monkeypatch.setattr(TERMINAL_LOCK, "interrupted", False)
        yield Person(master, slave, monkeypatch)
        asyncio.get_running_loop().remove_reader(master)


ARGUMENTS = {"to": "ada", "copies": 2}
PROMPT = "? help\n> "


@pytest.mark.parametrize(
    ("typed", "decision"),
    [
        ([(PROMPT, "a\n")], Approved()),
        ([(PROMPT, "t\n")], Approved(remember="task")),
        ([(PROMPT, "u\n")], Approved(remember="until_revoked")),
        (
            [(PROMPT, "A\n"), ("mail.send in this task, whatever its arguments? y/n: ", "y\n")],
            Approved(remember="task", covers="action"),
        ),
        (
            [(PROMPT, "U\n"), ("from now on, until it is revoked, whatever its", ""), ("arguments? y/n: ", "y\n")],
            Approved(remember="until_revoked", covers="action"),
        ),
        ([(PROMPT, "A\n"), ("y/n: ", "n\n"), (PROMPT, "a\n")], Approved()),
        ([(PROMPT, "r\n"), ("empty): ", "too late\n")], Rejected(reason="too late")),
        ([(PROMPT, "\x04")], Rejected()),
        ([(PROMPT, "?\n"), ("stops the task\n> ", "a\n")], Approved()),
        (
            [(PROMPT, "e\n"), ("done: ", "2\n"), ("as ", "\x155\r"), ("done: ", "\n"), ("copies = 5\n│ (edited by you)", ""), (PROMPT, "a\n")],
            Edited(arguments={"to": "ada", "copies": 5}),
        ),
        (
            [(PROMPT, "e\n"), ("done: ", "to\n"), ("as ", "\x15bob\r"), ("done: ", "\x04"), (PROMPT, "t\n"), ("stops the task\n> ", "a\n")],
            Edited(arguments={"to": "bob", "copies": 2}),
        ),
        (
            [(PROMPT, "e\n"), ("done: ", "2\n"), ("as ", "\x152.0\r"), ("done: ", "\n"), ("copies = 2.0\n│ (edited by you)", ""), (PROMPT, "a\n")],
            Edited(arguments={"to": "ada", "copies": 2.0}),
        ),
        (
            [(PROMPT, "e\n"), ("done: ", "7\n"), ("no argument '7'", "2\n"), ("as ", "\x15many\r"), ("not JSON", ""), ("done: ", "\n"), (PROMPT, "a\n")],
            Approved(),
        ),
        (
            [(PROMPT, "e\n"), ("done: ", "2\n"), ("as ", "\x155\r"), ("done: ", "2\n"), ("as ", "\x152\r"), ("done: ", "\n"), (PROMPT, "t\n")],
            Approved(remember="task"),
        ),
        ([(PROMPT, "ye\x03")], Rejected()),
        (
            [(PROMPT, "e\n"), ("done: ", "1\n"), ("as ", "bob\x03")],
            Rejected(),
        ),
    ],
)  # fmt: skip
async def test_channel_returns_the_typed_decision(
    person: Any, request_for: Any, typed: Any, decision: Any
):
    asked = asyncio.create_task(person.channel().decide(request_for(ARGUMENTS)))
    await person.answers(*typed)
    assert await asked == decision


def fit(arguments: Any):
    """Validate arguments like the engine, for a function with ``to`` and ``copies``."""
    if set(arguments) != {"to", "copies"}:
        raise ToolRefusedError("copies is missing")
    if not isinstance(arguments["copies"], int):
        raise ToolRefusedError("copies: it is not a whole number")
    return {**arguments, "to": arguments["to"].lower()}


@pytest.mark.slow
async def test_invalid_edit_is_reported_and_asked_again(person: Any, request_for: Any):
    asked = asyncio.create_task(person.channel().decide(request_for(ARGUMENTS, fit=fit)))
    await person.answers(
        (PROMPT, "e\n"),
        ("done: ", "copies\n"),
        ("as ", '\x15"three"\r'),
        ("that does not fit: copies: it is not a whole number", ""),
        ("done: ", "copies\n"),
        ("as ", "\x154\r"),
        ("done: ", "to\n"),
        ("as ", "\x15EVE\r"),
        ("done: ", "\n"),
    )
    shown = await person.sees(PROMPT)
    assert "│ to = 'eve'\n│ copies = 4\n│ (edited by you)\n" in shown
    assert "a approve as edited" in shown
    person.types("a\n")
    assert await asked == Edited(arguments={"to": "eve", "copies": 4})


@pytest.mark.parametrize("columns", [40, 60, 80])
async def test_question_wraps_between_words(person: Any, request_for: Any, columns: Any):
    fcntl.ioctl(person.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    asked = asyncio.create_task(person.channel().decide(request_for(ARGUMENTS, fit=fit)))
    await person.answers(
        ("help\n> ", "?\n"),
        ("stops the task\n> ", "U\n"),
        ("y/n: ", "n\n"),
        ("help\n> ", "e\n"),
        ("done: ", "copies\n"),
        ("as ", '\x15"three"\r'),
        ("number", ""),
        ("done: ", "\n"),
        ("help\n> ", "a\n"),
    )
    assert await asked == Approved()
    own = [line for line in person.text.splitlines() if "as JSON" not in line]
    assert max(len(line.rstrip()) for line in own) <= columns
    words = " ".join(person.text.split())
    assert "do not ask again about the same call with the same arguments" in words
    assert "from now on, until it is revoked, whatever its arguments? y/n:" in words


async def test_second_ctrl_c_is_passed_to_the_program(
    person: Any, request_for: Any, monkeypatch: pytest.MonkeyPatch
):
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stopped.set)
    channel = person.channel()
    for typed in ("\x03", "a\n", "\x03"):
        asked = asyncio.create_task(channel.decide(request_for(ARGUMENTS)))
        await person.answers((PROMPT, typed))
        await asked
    assert not stopped.is_set()
    asked = asyncio.create_task(channel.decide(request_for(ARGUMENTS)))
    await person.answers((PROMPT, "\x03"))
    await stopped.wait()
    person.types("a\n")
    assert await asked == Approved()
    asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)


async def test_input_typed_before_the_question_is_dropped(person: Any, request_for: Any):
    person.types("a\n")
    await person.sees("a\n")  # echoed: the terminal has it now
    asked = asyncio.create_task(person.channel().decide(request_for(ARGUMENTS)))
    await person.sees(PROMPT)
    assert not asked.done()
    person.types("t\n")
    assert await asked == Approved(remember="task")


async def test_channel_asks_several_requests_in_turn(person: Any, request_for: Any):
    channel = person.channel()
    names = ["one.x", "two.x", "three.x"]
    asked = [
        asyncio.create_task(channel.decide(request_for(ARGUMENTS, action=name))) for name in names
    ]
    shown = await person.sees(PROMPT)
    assert "one.x" in shown
    assert "two.x" not in person.text
    for number, answer in enumerate(("a\n", "u\n", "t\n")):
        person.types(answer)
        if number < 2:
            await person.sees(PROMPT)
    remembered = [decision.remember for decision in await asyncio.gather(*asked)]
    assert remembered == ["no", "until_revoked", "task"]
    assert "2 more waiting" in person.text or "1 more waiting" in person.text
    assert TERMINAL_LOCK.waiting_count == 0


async def test_abandoned_request_restores_the_terminal(person: Any, request_for: Any):
    channel = person.channel()
    before = termios.tcgetattr(sys.stdin.fileno())
    descriptors = len(os.listdir("/proc/self/fd"))
    first = asyncio.create_task(channel.decide(request_for(ARGUMENTS)))
    await person.sees(PROMPT)
    second = asyncio.create_task(channel.decide(request_for(ARGUMENTS, action="next.x")))
    first.cancel()
    await asyncio.wait({first})
    await person.sees("no answer is needed any more")
    await person.sees("next.x")
    await person.answers((PROMPT, "a\n"))
    assert await second == Approved()
    assert termios.tcgetattr(sys.stdin.fileno()) == before
    assert len(os.listdir("/proc/self/fd")) == descriptors


async def test_truncated_input_line_is_discarded(person: Any, request_for: Any):
    asked = asyncio.create_task(person.channel().decide(request_for(ARGUMENTS)))
    await person.answers((PROMPT, "e\n"))
    await person.sees("done: ")
    person.types("x" * 5000 + "\n")
    await person.sees("nothing was changed")
    await person.answers(("done: ", "\n"), (PROMPT, "a\n"))
    assert await asked == Approved()


@pytest.mark.parametrize(
    ("name", "typed", "changed"),
    [
        ("to", "x\r", {"to": "adax"}),
        ("to", "\x01my \r", {"to": "my ada"}),
        ("copies", "\x7f3\r", {"copies": 13}),
        ("text", "\x1b[A\x05!\r", {"text": "one!\ntwo"}),
        ("to", "\x15\r", {"to": ""}),
        ("to", "\r", {}),
        ("to", "\x15\x04", {}),
    ],
    ids=["end", "begin", "number", "lines", "emptied", "as it is", "ctrl-d"],
)
async def test_edit_prompt_starts_with_the_current_value(
    person: Any, request_for: Any, name: Any, typed: Any, changed: Any
):
    arguments = {"to": "ada", "copies": 12, "text": "one\ntwo"}
    asked = asyncio.create_task(person.channel().decide(request_for(arguments)))
    await person.answers((PROMPT, "e\n"), ("done: ", f"{name}\n"), (f"{name}, as ", typed))
    await person.answers(("done: ", "\n"), (PROMPT, "a\n"))
    expected = Edited(arguments={**arguments, **changed}) if changed else Approved()
    assert await asked == expected


@pytest.mark.parametrize("which", ["stdin", "stderr"])
async def test_channel_without_a_terminal_does_not_decide(
    person: Any, request_for: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, which: Any
):
    with (tmp_path / "file").open("w+") as file:
        channel = person.channel()
        monkeypatch.setattr(sys, which, file)
        decision = await channel.decide(request_for(ARGUMENTS))
    assert decision is None, "the next channel may know somebody"


SCRIPT = "for n in (1, 2):\n    await desk.close(n)  # all of them\nprint('\x1b[2Jdone')"
SCRIPT_PROMPT = "r reject · v view all · ? help\n> "


async def test_script_request_shows_the_whole_script(person: Any, request_for: Any):
    request = request_for({}, action="script", code=SCRIPT, actions=("desk.close",))
    asked = asyncio.create_task(person.channel().decide(request))
    shown = await person.sees(SCRIPT_PROMPT)
    assert "it may call, as often as it likes: desk.close" in shown
    for line in ("│ for n in (1, 2):", "│     await desk.close(n)  # all of them"):
        assert line in shown
    assert "\\x1b[2Jdone" in shown, "nothing steers the terminal"
    person.types("e\n")  # a script cannot be edited
    await person.sees("stops the task\n> ")
    person.types("u\n")  # and is not remembered
    await person.sees("stops the task\n> ")
    person.types("r\n")
    await person.answers(("empty): ", "close one only\n"))
    assert await asked == Rejected(reason="close one only")


UNKNOWN_PROMPT = "r reject · v view all · ? help\n> "
RESULT = "empty for null): "


@pytest.mark.parametrize(
    ("typed", "decision"),
    [
        ([("", "a\n")], Approved()),
        ([("", "h\n"), (RESULT, '{"id": 7}\n')], AlreadyDone(result={"id": 7})),
        ([("", "h\n"), (RESULT, "\n")], AlreadyDone(result=None)),
        ([("", "h\n"), (RESULT, "paid\n"), (RESULT, '"paid"\n')], AlreadyDone(result="paid")),
        ([("", "h\n"), (RESULT, "\x04"), (UNKNOWN_PROMPT, "a\n")], Approved()),
        (
            [("", "e\n"), ("stops the task\n> ", "t\n"), ("stops the task\n> ", "a\n")],
            Approved(),
        ),
        ([("", "r\n"), ("empty): ", "ask her\n")], Rejected(reason="ask her")),
    ],
    ids=["a", "h", "h empty", "h no JSON", "h Ctrl-D", "e t", "r"],
)
async def test_call_of_unknown_outcome_offers_three_decisions(
    person: Any, request_for: Any, typed: Any, decision: Any
):
    asked = asyncio.create_task(
        person.channel().decide(request_for(ARGUMENTS, outcome_unknown=True))
    )
    shown = await person.sees(UNKNOWN_PROMPT)
    assert "mail.send was interrupted. Make it again?" in shown
    assert "may already have happened" in shown
    assert "copies = 2" in shown
    await person.answers(*typed)
    assert await asked == decision


@pytest.mark.parametrize(
    ("change", "number", "edited"),
    [
        ("s/ada/eve/", "1", Edited(arguments={"to": "eve", "copies": 2})),
        ("s/2/7/", "2", Edited(arguments={"to": "ada", "copies": 7})),
        ("s/nothing/x/", "1", Approved()),
    ],
    ids=["text", "a number", "left as it was"],
)
async def test_value_can_be_edited_in_the_users_editor(
    person: Any,
    request_for: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    change: Any,
    number: Any,
    edited: Any,
):
    editor = tmp_path / "editor"
    editor.write_text(f'#!/bin/sh\nsed -i "{change}" "$1"\n')
    editor.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(editor))
    asked = asyncio.create_task(person.channel().decide(request_for(ARGUMENTS)))
    await person.answers(
        (PROMPT, "e\n"), ("done: ", f"{number}\n"), ("done: ", "\n"), (PROMPT, "a\n")
    )
    assert await asked == edited


@pytest.mark.parametrize("brackets", [1, 2000], ids=["cut off", "nested deeply"])
async def test_invalid_editor_input_is_offered_again(
    person: Any, request_for: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, brackets: int
):
    editor = tmp_path / "editor"
    invalid, mended = f"s/2/{'[' * brackets}7/;t", r"s/\[*7/[7]/"
    editor.write_text(f"#!/bin/sh\nsed -i -e '{invalid}' -e '{mended}' \"$1\"\n")
    editor.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(editor))
    asked = asyncio.create_task(person.channel().decide(request_for(ARGUMENTS)))
    await person.answers((PROMPT, "e\n"), ("done: ", "2\n"), ("done: ", "2\n"))
    await person.answers(("done: ", "\n"), (PROMPT, "a\n"))
    assert await asked == Edited(arguments={"to": "ada", "copies": [7]})


async def test_invalid_input_is_offered_again_after_the_editor_failed(
    person: Any, request_for: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    editor = tmp_path / "editor"
    fail_once = 'if grep -q "\\[7" "$1" && mkdir "$0.failed"; then exit 1; fi\n'
    change = "sed -i -e 's/2/[7/;t' -e 's/7/7]/' \"$1\"\n"
    editor.write_text(f"#!/bin/sh\n{fail_once}{change}")
    editor.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(editor))
    asked = asyncio.create_task(person.channel().decide(request_for(ARGUMENTS)))
    await person.answers((PROMPT, "e\n"), *[("done: ", "2\n")] * 3)
    await person.answers(("done: ", "\n"), (PROMPT, "a\n"))
    assert await asked == Edited(arguments={"to": "ada", "copies": [7]})


# -- questions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "typed", "answer"),
    [
        ({"options": ["Ann A", "Ann B"]}, "2", "Ann B"),
        ({"options": ["Ann A", "Ann B"]}, "ann a", "Ann A"),
        ({"options": ["2", "1"]}, "1", "1"),
        ({"answer": "yes/no"}, "n", False),
        ({"answer": "number"}, "12.5", 12.5),
        ({}, "r", "r"),
    ],
)
async def test_typed_answer_is_returned(person: Any, arguments: Any, typed: Any, answer: Any):
    asking = asyncio.ensure_future(person.channel().answer(question(**arguments)))
    await person.sees("Which of these?")
    await person.answers(("> ", f"{typed}\n"))
    assert await asking == Answered(answer)
    await person.sees(f"answered: {str(answer).lower() if answer is False else answer}")


async def test_invalid_answer_is_asked_again(person: Any):
    asking = asyncio.ensure_future(person.channel().answer(question(options=["Ann", "Bob"])))
    shown = await person.sees("1-2 choose · r answer nothing · v view all · ? help\n> ")
    assert "option 1: Ann" in shown
    for typed, reply in (
        ("3", "'3' does not answer the question: one of 'Ann', 'Bob'"),
        ("?", "v "),
    ):
        person.types(f"{typed}\n")
        await person.sees(reply)
        await person.sees("> ")
    person.types("r\n")
    await person.answers(("reason (may be empty): ", "neither\n"))
    assert await asking == Rejected(reason="neither")


async def test_option_named_like_a_key_can_be_chosen(person: Any):
    asking = asyncio.ensure_future(person.channel().answer(question(options=["R", "Python"])))
    await person.answers(("> ", "V\n"), ("Which of these?", ""), ("> ", "R\n"))
    assert await asking == Answered("R")


async def test_ctrl_d_rejects_the_question(person: Any):
    asking = asyncio.ensure_future(person.channel().answer(question()))
    await person.answers(("Ctrl-D answer nothing\n", "\x04"))
    assert await asking == Rejected()


def question(**arguments: Any):
    return question_for(question="Which of these?", **arguments)
