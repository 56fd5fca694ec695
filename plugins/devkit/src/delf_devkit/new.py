"""``delf plugins new``: a working package for a plugin, tests included."""

from __future__ import annotations

import keyword
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from delf import __version__
from delf.hookspecs import DISTRIBUTION, HOOKS, PLUGIN_API
from delf.packages.official import PLUGIN_PREFIX, all_packages, module_of, package_of

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_TAKEN: Final = ("core", "delf", DISTRIBUTION, "testing")


_LIBRARIES: Final = {"sandbox": ("delf-sandbox",), "format": ("delf-plugin-files",)}
"""Other packages of delf that a kind needs: what reads files asks for their formats."""
_OTHERS: Final = {"command": ("click>=8.1",), "connection": ("pydantic>=2.7",)}
"""Other people's packages that a kind needs."""
_FACTORIES: Final = {"command": "{variable}_command", "memory": "open_store"}
"""Kinds whose factory is a function rather than the class."""


@dataclass(frozen=True)
class Kind:
    """The differences between kinds.

    Args:
        capability: The module of the capability.
        suffix: How its class's name ends.
        summary: A line about it, with the name filled in.
        extra: Further fields of the spec.
        needs: What these fields need of ``delf.specs``.
    """

    capability: str
    suffix: str
    summary: str
    extra: Sequence[str] = ()
    needs: str = ""


KINDS: Final[Mapping[str, Kind]] = {
    "connection": Kind("connection", "", "The items of {title}."),
    "sandbox": Kind(
        "backend", "Backend", "Scripts in a process of {title}.", ['isolation="process"']
    ),
    "model": Kind(
        "model",
        "Model",
        "The models of {title}.",
        ['providers=(Provider(name="{name}", keys=("{upper}_API_KEY",)),)'],
        "Provider",
    ),
    "approval": Kind("channel", "Channel", "Asks through {title}."),
    "journal": Kind("journal", "Journal", "Events in {title}."),
    "memory": Kind("store", "Store", "Facts in {title}."),
    "prefilter": Kind("prefilter", "Prefilter", "Tools chosen by {title}.", ['modes=("{name}",)']),
    "embedder": Kind("embedder", "Embedder", "Embeddings of {title}.", ['serves=("{name}/*",)']),
    "format": Kind(
        "format",
        "Format",
        "Files of {title} as rows.",
        ['endings=(".{name}",)', 'writes=(".{name}",)'],
    ),
    "strategy": Kind("strategy", "Strategy", "Tasks done by {title}."),
    "observer": Kind("observer", "Observer", "Tells {title}."),
    "command": Kind("command", "", "Runs {title}."),
}
_HOOKS: Final = {spec.kind: (hook, spec.__name__) for hook, spec in HOOKS.items()}


