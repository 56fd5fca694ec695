"""``delf plugins install | uninstall | check``: what is handed to pip, and what is found wrong."""

import json
import sys
import zipfile
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

from delf.errors import ConfigurationError, DelfError, PluginError
from delf.packages.official import all_packages
from delf_cli.main import cli
from delf_console import installer, packages
from delf_console.sources import Package, Sources, packages_of_clone, sources
from support.commands import check_object, json_tables


def at_hand(folder: Path, editable: Any = False, **needs: list[str]) -> Sources:
    """Make packages of a clone that is not installed, each with its requirements."""
    found: dict[str, Package] = {}
    for name, requires in needs.items():
        full = f"delf-plugin-made-up-{name}".replace("_", "-")
        found[full] = Package(name=full, path=folder / name, requires=requires, editable=editable)
    return Sources(found)


def arguments(here: Any, *names: Any, **options: Any):
    return [item.argument for item in here.items(names, **options)]


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch):
    """Make delf take the fake packages for its own."""
    ours = all_packages() | {f"delf-plugin-made-up-{name}" for name in ("box", "kit", "gears")}
    monkeypatch.setattr("delf_console.sources.all_packages", lambda: ours)


def test_clone_packages_are_installed_with_their_requirements(tmp_path: Path, known: Any):
    here = at_hand(
        tmp_path, box=["delf-plugin-made-up-kit[fast]>=1", "click"], gears=[],
        kit=["delf-plugin-made-up-gears ; extra == 'fast'"],
    )  # fmt: skip
    assert arguments(here, "made-up-box[big]", "delf-plugin-made-up-box") == [
        f"delf-plugin-made-up-gears @ {(tmp_path / 'gears').as_uri()}",
        f"delf-plugin-made-up-kit[fast] @ {(tmp_path / 'kit').as_uri()}",
        f"delf-plugin-made-up-box[big] @ {(tmp_path / 'box').as_uri()}",
        f"delf-plugin-made-up-box @ {(tmp_path / 'box').as_uri()}",
    ]


def test_editable_clone_is_installed_editable(tmp_path: Path, known: Any):
    here = at_hand(tmp_path, editable=True, box=["delf-plugin-made-up-kit"], kit=[])
    assert arguments(here, "made-up-box[big]") == [
        f"--editable={tmp_path / 'kit'}",
        f"--editable={tmp_path / 'box'}[big]",
    ]


def test_wheels_of_a_folder_are_preferred_to_the_index(tmp_path: Path):
    for version in ("0.1.0", "0.10.0", "0.9.0"):
        wheel(tmp_path, "delf_plugin_sheets", version)
    wheel(tmp_path, "delf_plugin_tickets", "9.0")
    here = sources(tmp_path)
    newest = tmp_path / "delf_plugin_sheets-0.10.0-py3-none-any.whl"
    assert here.packages["delf-plugin-sheets"].path == newest
    assert here.packages["delf-plugin-sheets"].requires == ["delf-core>=0.1", "made-up-sdk"]
    assert arguments(here, "sheets") == [f"delf-plugin-sheets @ {newest.as_uri()}"]
    assert arguments(here, "delf-plugin-tickets") == ["delf-plugin-tickets"]


def wheel(folder: Any, name: Any, version: Any):
    needs = "Requires-Dist: delf-core>=0.1\nRequires-Dist: made-up-sdk\n"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as made:
        made.writestr(
            f"{name}-{version}.dist-info/METADATA",
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        )


def test_requirements_of_foreign_plugins_come_from_the_clone(tmp_path: Path, known: Any):
    here = at_hand(tmp_path, box=[], kit=[])
    items = here.items(["delf-plugin-of-somebody", "made-up-box"])
    assert items[0].origin == "from the index; not one of delf's own"
    assert here.constraints(items) == [f"delf-plugin-made-up-kit @ {(tmp_path / 'kit').as_uri()}"]


def test_given_folder_is_installed_with_requirements_from_the_clone(tmp_path: Path, known: Any):
    here = at_hand(tmp_path, box=["delf-plugin-made-up-kit"], kit=[])
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "pyproject.toml").write_text(
        '[project]\nname = "mine"\ndependencies = ["delf-core>=0.1"]\n'
        "[project.optional-dependencies]\n"
        "test = [\"delf-plugin-made-up-box ; python_version >= '3'\"]\n"
    )
    assert arguments(here, f"{mine}[test]", editable=True) == [
        f"delf-plugin-made-up-kit @ {(tmp_path / 'kit').as_uri()}",
        f"delf-plugin-made-up-box @ {(tmp_path / 'box').as_uri()}",
        f"--editable={mine}[test]",
    ]
    assert arguments(here, str(mine)) == [f"mine @ {mine.as_uri()}"]


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("SQL[postgresql]", "delf-plugin-sql[postgresql]"),
        ("delf_plugin_sql>=0.1", "delf-plugin-sql>=0.1"),
        ("delf-plugin-of-somebody>=2", "delf-plugin-of-somebody>=2"),
        ("delf-core[google]", "delf-core[google]"),
    ],
)
def test_install_names_are_normalised_to_packages(name: Any, taken: Any):
    assert arguments(Sources(), name) == [taken]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sq", "no plugin is known as 'sq'; did you mean 'sql'?"),
        ("docker", "no plugin is known as 'docker'; did you mean 'sandbox-docker'?"),
        ("pandas", "no plugin is known as 'pandas'"),
        ("delf", "'delf' is another project's package"),
        ("Delf[standard]", "'Delf' is another project's package"),
        ("delf-plugin-gmial", "no plugin is known as 'delf-plugin-gmial'; did you mean 'gmail'?"),
        ("sql @ https://example.com/sql.whl", "is not the name of a plugin"),
        ("git+https://example.com/sql", "is not the name of a plugin"),
        ("https://example.com/sql.whl", "is not the name of a plugin"),
        ("--index-url=https://example.com", "is not the name of a plugin"),
        ("-r/etc/passwd", "is not a package"),
        ("./nothing", "is not a package"),
        ("nothing.whl", "no plugin is known as 'nothing.whl'"),
    ],
)
def test_unknown_install_name_is_refused(name: Any, text: Any):
    with pytest.raises(PluginError) as caught:
        Sources().items([name])
    assert text in caught.value.message


