"""The words with which the page's scripts show errors and numbers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import delf_serve
from support.server import find_program

PAGE = Path(delf_serve.__file__).with_name("page")


def run_script(names: tuple[str, ...], more: str) -> str:
    """Return what JavaScript prints at the end of some of the page's scripts."""
    lines = [line for name in names for line in (PAGE / name).read_text().splitlines()]
    scripts = "\n".join(line for line in lines if not line.startswith("import "))
    script = f"const document = {{ baseURI: 'http://localhost/' }};\n{scripts}\n{more}"
    command = [find_program("node"), "--input-type=module", "--eval", script]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_message_of_a_refused_request_ends_with_its_hint():
    shown = "console.log(new Refused(409, { detail: 'it runs', hint: 'cancel it' }).message)"
    assert run_script(("words.js", "api.js"), shown) == "it runs — cancel it"
    assert run_script(("words.js", "api.js"), shown.replace(", hint: 'cancel it'", "")) == "it runs"


def test_duration_on_the_page_is_rounded_before_its_unit_is_chosen():
    shown = "console.log([999.6, 59940, 59960, 125000, 3599900].map(duration).join(', '))"
    expected = "1.0 s, 59.9 s, 1 min 00 s, 2 min 05 s, 1 h 00 min"
    assert run_script(("words.js",), shown) == expected
