"""Templates of confined children, forked from a process that has imported what most need.

SQLAlchemy, DuckDB and what reads pages and workbooks take longer to import than most tests run. The
tests of ``delf_confined`` itself start templates as users do.

python -I -X utf8 warm_reader.py PATHS DESCRIPTOR

The paths are a list in JSON. The descriptor is the end of a connection, whose requests
:mod:`support.forking` serves. A request has the paths of its template.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any, Final

_MODULES: Final = (
    "delf_sql.backends.duckdb_child",
    "delf_files.query_child",
    "duckdb_engine",
    "feedparser",
    "openpyxl",
    "pypdf",
)


def become(request: dict[str, Any], descriptors: list[int]) -> None:
    """In a child: be a template."""
    os.setsid()
    os.chdir("/")
    sys.path[:] = request["paths"]
    importlib.invalidate_caches()
    from delf_confined.template import main

    main(descriptors[0])


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    from forking import serve

    sys.path[:] = json.loads(sys.argv[1])
    for name in _MODULES:
        importlib.import_module(name)
    importlib.import_module("delf_web.child").warm_up()
    gc.collect()
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[2])), become)
