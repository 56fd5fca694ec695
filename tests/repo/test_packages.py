"""Every package has the same layout."""

import inspect
import re
import tomllib
from pathlib import Path

import pytest

from delf import Memory
from delf.hookspecs import CONNECTIONS_GROUP, DISTRIBUTION, ENTRY_POINT_GROUP, PLUGIN_API
from delf.packages.official import all_packages, package_of, packages
from delf.plugins.host import PluginHost
from delf.specs import EmbedderSpec
from support.exported import KIT, STUB, kit, stub
from support.official import FILE as OFFICIAL
from support.official import official
from support.options import OPTIONS, options
from support.workspace import CORE, LIBRARIES, PLUGINS, ROOT, Plugin, imports_of, place

PLUGIN_LINES = 80
PLUGIN_IMPORTS = (
    "delf.hookspecs.", "delf.specs.", "__future__.", "collections.abc.", "importlib.util.", "typing.",
)  # fmt: skip

OURS = {f"delf-plugin-{plugin.name}" for plugin in PLUGINS}

every_plugin = pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)
every_package = pytest.mark.parametrize(
    "folder",
    [CORE, *(package.folder for package in (*LIBRARIES, *PLUGINS))],
    ids=lambda folder: str(folder.relative_to(ROOT)),
)


@every_package
def test_package_has_complete_metadata(folder: Path) -> None:
    metadata = tomllib.loads((folder / "pyproject.toml").read_text())
    project = metadata["project"]
    assert metadata["build-system"]["build-backend"] == "hatchling.build"
    assert project["license"] == "Apache-2.0"
    assert project["description"]
    assert project["readme"] == "README.md"
    assert project["requires-python"] == ">=3.11"


@every_package
def test_package_has_its_files(folder: Path) -> None:
    (module,) = (path for path in (folder / "src").iterdir() if (path / "__init__.py").exists())
    assert (module / "py.typed").exists()
    assert (folder / "README.md").read_text().startswith("# ")
    assert (folder / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert not (folder / "LICENSE").is_symlink(), "an sdist would hold a link to nowhere"


def test_packages_depend_on_each_other_within_the_repository() -> None:
    sources = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["sources"]
    assert sources == {name: {"workspace": True} for name in _names()}


def test_bundles_contain_every_plugin_once() -> None:
    extras = tomllib.loads((CORE / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert extras.keys() == {
        "standard", "google", "data", "serve", "memory", "all", "testing",
    }  # fmt: skip
    brought = [re.split(r"[\[>]", line)[0] for lines in extras.values() for line in lines]
    assert set(brought) <= set(_names())
    assert set(brought) >= OURS, "add it to a bundle"


def test_memory_bundle_contains_its_default_embedder() -> None:
    extras = tomllib.loads((CORE / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    default = inspect.signature(Memory).parameters["embedding_model"].default
    spec = PluginHost.discover().spec(EmbedderSpec, default)
    package = package_of("embedder", spec.name)
    assert package is not None
    assert any(line.startswith(package) for line in extras["memory"])
    assert not any(line.startswith(package) for line in extras["all"]), "torch is large"


def _names() -> list[str]:
    folders = [CORE, *(package.folder for package in (*LIBRARIES, *PLUGINS))]
    files = [folder / "pyproject.toml" for folder in folders]
    return [tomllib.loads(file.read_text())["project"]["name"] for file in files]


@every_plugin
def test_plugin_is_named_after_its_folder(plugin: Plugin) -> None:
    project = plugin.metadata["project"]
    assert project["name"] == f"delf-plugin-{plugin.name}"
    points = project["entry-points"]
    if plugin.has_hooks:
        assert points[ENTRY_POINT_GROUP] == {plugin.name: f"{plugin.module}.plugin"}
    else:
        (target,) = points[CONNECTIONS_GROUP].values()
        assert [*points[CONNECTIONS_GROUP]] == [plugin.name]
        assert target.startswith(f"{plugin.module}.")
    assert plugin.source.is_dir()


@every_plugin
def test_plugin_declares_core_and_api_version(plugin: Plugin) -> None:
    project = plugin.metadata["project"]
    core = [line for line in project["dependencies"] if re.match(r"delf-core(?![\w.-])", line)]
    assert len(core) == 1
    assert re.search(r">=", core[0])
    assert re.search(r"<", core[0])
    assert f"delf-plugin-api-{PLUGIN_API}" in project["keywords"]


@pytest.mark.parametrize(
    "plugin", [plugin for plugin in PLUGINS if plugin.has_hooks], ids=lambda plugin: plugin.name
)
def test_plugin_modules_only_name_their_factories(plugin: Plugin) -> None:
    """Providers of models are data, too, and may stand in a module of their own."""
    path = plugin.source / "plugin.py"
    assert len(path.read_text().splitlines()) <= PLUGIN_LINES
    other = [
        f"{place(path, node)} imports {name}"
        for node, name in imports_of(path)
        if not f"{name}.".startswith((*PLUGIN_IMPORTS, f"{plugin.module}.providers."))
    ]
    assert not other, "\n".join(other)


def test_official_package_table_matches_the_specs() -> None:
    assert OFFICIAL.read_text() == official(), "make generated"
    assert all_packages() == {*_names()} - {DISTRIBUTION}


def test_options_of_agents_match_the_fields_of_the_configuration() -> None:
    assert OPTIONS.read_text() == options(), "make generated"


@pytest.mark.slow
def test_editors_know_the_exported_names() -> None:
    assert STUB.read_text() == stub(), "cd tests && python -m support.exported"
    assert KIT.read_text() == kit(), "cd tests && python -m support.exported"
    for name in packages("exports"):
        assert f" {name}(" in stub() or f" as {name}\n" in stub() or not name[0].isupper()
    assert "        db_type: str | None = ...,\n" in stub(), "a constructor is written out"
