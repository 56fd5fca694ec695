"""Tests that files of an untrusted project have no effect, and that its texts have a source."""

from __future__ import annotations

import importlib
import os
import py_compile
import sys
import types
from pathlib import Path
from py_compile import PycInvalidationMode

import pytest

from delf import Agent, load_project
from delf.environment import source_of
from delf.errors import ConfigurationError, FolderNotTrustedError, PluginError
from delf.plugins.host import PluginHost
from delf.specs import ConnectionSpec
from delf.testing import TestHost
from delf.trust.decisions import remember
from delf_engine.project.folder import read_folder


@pytest.fixture(autouse=True)
def nobody_vouches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DELF_TRUST")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "shop"
    found.mkdir()
    return found


def trust(folder: Path) -> None:
    found = read_folder(folder, None, {})
    remember(found.root, found.items)


def files(folder: Path, **environ: str) -> set[str]:
    return set(read_folder(folder, None, environ).items)


ALL = {
    "delf.toml": "[agent]\ntimeout = 5\n",
    ".env": "A=1\n",
    "pricing.json": '{"gpt-*": {"input": 0, "output": 0}}',
    "workers/a.worker": "---\n---\nHi.\n",
}


@pytest.mark.parametrize("name", ALL)
def test_changed_project_file_needs_trust_again(folder, name):
    load_project(folder, environ={})
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(ALL[name])
    with pytest.raises(FolderNotTrustedError) as caught:
        load_project(folder, environ={})
    assert (caught.value.files, caught.value.changed) == ((name,), False)
    trust(folder)
    load_project(folder, environ={})
    path.write_text(ALL[name].replace("5", "6").replace("=1", "=2").replace("0", "1") + "\n")
    changed = {"workers/a.worker": "---\n---\nHo.\n"}
    path.write_text(changed.get(name, path.read_text()))
    with pytest.raises(FolderNotTrustedError) as caught:
        load_project(folder, environ={})
    assert (caught.value.files, caught.value.changed) == ((name,), True)


@pytest.mark.parametrize("name", ["delf.toml", ".env"])
def test_removed_settings_file_needs_trust_once(folder, name):
    (folder / name).write_text(ALL[name])
    trust(folder)
    (folder / name).unlink()
    with pytest.raises(FolderNotTrustedError) as caught:
        load_project(folder, environ={})
    assert (caught.value.files, caught.value.changed) == ((name,), True)
    trust(folder)
    load_project(folder, environ={})
    (folder / name).write_text(ALL[name])
    with pytest.raises(FolderNotTrustedError):
        load_project(folder, environ={})


def test_changed_comments_need_no_new_trust(folder):
    (folder / "delf.toml").write_text("[agent]\ntimeout = 5\nllm = 'x'\n")
    (folder / ".env").write_text("A=1\nB=2\n")
    trust(folder)
    (folder / "delf.toml").write_text('# mine\nagent = {llm = "x",   timeout = 5}\n')
    (folder / ".env").write_text("# mine\n\nB=2\nexport A='1'\n")
    assert load_project(folder, environ={}).agent.timeout == 5


def test_program_can_trust_its_own_folder(folder, monkeypatch):
    (folder / "delf.toml").write_text("[agent]\ntimeout = 5\nllm = 'scripted'\n")
    assert load_project(folder, environ={}, trust=True).agent.timeout == 5
    assert Agent.from_project(folder, trust=True, journal="none").config.timeout == 5
    for path in (folder, folder / "delf.toml"):
        with pytest.raises(FolderNotTrustedError, match="is not trusted yet"):
            Agent.from_project(path)
    monkeypatch.setenv("DELF_TRUST", str(folder))
    assert load_project(folder, environ={}).agent.timeout == 5


def test_folder_cannot_declare_itself_trusted(folder):
    (folder / ".env").write_text(f"DELF_TRUST={folder}\n")
    (folder / "delf.toml").write_text("")
    with pytest.raises(FolderNotTrustedError):
        load_project(folder, environ={})


# -- which files ----------------------------------------------------------------------------------

