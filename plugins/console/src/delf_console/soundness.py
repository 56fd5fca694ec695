"""Checks of a plugin before its release, for ``delf plugins check`` and ``delf doctor``.

Loading a plugin finds the faults that make it unusable. The checks of this module find further
faults that authors should fix before a release.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import inspect
import re
import subprocess
import sys
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from delf.errors import ToolDefinitionError
from delf.hookspecs import CONNECTIONS_GROUP, DISTRIBUTION, ENTRY_POINT_GROUP, PLUGIN_API
from delf.machine.interpreter import own_python
from delf.members import members
from delf.packages.official import PLUGIN_PREFIX, all_packages, package_of
from delf.plugins.discovery import installation_stamp, normalise
from delf.plugins.loader import explain, import_target
from delf.plugins.shapes import faults, has, optional_protocols
from delf.protocols import formats, shared_journal
from delf.protocols.connection import SupportsClose
from delf.specs import FormatSpec, JournalSpec, Spec
from delf_cli.main import COMMANDS
from delf_console.sources import is_installed

_GROUPS: Final = (ENTRY_POINT_GROUP, CONNECTIONS_GROUP)

if TYPE_CHECKING:
    from delf.plugins.host import PluginHost
    from delf.plugins.report import PluginRecord

_IMPORT_SECONDS: Final = 0.3
_TEST_EXTRAS: Final = frozenset({"dev", "test", "testing", "tests"})
_LOWER_BOUNDS: Final = frozenset({">=", ">", "~=", "==", "==="})
_UPPER_BOUNDS: Final = frozenset({"<", "<=", "~=", "==", "==="})
_ENGINE: Final = "delf-plugin-engine"
_PRIVATE_MODULES: Final = ("delf.cli",)
_TIMED_IMPORT: Final = """
import sys, time, delf.hookspecs, delf.specs
began = time.perf_counter()
__import__(sys.argv[1])
print(f"\\n{time.perf_counter() - began}")
"""


def distribution_warnings(record: PluginRecord) -> Iterator[str]:
    """Yield the faults that a plugin's author should fix, as far as quick checks find them."""
    from packaging.requirements import InvalidRequirement
    from packaging.specifiers import InvalidSpecifier
    from packaging.version import InvalidVersion

    if record.distribution is None:
        return
    try:
        yield from _check_distribution(metadata.distribution(record.distribution), record)
    except (InvalidRequirement, InvalidSpecifier, InvalidVersion) as error:
        yield f"its metadata cannot be read: {error}"


def _check_distribution(distribution: metadata.Distribution, record: PluginRecord) -> Iterator[str]:
    yield from _check_metadata(distribution)
    module = _module_of(distribution, record.name)
    if module is None:
        return
    files = _files_of(module)
    if not files:
        return
    if not any(file.name == "py.typed" for file in files):
        yield f"there is no py.typed in {module}: type checkers ignore its types"
    yield from _check_top_folders(distribution, module)
    yield from _check_imports(distribution, module, files)
    yield from _name_collisions(record)


def licence_warnings(distribution: str) -> Iterator[str]:
    """Yield a warning if a package has no licence, because other people may not use the package."""
    package = metadata.distribution(distribution).metadata
    licences = [_field(package, key) for key in ("License-Expression", "License")]
    classifiers = package.get_all("Classifier") or ()
    licences += [line for line in classifiers if line.startswith("License ::")]
    if not any(licences):
        yield 'it has no licence, so others may not use it: license = "…" in pyproject.toml'


def factory_problems(host: PluginHost, spec: Spec) -> Iterator[str]:
    """Yield the problems with the factory of a spec, and with other objects that the spec names.

    The other objects, such as the class of a plugin's settings, must be importable. The factory
    must also fit the kind of the spec.

    Raises:
        PluginError: If the factory cannot be imported.
    """
    setup: str | None = getattr(spec, "setup", None)  # only the spec of an observer has this field
    for target in (spec.project_files, spec.plugin_settings, setup):
        try:
            if target is not None:
                import_target(target)
        except Exception as error:
            yield f"{spec.kind} {spec.name!r}: cannot load {target}: {explain(error)}"
    factory = host.resolve(spec)
    what = f"{spec.kind} {spec.name!r}: {spec.factory}"
    if spec.kind == "command":
        if spec.name in COMMANDS:
            yield f"{what} is never called, because delf itself has this command"
        if not callable(getattr(factory, "make_context", None)):
            yield f"{what} is a {_kind(factory)}, not a click.Command: mark it with @click.command"
    elif spec.kind == "connection":
        is_connection = isinstance(factory, type) and callable(getattr(factory, "actions", None))
        if is_connection:
            yield from (f"{what} {fault}" for fault in faults(spec.kind, factory))
            yield from (f"{what} {problem}" for problem in _action_problems(factory))
        else:
            yield f"{what} is a {_kind(factory)}, not a subclass of delf.Connection"
    elif not callable(factory):
        yield f"{what} makes nothing: it is a {_kind(factory)}"
    elif isinstance(factory, type):
        yield from (f"{what} {fault}" for fault in faults(spec.kind, factory))
        yield from (f"{what} {fault}" for fault in _missing_features(spec, factory))


