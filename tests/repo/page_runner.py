"""Executes the Python of a page: a block a line comes as JSON, and what it printed goes back.

Each block has names of its own, as if it were a program, unless it continues the one before it.
"""

import ast
import asyncio
import contextlib
import importlib
import inspect
import io
import json
import linecache
import os
import sys
import types
import warnings


def main() -> None:
    warnings.simplefilter("error")
    answers, sys.stdout = sys.stdout, sys.stderr
    names: dict[str, object] = {}
    for line in sys.stdin:
        block = json.loads(line)
        os.chdir(block["folder"])
        # as for a file that a person runs there
        sys.path[:2] = [block["folder"], os.path.join(block["folder"], "src")]
        importlib.invalidate_caches()
        if not block["continues"]:
            # where classes of the page look up their annotations
            page = sys.modules["__main__"] = types.ModuleType("__main__")
            names = vars(page)
        answers.write(json.dumps(execute(block["code"], block["where"], names)) + "\n")
        answers.flush()


def execute(code: str, where: str, names: dict[str, object]) -> str:
    linecache.cache[where] = (len(code), None, code.splitlines(keepends=True), where)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        program = compile(code, where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if program.co_flags & inspect.CO_COROUTINE:
            asyncio.run(eval(program, names))
        else:
            exec(program, names)
    return out.getvalue()


if __name__ == "__main__":
    main()
