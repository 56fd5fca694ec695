"""Tests of the public names of the core, and of those that installed plugins export."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import delf
from delf.errors import OptionalDependencyError, PluginError
from delf.plugins.host import PluginHost
from delf.specs import ConnectionSpec
from delf_devkit.testing.hosts import install_plugin

PLUGIN = """
from delf.hookspecs import hookimpl
from delf.specs import ConnectionSpec

@hookimpl
def delf_connections():
    yield ConnectionSpec(
        name="desk", summary="Made up.", factory="delf_{name}.desk:Desk"
    )
"""


def site_with(tmp_path: Path, *names: str) -> Path:
    site = tmp_path / "site"
    for name in names:
        package = site / f"delf_{name}"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "plugin.py").write_text(PLUGIN.replace("{name}", name))
        (package / "desk.py").write_text(f"class Desk: origin = {name!r}\nclass Ticket: pass\n")
        exports = {each: f"delf_{name}.desk:{each}" for each in ("Desk", "Ticket")}
        install_plugin(site, name, exports=exports)
    return site


def run(code: str, site: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    path = {} if site is None else {"PYTHONPATH": str(site)}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**path, **environ}
    )


@pytest.mark.parametrize("name", delf.__all__)
def test_public_names_of_the_core_exist(name: str) -> None:
    assert getattr(delf, name) is not None


def test_plugin_exports_are_importable_from_delf(tmp_path: Path) -> None:
    site = site_with(tmp_path, "one")
    code = "from delf import Desk, Ticket; print(Desk.origin, Ticket.__module__)"
    assert run(code, site).stdout == "one delf_one.desk\n"


def test_importing_core_names_imports_no_plugin(tmp_path: Path) -> None:
    site = site_with(tmp_path, "one")
    code = "import sys; from delf import Agent; print('delf_one' in sys.modules)"
    assert run(code, site).stdout == "False\n"


def test_first_party_exports_resolve() -> None:
    from delf import SQL, APITool  # pyright: ignore[reportAttributeAccessIssue]

    assert SQL.__name__ == "SQL"
    assert APITool.__name__ == "APITool"


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("Gmail", "delf-plugin-gmail"),
        ("APITool", "delf-plugin-openapi"),
        ("Memory", "delf-plugin-memory-semantic"),
        ("Recall", "delf-plugin-memory-semantic"),
    ],
)
def test_export_of_a_missing_package_names_the_package(name: str, package: str) -> None:
    host = PluginHost.discover(no_plugins=True)
    with pytest.raises(OptionalDependencyError, match=name) as caught:
        host.load_export(name)
    assert package in caught.value.message
    assert isinstance(caught.value, ImportError)


def test_import_error_names_the_missing_package() -> None:
    code = "from delf import Gmail"
    result = run(code, DELF_DISABLE_PLUGINS="all")
    assert "OptionalDependencyError" in result.stderr
    assert "delf-plugin-gmail" in result.stderr


def test_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Agnet'; did you mean 'Agent'"):
        _ = delf.Agnet  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = delf.nothing  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(ImportError, match="cannot import name 'Zebra'"):
        from delf import Zebra  # noqa: F401 # pyright: ignore[reportAttributeAccessIssue]


def test_export_of_two_plugins_needs_a_preference(tmp_path: Path) -> None:
    site = site_with(tmp_path, "one", "two")
    result = run("from delf import Desk", site)
    assert "the name 'Desk' is given by delf-plugin-one 0.1.0 and delf-plugin-two" in result.stderr
    code = "from delf import Desk; print(Desk.origin)"
    assert run(code, site, DELF_PREFER_PLUGINS="delf-plugin-two").stdout == "two\n"


# -- which plugin wins ----------------------------------------------------------------------


def two() -> PluginHost:
    summaries = {"one": "Made up.", "two": "Another."}
    extra = [
        (name, _plugin(ConnectionSpec(name="desk", summary=text, factory="a:b")))
        for name, text in summaries.items()
    ]
    environ = {"DELF_PREFER_PLUGINS": "two, one"}
    return PluginHost.discover(environ=environ, no_plugins=True, extra=extra)


def _plugin(spec: ConnectionSpec) -> object:
    from delf.hookspecs import hookimpl

    class Plugin:
        @hookimpl
        def delf_connections(self) -> list[ConnectionSpec]:
            return [spec]

    return Plugin()


def test_preferred_plugin_provides_the_export() -> None:
    host = two()
    assert host.spec(ConnectionSpec, "desk").summary == "Another."
    assert [spec.summary for spec in host.specs(ConnectionSpec)] == ["Another."]
    records = {record.name: record for record in host.records()}
    assert records["two"].state == "loaded"
    assert "is preferred" in (records["one"].reason or "")


def test_ambiguous_connection_error_says_how_to_choose() -> None:
    extra = [
        (name, _plugin(ConnectionSpec(name="desk", summary=name, factory="a:b")))
        for name in ("one", "two")
    ]
    host = PluginHost.discover(environ={}, no_plugins=True, extra=extra)
    with pytest.raises(PluginError, match="connection 'desk' is given by") as caught:
        host.spec(ConnectionSpec, "desk")
    assert "[plugins] prefer" in (caught.value.hint or "")
