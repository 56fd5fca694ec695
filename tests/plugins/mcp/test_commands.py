"""Commands for servers that a project uses."""

import sys
import tomllib

import pytest

from plugins.mcp.conftest import SERVER
from support.cli_fixtures import *  # noqa: F403 - here, run


@pytest.fixture
def project(here):
    text = f'[connections.srv]\ntype = "mcp"\ncommand = "{sys.executable}"\nargs = ["{SERVER}"]\n'
    (here / "delf.toml").write_text(text)
    return here / "delf.toml"


def test_what_a_server_says_of_its_tools_is_a_line_for_the_project(run, project):
    done = run("mcp", "effects", "srv")
    assert done.exit_code == 0, done.output
    assert tomllib.loads(done.stdout) == {"effects": {"add": "read", "note": "write"}}
    assert "of 2 of its 13 tools" in done.stderr
    with project.open("a") as file:
        file.write(done.stdout)
    shown = run("inspect", "srv").stdout
    assert "add             read          free" in shown
    assert "note            write         asks" in shown
    assert "wipe            irreversible  asks" in shown


def test_a_connection_that_is_no_server_has_no_such_line(run, here):
    (here / "delf.toml").write_text('[connections.shop]\ntype = "sql"\nurl = "sqlite:///x.db"\n')
    done = run("mcp", "effects", "shop")
    assert done.exit_code != 0
    assert "shop is no MCP server" in done.output


def test_what_is_left_out_is_shown(run, project):
    with project.open("a") as file:
        file.write('effects = { addd = "read" }\n')
    done = run("inspect", "srv")
    assert (
        "note: srv: effects names 'addd', which is none of its tools; did you mean" in done.stdout
    )