def _action_problems(factory: type) -> Iterator[str]:
    """Yield the problems of a connection class's actions.

    Only a class whose actions are its methods is checked.
    """
    from delf.tools.action import actions_of
    from delf.tools.connection import Connection
    from delf.tools.signature import ArgumentValidator

    if not issubclass(factory, Connection):
        return
    connection_class = cast("type[Connection]", factory)
    if connection_class.actions is not Connection.actions:
        return
    try:
        actions = actions_of(connection_class)
        for action in actions:
            if action.summary == action.name.replace("_", " "):
                yield f"has the action {action.name} without a docstring"
            if isinstance(action.validate, ArgumentValidator):
                action.validate.build()
                action.validate.check_defaults()
    except ToolDefinitionError as error:
        yield f"has an action that scripts cannot call: {error.message}"
    else:
        if not actions:
            yield "has no action: mark its methods with @action"


def _missing_features(spec: Spec, factory: type) -> Iterator[str]:
    """Yield a problem for each feature that a spec declares but its factory does not implement."""
    claims: list[tuple[str, type]] = []  # the field of the spec, and the protocol it claims
    if isinstance(spec, JournalSpec) and spec.shared:
        claims.append(("shared", shared_journal.SharedJournal))
    if isinstance(spec, FormatSpec) and spec.writes:
        claims.append(("writes", formats.SupportsWrite))
    for claim, protocol in claims:
        missing = [name for name in members(protocol) if not has(factory, name)]
        if missing:
            yield (
                f"is not a {protocol.__name__}, as `{claim}` of its spec says: "
                f"no {', '.join(missing)}"
            )


def unsupported_features(host: PluginHost, spec: Spec) -> Iterator[str]:
    """Yield a warning for each optional protocol that the class of a spec does not implement.

    The warning says which feature of delf is missing without the protocol. A further warning is
    about a file format that has a method ``write``, although its spec declares no ``writes``.

    Args:
        host: The plugins.
        spec: The spec whose ``factory`` is the class. If the factory is a function, nothing is
            yielded.
    """
    factory = host.resolve(spec)
    if not isinstance(factory, type):
        return
    for protocol, consequence in optional_protocols(spec.kind).items():
        if not consequence:
            continue  # nothing is lost without this protocol
        if protocol is SupportsClose and _has_only_settings(factory):
            continue  # there is nothing to close
        if not all(has(factory, name) for name in members(protocol)):
            yield f"{spec.kind} {spec.name!r} is not a {protocol.__name__}: {consequence}"
    if isinstance(spec, FormatSpec) and not spec.writes and has(factory, "write"):
        yield f"format {spec.name!r} has a method write, and its spec names no `writes`"


def _has_only_settings(factory: type) -> bool:
    """Return True if a connection class does not override ``__init__``.

    The instances of such a class probably have only settings, and nothing to close.
    """
    from delf.tools.connection import Connection

    constructor: object = getattr(factory, "__init__", None)
    return issubclass(factory, Connection) and constructor is Connection.__init__


def effects(host: PluginHost, spec: Spec) -> list[tuple[str, str]]:
    """Return the name and the effect of each action of a connection class.

    The list is empty if the actions are known only for an instance.
    """
    from delf.tools.connection import Connection

    factory = host.resolve(spec)
    if not (isinstance(factory, type) and issubclass(factory, Connection)):
        return []
    connection_class = cast("type[Connection]", factory)
    if connection_class.actions is not Connection.actions:
        return []
    description = connection_class.inspect(verbose=True)
    return [(item["name"], item["effect"]) for item in description["methods"]]