def test_folder_of_the_same_name_is_not_installed_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "sql").mkdir()
    (tmp_path / "sql/pyproject.toml").write_text('[project]\nname = "strangers"\n')
    monkeypatch.chdir(tmp_path)
    assert arguments(Sources(), "sql") == ["delf-plugin-sql"]
    assert [item.name for item in Sources().items(["./sql"])] == ["strangers"]
    (tmp_path / "sql").rename(tmp_path / "mine")
    with pytest.raises(PluginError, match="no plugin is known as 'mine'") as caught:
        Sources().items(["mine[test]"])
    assert caught.value.hint == "a folder is written as ./mine"
    with pytest.raises(PluginError, match="'sql' is not a folder"):
        Sources().items(["sql"], editable=True)


def test_pip_runs_in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any):
    (tmp_path / "pip.py").write_text("raise SystemExit('a stranger ran')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))  # without uv
    monkeypatch.setattr(installer, "find_spec", Mock())
    monkeypatch.setattr(installer.sys, "prefix", str(tmp_path))
    command = installer.install(["x"])
    assert command[:4] == [sys.executable, "-I", "-m", "pip"]
    installer.run([*command[:4], "--version"], "asking")
    look = "import os, sys; print(os.listdir(), *open('constraints.txt')); sys.exit(3)"
    with pytest.raises(DelfError, match="looking failed, with status 3"):
        installer.run([sys.executable, "-c", look], "looking", constraints=["a", "b"])
    shown = capfd.readouterr().err
    assert "looking …" in shown
    assert str(tmp_path) not in shown
    assert "['constraints.txt'] delf<0\n" in shown


def test_install_without_a_terminal_needs_yes():
    with pytest.raises(ConfigurationError, match="nobody could be asked") as caught:
        installer.agree(["installs"], ["pip"], "install?", yes=False)
    assert caught.value.hint == "approve it in advance: --yes"
    installer.agree(["installs"], ["pip"], "install?", yes=True)


def test_installed_packages_find_their_clone():
    assert {"delf-plugin-sql", "delf-google", "delf-core"} <= packages_of_clone().keys()
    assert all(package.editable for package in packages_of_clone().values())


def test_check_reports_a_factory_that_cannot_be_imported(site: Any):
    site.add("delf-plugin-hollow")  # its factory is in a module that there is not
    done = CliRunner().invoke(packages.check, ["hollow"])
    assert done.exit_code == 1
    assert "✗ hollow 1.0  connection hollow" in done.stdout
    assert "connection 'hollow': " in done.stdout


def test_check_reports_a_plugin_without_specs(site: Any):
    misspelt = "from delf.hookspecs import hookimpl\n\n@hookimpl\ndef delf_prefilter(): ...\n"
    site.add("delf-plugin-misspelt", misspelt)
    done = CliRunner().invoke(packages.check, ["misspelt"])
    assert done.exit_code == 1
    first, nothing, misspelt, *_ = done.stdout.splitlines()
    assert (first, nothing.strip()) == ("✗ misspelt 1.0", "it brings nothing")
    assert misspelt.strip() == (
        "delf_prefilter is not a hook of this delf; did you mean 'delf_prefilters'?"
    )


@pytest.mark.parametrize(
    ("words", "suggested"),
    [
        (["check", "sqll"], "sql"),
        (["check", "sql", "sqll"], "sql"),
        (["check", "docker"], "sandbox-docker"),
        (["uninstall", "sqll"], "sql"),
        (["uninstall", "docker"], "sandbox-docker"),
    ],
)
def test_unknown_plugin_is_refused_with_a_suggestion(words: list[str], suggested: str):
    done = CliRunner().invoke(cli, ["plugins", *words])
    assert done.exit_code == 2
    problem = f"no plugin {words[-1]!r} is installed; did you mean {suggested!r}?"
    assert problem in " ".join(done.stderr.split())


def test_install_and_uninstall_write_json(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(installer, "run", Mock())
    done = CliRunner().invoke(cli, ["plugins", "install", "sql", "--yes", "--json"])
    made = json.loads(done.stdout)
    check_object(made, json_tables()["delf plugins install"])
    assert done.exit_code == 0
    assert [plugin["name"] for plugin in made["plugins"]] == ["sql"], "new or not"
    assert [item["name"] for item in made["installed"]] == ["delf-plugin-sql"]
    done = CliRunner().invoke(cli, ["plugins", "install", "sql[duckdb]", "--yes"])
    assert done.stdout.splitlines()[-1].startswith("✓ sql ")
    done = CliRunner().invoke(cli, ["plugins", "uninstall", "sql", "--yes", "--json"])
    assert json.loads(done.stdout) == {"uninstalled": ["delf-plugin-sql"]}
