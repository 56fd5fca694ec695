"""The data libraries that scripts use most do their work inside, one after another in one process."""

from dataclasses import replace
from typing import Any

import pytest

from delf.protocols.sandbox import Done
from support.data_libraries import ANSWERS, USES, installed
from support.scripting import NotingHost, local_session, session_spec

GB = 2**30
pytestmark = pytest.mark.slow


@pytest.mark.timeout(120)
async def test_installed_libraries_work():
    names = installed()
    spec = session_spec(cpu_seconds=100, memory_bytes=6 * GB, open_files=256)
    spec = replace(spec, libraries=tuple(names))
    ends: dict[str, Any] = {}
    async with local_session(spec) as session:
        for name in names:
            ends[name] = await session.execute(USES[name], NotingHost())
    values = {name: end.value if isinstance(end, Done) else end for name, end in ends.items()}
    assert values == {name: ANSWERS[name] for name in names}


async def test_library_dates_fit_the_script_clock():
    """Types of compiled libraries derive from the real ones; scripts see those of the replay."""
    if "pandas" not in installed():
        pytest.skip("pandas is not installed")
    code = """
import pandas as pd
from datetime import date, datetime
at = pd.Timestamp("2024-01-02 03:04")
class Day(date): pass
[isinstance(at, datetime), isinstance(at.date(), date), at == datetime(2024, 1, 2, 3, 4),
 (at - datetime(2024, 1, 1)).days, pd.Series([date(2024, 1, 2), Day(2024, 1, 3)]).max().day,
 str(pd.to_datetime([datetime(2024, 1, 2)])[0]), hasattr(datetime.now(), "__dict__")]
"""
    spec = session_spec(memory_bytes=6 * GB)
    spec = replace(spec, libraries=("pandas",))
    async with local_session(spec) as session:
        outcome = await session.execute(code, NotingHost())
    assert isinstance(outcome, Done), outcome
    assert outcome.value == [True, True, True, 1, 3, "2024-01-02 00:00:00", False]


async def test_library_caches_are_not_output():
    if "matplotlib" not in installed():
        pytest.skip("matplotlib is not installed")
    spec = replace(session_spec(memory_bytes=6 * GB, cpu_seconds=100), libraries=("matplotlib",))
    host = NotingHost()
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.savefig('a.png')\nprint('ok')"
    async with local_session(spec) as session:
        outcome = await session.execute(code, host)
    assert isinstance(outcome, Done), outcome
    assert host.text == "ok\n"
    assert list(host.files) == ["a.png"]