def import_warnings(name: str, distribution: str) -> Iterator[str]:
    """Import a plugin in a separate process; yield warnings about printed text and a slow import.

    Args:
        name: The name of the plugin.
        distribution: The name of the plugin's distribution.
    """
    module = _module_of(metadata.distribution(distribution), name, is_full_path=True)
    if module is None:
        return
    command = [own_python(), "-c", _TIMED_IMPORT, module]
    process = _run_captured(command)
    if process.returncode != 0:
        return  # loading the plugin reports the error
    # The last line is the time that _TIMED_IMPORT prints; the plugin has printed the others.
    *output, time_line = process.stdout.rstrip().split("\n")
    if "".join(output).strip() or process.stderr.strip():
        yield f"the import of {module} prints something, which breaks the JSON output of commands"
    seconds = float(time_line)
    if seconds > _IMPORT_SECONDS:  # measure again: the first import also compiles
        seconds = float(_run_captured(command).stdout.rstrip().rpartition("\n")[2])
    if seconds > _IMPORT_SECONDS:
        yield (
            f"the import of {module} takes {seconds:.1f} s at each start of delf: move slow "
            "imports into the module that contains the factory"
        )


def _run_captured(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603


def _field(package: metadata.PackageMetadata, key: str) -> str:
    # Checked first: replacements for importlib.metadata raise for a missing field.
    return package[key] if key in package else ""  # noqa: SIM401 - it has no get()


def _check_metadata(distribution: metadata.Distribution) -> Iterator[str]:
    """Yield what is missing in a plugin's metadata, and requirements that are not met."""
    from packaging.specifiers import SpecifierSet

    package = distribution.metadata
    if not _field(package, "Summary").strip():
        yield "it has no description (Summary), which is shown in lists of plugins"
    yield from _check_requirement_on_delf(distribution)
    keywords = _field(package, "Keywords").replace(",", " ").split()
    if f"delf-plugin-api-{PLUGIN_API}" not in keywords:
        yield f"it has no keyword delf-plugin-api-{PLUGIN_API}, which says what it was made for"
    yield from _check_requirements(distribution)
    python = _field(package, "Requires-Python")
    if not python:
        yield 'it does not say which Python it needs: requires-python = ">=3.11"'
    elif SpecifierSet(python).contains("3.10"):
        yield f'it says Python {python}, and delf needs 3.11: requires-python = ">=3.11"'
    name = normalise(package["Name"])
    if not name.startswith(PLUGIN_PREFIX) and name not in all_packages():
        yield f"it is not called delf-plugin-…, by which people look for plugins: {package['Name']}"
    entry_points = [point for point in distribution.entry_points if point.group in _GROUPS]
    if len(entry_points) > 1:
        yield (
            f"it has {len(entry_points)} entry points; put each plugin in a distribution of its "
            "own, so that people can block one plugin without the others"
        )


def _check_requirement_on_delf(distribution: metadata.Distribution) -> Iterator[str]:
    """Yield a fault if a plugin does not require delf.

    Also yield a fault if the required version has no lower or no upper bound.
    """
    from packaging.requirements import Requirement

    delf_requirements: list[Requirement] = []
    for line in distribution.requires or ():
        requirement = Requirement(line)
        if normalise(requirement.name) == DISTRIBUTION and requirement.marker is None:
            delf_requirements.append(requirement)
    if not delf_requirements:
        yield f"it does not require {DISTRIBUTION}"
    for requirement in delf_requirements:
        operators = {part.operator for part in requirement.specifier}
        if operators.isdisjoint(_LOWER_BOUNDS):
            yield f"its requirement on {DISTRIBUTION} has no lower bound"
        if operators.isdisjoint(_UPPER_BOUNDS):
            yield (
                f"its requirement on {DISTRIBUTION} has no upper bound: "
                f"the next release of {DISTRIBUTION} may break the plugin"
            )


def _check_requirements(distribution: metadata.Distribution) -> Iterator[str]:
    """Yield the requirements that this environment does not meet."""
    from packaging.requirements import Requirement

    for line in distribution.requires or ():
        needed = Requirement(line)
        if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):
            continue
        if not is_installed(needed.name):
            yield f"it requires {needed.name}, which is not installed: install the plugin again"
            continue
        version = metadata.version(needed.name)
        if not needed.specifier.contains(version, prereleases=True):
            yield f"it requires {needed.name}{needed.specifier}, and {version} is installed"


