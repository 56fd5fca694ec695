"""``delf plugins install | uninstall | check``: packages of plugins, and whether they are sound."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import invalidate_caches
from pathlib import Path
from site import addsitedir, getsitepackages
from typing import TYPE_CHECKING, Any, Final, TypedDict

import click

from delf.errors import DelfError, PluginError, did_you_mean
from delf.terminal import visible
from delf_cli.as_json import as_json_option, write_result
from delf_cli.complete import completes
from delf_cli.output import json_text
from delf_cli.state import State, state_of
from delf_cli.streams import wrap_text
from delf_console import installer
from delf_console.available import purposes
from delf_console.soundness import (
    distribution_warnings,
    effects,
    factory_problems,
    import_warnings,
    is_third_party,
    licence_warnings,
    unsupported_features,
)
from delf_console.sources import Item, sources

if TYPE_CHECKING:
    from delf.plugins.host import PluginHost
    from delf.plugins.report import PluginRecord
    from delf.specs import Spec


_NOT_ON_INDEX_HINT: Final = (
    "where no index has it: install delf from a clone, or give --find-links DIR with wheels"
)


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The result of checking a plugin.

    Args:
        name: The name of the plugin.
        version: The version of the distribution.
        brings: A mapping from kind, such as ``connection``, to the names that the plugin adds.
        ok: Whether the plugin has no problems and, with ``--release``, no warnings.
        problems: The reasons that the plugin, or a part of the plugin, cannot be used.
        warnings: Faults that the plugin's author should fix.
        notes: Optional features missing in the plugin and, with ``--release``, the effect of each
            action, such as ``read``.
    """

    name: str
    version: str | None
    brings: Mapping[str, Sequence[str]]
    ok: bool
    problems: Sequence[str]
    warnings: Sequence[str]
    notes: Sequence[str]


class _InstalledRow(TypedDict):
    """The JSON of ``delf plugins install``.

    Args:
        installed: The packages, each with its ``name`` and with its ``origin``, such as ``from the
            index``.
        plugins: The plugins of these packages, and other plugins that are new, with the fields of
            ``delf plugins check``.
    """

    installed: list[dict[str, str]]
    plugins: list[dict[str, Any]]


class _UninstalledRow(TypedDict):
    """The JSON of ``delf plugins uninstall``.

    Args:
        uninstalled: The names of the packages.
    """

    uninstalled: list[str]


@completes
def _installed_names(ctx: click.Context) -> Iterable[str]:
    return state_of(ctx).discover().names


@completes
def _official_names(_: click.Context) -> Iterable[str]:
    """Return the names of delf's own plugins, of all purposes, to complete an argument."""
    return [name for names in purposes().values() for name in names]


