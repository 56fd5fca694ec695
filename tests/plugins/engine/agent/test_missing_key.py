"""Tests of what the first example prints when the API key is missing."""

import os
import subprocess
import sys
import textwrap
import traceback

import pytest

from delf import Agent, DelfError, tool
from delf.errors import EnvironmentKeyError

FIRST_EXAMPLE = """
    from delf import Agent, tool

    @tool(effect="read", confirm=False)
    def stock(product: str) -> int:
        \"\"\"How many pieces of a product are in the warehouse.\"\"\"
        return 0

    with Agent(tools=[stock], llm="gpt-4o-mini", sandbox="local") as agent:
        agent.run("Is there a desk in stock?")
"""


def test_missing_key_error_prints_message_and_hint_on_two_lines(tmp_path):
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "DELF_"))}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FIRST_EXAMPLE)],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    *_, error, hint = done.stderr.strip().splitlines()
    assert error.endswith(
        "EnvironmentKeyError: the model 'gpt-4o-mini' needs a key: OPENAI_API_KEY is not set"
    )
    assert hint.startswith("hint: export OPENAI_API_KEY=")
    assert done.stderr.count('  File "') <= 3


def test_printed_error_includes_its_hint():
    shown = "".join(traceback.format_exception(DelfError("it broke", hint="mend it")))
    assert shown.rstrip().splitlines()[-1] == "hint: mend it"
    assert not hasattr(DelfError("it broke"), "__notes__")


async def test_missing_key_raises_from_asynchronous_code(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    @tool(effect="read")
    def nothing() -> None:
        """Do nothing."""

    async with Agent(tools=[nothing], llm="gpt-4o-mini", sandbox="local") as agent:
        with pytest.raises(EnvironmentKeyError) as raised:
            await agent.arun("x")
    assert not any("strategy" in frame.filename for frame in traceback.extract_tb(raised.tb))
