"""Signals while the command line runs async code."""

import asyncio
import contextlib
import io
import os
import signal
import time

import pytest

from delf_cli import interrupt
from delf_cli.errors import InterruptedRunError
from delf_cli.interrupt import run_until_done


def test_function_that_blocks_the_loop_is_named_after_a_signal(monkeypatch):
    monkeypatch.setattr(interrupt, "BUSY_SECONDS", 0.01)
    # Not capsys: what another thread writes while capsys reads is lost.
    shown = io.StringIO()

    async def block():
        os.kill(os.getpid(), signal.SIGINT)
        end = time.monotonic() + 20
        while "not stopped yet" not in shown.getvalue() and time.monotonic() < end:
            pass
        await asyncio.Event().wait()

    with contextlib.redirect_stderr(shown), pytest.raises(InterruptedRunError):
        run_until_done(block)
    assert "not stopped yet, blocked by " in shown.getvalue()
    assert "press Ctrl-C again to end the process at once" in shown.getvalue()