@click.command("install")
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=_official_names)
@click.option(
    "--find-links",
    metavar="DIR",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A folder with wheels, which is searched first.",
)
@click.option("-e", "--editable", is_flag=True, help="Install folders in place, like pip's -e.")
@click.option("-U", "--upgrade", is_flag=True, help="Upgrade the named packages.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@as_json_option(_InstalledRow)
@click.pass_context
def install(
    ctx: click.Context,
    names: tuple[str, ...],
    find_links: Path | None,
    editable: bool,
    upgrade: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Install plugins into the environment of this delf.

    NAME is one of delf's own plugins (sql, "sql[postgresql]"), the full name of another plugin
    (delf-plugin-tickets), a folder (".[test]"), or a wheel. delf shows the command that it would
    run, and asks you. If delf was installed from a clone, its own packages come from there.
    """
    state = state_of(ctx)
    available_packages = sources(find_links)
    items = available_packages.items(names, editable=editable)
    constraints = available_packages.constraints(items)
    names_before = set(state.discover().names)
    arguments = [item.argument for item in items]
    if find_links is not None:  # absolute, because the command runs in another folder
        arguments = ["--find-links", str(find_links.resolve()), *arguments]
    command = installer.install(arguments, upgrade=upgrade)
    width = max(len(item.name) for item in items)
    lines = [f"installs into {sys.prefix}:"]
    lines += [f"  {item.name:<{width}}  {item.origin}" for item in items]
    installer.agree(lines, command, "install?", yes=yes)
    doing = f"installing {', '.join(names)}"
    uses_index = any(item.origin.startswith("from the index") for item in items)
    hint = _NOT_ON_INDEX_HINT if uses_index else None
    installer.run(command, doing, constraints=constraints, redact=state.redact, hint=hint)
    _make_importable(items)
    checked = _check_installed(state, items, names_before)
    if as_json:
        installed = [{"name": item.name, "origin": item.origin} for item in items]
        data = _InstalledRow(installed=installed, plugins=list(map(asdict, checked)))
        write_result("", data, as_json=True)
    else:
        _print_results(checked)
    ctx.exit(0 if all(result.ok for result in checked) else 1)


def _make_importable(items: Sequence[Item]) -> None:
    """Let this process import packages that were installed after its start."""
    invalidate_caches()
    if any(item.argument.startswith("--editable") for item in items):
        for folder in getsitepackages():
            addsitedir(folder)  # Python reads path files only at its start


def _check_installed(
    state: State, items: Sequence[Item], names_before: Collection[str]
) -> list[CheckResult]:
    """Check the plugins of the packages, and the plugins that were installed because of them.

    Args:
        state: The state of the command.
        items: The installed packages.
        names_before: The plugins that were there before.
    """
    packages = {item.name for item in items}
    names = {
        record.name
        for record in state.discover().records()
        if record.distribution in packages or record.name not in names_before
    }
    if not names:  # without names, _check_plugins() would check all plugins
        return []
    return list(_check_plugins(state, names, release=False))


@click.command("uninstall")
@click.argument(
    "names", metavar="NAME...", nargs=-1, required=True, shell_complete=_installed_names
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@as_json_option(_UninstalledRow)
@click.pass_context
def uninstall(ctx: click.Context, names: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Uninstall the packages of plugins, also of those that are broken."""
    state = state_of(ctx)
    records = state.discover().records()
    packages = list(dict.fromkeys(_distribution_of(name, records) for name in names))
    command = installer.uninstall(packages)
    lines = [f"uninstalls from {sys.prefix}:", *(f"  {package}" for package in packages)]
    installer.agree(lines, command, "uninstall?", yes=yes)
    installer.run(command, f"uninstalling {', '.join(packages)}", redact=state.redact)
    if as_json:
        write_result("", _UninstalledRow(uninstalled=packages), as_json=True)


@click.command("check")
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=_installed_names)
@click.option(
    "--release",
    is_flag=True,
    help="Also fail on faults to fix before a release, and try the import.",
)
@as_json_option(CheckResult)
@click.pass_context
def check(ctx: click.Context, names: tuple[str, ...], release: bool, as_json: bool) -> None:
    """Check that each plugin fits this delf and can be imported with everything it declares.

    For plugins of other people, the command lists faults that the authors should fix, and features
    that do not work. The exit status is 1 if a plugin is faulty.
    """
    checked = [*_check_plugins(state_of(ctx), names, release=release)]
    if as_json:
        click.echo(json_text(list(map(asdict, checked)), indent=2))
    else:
        _print_results(checked)
    ctx.exit(0 if all(result.ok for result in checked) else 1)


def _check_plugins(state: State, names: Collection[str], *, release: bool) -> Iterator[CheckResult]:
    """Yield the result of checking each plugin with a given name or distribution.

    Without names, all plugins are checked.

    Args:
        state: The state of the command.
        names: The names of plugins or of distributions.
        release: Whether to check also what an author must fix before a release. Warnings then count
            as faults.

    Raises:
        PluginError: If a name is unknown.
    """
    host = state.discover()
    records = list(host.records())
    if names:
        known_names = {name for r in records for name in (r.name, r.distribution)}
        unknown_names = sorted(set(names) - known_names)
        if unknown_names:
            raise _unknown_plugin(unknown_names[0], host.names)
        records = [r for r in records if r.name in names or r.distribution in names]
    for record in records:
        problems = list(_problems(host, record))
        warnings = [*record.warnings]
        notes: list[str] = []
        # Each warning of the record is about a hook that is never called. A plugin with such hooks
        # only is broken.
        if record.warnings and not record.kinds:
            problems.append("it brings nothing")
        if release or is_third_party(record):
            warnings += _author_warnings(record, release=release)
            notes += _notes(host, record, release=release)
        faults = [*problems, *warnings] if release else problems
        yield CheckResult(
            name=record.name,
            version=record.version,
            brings={kind: list(names_of_kind) for kind, names_of_kind in record.kinds.items()},
            ok=not faults,
            problems=list(map(state.redact, problems)),
            warnings=list(map(state.redact, warnings)),
            notes=list(map(state.redact, notes)),
        )


def _print_results(checked: Sequence[CheckResult]) -> None:
    for result in checked:
        if result.problems:
            mark = click.style("✗", fg="red")
        elif result.warnings:
            mark = click.style("!", fg="yellow")
        else:
            mark = click.style("✓", fg="green")
        capabilities = "; ".join(
            f"{kind} {', '.join(names)}" for kind, names in result.brings.items()
        )
        line = wrap_text(f"{result.name} {result.version or ''}  {capabilities}".rstrip(), indent=4)
        click.echo(f"{mark} {line}")
        for text in (*result.problems, *result.warnings, *result.notes):
            click.echo(f"    {wrap_text(visible(text), indent=4)}")


def _problems(host: PluginHost, record: PluginRecord) -> Iterator[str]:
    """Yield the reasons why a plugin, or a part of the plugin, is unusable."""
    if record.state == "disabled":
        return
    if record.state != "loaded":
        yield f"{record.state}: {record.reason}"
    for spec in _specs(host, record):
        try:
            yield from factory_problems(host, spec)
        except DelfError as error:
            yield f"{spec.kind} {spec.name!r}: {error.message}"


def _author_warnings(record: PluginRecord, *, release: bool) -> Iterator[str]:
    """Yield the faults that a plugin's author should fix.

    With ``release``, also check the licence and the import, which matter only before a release.
    """
    if record.state == "disabled":
        return
    yield from distribution_warnings(record)
    if release and record.usable and record.distribution is not None:
        yield from licence_warnings(record.distribution)
        yield from import_warnings(record.name, record.distribution)


def _notes(host: PluginHost, record: PluginRecord, *, release: bool) -> Iterator[str]:
    """Yield the optional features that a plugin does not support.

    With ``release``, also yield the effect of each action, such as ``query  read``.
    """
    for spec in _specs(host, record):
        shows_effects = release and spec.kind == "connection"
        try:
            features = list(unsupported_features(host, spec))
            action_effects = effects(host, spec) if shows_effects else []
        except DelfError:  # reported as a problem
            return
        yield from (f"note: {text}" for text in features)
        width = max((len(name) for name, _ in action_effects), default=0)
        yield from (f"{name:<{width}}  {effect}" for name, effect in action_effects)


def _specs(host: PluginHost, record: PluginRecord) -> Sequence[Spec]:
    return host.specs_of(record.name) if record.usable else ()


def _distribution_of(name: str, records: Sequence[PluginRecord]) -> str:
    for record in records:
        if name in (record.name, record.distribution) and record.distribution is not None:
            return record.distribution
    raise _unknown_plugin(name, [record.name for record in records])


def _unknown_plugin(name: str, known_names: Collection[str]) -> PluginError:
    """Return the error for a plugin that is not installed; its message suggests a similar name."""
    # The user may have given the name of a capability: the plugin of the sandbox ``docker`` is
    # ``sandbox-docker``.
    longer_names = [known for known in known_names if known.endswith(f"-{name}")]
    suggestion = f"; did you mean {longer_names[0]!r}?" if longer_names else ""
    return PluginError(
        f"no plugin {name!r} is installed{suggestion or did_you_mean(name, known_names)}"
    )