NAMED = """
[agent]
llm = "recorded:answers.jsonl"
files = ["data.json"]
output_dir = "out"

[connections.tickets]
type = "mcp"
config = "${NOWHERE:-conf/mcp.json}"
tokens = "tokens.json"

[connections.api]
type = "openapi"
spec = "./api.yaml"

[connections.tool]
type = "mcp"
command = "./server"
args = ["run.py", "-v", "rows.csv"]

[connections.shop]
type = "sql"
url = "sqlite:///shop.db"

[connections.outside]
type = "openapi"
spec = "../other.json"

[plugins.audit]
path = "trail.json"
"""


def test_trusted_files_are_those_named_by_the_settings(folder):
    (folder / "delf.toml").write_text(NAMED)
    (folder / ".env").write_text("DELF_MORE_CONFIG=more.json\n")
    (folder / "conf").mkdir()
    (folder.parent / "other.json").write_text("{}")
    for name in ("answers.jsonl", "data.json", "conf/mcp.json", "tokens.json", "api.yaml", "run.py",
                 "rows.csv", "shop.db", "trail.json", "more.json", "beside.py"):  # fmt: skip
        (folder / name).write_text("{}")
    (folder / "server").write_text("#!/bin/sh\n")
    (folder / "server").chmod(0o755)
    assert files(folder) == {
        "delf.toml",
        ".env",
        "answers.jsonl",
        "conf/mcp.json",
        "api.yaml",
        "run.py",
        "server",
        "more.json",
        "beside.py",  # a program is started, which may load it
    }
    text = NAMED.replace('type = "mcp"\ncommand = "./server"\nargs', 'type = "api"\nrest')
    (folder / "delf.toml").write_text(text.replace('"run.py", "-v", ', ""))
    assert "beside.py" not in files(folder), "no program is started"
    assert "conf/mcp.json" in files(folder)
    assert "conf/mcp.json" not in files(folder, NOWHERE="elsewhere.json")


@pytest.mark.parametrize("blanks", [0, 20_000_000], ids=["short", "long"])
def test_program_in_a_named_file_needs_trust_for_the_code_beside_it(folder, blanks):
    (folder / "delf.toml").write_text("[connections.x]\ntype = 'mcp'\nconfig = 'servers.json'\n")
    (folder / "servers.json").write_text(" " * blanks + r'{"a": {"\u0063ommand": "./run.py"}}')
    (folder / "run.py").write_text("")
    assert files(folder) == {"delf.toml", "servers.json", "run.py"}


@pytest.mark.parametrize("connection", ["files", "path", "database"])
def test_files_of_a_connection_with_the_name_of_a_data_setting_need_trust(folder, connection):
    (folder / "delf.toml").write_text(f"[connections.{connection}]\nspec = 'api.json'\n")
    (folder / "api.json").write_text("{}")
    assert files(folder) == {"delf.toml", "api.json"}


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ("config", "servers"),
        ("config", "servers.txt"),
        ("config", "servers.conf"),
        ("config", "SERVERS.JSON"),
        ("spec", "api.md"),
        ("args", "server.txt"),
        ("args", "server.py3"),
        ("certificate", "own.crt"),
    ],
)
def test_named_file_needs_trust_whatever_its_suffix_is(folder, setting, name):
    (folder / "delf.toml").write_text(f"[connections.x]\ntype = 'x'\n{setting} = '{name}'\n")
    (folder / name).write_text("x")
    assert name in files(folder)
    (folder / "delf.toml").write_text("")
    (folder / ".env").write_text(f"DELF_X_{setting.upper()}={name}\n")
    assert name in files(folder)


@pytest.mark.parametrize(
    "text", ["{model}", '{{"model": "{model}"}}', "gpt-4o,{model}"], ids=["name", "table", "list"]
)
def test_recording_named_in_dotenv_needs_trust(folder, text):
    (folder / "answers.jsonl").write_text("{}")
    (folder / ".env").write_text(f"DELF_LLM={text.format(model='recorded:answers.jsonl')}\n")
    assert files(folder) == {".env", "answers.jsonl"}


