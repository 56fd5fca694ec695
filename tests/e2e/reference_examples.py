"""Runs the reference's own examples with delf in place of it, each in a process of its own.

python reference_examples.py FOLDER     the blocks of FOLDER/blocks.json; prints a line for each

A block runs as a person would run it: at a terminal, its model served by a plugin that is installed
in ``FOLDER/site`` and answers by script. Questions are answered by whoever holds the terminal.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import re
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

SECONDS: Final = 60
PLUGIN: Final = '''
"""A model by script: $SCRIPTS are its scripts, $LOG gets what it is asked."""
import functools, json, os
from delf.hookspecs import hookimpl
from delf.messages import ModelReply, Price, Usage
from delf.specs import ModelSpec

NAMES = ("gemini-3.5-flash", "gemini-3.1-flash-lite", "gpt-5.5", "claude-opus-4-8", "claude-sonnet-4-6")

@functools.cache
def scripts_of_this_process():
    return json.loads(os.environ.get("SCRIPTS", "[]")) or ["print(1)"]

@hookimpl
def delf_models():
    yield ModelSpec(name="by-script", summary="By script.", factory="delf_by_script:Model", serves=NAMES)

class Model:
    def __init__(self, context, config):
        self.name, self.settings = config.model, dict(config.settings)

    async def price(self):
        return Price(input=1.0, output=2.0, cached_input=0.5)

    async def complete(self, request):
        asked = "\\\\n".join(str(message) for message in request.messages)
        with open(os.environ["STUB_LOG"], "a") as log:
            log.write(json.dumps({"asked": asked, "settings": {**self.settings, **request.settings}}) + "\\\\n")
        text = '{"list_pets": "List all pets."}'
        if request.purpose == "generate":
            scripts = scripts_of_this_process()
            text = f"```python\\\\n{scripts.pop(0) if len(scripts) > 1 else scripts[0]}\\\\n```"
        usage = Usage(input_tokens=100, output_tokens=20)
        return ModelReply(text=text, model=self.name, usage=usage, cost_usd=0.00014)

    async def stream(self, request):
        yield await self.complete(request)

    async def aclose(self):
        pass
'''.replace("\\\\n", "\\n")


def install_model(site: Path) -> None:
    """Put the plugin where Python finds it, as an installer did a while ago."""
    info = site / "delf_by_script-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "delf_by_script.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: delf-by-script\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[delf]\nby-script = delf_by_script\n")
    then = time.time() - 60
    os.utime(site, (then, then))


def renamed(code: str) -> str:
    """The code with delf's name in its imports."""
    return re.sub(r"^(\s*from )delfhos\b", r"\1delf", code, flags=re.MULTILINE)


def examples(file: Path) -> dict[int, dict[str, Any]]:
    """The blocks of the reference, by number."""
    spec = importlib.util.spec_from_file_location("reference_blocks", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {block["n"]: block for block in module.X}


def program(block: Mapping[str, Any]) -> str:
    """A block as a program: what it needs, itself, what is to be seen of it."""
    code = block["code"]
    for old, new in block["rep"]:
        code = code.replace(old, new)
    return "\n".join(renamed(part) for part in (block["pre"], code, block["check"]) if part)


HEAD: Final = """
import os
from delf import tool
@tool
def act(n: int) -> str:
    '''Act.'''
    return f"acted {n}"
TOOL, DB = act, os.environ["DB"]
"""


def _run_child(block: Mapping[str, Any], folder: Path) -> None:
    """Run a block in the forked child."""
    os.chdir(folder)
    os.environ.update({**block["environ"], "SCRIPTS": json.dumps(block["scripts"])})
    os.environ["STUB_LOG"] = str(folder / f"asked-{block['n']}.log")
    signal.alarm(SECONDS)
    code = compile(f"{HEAD}\n{block['program']}", f"block {block['n']}", "exec")
    exec(code, {"__name__": "__main__"})


def main(folder: Path) -> None:
    """Run all blocks, one after the other."""
    sys.path.remove(str(Path(__file__).parent))
    warnings.simplefilter("ignore")
    for name in ("agent", "runtime", "views.trace"):
        importlib.import_module(f"delf_engine.{name}")
    for name in (
        "drive.connection",
        "gmail.connection",
        "openapi.cache",
        "openapi.connection",
        "openapi.loading",
        "prefilter_semantic.prefilter",
        "sandbox_local.backend",
        "sheets.connection",
        "sql.backends.sqlite",
        "sql.connection",
        "sql.gate",
        "web.search.connection",
    ):
        importlib.import_module(f"delf_{name}")
    for name in ("google.oauth2.credentials", "httpcore", "anyio"):
        importlib.import_module(name)
    importlib.import_module("delf.plugins.host").PluginHost.discover().records()
    assert threading.active_count() == 1, "a process with threads cannot be forked"
    gc.freeze()
    for block in json.loads((folder / "blocks.json").read_text()):
        child = os.fork()
        if child == 0:
            try:
                _run_child(block, folder)
            except BaseException:
                (folder / f"failed-{block['n']}.txt").write_text(traceback.format_exc())
                os._exit(1)
            sys.exit(0)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        with (folder / "results.jsonl").open("a") as file:
            file.write(json.dumps([block["n"], code]) + "\n")
    time.sleep(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
