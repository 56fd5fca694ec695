"""Signals while the command line runs async code."""

import asyncio
import os
import signal
import time

import pytest

from delf_cli import interrupt
from delf_cli.errors import InterruptedRunError
from delf_cli.interrupt import run_until_done


def test_function_that_blocks_the_loop_is_named_after_a_signal(monkeypatch, capsys):
    monkeypatch.setattr(interrupt, "BUSY_SECONDS", 0.01)
    shown = ""

    async def block():
        nonlocal shown
        os.kill(os.getpid(), signal.SIGINT)
        end = time.monotonic() + 20
        while "not stopped yet" not in shown and time.monotonic() < end:
            shown += capsys.readouterr().err
        await asyncio.Event().wait()

    with pytest.raises(InterruptedRunError):
        run_until_done(block)
    assert "not stopped yet, blocked by " in shown
    assert "press Ctrl-C again to end the process at once" in shown