LINKS = {
    "files": ("[agent]\nfiles = ['{name}']\n", "{name}"),
    "own_files": ("[agent]\nown_files = ['below/../{name}']\n", "{name}"),
    "database": ("[connections.shop]\nurl = 'sqlite:///{name}?mode=ro'\n", "{name}"),
    "default": ("[connections.shop]\nurl = '${{NOWHERE:-sqlite:///{name}}}'\n", "{name}"),
    "servers": ("[connections.x]\ntype = 'mcp'\nconfig = '{name}'\n", "{name}"),
    "folder": ("[connections.disk]\nroots = {{all = {{root = '{name}'}}}}\n", "{name}"),
    "within": ("[agent]\noutput_dir = '{name}/new'\n", "{name}/new"),
}


@pytest.mark.parametrize("place", LINKS)
def test_named_link_out_of_the_folder_needs_trust(folder, tmp_path, place):
    text, name = (part.format(name="link") for part in LINKS[place])
    (folder / "delf.toml").write_text(text)
    (folder / "link").mkdir()
    trust(folder)
    (folder / "link").rmdir()
    (folder / "link").symlink_to(tmp_path)
    assert read_folder(folder, None, {}).links_outside.keys() == {name}
    with pytest.raises(FolderNotTrustedError) as caught:
        load_project(folder, environ={})
    assert caught.value.files == (name,)
    trust(folder)
    load_project(folder, environ={})
    (folder / "link").unlink()
    (folder / "link").symlink_to("/")
    with pytest.raises(FolderNotTrustedError):
        load_project(folder, environ={})


def test_named_link_within_the_folder_is_data(folder):
    (folder / "delf.toml").write_text("[agent]\nfiles = ['latest.csv']\n")
    (folder / "may.csv").write_text("1")
    (folder / "latest.csv").symlink_to("may.csv")
    assert files(folder) == {"delf.toml"}


@pytest.mark.parametrize("target", ["loop", "delf.toml/../other"])
def test_endless_link_counts_as_outside(folder, target):
    (folder / "delf.toml").write_text("[agent]\nfiles = ['loop']\n")
    (folder / "loop").symlink_to(target)
    (folder / "other").symlink_to("other")
    assert read_folder(folder, None, {}).links_outside == {"loop": "a link that leads to itself"}


def test_trusted_files_include_workers_and_adjacent_python(folder):
    (folder / "delf.toml").write_text("[connections.workers]\nfolders = ['agents', '../others']\n")
    for name in ("workers/a.worker", "workers/tools.py", "workers/b/worker.worker",
                 "workers/b/tools.py", "workers/b/notes.txt", "workers/generated/c/worker.worker",
                 "workers/none/tools.py", "agents/d.worker", "agents/helper.py",
                 "elsewhere/e.worker", "../others/f.worker"):  # fmt: skip
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    assert files(folder) == {
        "delf.toml",
        "workers/a.worker",
        "workers/tools.py",
        "workers/b/worker.worker",
        "workers/b/tools.py",
        "workers/b/notes.txt",  # instructions may take it in
        "workers/generated/c/worker.worker",
        "agents/d.worker",
        "agents/helper.py",
    }


def test_python_folder_without_workers_is_ignored(folder):
    (folder / "workers").mkdir()
    (folder / "workers/jobs.py").write_text("")
    assert files(folder) == set()


def test_dotenv_of_the_root_precedes_that_of_the_subfolder(folder):
    (folder / "below").mkdir()
    (folder / "delf.toml").write_text("")
    (folder / "below/.env").write_text("A=below\n")
    assert files(folder / "below") == {"delf.toml", "below/.env"}
    assert files(folder) == {"delf.toml"}
    trust(folder)
    with pytest.raises(FolderNotTrustedError):
        load_project(folder / "below", environ={})
    trust(folder / "below")
    for place in (folder, folder / "below"):
        load_project(place, environ={})
    (folder / ".env").write_text("A=root\n")
    assert files(folder / "below") == {"delf.toml", ".env"}


