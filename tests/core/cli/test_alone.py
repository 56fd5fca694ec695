"""The program where no package is installed that brings commands."""

import json
import subprocess
import sys

import pytest

import delf
from support.program import environment

PROGRAM = """
import sys
sys.modules["delf_cli"] = None  # as where it is not installed
sys.argv[0] = "delf"
from delf.cli.start import main
sys.exit(main())
"""


@pytest.fixture
def alone(tmp_path):
    def run(*arguments, **variables):
        return subprocess.run(
            [sys.executable, "-c", PROGRAM, *arguments],
            cwd=tmp_path, env=environment(**variables), capture_output=True, text=True,
        )  # fmt: skip

    return run


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_the_version(alone, flag):
    done = alone(flag)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"delf {delf.__version__}\n", "")


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_says_what_to_install(alone, arguments):
    done = alone(*arguments)
    assert done.returncode == 0
    assert "pip install 'delf-core[standard]'" in done.stdout


def test_the_plugins(alone):
    secret = "a-s3cret-of-the-environment"
    listed = alone("plugins", DELF_DISABLE_PLUGINS="chat", OPENAI_API_KEY=secret)
    assert listed.returncode == 0
    lines = dict(line.split(": ", 1) for line in listed.stdout.splitlines())
    assert lines["sql"] == "loaded; 0.1.0; connection sql"
    assert lines["chat"] == "disabled; 0.1.0; disabled by DELF_DISABLE_PLUGINS"
    rows = {row["name"]: row for row in json.loads(alone("plugins", "--json").stdout)}
    assert rows["sql"]["state"] == "loaded"
    assert rows["sql"]["kinds"] == {"connection": ["sql"]}


def test_a_broken_plugin_tells_no_secret(alone, tmp_path):
    info = tmp_path / "delf_plugin_leaky-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: delf-plugin-leaky\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[delf]\nleaky = leaky_plugin\n")
    (tmp_path / "leaky_plugin.py").write_text(
        "import os\nraise ValueError(os.environ['OPENAI_API_KEY'])"
    )
    for arguments in (["plugins"], ["plugins", "--json"]):
        done = alone(*arguments, PYTHONPATH=str(tmp_path), OPENAI_API_KEY="sk-planted-s3cret-0123")
        assert "ValueError" in done.stdout
        assert "s3cret" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("command", "package"),
    [
        ("run", "delf-plugin-cli"),
        ("sandbox", "delf-plugin-sandbox-docker"),
        ("rnu", "delf-core[standard]"),
    ],
)
def test_a_command_names_the_package_that_brings_it(alone, command, package):
    done = alone(command, "x")
    assert (done.returncode, done.stdout) == (2, "")
    error, hint = done.stderr.splitlines()
    assert error == f"error: no command {command!r} is installed"
    assert hint.startswith("hint: ")
    assert package.removeprefix("delf-plugin-") in hint
