"""``delf plugins install | uninstall | check``: what is handed to pip, and what is found wrong."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from delf_cli.main import cli
from delf_manage import packages


def clone(folder: Path, **needs: str) -> dict[str, Path]:
    """Packages of a clone, by what each needs."""
    found: dict[str, Path] = {}
    for name, need in needs.items():
        full = name.replace("_", "-")
        found[full] = folder / name
        found[full].mkdir()
        (found[full] / "pyproject.toml").write_text(
            f'[project]\nname = "{full}"\ndependencies = {["click", *filter(None, [need])]}\n'
        )
    return found


def test_what_a_clone_has_comes_from_it_with_what_it_needs(tmp_path):
    here = clone(tmp_path, delf_plugin_gadget="delf-gadgets>=1", delf_gadgets="delf-core>=0.1")
    taken = list(packages._wanted(["gadget[big]", "delf-plugin-gadget"], here))
    assert taken == [
        str(here["delf-gadgets"]),
        f"{here['delf-plugin-gadget']}[big]",
        str(here["delf-gadgets"]),
        str(here["delf-plugin-gadget"]),
    ]


def test_a_folder_is_used_where_it_is_with_what_its_extras_need_of_the_clone(tmp_path):
    here = clone(tmp_path, delf_plugin_kit="click", delf_plugin_box="delf-boxes", delf_boxes="")
    core = tmp_path / "delf-core"
    core.mkdir()
    (core / "pyproject.toml").write_text(
        '[project]\nname = "delf-core"\n[project.optional-dependencies]\ntesting = ["delf-plugin-kit"]\n'
    )
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "pyproject.toml").write_text(
        '[project]\nname = "mine"\ndependencies = ["delf-core>=0.1"]\n'
        '[project.optional-dependencies]\ntest = ["delf-core[testing]", "delf-plugin-box"]\n'
    )
    here["delf-core"] = core
    assert list(packages._wanted([f"{mine}[test]"], here, editable=True)) == [
        str(here["delf-plugin-kit"]),
        str(here["delf-boxes"]),
        str(here["delf-plugin-box"]),
        f"--editable={mine}[test]",
    ]
    assert list(packages._wanted([str(mine)], here)) == [str(mine)]


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("sql[postgresql]", "delf-plugin-sql[postgresql]"),
        ("delf-plugin-sql", "delf-plugin-sql"),
        ("somebodys-tickets>=2", "somebodys-tickets>=2"),
        ("git+https://example.com/x", "git+https://example.com/x"),
    ],
)
def test_elsewhere_names_are_those_of_packages(name, taken):
    assert list(packages._wanted([name], {})) == [taken]


def test_this_delf_knows_its_clone():
    assert {"delf-plugin-sql", "delf-google"} <= packages._clone().keys()


def test_check_of_what_is_sound():
    done = CliRunner().invoke(cli, ["plugins", "check", "sql", "delf-plugin-chat"])
    assert (done.exit_code, done.stderr) == (0, "")
    assert [line[:2] for line in done.stdout.splitlines()] == ["✓ ", "✓ "]
    assert "connection sql" in done.stdout


def test_check_tells_what_cannot_be_imported(site):
    site.add("delf-plugin-hollow")  # its factory is in a module that there is not
    done = CliRunner().invoke(packages.check, ["hollow"])
    assert done.exit_code == 1
    assert "✗ hollow 1.0  connection hollow" in done.stdout
    assert "connection 'hollow': " in done.stdout


def test_a_plugin_that_brings_nothing_is_not_sound(site):
    misspelt = "from delf.hookspecs import hookimpl\n\n@hookimpl\ndef delf_prefilter(): ...\n"
    site.add("delf-plugin-misspelt", misspelt)
    done = CliRunner().invoke(packages.check, ["misspelt"])
    assert done.exit_code == 1
    assert done.stdout.splitlines() == [
        "✗ misspelt 1.0",
        "    delf_prefilter is no hook of this delf; did you mean 'delf_prefilters'?",
        "    it brings nothing",
    ]


def test_an_unknown_plugin():
    for command in ("check", "uninstall"):
        done = CliRunner().invoke(cli, ["plugins", command, "sqll"])
        assert done.exit_code == 2
        assert "no plugin 'sqll' is installed; did you mean 'sql'?" in done.stderr
