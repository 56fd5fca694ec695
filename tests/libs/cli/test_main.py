import json
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

import delf
from delf.packages.official import how_to_install
from delf.plugins.host import PluginHost
from delf.specs import CommandSpec
from delf_cli import main as main_module
from delf_cli.errors import report, report_json
from delf_cli.main import cli
from delf_cli.state import State
from support.program import DELF, environment
from support.program import delf as run_delf


def test_version_flag_prints_the_version(run):
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"delf {delf.__version__}\n")


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (["rnu"], "unknown command 'rnu'; did you mean 'run'?", "delf --help"),
        (["run"], "Missing argument 'TASK'.", "delf run --help"),
        (["run", "x", "--timeout", "0"], "'--timeout'", "delf run --help"),
        (["run", "x", "--json", "--events"], "cannot be used together", "delf run --help"),
        (["run", " "], "the task is empty", "delf run --help"),
        (["plugins", "nope"], "nope", "delf plugins --help"),
    ],
)
def test_usage_error_is_two_lines_with_status_2(run, arguments, error, hint):
    result = run(*arguments)
    assert result.exit_code == 2
    assert bool(result.stdout) == ("--json" in arguments)
    first, second = result.stderr.splitlines()
    assert first.startswith("error: ")
    assert error in first
    assert second == f"hint: {hint}"


@pytest.mark.parametrize(
    "words",
    [
        ("runs",),
        ("runs", "show"),
        ("config", "show"),
        ("chat",),
    ],
)
def test_every_command_accepts_global_flags_after_its_name(words):
    state = State()
    arguments = [*words, "--config", "other.toml", "--debug", "--no-plugins", "--help"]
    assert cli.main(arguments, obj=state, standalone_mode=False) == 0
    assert (state.config, state.debug, state.no_plugins) == ("other.toml", True, True)


def test_config_file_named_after_a_plugins_command_is_used(run):
    result = run("runs", "list", "--config", "missing.toml")
    assert result.exit_code == 2
    assert "missing.toml does not exist" in result.stderr


COUNT_MODULES = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))
sys.argv = ["delf", *{arguments!r}]
from delf_cli.main import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("arguments", "status"),
    [(["--version"], 0), (["--help"], 0), (["run", "--help"], 0), (["plugins"], 0)],
)
def test_read_only_commands_do_not_import_the_engine(tmp_path, arguments, status):
    code = COUNT_MODULES.format(arguments=arguments)
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert result.returncode == status
    modules = set(json.loads(result.stderr.splitlines()[-1]))
    roots = {name.partition(".")[0] for name in modules}
    assert not roots & {"pydantic", "pydantic_settings", "rich", "asyncio", "sqlalchemy"}
    assert not {
        name for name in modules if name.startswith(("delf_engine.project", "delf_engine.agent"))
    }


class Plugin:
    """Stands in for a plugin with one command."""


def host_with(monkeypatch: pytest.MonkeyPatch, factory: str) -> None:
    from delf.hookspecs import hookimpl

    class Brings:
        @hookimpl
        def delf_commands(self):
            yield CommandSpec(name="extra", summary="An extra command.", factory=factory)

    host = PluginHost.discover(no_plugins=True, extra=[("extra", Brings())])
    monkeypatch.setattr(main_module.State, "discover", lambda self, environ=None: host)


@click.command("extra")
def extra() -> int:
    """An extra command."""
    click.echo("hello from a plugin")
    return 7


def test_plugin_adds_a_command(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "extra_command", sys.modules[__name__])
    host_with(monkeypatch, "extra_command:extra")
    assert "An extra command." in run("--help").stdout
    result = run("extra")
    assert (result.exit_code, result.stdout) == (0, "hello from a plugin\n")


@click.command("extra")
@click.option("--config", default="")
def own_config(config: str) -> None:
    """Return a command with an option that the program has, too."""
    click.echo(f"config: {config}")


def test_plugin_command_gets_its_own_flag_in_place_of_the_global_flag(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "extra_command", sys.modules[__name__])
    host_with(monkeypatch, "extra_command:own_config")
    assert run("extra", "--config", "mine", "--debug").stdout == "config: mine\n"


@click.command("extra")
@click.argument("config")
def own_argument(config: str) -> None:
    """Return a command with an argument named like an option of the program."""
    click.echo(f"config: {config}")


def test_argument_of_a_plugin_command_sets_no_global_flag(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "extra_command", sys.modules[__name__])
    host_with(monkeypatch, "extra_command:own_argument")
    result = run("extra", "prod")
    assert (result.stdout, result.stderr) == ("config: prod\n", "")


@pytest.mark.parametrize("factory", ["no_such_module:extra", "json:dumps"])
def test_broken_plugin_command_is_reported_without_traceback(run, monkeypatch, factory):
    host_with(monkeypatch, factory)
    result = run("extra")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: plugin 'extra'")
    assert "Traceback" not in result.stderr


def test_unexpected_failure_is_one_line_unless_debug(run, monkeypatch):
    def fail(self, *args):
        raise ValueError("something\nodd")

    monkeypatch.setattr(main_module.State, "load_project", fail)
    result = run("run", "x")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[0] == "error: unexpected ValueError: something odd"
    assert "Traceback" not in result.stderr
    for arguments in (["--debug", "run", "x"], ["run", "x", "--debug"]):
        assert "Traceback" in run(*arguments).stderr