# -- who gave what --------------------------------------------------------------------------------


def test_model_settings_record_their_source(folder):
    (folder / "delf.toml").write_text(
        "[agent]\nllm = {model = 'm', base_url = 'http://f', api_key = '${K}'}\n"
        "providers = {openai = 'k'}\n"
    )
    (folder / ".env").write_text('DELF_LLM__HEADERS={"X": "y"}\nDELF_API_KEY_FOR={"h": "k"}\n')
    variables = {"K": "k", "DELF_LLM__SETTINGS": '{"live_model": "wss://e"}'}
    agent = load_project(
        folder,
        environ=variables,
        overrides=["agent.llm.base_url=http://typed", "agent.providers.google=g"],
        trust=True,
    ).agent
    llm = agent.main_llm
    texts = (llm.model, llm.base_url, llm.api_key, *(llm.headers or {}).values())
    assert [source_of(text) for text in texts] == ["project", "command line", "project", "project"]
    assert source_of(llm.settings["live_model"]) == "environment"
    assert {name: source_of(key) for name, key in agent.providers.items()} == {
        "openai": "project",
        "google": "command line",
    }
    assert {source_of(key) for key in agent.api_key_for.values()} == {"project"}
    flagged = load_project(
        folder, environ=variables, flags={"llm": {"base_url": "http://flag"}}, trust=True
    )
    assert source_of(flagged.agent.main_llm.base_url) == "command line"


def test_plugin_options_record_their_source(folder):
    (folder / "delf.toml").write_text("[plugins.audit]\nbase_url = 'http://f'\nmodel = 'm'\n")
    found = load_project(
        folder,
        environ={"DELF_AUDIT_MODEL": "n"},
        overrides=["plugins.audit.api_key=k"],
        trust=True,
    ).plugin_options["audit"]
    assert {name: source_of(value) for name, value in found.items()} == {
        "base_url": "project",
        "model": "environment",
        "api_key": "command line",
    }


@pytest.mark.parametrize("name", ["workers/tools.py", "workers/b.worker"])
def test_project_file_link_out_of_the_folder_is_refused(folder, tmp_path, name):
    (folder / "workers").mkdir()
    (folder / "workers/a.worker").write_text("---\n---\nHi.\n")
    secret = tmp_path / "secret"
    secret.write_text("hunter2")
    secret.chmod(0)
    (folder / name).symlink_to(secret)
    with pytest.raises(ConfigurationError, match="is a link out of its folder"):
        read_folder(folder, None, {})


def test_trusted_files_have_a_total_size_limit(folder):
    (folder / "workers").mkdir()
    (folder / "workers/a.worker").write_text("---\n---\nHi.\n")
    with (folder / "workers/tools.py").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ConfigurationError, match="have more than 500,000,000 bytes"):
        read_folder(folder, None, {})


RECIPES = """
from delf.hookspecs import hookimpl
from delf.specs import ConnectionSpec


def project_files(folder):
    yield from folder.files_of(folder.root / "recipes")
    yield from folder.files_of(folder.root / ".." / "elsewhere")


@hookimpl
def delf_connections():
    yield ConnectionSpec(
        name="recipes", summary="Recipes.", factory="x:y", project_files="recipes_plugin:project_files"
    )
"""


def test_files_named_by_third_party_plugins_need_trust(folder, monkeypatch):
    (folder.parent / "recipes_plugin.py").write_text(RECIPES)
    (folder.parent / "elsewhere").mkdir()
    (folder.parent / "elsewhere/a.txt").write_text("a")
    (folder / "recipes").mkdir()
    (folder / "recipes/tea.txt").write_text("Boil water.")
    monkeypatch.syspath_prepend(str(folder.parent))
    module = importlib.import_module("recipes_plugin")
    host = PluginHost.discover(environ={}, extra=[("recipes", module)])
    assert files(folder) == set(), "without the plugin its files have no effect"
    with pytest.raises(FolderNotTrustedError) as caught:
        load_project(folder, environ={}, host=host)
    assert caught.value.files == ("recipes/tea.txt",)
    sys.modules.pop("recipes_plugin")


