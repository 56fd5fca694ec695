"""Executes the Python of a page in one namespace; gives back what each block printed."""

import ast
import asyncio
import contextlib
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
    sys.path.insert(0, os.getcwd())  # as for a file that a person runs
    page = types.ModuleType("__main__")  # where classes of the page look up their annotations
    sys.modules["__main__"] = page
    names = vars(page)
    printed = []
    for block in json.load(sys.stdin):
        code, where = block["code"], block["where"]
        linecache.cache[where] = (len(code), None, code.splitlines(keepends=True), where)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            program = compile(code, where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            if program.co_flags & inspect.CO_COROUTINE:
                asyncio.run(eval(program, names))
            else:
                exec(program, names)
        printed.append(out.getvalue())
    sys.stdout.write(json.dumps(printed))


if __name__ == "__main__":
    main()
