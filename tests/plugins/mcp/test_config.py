"""``mcp.json`` as other programs read it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from delf.errors import ConnectionConfigurationError, EnvironmentKeyError
from delf_mcp.config import server_settings, servers_in
from delf_mcp.repair import data_of, needs_repair, repaired

FILE = """\ufeff// servers of VS Code
{
  "inputs": [{"id": "api-key", "type": "promptString"}], /* asked */
  "servers": {
    "one": {
      "command": "run", // it is "there"
      "args": ["--url=https://x.example/a//b", "${workspaceFolder}/data", "a,]"],
      "env": {"PORT": 8080, "DEBUG": true, "RATE": 0.5, "KEY": "${input:api-key}", "NONE": null},
      "envFile": "${workspaceFolder}/.env",
    },
    "two": {"serverUrl": "https://x.example/mcp"},
    "three": {"httpUrl": "https://x.example/mcp"},
  },
}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / ".vscode").mkdir()
    (tmp_path / ".env").write_text("\ufeff# own\nexport A=1\nB='two words' \nC=x # why\nPORT=1\n")
    path = tmp_path / ".vscode" / "mcp.json"
    path.write_text(FILE)
    return path


def test_configuration_of_another_program_is_read_as_by_that_program(config, tmp_path):
    found = server_settings(config, "one", {"API_KEY": "secret"})
    assert found["args"] == ["--url=https://x.example/a//b", f"{tmp_path}/data", "a,]"]
    assert found["env"] == {
        "A": "1", "B": "two words", "C": "x", "PORT": "8080", "DEBUG": "true", "RATE": "0.5", "KEY": "secret",
    }  # fmt: skip
    assert server_settings(config, "one", {"api-key": "own"})["env"]["KEY"] == "own"
    for name in ("two", "three"):
        assert server_settings(config, name, {}) == {"url": "https://x.example/mcp"}


def test_servers_are_found_in_editor_settings(tmp_path):
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"editor": 1, "mcp": {"servers": {"a": {"command": "x"}}}}))
    assert servers_in(path) == {"a": {"command": "x"}}


@pytest.mark.parametrize(
    ("entry", "read"),
    [
        (
            {"command": ["npx", "-y", "x"], "args": ["--port", 8080]},
            {"command": "npx", "args": ["-y", "x", "--port", "8080"]},
        ),
        ({"command": "x", "args": [1.5, True]}, {"command": "x", "args": ["1.5", "true"]}),
        ({"command": "${userHome}${/}x"}, {"command": f"{Path.home()}/x"}),
        (
            {"url": "https://x.example", "headers": {"X-Version": 2, "X-None": None}},
            {"url": "https://x.example", "headers": {"X-Version": "2"}},
        ),
        ({"command": "x", "envFile": ".env"}, {"command": "x", "env": {"A": "1"}}),
    ],
)
def test_server_entry_is_parsed(entry, read, tmp_path):
    (tmp_path / ".env").write_text("A=1")
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"a": entry}}))
    assert server_settings(path, "a", {}) == read


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ('A="one # two" # why', "one # two"),
        ("A='x'  # it's \"y\"", "x"),
        ('A="say "hi""', 'say "hi"'),
        ("A=\"x' # y", "\"x'"),
        ("A=''", ""),
    ],
)
def test_comment_may_follow_a_quoted_value(line, value, tmp_path):
    (tmp_path / ".env").write_text(line)
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"a": {"command": "x", "envFile": ".env"}}}')
    assert server_settings(path, "a", {})["env"] == {"A": value}


def test_variables_file_of_an_unknown_user_is_a_missing_file(tmp_path):
    path = tmp_path / "mcp.json"
    path.write_text('{"servers": {"a": {"command": "x", "envFile": "~nobody-here/.env"}}}')
    with pytest.raises(ConnectionConfigurationError, match=r"nobody-here/\.env' cannot be read"):
        server_settings(path, "a", {})


def test_project_folder_of_a_file_above_is_its_folder(tmp_path):
    (tmp_path / "part").mkdir()
    (tmp_path / ".env").write_text("A=1")
    content = '{"servers": {"a": {"command": "x", "envFile": "${workspaceFolder}/.env"}}}'
    (tmp_path / "mcp.json").write_text(content)
    assert server_settings(tmp_path / "part/../mcp.json", "a", {})["env"] == {"A": "1"}


def test_variable_syntax_of_another_program_is_refused(tmp_path):
    path = tmp_path / "mcp.json"
    path.write_text('{"servers": {"a": {"command": "x", "args": ["${config:a.key}"]}}}')
    with pytest.raises(ConnectionConfigurationError, match=r"the variable \${config:a.key} of"):
        server_settings(path, "a", {})


def test_configuration_error_names_the_place(config, tmp_path):
    with pytest.raises(
        EnvironmentKeyError,
        match=r"mcp.json: one: the input 'api-key' is needed, and API_KEY is not set",
    ):
        server_settings(config, "one", {})
    (tmp_path / ".env").unlink()
    with pytest.raises(
        ConnectionConfigurationError, match=r"mcp.json: one: envFile .* cannot be read"
    ):
        server_settings(config, "one", {"API_KEY": "x"})
    config.write_text('{"servers": {"a": {"command": "x", "env": {"B": {"c": 1}}}}}')
    with pytest.raises(
        ConnectionConfigurationError, match=r"mcp.json: a: env.B is not a text or a number"
    ):
        server_settings(config, "a", {})


@pytest.mark.parametrize("command", ["x", ["npx", "x"]])
def test_arguments_that_are_no_list_are_refused(command, tmp_path):
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"servers": {"a": {"command": command, "args": "--all"}}}))
    with pytest.raises(ConnectionConfigurationError, match=r"mcp.json: a: args is not a list"):
        server_settings(path, "a", {})


@pytest.mark.parametrize("metadata", [{}, {"_meta": None}, {"_meta": {"a": 1}}])
@pytest.mark.parametrize("data", [[1, {"a": None}], [], "text", 5, False, {"value": 1}, {}])
def test_structured_result_may_be_any_json(data, metadata):
    sent = {"content": [], "structuredContent": data, **metadata}
    text = json.dumps({"jsonrpc": "2.0", "id": 1, "result": sent})
    assert needs_repair(text)
    result = json.loads(repaired(text))["result"]
    assert isinstance(result["structuredContent"], dict)
    assert data_of(result.get("_meta"), result["structuredContent"]) == data
