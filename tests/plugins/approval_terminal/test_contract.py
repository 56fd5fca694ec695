"""The contract of approval channels, with somebody at a pseudo-terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import sys
import termios
from typing import Any

import pytest

from delf.protocols.approval import Answered, Approved
from delf.testing import ApprovalContract, PluginContract, Shown
from delf_approval_terminal import TerminalChannel
from support.terminal import ESCAPES

PROMPT = "? help\n> "
END = b"that is all"
KEYS = {
    "approves": [(PROMPT, "a\n")],
    "rejects": [(PROMPT, "r\n"), ("empty): ", "not today\n")],
    "edits": [
        (PROMPT, "e\n"),
        ("when done: ", "amount\n"),
        ("as JSON: ", "\x157\r"),
        ("when done: ", "\n"),
        (PROMPT, "a\n"),
    ],
    "remembers": [(PROMPT, "u\n")],
    "answers": [(PROMPT, "bob\n")],
    "changes their mind": [
        (PROMPT, "a\n"),
        *[(PROMPT, "r\n"), ("empty): ", "not again\n")] * 2,
    ],
    "is silent": [],
}


class Person:
    """Answers each prompt, repeating the answers in order."""

    def __init__(self, master: int, keys: list[tuple[str, str]]) -> None:
        self.master = master
        self.keys = keys
        self.text = ""
        self.data = b""
        self.turn = 0

    def reads_all(self) -> None:
        """Read and answer until the end."""
        while END not in self.data:
            self.read()

    def read(self) -> None:
        data = os.read(self.master, 65536)
        self.data += data
        self.text += _plain(data)
        while self.keys:
            prompt, answer = self.keys[self.turn % len(self.keys)]
            _, found, after = self.text.partition(prompt)
            if not found:
                return
            self.text = after
            self.turn += 1
            os.write(self.master, answer.encode())


def _plain(data: bytes) -> str:
    return ESCAPES.sub("", data.decode("utf-8", "replace")).replace("\r\n", "\n")


def _has_keys(request: Any):
    return request.arguments.get("options") or "answer" in request.arguments


def _yes(request: Any):
    """Return the line by which a person approves a request or answers a question."""
    if not request.is_question:
        return "a\n"
    return "y\n" if request.arguments.get("answer") == "yes/no" else "1\n"


async def shown_on_terminal(request: Any, monkeypatch: pytest.MonkeyPatch):
    """Return everything that a person sees of a request before they approve it."""
    with contextlib.ExitStack() as stack:
        master, slave = pty.openpty()
        termios.tcsetwinsize(master, (24, 80))
        for name, mode in (("stdin", "r"), ("stderr", "w")):
            file = stack.enter_context(os.fdopen(slave, mode, closefd=False))
            monkeypatch.setattr(sys, name, file)
        stack.callback(os.close, slave)
        stack.callback(os.close, master)
        person = Person(master, [(PROMPT, "v\n"), (PROMPT, _yes(request))])
        if request.is_question and not _has_keys(request):
            person = Person(master, [("answer nothing\n> ", "it is Bob\n")])
        # In a thread: a long text fills the terminal before the loop goes on.
        reading = asyncio.get_running_loop().run_in_executor(None, person.reads_all)
        channel = TerminalChannel()
        if request.is_question:
            assert isinstance(await channel.answer(request), Answered)
        else:
            assert await channel.decide(request) == Approved()
        os.write(slave, END)
        await reading
        return _plain(person.data)


class TestTerminal(ApprovalContract):
    # One terminal asks one question at a time: an answer can go to no other.
    people = (ApprovalContract.people | {"answers"}) - {"decides one"}

    @pytest.fixture
    async def channel_to_person_who(self, monkeypatch: pytest.MonkeyPatch):
        with contextlib.ExitStack() as stack:

            def make(person: Any):
                if person == "is away":
                    monkeypatch.setattr(sys, "stdin", stack.enter_context(open(os.devnull)))
                    return TerminalChannel()
                master, slave = pty.openpty()
                termios.tcsetwinsize(master, (24, 80))
                for name, mode in (("stdin", "r"), ("stderr", "w")):
                    file = stack.enter_context(os.fdopen(slave, mode, closefd=False))
                    monkeypatch.setattr(sys, name, file)
                stack.callback(os.close, slave)
                if person == "cannot be reached":  # the window of the terminal is closed
                    os.close(master)
                    return TerminalChannel()
                stack.callback(os.close, master)
                loop = asyncio.get_running_loop()
                loop.add_reader(master, Person(master, KEYS[person]).read)
                stack.callback(loop.remove_reader, master)
                return TerminalChannel()

            yield make

    @pytest.fixture
    def shown_to(self, monkeypatch: pytest.MonkeyPatch):
        async def show(request: Any):
            return Shown(text=await shown_on_terminal(request, monkeypatch), offers_yes=True)

        return show


class TestPackage(PluginContract):
    name = "approval-terminal"
    offers = {"approval": ["terminal"], "command": ["approvals"]}
