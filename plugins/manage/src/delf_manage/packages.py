"""``delf plugins install | uninstall | check``: packages of plugins, and whether they are sound."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib import invalidate_caches, metadata
from importlib.util import find_spec
from pathlib import Path
from site import addsitedir, getsitepackages
from typing import TYPE_CHECKING, Final

import click

from delf.errors import DelfError, PluginError, did_you_mean
from delf_cli.complete import completes
from delf_cli.state import state_of

if TYPE_CHECKING:
    from delf.plugins.host import PluginHost
    from delf.plugins.report import PluginRecord

_PREFIX: Final = "delf-plugin-"


@completes
def _plugin_names(ctx: click.Context) -> Iterable[str]:
    """The plugins that are installed."""
    return state_of(ctx).discover().names


@click.command("install")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--find-links", metavar="DIR", help="A folder of wheels to look into, too.")
@click.option("-e", "--editable", is_flag=True, help="Use folders where they are, as pip's -e.")
@click.pass_context
def install(
    ctx: click.Context, names: tuple[str, ...], find_links: str | None, editable: bool
) -> None:
    """Install plugins into the environment of this delf, with pip or uv, whichever it has.

    NAME is a plugin's, as sql or "sql[postgresql]", a package's, a folder as ".[test]", or a
    wheel. Where delf was installed from a clone, its own plugins come from there, also those
    that a folder needs.
    """
    clone, before = _clone(), set(state_of(ctx).discover().names)
    wanted = list(dict.fromkeys(_wanted(names, clone, editable=editable)))
    links = ["--find-links", find_links] if find_links else []
    if _run("install", *links, *wanted):
        hint = (
            "from a clone: delf plugins install PATH/plugins/NAME; or --find-links DIR with wheels"
        )
        raise DelfError(f"{', '.join(names)} cannot be installed", hint=hint)
    invalidate_caches()
    for folder in getsitepackages() if editable else ():
        addsitedir(folder)  # a path file is read at a start only
    if new := tuple(set(state_of(ctx).discover().names) - before):
        ctx.invoke(check, names=new)


@click.command("uninstall")
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=_plugin_names)
@click.pass_context
def uninstall(ctx: click.Context, names: tuple[str, ...]) -> None:
    """Uninstall the packages of plugins, also of those that are broken."""
    records = [
        r for r in state_of(ctx).discover().records() if r.distribution not in (None, "delf-core")
    ]
    packages = [_package_of(name, records) for name in names]
    if _run("uninstall", *packages):
        raise DelfError(f"{', '.join(names)} cannot be uninstalled")


@click.command("check")
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=_plugin_names)
@click.pass_context
def check(ctx: click.Context, names: tuple[str, ...] = ()) -> None:
    """Check plugins: that each fits this delf, loads, and brings what it says.

    Everything that a plugin offers is imported. The exit status is 1 if one is not sound.
    """
    from delf.terminal import visible

    state = state_of(ctx)
    host = state.discover()
    records = [r for r in host.records() if not names or {r.name, r.distribution} & set(names)]
    if names and not records:
        close = did_you_mean(names[0], host.names)
        raise PluginError(f"no plugin {names[0]!r} is installed{close}")
    sound = True
    for record in records:
        problems = list(_problems(host, record))
        if record.warnings and not record.kinds:
            problems.append("it brings nothing")
        sound = sound and not problems
        mark = click.style("✗", fg="red") if problems else click.style("✓", fg="green")
        brings = "; ".join(f"{kind} {', '.join(n)}" for kind, n in record.kinds.items())
        click.echo(f"{mark} {record.name} {record.version or ''}  {brings}".rstrip())
        for text in (*record.warnings, *problems):
            click.echo(f"    {visible(state.clean(text))}")
    ctx.exit(0 if sound else 1)


def _problems(host: PluginHost, record: PluginRecord) -> Iterator[str]:
    if record.state == "disabled":
        return
    if record.state != "loaded":
        yield f"{record.state}: {record.reason}"
    for spec in host.specs_of(record.name) if record.usable else ():
        try:
            made = host.resolve(spec)
        except DelfError as error:
            yield f"{spec.kind} {spec.name!r}: {error.message}"
        else:
            if not callable(made) and spec.kind != "command":
                yield f"{spec.kind} {spec.name!r}: {spec.factory} makes nothing"


def _package_of(name: str, records: Sequence[PluginRecord]) -> str:
    for record in records:
        if name in (record.name, record.distribution) and record.distribution is not None:
            return record.distribution
    close = did_you_mean(name, [record.name for record in records])
    raise PluginError(f"no plugin {name!r} is installed{close}")


def _run(action: str, *arguments: str) -> int:
    """Run pip, or uv where that made this environment; its exit status."""
    made_by = Path(sys.prefix, "pyvenv.cfg")
    of_uv = made_by.is_file() and re.search(r"^uv\s*=", made_by.read_text(), re.MULTILINE)
    uv = shutil.which("uv")
    if uv and (of_uv or find_spec("pip") is None):
        command = [uv, "pip", action, "--python", sys.executable]
        command += ["--no-sources"] if action == "install" else []
    else:
        command = [sys.executable, "-m", "pip", action, *(["-y"] if action == "uninstall" else [])]
    click.echo(" ".join([*command, *arguments]), err=True)
    return subprocess.run([*command, *arguments], check=False).returncode  # noqa: S603 - the user asks for it


def _clone() -> Mapping[str, Path]:
    """The packages of the clone that delf was installed from, by name; none where it was not."""
    import tomllib
    from urllib.parse import unquote, urlsplit

    origin: dict[str, str] = json.loads(
        metadata.distribution("delf-core").read_text("direct_url.json") or "{}"
    )
    core = Path(unquote(urlsplit(origin.get("url", "")).path))
    found: dict[str, Path] = {}
    if "dir_info" in origin and core.is_dir():
        for file in sorted(core.parent.glob("*/*/pyproject.toml")):
            project = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {})
            if "name" in project:
                found[project["name"]] = file.parent
    return found


def _wanted(
    names: Sequence[str], clone: Mapping[str, Path], *, editable: bool = False
) -> Iterator[str]:
    """What to hand to pip: folders of the clone, with what they need of it, before names."""
    from packaging.requirements import InvalidRequirement, Requirement

    for name in names:
        folder, extras = _folder(name)
        if folder is not None:
            yield from _missing(folder, extras, clone)
            yield f"--editable={name}" if editable else name
            continue
        try:
            requirement = None if Path(name).exists() else Requirement(name)
        except InvalidRequirement:
            requirement = None
        if requirement is None:
            yield name  # a wheel, an address: pip knows
            continue
        known = _full_name(requirement.name, clone)
        if known in clone:
            yield from _missing(clone[known], requirement.extras, clone)
            yield _with_extras(clone[known], requirement.extras)
        else:
            yield name.replace(requirement.name, known, 1)


def _folder(name: str) -> tuple[Path | None, set[str]]:
    """The folder of a package and its extras, where that is what a name is."""
    path, _, extras = name.partition("[") if name.endswith("]") else (name, "", "")
    if not (Path(path) / "pyproject.toml").is_file():
        return None, set()
    return Path(path), {extra.strip() for extra in extras.removesuffix("]").split(",") if extra}


def _missing(folder: Path, extras: Collection[str], clone: Mapping[str, Path]) -> Iterator[str]:
    """Folders of the clone that a package needs and that are not installed, its needs first."""
    import tomllib

    from packaging.requirements import Requirement

    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    project = project.get("project", {})
    optional = project.get("optional-dependencies", {})
    lines = [*project.get("dependencies", ())]
    for extra in extras:
        lines += optional.get(extra, ())
    for need in map(Requirement, lines):
        if need.name in clone:
            yield from _missing(clone[need.name], need.extras, clone)
            if not _is_there(need.name):
                yield _with_extras(clone[need.name], need.extras)


def _with_extras(folder: Path, extras: Collection[str]) -> str:
    return f"{folder}[{','.join(sorted(extras))}]" if extras else str(folder)


def _full_name(name: str, clone: Mapping[str, Path]) -> str:
    """A plugin's own name as its package's, if delf knows one."""
    from delf.official import all_packages

    known = all_packages()
    full = name if name.startswith(_PREFIX) else f"{_PREFIX}{name}"
    return full if full in known or full in clone else name


def _is_there(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True