def test_plugin_with_unlistable_files_stops_the_project(folder):
    spec = ConnectionSpec(name="x", summary="X.", factory="x:y", project_files="nowhere:at_all")
    host = TestHost.discover(environ={})
    host.provide(spec, object)
    with pytest.raises(PluginError, match="cannot load nowhere:at_all"):
        load_project(folder, environ={}, host=host)


@pytest.mark.parametrize("fault", ["raise KeyError('x')", "return None", "return ['tea.txt']"])
def test_error_of_a_function_for_project_files_names_its_plugin(folder, monkeypatch, fault):
    functions = types.ModuleType("faulty_plugin")
    exec(f"def listed(folder): {fault}", functions.__dict__)
    monkeypatch.setitem(sys.modules, "faulty_plugin", functions)
    spec = ConnectionSpec(
        name="x", summary="X.", factory="x:y", project_files="faulty_plugin:listed"
    )
    host = TestHost.discover(environ={})
    host.provide(spec, object)
    with pytest.raises(PluginError, match="faulty_plugin:listed"):
        load_project(folder, environ={}, host=host)


@pytest.mark.parametrize(
    ("mode", "needs_trust"),
    [
        (PycInvalidationMode.TIMESTAMP, False),
        (PycInvalidationMode.CHECKED_HASH, True),  # a stranger knows the hash of server.py, too
        (PycInvalidationMode.UNCHECKED_HASH, True),  # Python runs it whatever server.py is
    ],
)
def test_compiled_module_that_python_does_not_write_needs_trust(folder, mode, needs_trust):
    (folder / "delf.toml").write_text('[connections.a]\ntype = "mcp"\ncommand = "python"\n')
    source = folder / "server.py"
    source.write_text("print('good')\n")
    known_files = files(folder)
    compiled = py_compile.compile(str(source), invalidation_mode=mode)
    added_files = files(folder) - known_files
    assert added_files == (
        {Path(compiled).relative_to(folder).as_posix()} if needs_trust else set()
    )


@pytest.mark.parametrize("link", ["helper.py", ".venv/lib/helper.py"])
@pytest.mark.parametrize("target", ["notes.txt", "__pycache__/notes.py"])
def test_changed_target_of_a_link_to_code_needs_trust_again(folder, link, target):
    (folder / "delf.toml").write_text('[connections.a]\ntype = "mcp"\ncommand = "python"\n')
    for path in (folder / link, folder / target):
        path.parent.mkdir(parents=True, exist_ok=True)
    (folder / target).write_text("print('good')\n")
    (folder / link).symlink_to(os.path.relpath(folder / target, (folder / link).parent))
    trust(folder)
    load_project(folder, environ={})
    (folder / target).write_text("print('evil')\n")
    with pytest.raises(FolderNotTrustedError):
        load_project(folder, environ={})


def test_change_at_the_end_of_a_large_file_that_a_link_leads_to_needs_trust_again(folder):
    (folder / "delf.toml").write_text('[connections.a]\ntype = "mcp"\ncommand = "python"\n')
    (folder / "helper.py").symlink_to("notes.txt")
    with (folder / "notes.txt").open("wb") as file:
        file.truncate(30_000_000)
        trust(folder)
        load_project(folder, environ={})
        file.seek(-1, os.SEEK_END)
        file.write(b"x")
    with pytest.raises(FolderNotTrustedError):
        load_project(folder, environ={})


@pytest.mark.parametrize("cache", [".ruff_cache", ".mypy_cache/3.11", ".hg", "a/__pycache__"])
def test_code_in_a_cache_needs_trust(folder, cache):
    (folder / "delf.toml").write_text('[connections.a]\ntype = "mcp"\ncommand = "python"\n')
    (folder / cache).mkdir(parents=True)
    for name in ("lastfailed", "7.json", "server.py", "fast.so"):
        (folder / cache / name).write_text("x")
    assert files(folder) == {"delf.toml", f"{cache}/server.py", f"{cache}/fast.so"}
