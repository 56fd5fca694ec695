"""The program without the package ``delf-cli``: version, plugins, and what is missing."""

from __future__ import annotations

import json
import os
import sys
from typing import Final

import delf
from delf.packages.official import how_to_install, package_of

_HELP: Final = """\
Usage: delf --version | delf plugins [--json]

There are no other commands, as no package is installed that brings some.
"""


def main() -> int:
    """The program's exit status."""
    words = sys.argv[1:]
    command = next((word for word in words if not word.startswith("-")), None)
    if command == "plugins":
        _list_plugins(as_json="--json" in words)
    elif command is not None:
        return _refuse(command)
    elif "--version" in words or "-V" in words:
        _say(f"delf {delf.__version__}")
    else:
        _say(f"{_HELP}Most people want: {how_to_install('delf-core[standard]')}")
    return 0


def _list_plugins(*, as_json: bool) -> None:
    from delf.engine.redact import Redactor
    from delf.plugins.host import PluginHost
    from delf.secrets import secrets_of_environ
    from delf.terminal import visible

    redactor = Redactor(secrets_of_environ(os.environ))
    report = redactor.value(PluginHost.discover().report())
    if as_json:
        _say(json.dumps(report, ensure_ascii=False, indent=2))
        return
    for row in report:
        brings = (f"{kind} {', '.join(names)}" for kind, names in row["kinds"].items())
        facts = [row["state"], row["version"], *brings, row["reason"], *row["warnings"]]
        _say(visible(f"{row['name']}: {'; '.join(filter(None, facts))}"))


def _refuse(command: str) -> int:
    package = package_of("command", command) or "delf-core[standard]"
    sys.stderr.write(f"error: no command {command!r} is installed\n")
    sys.stderr.write(f"hint: {how_to_install(package)}\n")
    return 2


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