def _check_top_folders(distribution: metadata.Distribution, module: str) -> Iterator[str]:
    """Yield a fault for each further folder with modules that is installed, such as ``tests``."""
    top_folders: set[str] = set()
    for file in distribution.files or ():
        *folders, _name = file.parts
        if folders and ".." not in folders and file.suffix == ".py":
            top_folders.add(folders[0])
    for name in sorted(top_folders - {module}):
        yield f"its wheel also installs the top-level folder {name}/: leave it out of the wheel"


def _check_imports(
    distribution: metadata.Distribution, module: str, files: Sequence[Path]
) -> Iterator[str]:
    """Yield imports of other plugins, of undeclared requirements and of delf's private modules."""
    imported = sorted(_imported_modules(files))
    foreign = [name for name in imported if not _is_own_or_standard(_top_module(name), module)]
    yield from _check_imported_packages(distribution, foreign)
    if not _is_official(distribution):
        yield from _check_private_imports(imported)


def _check_imported_packages(
    distribution: metadata.Distribution, imported: Sequence[str]
) -> Iterator[str]:
    """Yield imported modules of other plugins and of undeclared requirements."""
    own_name = normalise(distribution.metadata["Name"])
    # A warning names one of the imported modules of each package.
    name_by_top_module = {_top_module(name): name for name in imported}
    owners = _owners(name_by_top_module.keys())
    declared = _requirements(distribution)
    for top_module, name in name_by_top_module.items():
        candidates = _possible_distributions(top_module, owners)
        plugins = set(filter(_is_plugin, candidates - {own_name}))
        if _is_official(distribution):
            # delf's own plugins may import the engine, because all are released together.
            plugins.discard(_ENGINE)
        if plugins:
            yield f"it imports {name} of {', '.join(sorted(plugins))}: a plugin is not a library"
        elif candidates.isdisjoint(declared):
            owner = owners.get(top_module, [top_module])[0]
            yield f"it imports {top_module}, and does not require {normalise(owner)}"


def _check_private_imports(imported: Sequence[str]) -> Iterator[str]:
    for name in imported:
        if any(name == m or name.startswith(f"{m}.") for m in _PRIVATE_MODULES):
            yield f"it imports {name}, which is not an interface and changes without notice"


def _top_module(name: str) -> str:
    return name.partition(".")[0]


def _is_own_or_standard(top_module: str, own_module: str) -> bool:
    return top_module in (own_module, "delf") or top_module in sys.stdlib_module_names


def _is_official(distribution: metadata.Distribution) -> bool:
    """Return True for a package that is part of delf."""
    return normalise(distribution.metadata["Name"]) in all_packages()


