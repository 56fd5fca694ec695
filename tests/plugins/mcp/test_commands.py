"""Commands for servers that a project uses."""

import json
import sys
import tomllib

import pytest
from platformdirs import user_state_path

from plugins.mcp.conftest import ROGUE, SERVER
from support.cli_fixtures import *  # noqa: F403 - here, run


@pytest.fixture
def project(here):
    text = f'[connections.srv]\ntype = "mcp"\ncommand = "{sys.executable}"\nargs = ["{SERVER}"]\n'
    (here / "delf.toml").write_text(text)
    return here / "delf.toml"


def test_effects_command_writes_a_line_for_the_project(run, project):
    done = run("mcp", "effects", "srv")
    assert done.exit_code == 0, done.output
    assert tomllib.loads(done.stdout) == {"effects": {"add": "read", "note": "write"}}
    assert "about 2 of its 13 tools" in done.stderr
    data = json.loads(run("mcp", "effects", "srv", "--json").stdout)
    assert data == {**tomllib.loads(done.stdout), "actions": 13}
    with project.open("a") as file:
        file.write(done.stdout)
    shown = run("inspect", "srv").stdout
    assert "add             read          free" in shown
    assert "note            write         asks" in shown
    assert "wipe            irreversible  asks" in shown


def test_changed_tool_needs_approval_until_accepted(run, project):
    with project.open("a") as file:
        file.write('effects = { add = "read" }\n')
    assert "add             read          free" in run("inspect", "srv").stdout
    (kept,) = (user_state_path("delf", appauthor=False) / "mcp").glob("*.json")
    message = json.loads(kept.read_text())
    kept.write_text(json.dumps({**message, "covered": {"add": ["0" * 64]}}))
    shown = run("inspect", "srv").stdout
    assert "add             irreversible  asks" in shown
    assert "delf mcp effects srv --accept" in shown
    assert run("mcp", "effects", "srv", "--accept").exit_code == 0
    assert "add             read          free" in run("inspect", "srv").stdout


@pytest.mark.parametrize("option", ["allow", "confirm"])
def test_inspect_reports_permissions_that_name_no_tool(run, project, option):
    with project.open("a") as file:
        file.write(f'{option} = ["ad-d"]\n')
    shown = run("inspect", "srv")
    assert shown.exit_code == 0
    assert "note: tasks cannot use the connection: " in shown.stdout
    assert f"{option} of 'srv' names 'ad-d'" in shown.stdout


def test_effects_command_refuses_other_connections(run, here):
    (here / "delf.toml").write_text('[connections.shop]\ntype = "sql"\nurl = "sqlite:///x.db"\n')
    done = run("mcp", "effects", "shop")
    assert done.exit_code != 0
    assert "shop is not an MCP server" in done.output


def test_unknown_tools_in_effects_are_reported(run, project):
    with project.open("a") as file:
        file.write('effects = { addd = "read" }\n')
    done = run("inspect", "srv")
    assert "note: srv: effects names 'addd', which matches no tool; did you mean" in done.stdout


def test_commands_redact_a_secret_that_the_server_repeats(run, here):
    broken = {"type": "object", "properties": {"a": {"$ref": "#/s3cret-4711-token"}}}
    tools = [
        {"name": "lamp", "inputSchema": {"type": "object"}, "description": "s3cret-4711-token"},
        {"name": "desk", "inputSchema": broken},
    ]
    (here / "does.json").write_text(json.dumps({"tools": tools}))
    program = f'command = "{sys.executable}"\nargs = ["{ROGUE}", "plain", "does.json"]\n'
    env = 'env = { API_TOKEN = "s3cret-4711-token" }\n'
    (here / "delf.toml").write_text(f'[connections.srv]\ntype = "mcp"\n{program}{env}')
    for command in (("mcp", "effects", "srv"), ("inspect", "srv", "--verbose")):
        done = run(*command)
        assert done.exit_code == 0, done.output
        assert "$ref '#/[redacted]' leads nowhere" in done.output
        assert "s3cret" not in done.output
