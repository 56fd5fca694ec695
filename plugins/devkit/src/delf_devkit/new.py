"""``delf plugins new``: a working package for a plugin, tests included."""

from __future__ import annotations

import builtins
import keyword
import re
import string
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict

import click

from delf import __version__
from delf.hookspecs import CONNECTIONS_GROUP, DISTRIBUTION, ENTRY_POINT_GROUP, HOOKS, PLUGIN_API
from delf.packages.official import PLUGIN_PREFIX, all_packages, module_of, package_of
from delf_cli.as_json import as_json_option
from delf_cli.main import COMMANDS

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_RESERVED_NAMES: Final = ("core", "delf", DISTRIBUTION, "testing")
_HOOKS: Final = {spec.kind: (hook, spec) for hook, spec in HOOKS.items()}
KINDS: Final = tuple(_HOOKS)


@dataclass(frozen=True)
class Template:
    """The parts of a new plugin package that differ by kind, read from ``templates/KIND.toml``.

    Every text may contain placeholders, such as ``$title``.

    Args:
        capability: The name of the module with the plugin's class or function, such as ``store``.
        summary: A one-line description.
        files: The contents of the kind's own files.
        suffix: The suffix of the class name.
        factory: The factory, if it is a function instead of the class.
        fields: Further fields of the spec, such as ``name=value``.
        imports: Names of ``delf.specs`` that these fields need.
        libraries: The delf packages that the kind needs in addition to the core.
        packages: Requirements on other people's packages.
    """

    capability: str
    summary: str
    files: Mapping[str, str]
    suffix: str = ""
    factory: str = "$class_name"
    fields: Sequence[str] = ()
    imports: Sequence[str] = ()
    libraries: Sequence[str] = ()
    packages: Sequence[str] = ()


class _PackageRow(TypedDict):
    """The JSON of ``delf plugins new``: the new package.

    Args:
        name: The name that users will type.
        kind: The kind of the new plugin.
        distribution: The package's name.
        directory: The folder of the new plugin.
        files: The paths of its files in the folder.
    """

    name: str
    kind: str
    distribution: str
    directory: str
    files: list[str]


def template_of(kind: str) -> Template:
    """Load the template of a kind."""
    path = _templates() / f"{kind}.toml"
    return Template(**tomllib.loads(path.read_text(encoding="utf-8")))


@click.command("new")
@click.argument("name")
@click.option(
    "--kind",
    type=click.Choice(KINDS),
    default="connection",
    show_default=True,
    help="The kind of plugin.",
)
@click.option(
    "--directory",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="The folder for the package; delf-plugin-NAME by default.",
)
@as_json_option(_PackageRow)
def new(name: str, kind: str, directory: Path | None, as_json: bool) -> None:
    """Start a plugin: a package that works, with tests that pass.

    Users will type NAME, as in `delf run … -c NAME`. It has small letters, digits and dashes.
    """
    fields = fields_of(name, kind)
    target = directory if directory is not None else Path(fields["distribution"])
    files = render(kind, fields)
    write_package(target, files)
    if as_json:
        from delf_cli.output import json_text

        row = _PackageRow(
            name=fields["name"],
            kind=kind,
            distribution=fields["distribution"],
            directory=str(target),
            files=list(files),
        )
        click.echo(json_text(row, indent=2))
        return
    click.echo(f"{target} has the {kind} {fields['name']!r}. Next:\n")
    click.echo(f"  cd {target}")
    click.echo('  delf plugins install -e ".[test]"')
    click.echo("  pytest")
    click.echo("  delf plugins")


def fields_of(name: str, kind: str) -> dict[str, str]:
    """Return the values to fill into the templates.

    Args:
        name: The name that users will type, with or without the prefixes of a package's name.
        kind: A kind of :data:`KINDS`.

    Raises:
        click.BadParameter: For a name that cannot be used.
    """
    from delf.plugins.catalog import package_prefix

    prefix = package_prefix(kind)
    short = name.removeprefix(PLUGIN_PREFIX).removeprefix(prefix)
    package = f"{prefix}{short}"
    _check_name(short, kind, package)
    template = template_of(kind)
    hook, spec_class = _HOOKS[kind]
    spec = spec_class.__name__
    variable = short.replace("-", "_")
    title = short.replace("-", " ").title()
    names = {
        "name": short,
        "title": title,
        "variable": variable,
        "upper": variable.upper(),
        "class_name": title.replace(" ", "") + template.suffix,
    }
    major, minor, *_ = __version__.split(".")
    requirements = [
        f"{distribution}>={major}.{minor},<{int(major) + 1}"
        for distribution in (DISTRIBUTION, *template.libraries)
    ]
    requirements += template.packages
    extra_fields = [f"\n        {_fill_template(field, names)}," for field in template.fields]
    return {
        **names,
        "package": package,
        "distribution": f"{PLUGIN_PREFIX}{package}",
        "module": f"delf_{package.replace('-', '_')}",
        "factory": _fill_template(template.factory, names),
        "summary": _fill_template(template.summary, names),
        "kind": kind,
        "hook": hook,
        "spec": spec,
        "capability": template.capability,
        "imports": ", ".join([spec, *template.imports]),
        "extra": "".join(extra_fields),
        "api": str(PLUGIN_API),
        "entry_point": _entry_point(kind, package, template.capability, names["class_name"]),
        "requirements": ", ".join(f'"{requirement}"' for requirement in requirements),
    }


