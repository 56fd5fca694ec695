"""A task over every source, in a process that a user, a shell or a service has set up oddly.

python odd_place.py '{"connections": {"name": "url"}, "queries": {"name": "SQL"}, "files": ["path"],
"output": "folder", "query": "SQL", "umask": 63, "pandas": {"option": "value"}, "gone": "folder"}'

What the task says is printed as JSON: its answer, its warnings, and its output files.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

from delf import Agent, tool
from delf.testing import ScriptedModel, TestHost
from delf_sql import SQL

SCRIPT = """
seen = {{name: await place.query(queries[name]) for name, place in zip(queries, ({names},))}}
for file in await files.list():
    seen[file["name"]] = await files.read(file["name"])
seen["asked"] = await files.query({query!r})
seen["frame"] = await frame()
for name in ("frame.csv", "frame.json", "frame.xlsx", "Grüße 東京.txt"):
    await add_to_output_files(name, "Grüße 東京" if name.endswith(".txt") else seen["frame"])
print(ascii(seen))
"""


@tool(effect="read")
def frame() -> Any:
    """A data frame with words, numbers, days and nothing."""
    import pandas as pd

    frames: Any = pd
    days = frames.to_datetime(["2026-01-02 03:04:05", None]).tz_localize("UTC")
    columns = {"words": ["Grüße", None], "tenth": [0.1 / 3, 1e20], "day": days, "n": [1, 2]}
    return frames.DataFrame(columns).set_index("n")


async def main(given: dict[str, Any]) -> None:
    """Run the task.

    Args:
        given: What to read, and what is odd about the process.
    """
    if given["pandas"]:
        import pandas as pd

        warnings.simplefilter("ignore", DeprecationWarning)  # of what pandas 4 will not have
        for option, value in given["pandas"].items():
            pd.set_option(option, value)
    if given["umask"] is not None:
        os.umask(given["umask"])
    if given["gone"]:
        os.mkdir(given["gone"], 0o700)
        os.chdir(given["gone"])
        os.rmdir(given["gone"])
    host = TestHost.discover()
    model = ScriptedModel()
    host.provide(model.spec, model.factory)
    names = ", ".join(given["connections"])
    script = SCRIPT.format(names=names, query=given["query"])
    model.writes(f"queries = {given['queries']!r}\n{script}")
    model.says("done")
    connections = [SQL(url=url, name=name) for name, url in given["connections"].items()]
    async with Agent(
        tools=[*connections, frame],
        llm="scripted",
        host=host,
        journal="none",
        sandbox="local",
        output_dir=given["output"],
        retry_count=0,
        on_confirm=lambda _: True,
    ) as agent:
        response = await agent.arun("Read everything.", files=given["files"])
    if response.error is not None:
        raise SystemExit(str(response.error))
    message = {
        "text": response.text,
        "warnings": list(response.trace.warnings),
        "files": {name: Path(path).read_bytes().hex() for name, path in response.files.items()},
    }
    print(json.dumps(message))


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