@click.command("new")
@click.argument("name")
@click.option(
    "--kind",
    type=click.Choice(list(KINDS)),
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
@click.option("--json", "as_json", is_flag=True, help="Write the result as JSON.")
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

        made = {"name": fields["name"], "kind": kind, "distribution": fields["distribution"]}
        click.echo(json_text({**made, "directory": str(target), "files": list(files)}, indent=2))
        return
    click.echo(f"{target} has the {kind} {fields['name']!r}. Next:\n")
    click.echo(f"  cd {target}")
    click.echo('  delf plugins install -e ".[test]"')
    click.echo("  pytest")
    click.echo("  delf plugins")


def fields_of(name: str, kind: str) -> dict[str, str]:
    """Return the values that fill the templates.

    Args:
        name: The name that users will type, or the package's with its kind ahead.
        kind: One of :data:`KINDS`.

    Raises:
        click.BadParameter: For a name that cannot be used.
    """
    from delf.plugins.catalog import package_prefix

    prefix = package_prefix(kind)
    short = name.removeprefix(PLUGIN_PREFIX).removeprefix(prefix)
    package = f"{prefix}{short}"
    _check_name(short, kind, package)
    what, (hook, spec) = KINDS[kind], _HOOKS[kind]
    title = short.replace("-", " ").title()
    variable = short.replace("-", "_")
    class_name = title.replace(" ", "") + what.suffix
    major, minor, *_ = __version__.split(".")
    return {
        "name": short,
        "package": package,
        "distribution": f"{PLUGIN_PREFIX}{package}",
        "module": f"delf_{package.replace('-', '_')}",
        "variable": variable,
        "upper": variable.upper(),
        "class_name": class_name,
        "factory": _FACTORIES.get(kind, class_name).format(variable=variable),
        "summary": what.summary.format(title=title),
        "kind": kind,
        "hook": hook,
        "spec": spec,
        "capability": what.capability,
        "imports": ", ".join(filter(None, (spec, what.needs))),
        "extra": "".join(
            f"\n        {field.format(name=short, upper=variable.upper())}," for field in what.extra
        ),
        "api": str(PLUGIN_API),
        "requirements": ", ".join(
            f'"{requirement}"'
            for requirement in (
                *(
                    f"{name}>={major}.{minor},<{int(major) + 1}"
                    for name in (DISTRIBUTION, *_LIBRARIES.get(kind, ()))
                ),
                *_OTHERS.get(kind, ()),
            )
        ),
    }


def _check_name(name: str, kind: str, package: str) -> None:
    if not _NAME.fullmatch(name):
        raise click.BadParameter(
            f"{name!r} cannot be a plugin's name: small letters, digits and single dashes, "
            "as in help-desk",
            param_hint="NAME",
        )
    if owner := package_of(kind, name):
        raise click.BadParameter(f"the {kind} {name!r} is in {owner} already", param_hint="NAME")
    for owner in sorted(all_packages()):
        if owner in (name, f"{PLUGIN_PREFIX}{package}") or module_of(owner) == module_of(package):
            raise click.BadParameter(
                f"{owner} is one of delf's own packages, with the module {module_of(owner)}",
                param_hint="NAME",
            )
    if name in _TAKEN or keyword.iskeyword(name):
        raise click.BadParameter(f"{name!r} has another meaning", param_hint="NAME")


def render(kind: str, fields: Mapping[str, str]) -> dict[str, str]:
    """The package's files: their contents by path."""
    from importlib.resources import files

    templates = files("delf_devkit") / "templates"
    source, capability = f"src/{fields['module']}", fields["capability"]
    places = {
        "common/pyproject.toml": "pyproject.toml",
        "common/README.md": "README.md",
        "common/gitignore": ".gitignore",
        "common/init.py": f"{source}/__init__.py",
        "common/plugin.py": f"{source}/plugin.py",
        "common/test_package.py": "tests/test_package.py",
        f"{kind}/capability.py": f"{source}/{capability}.py",
        f"{kind}/settings.py": f"{source}/settings.py",
        f"{kind}/test_contract.py": "tests/test_contract.py",
        f"{kind}/test_task.py": "tests/test_task.py",
    }
    usage = _fill(templates / kind / "usage.md.txt", fields).strip()
    filled = {**fields, "usage": usage}
    made = {f"{source}/py.typed": ""}
    for template, place in places.items():
        path = templates / f"{template}.txt"
        if path.is_file():
            made[place] = _fill(path, filled)
    return dict(sorted(made.items()))


def _fill(path: Traversable, fields: Mapping[str, str]) -> str:
    return string.Template(path.read_text(encoding="utf-8")).substitute(fields)


def write_package(target: Path, files: Mapping[str, str]) -> None:
    """Write all files.

    Args:
        target: The package's folder; it must be empty or not exist.
        files: Contents by path.

    Raises:
        click.ClickException: When the folder is in use or cannot be written.
    """
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise click.ClickException(f"{target} exists already and is not an empty folder")
        for name, text in files.items():
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{target} cannot be written: {error.strerror}") from error