def test_error_message_sends_no_control_codes_to_the_terminal(capsys):
    report(delf.DelfError("bad\x1b]0;title\x07 \x9b2J\u202e end", hint="a\rb"))
    text = capsys.readouterr().err
    assert "\x1b" not in text
    assert "\x9b" not in text
    assert "\u202e" not in text
    assert "bad\\x1b]0;title\\x07" in text


def test_error_as_json_sends_no_control_codes_to_the_terminal(capsys):
    report_json(delf.DelfError("bad \x9b2J\u202e end"))
    text = capsys.readouterr().out
    assert "\x9b" not in text
    assert "\u202e" not in text
    assert json.loads(text)["error"]["message"] == "bad \x9b2J\u202e end"


BROKEN = {
    "import_error": "import nothing_like_this",
    "syntax_error": "def (",
    "exits": "import sys; sys.exit(3)",
    "bad_hook": (
        "from delf.hookspecs import hookimpl\n@hookimpl\ndef delf_commands(): return 'no'"
    ),
}


@pytest.fixture
def broken_site(tmp_path: Path) -> Path:
    """Return a folder of installed plugins that are all broken."""
    site = tmp_path / "site"
    for name, source in BROKEN.items():
        info = site / f"delf_plugin_{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Name: delf-plugin-{name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[delf]\n{name} = broken_{name}\n")
        (site / f"broken_{name}.py").write_text(source)
    return site


@pytest.mark.slow
def test_broken_plugins_do_not_affect_other_commands(tmp_path, broken_site):
    env = {"PYTHONPATH": str(broken_site)}
    listed = run_delf("plugins", "--json", cwd=tmp_path, env=env)
    assert listed.returncode == 0
    states = {row["name"]: row["state"] for row in json.loads(listed.stdout)}
    assert {states[name] for name in BROKEN} == {"failed"}
    assert states["sandbox-local"] == "loaded"
    text = run_delf("plugins", cwd=tmp_path, env=env).stdout
    assert "nothing_like_this" in text
    for arguments in (["--help"], ["doctor", "--json"], ["inspect", "sql"]):
        result = run_delf(*arguments, cwd=tmp_path, env=env)
        assert "Traceback" not in result.stderr
        assert result.stdout


ALL_BROKEN = """
import os, sys
from importlib.abc import MetaPathFinder

class Broken(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.startswith("delf_") and name.partition(".")[0] != "delf_cli":
            raise SyntaxError(f"{name} is broken by " + os.environ["SHOP_TOKEN"])

sys.meta_path.insert(0, Broken())
from delf.cli.start import main
sys.exit(main())
"""
SAYS_WHAT_IS_BROKEN = "'run': plugin 'console' (delf-plugin-console 0.1.0) is failed"


@pytest.mark.parametrize(
    ("arguments", "status", "answer"),
    [
        (["--version"], 0, "delf 0.1.0"),
        (["--help"], 0, "Usage: delf"),
        (["plugins"], 0, "\nengine (delf-plugin-engine 0.1.0): SyntaxError: delf_engine is broken"),
        (["plugins", "--json"], 0, '"state": "failed"'),
        (["run", "x"], 2, SAYS_WHAT_IS_BROKEN),
        (["run", "x", "--json"], 2, SAYS_WHAT_IS_BROKEN),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_program_starts_with_every_plugin_broken(tmp_path, arguments, status, answer):
    result = subprocess.run(
        [sys.executable, "-c", ALL_BROKEN, *arguments],
        cwd=tmp_path,
        env=environment(SHOP_TOKEN="t0ken-of-the-shop"),
        capture_output=True,
        text=True,
    )
    assert result.returncode == status
    assert answer in result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    assert "t0ken" not in result.stdout + result.stderr


def test_no_plugins_flag_disables_every_plugin(run):
    rows = json.loads(run("--no-plugins", "plugins", "--json").stdout)
    assert {row["state"] for row in rows if row["distribution"] != "delf-core"} == {"disabled"}
    assert run("plugins", "list", "--no-plugins", "--json").stdout
    assert "demo" not in run("--no-plugins", "--help").stdout


@pytest.mark.parametrize("command", ["run", "resume", "runs"])
def test_command_of_a_missing_package_names_it(run, monkeypatch, command):
    monkeypatch.setattr(PluginHost, "discover", lambda **_: PluginHost([]))
    result = run(command, "x")
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        f"error: no command {command!r} is installed",
        f"hint: {how_to_install('delf-plugin-console')}",
    ]


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_cause_no_failure(here, closed):
    done = subprocess.run(
        ["bash", "-c", f'"$0" plugins {closed}', DELF], cwd=here, env=environment(), check=False
    )
    assert done.returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("arguments", [["--help"], ["plugins", "--json"]])
def test_full_output_device_is_reported_in_one_line(here, arguments, unbuffered):
    env = environment(PYTHONUNBUFFERED=unbuffered)
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [DELF, *arguments], cwd=here, env=env, stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == 1
    assert done.stderr == b"error: the output cannot be written: No space left on device\n"


EARLY = """
import os, signal, sys
from delf.cli import start

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "delf_cli.main":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Slow())
sys.exit(start.main())
"""


def test_ctrl_c_during_import_prints_nothing(here):
    done = subprocess.run([sys.executable, "-c", EARLY], cwd=here, capture_output=True)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")