def _entry_point(kind: str, package: str, capability: str, class_name: str) -> str:
    """Return the entry point of a plugin: the class of a connection, else the plugin module.

    Args:
        kind: The kind of the plugin.
        package: The name of the plugin's package, without ``delf-plugin-``.
        capability: The module that has the class.
        class_name: The name of the class.
    """
    module = f"delf_{package.replace('-', '_')}"
    if kind == "connection":
        place = f"{module}.{capability}:{class_name}"
        return f'[project.entry-points."{CONNECTIONS_GROUP}"]\n{package} = "{place}"'
    return f'[project.entry-points.{ENTRY_POINT_GROUP}]\n{package} = "{module}.plugin"'


def _check_name(name: str, kind: str, package: str) -> None:
    """Refuse the name of a new plugin if it is malformed, in use or reserved."""
    if not _NAME.fullmatch(name):
        raise click.BadParameter(
            f"{name!r} cannot be a plugin's name: small letters, digits and single dashes, "
            "as in help-desk",
            param_hint="NAME",
        )
    owner = package_of(kind, name)
    if owner:
        raise click.BadParameter(f"the {kind} {name!r} is in {owner} already", param_hint="NAME")
    distribution = f"{PLUGIN_PREFIX}{package}"
    for delf_package in sorted(all_packages()):
        has_same_name = delf_package in (name, distribution)
        if has_same_name or module_of(delf_package) == module_of(package):
            raise click.BadParameter(
                f"{delf_package} is one of delf's own packages, with the module "
                f"{module_of(delf_package)}",
                param_hint="NAME",
            )
    use = _reserved_use(name, kind)
    if use is not None:
        raise click.BadParameter(f"{name!r} is a reserved name: {use}", param_hint="NAME")


def _reserved_use(name: str, kind: str) -> str | None:
    """Return why a plugin of a kind cannot have a name; None if it can."""
    if name in _RESERVED_NAMES:
        return "it stands for delf itself"
    _, spec_class = _HOOKS[kind]
    if name in spec_class.special_values:
        return f"the setting of the {kind} has another meaning for it"
    if kind == "command" and name in COMMANDS:
        return f"delf {name} is a command of delf"
    if keyword.iskeyword(name):
        return "it is a keyword of Python"
    if kind == "connection":
        from delf_engine.toolset import RESERVED  # late: slow, and not needed by --help

        names_in_scripts = {*RESERVED, *dir(builtins)}
        variable = name.replace("-", "_")
        if name in names_in_scripts or variable in names_in_scripts:
            return "scripts need it"
    return None


def render(kind: str, fields: Mapping[str, str]) -> dict[str, str]:
    """Return the contents of a new plugin package's files by path.

    Args:
        kind: The kind of plugin, such as ``connection``.
        fields: The values for the templates' placeholders, by name.
    """
    source = f"src/{fields['module']}"
    paths_by_template = {
        "README.md": "README.md",
        "gitignore": ".gitignore",
        "init.py": f"{source}/__init__.py",
        "plugin.py": f"{source}/plugin.py",
        "pyproject.toml": "pyproject.toml",
        "test_package.py": "tests/test_package.py",
    }
    if kind == "connection":  # the entry point names the class; no plugin.py
        del paths_by_template["plugin.py"]
    common = _templates() / "common"
    kind_files = dict(template_of(kind).files)
    usage = _fill_template(kind_files.pop("usage.md"), fields).strip()
    fields_and_usage = {**fields, "usage": usage}
    files = {f"{source}/py.typed": ""}
    for name, path in paths_by_template.items():
        text = (common / f"{name}.txt").read_text(encoding="utf-8")
        files[path] = _fill_template(text, fields_and_usage)
    for name, text in kind_files.items():
        folder = "tests" if name.startswith("test_") else source
        path = name.replace("capability", fields["capability"])
        files[f"{folder}/{path}"] = _fill_template(text, fields_and_usage)
    return dict(sorted(files.items()))


def _templates() -> Traversable:
    from importlib.resources import files

    return files("delf_devkit") / "templates"


def _fill_template(text: str, fields: Mapping[str, str]) -> str:
    return string.Template(text).substitute(fields)


def write_package(target: Path, files: Mapping[str, str]) -> None:
    """Write the files of a package.

    Args:
        target: The package's folder; it must be empty or not exist.
        files: Contents by path.

    Raises:
        click.ClickException: If the folder is not empty or not writable.
    """
    try:
        is_empty_folder = target.is_dir() and not any(target.iterdir())
        if target.exists() and not is_empty_folder:
            raise click.ClickException(f"{target} exists already and is not an empty folder")
        for name, text in files.items():
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{target} cannot be written: {error.strerror}") from error