def _possible_distributions(module: str, owners: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the distributions that a module may belong to.

    Args:
        module: The name of a top-level module.
        owners: The installed distributions by module, from :func:`_owners`.
    """
    # An editable install does not list its modules, so also try the module's own name.
    distributions = {normalise(name) for name in (*owners.get(module, ()), module)}
    # A plugin's module, such as delf_web, that no installed distribution lists.
    has_no_owner = module.startswith("delf_") and module not in owners
    if has_no_owner and not is_installed(normalise(module)):  # a plugin that is not installed
        distributions.add(PLUGIN_PREFIX + normalise(module.removeprefix("delf_")))
    return distributions


def _requirements(distribution: metadata.Distribution) -> set[str]:
    """Return the names of the distributions that a distribution requires.

    Requirements of extras are included, except those of extras for tests. If the distribution
    requires a package of delf, the requirements of the package are included, without its extras.
    """
    from packaging.requirements import Requirement

    names: set[str] = set()
    pending = [(distribution, True)]  # each with whether its extras are included
    while pending:
        current, includes_extras = pending.pop()
        for line in current.requires or ():
            requirement = Requirement(line)
            name = normalise(requirement.name)
            marker = str(requirement.marker or "")  # such as: extra == "test"
            is_for_tests = any(f'extra == "{extra}"' in marker for extra in _TEST_EXTRAS)
            is_of_omitted_extra = "extra ==" in marker and not includes_extras
            if name in names or is_for_tests or is_of_omitted_extra:
                continue
            names.add(name)
            if name == DISTRIBUTION or name in all_packages():
                with contextlib.suppress(metadata.PackageNotFoundError):
                    pending.append((metadata.distribution(name), False))
    return names


def _owners(modules: Collection[str]) -> dict[str, list[str]]:
    """Return a mapping from top-level module to the distributions that contain the module."""
    owners: dict[str, list[str]] = {}
    # _top_modules() caches its result by this stamp, which changes when a package is installed.
    for distribution, tops in _top_modules(installation_stamp()):
        for module in tops.intersection(modules):
            owners.setdefault(module, []).append(distribution.metadata["Name"])
    return owners


@lru_cache(1)
def _top_modules(_installed: Hashable) -> Sequence[tuple[metadata.Distribution, frozenset[str]]]:
    """Return the installed distributions, each with the set of its top-level modules.

    ``metadata.packages_distributions`` would take 1.5 s, because it makes an object for each of
    about 50,000 files. The argument is the cache key.
    """
    modules_of: list[tuple[metadata.Distribution, frozenset[str]]] = []
    for distribution in metadata.distributions():
        tops = (distribution.read_text("top_level.txt") or "").split()
        if not tops:
            # Each line is "PATH,HASH,SIZE"; a top-level path is a folder or, as NAME.py, a module.
            lines = (distribution.read_text("RECORD") or "").splitlines()
            tops = [re.split(r"[/,.]", line, maxsplit=1)[0] for line in lines]
        modules_of.append((distribution, frozenset(tops)))
    return modules_of


def _is_plugin(distribution: str) -> bool:
    if not is_installed(distribution):
        return False
    if distribution in all_packages() and not distribution.startswith(PLUGIN_PREFIX):
        return False  # one of delf's own libraries, even if the library includes a plugin
    points = metadata.distribution(distribution).entry_points
    return any(point.group in _GROUPS for point in points)


def _imported_modules(files: Sequence[Path]) -> set[str]:
    """Return the modules that Python files import unconditionally; other files are skipped.

    Imports for type checkers and imports inside ``try … except ImportError`` or
    ``with suppress(ImportError)`` are left out.
    """
    modules: set[str] = set()
    for path in (file for file in files if file.suffix == ".py"):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (OSError, SyntaxError, ValueError):
            continue  # the import check reports this file
        modules.update(_unconditional_imports(tree))
    return modules


def _unconditional_imports(tree: ast.Module) -> Iterator[str]:
    """Yield the names of the modules that a file imports without condition."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending += node.orelse
            continue
        if isinstance(node, (ast.Try, ast.With)) and _catches_import_error(node):
            continue  # an optional import
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module  # without a level: relative imports are the plugin's own
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner: Any = getattr(node, block, None)
            if isinstance(inner, list):  # the body of a lambda is an expression
                pending += cast("list[ast.AST]", inner)


def _catches_import_error(node: ast.Try | ast.With) -> bool:
    if isinstance(node, ast.With):
        caught = [ast.unparse(item.context_expr) for item in node.items]
    else:
        types = (handler.type for handler in node.handlers)
        caught = [ast.unparse(caught_type) for caught_type in types if caught_type is not None]
    return any("ImportError" in text or "ModuleNotFound" in text for text in caught)


def _name_collisions(record: PluginRecord) -> Iterator[str]:
    """Yield a problem for each name of a plugin, such as ``sql``, that delf's own plugins use."""
    for kind, names in record.kinds.items():
        for name in names:
            owner = package_of(kind, name)
            if owner is not None and owner != normalise(record.distribution or ""):
                yield f"its {kind} {name!r} is in the way of {owner}'s: together, neither works"


def _module_of(
    distribution: metadata.Distribution, name: str, *, is_full_path: bool = False
) -> str | None:
    """Return the top-level module of a plugin's entry point, such as ``delf_x``.

    With ``is_full_path``, return the whole path of the module, such as ``delf_x.plugin``. None if
    the distribution has no plugin of this name.
    """
    for point in distribution.entry_points:
        if point.group in _GROUPS and point.name == name:
            if is_full_path:
                return point.module
            return point.module.partition(".")[0]
    return None


def _files_of(module: str) -> Sequence[Path]:
    """Return the files of a top-level package, or the only file of a module."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return ()
    if spec is None or spec.origin is None:
        return ()
    file = Path(spec.origin)
    is_package = spec.submodule_search_locations is not None
    return tuple(file.parent.rglob("*")) if is_package else (file,)


def _kind(target: object) -> str:
    if inspect.isroutine(target):
        return "plain function"
    return type(target).__name__


def is_third_party(record: PluginRecord) -> bool:
    """Return True if a plugin has other authors than delf."""
    return record.distribution is not None and normalise(record.distribution) not in all_packages()
