"""``delf openapi effects``."""

import json
import tomllib

import pytest

from delf_openapi.selection import only_reads
from support.cli_fixtures import *  # noqa: F403 - here, run


def operation(name, method, path):
    return path, {method: {"operationId": name, "responses": {"200": {"description": ""}}}}


@pytest.fixture
def project(here):
    paths = dict(
        [
            operation("read_runs", "post", "/runs/filter"),
            operation("runs_history", "post", "/runs/search"),
            operation("create_run", "post", "/runs"),
            operation("get_run", "get", "/runs/{id}"),
            operation("delete_and_list", "post", "/runs/delete"),
        ]
    )
    spec = {"openapi": "3.0.3", "info": {"title": "t", "version": "1"}, "paths": paths}
    (here / "spec.json").write_text(json.dumps(spec))
    text = (
        '[connections.api]\ntype = "openapi"\nspec = "spec.json"\nbase_url = "http://127.0.0.1:9"\n'
    )
    (here / "delf.toml").write_text(text)
    return here / "delf.toml"


def test_effects_command_lists_reading_operations(run, project):
    done = run("openapi", "effects", "api")
    assert done.exit_code == 0, done.output
    assert tomllib.loads(done.stdout) == {"effects": {"read_runs": "read", "runs_history": "read"}}
    assert "2 of 5 operations" in done.stderr
    data = json.loads(run("openapi", "effects", "api", "--json").stdout)
    assert data == {**tomllib.loads(done.stdout), "actions": 5}
    with project.open("a") as file:
        file.write(done.stdout)
    shown = run("inspect", "api").stdout
    assert [line.split()[1:] for line in shown.splitlines() if "read_runs" in line] == [
        ["read", "free", "POST", "/runs/filter"]
    ]


def test_effects_command_refuses_other_connections(run, here):
    (here / "delf.toml").write_text('[connections.shop]\ntype = "sql"\nurl = "sqlite:///x.db"\n')
    done = run("openapi", "effects", "shop")
    assert done.exit_code != 0
    assert "shop is not a REST API" in done.output


@pytest.mark.parametrize(
    ("name", "path", "reads"),
    [
        ("query_metrics", "/metrics", True),
        ("runs", "/runs/_search", True),
        ("set_filter", "/filter", False),
        ("items", "/items/{search}", False),
        ("close_ticket", "/tickets/{id}/close", False),
    ],
)
def test_reading_operations_are_recognised_by_name_or_path(name, path, reads):
    assert only_reads(name, path) is reads
