"""``Folder``: the contents of a project's files, read once before the trust check."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Final, cast

from delf.environment import EnvFile
from delf.errors import ConfigurationError
from delf.machine.folders import expand_home
from delf.plugins.host import PluginHost
from delf.records import dataclass
from delf.trust.decisions import Items, digest_items, load_trusted
from delf.trust.folders import (
    CONFIG_FILE,
    ENV_FILE,
    UntrustedFolder,
    is_file,
    leaves,
    project_folder,
    read_file,
    texts_in,
    values_by_path,
)
from delf_engine.project.files import read_config
from delf_engine.project.paths import links_outside
from delf_engine.project.prices import PRICES_FILE
from delf_engine.project.programs import (
    files_of_programs,
    has_data_name,
    may_be_script,
    names_program,
    starts_program,
)
from delf_engine.project.values import substitute

# Names of settings whose value is the path of a file with settings, whatever its suffix is.
_DOCUMENT_SETTINGS: Final = frozenset({"config", "spec"})
# Names of settings whose value is the path of a data file or of delf's own output.
_DATA_SETTINGS: Final = frozenset(
    {"tokens", "path", "cache_dir", "record", "output_dir", "files", "database", "attach"}
)
# The sections of ``delf.toml`` with a table for each connection or plugin.
_NAMED_TABLES: Final = ("connections", "plugins")
_MAX_PATH_LENGTH: Final = 1000
# The maximum total size of a folder's files with settings or code, in bytes.
_MAX_BYTES: Final = 500_000_000
_MAX_FILES: Final = 5000


@dataclass(frozen=True, kw_only=True)
class Folder:
    """The contents of a project's files that need the user's trust.

    Args:
        root: The folder.
        file: The ``delf.toml``, if it exists.
        document: The content of ``delf.toml``.
        env: The ``.env`` file of the folder.
        items: The content of each file that affects the project; see
            :data:`delf.trust.decisions.Items`. If the settings name a link that leads out of the
            folder, the content is a digest of the target's path.
        named_files: The files among ``items`` that settings name.
        links_outside: The targets of the links among ``items``, by name.
    """

    root: Path
    file: Path | None
    document: Mapping[str, Any] = field(repr=False)
    env: EnvFile = field(repr=False)
    items: Items = field(repr=False)
    named_files: frozenset[str] = field(default=frozenset(), repr=False)
    links_outside: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


def read_folder(
    search_start: Path,
    file: Path | None,
    environ: Mapping[str, str],
    host: PluginHost | None = None,
) -> Folder:
    """Read the files of a project that need trust, without applying their settings.

    Args:
        search_start: The folder from which ``delf.toml`` is searched upwards.
        file: The ``delf.toml`` to use instead of searching.
        environ: The environment variables to which paths in settings may refer.
        host: The plugins; all installed ones when omitted. The files that a plugin declares as its
            input need trust, too.

    Raises:
        ConfigurationError: If a file is not a regular file, is too large, or leads out of the
            folder.
    """
    search_start = search_start.resolve()
    root, file = _root_and_file(search_start, file)
    document = read_config(file) if file is not None else {}
    env = _env_file(root, search_start)
    variables = {**env.variables(environ), **environ}
    settings = _Settings(root=root, document=document, env=env, variables=variables)
    named_files = list(_named_files(settings))
    plugin_files = _plugin_files(settings, host or PluginHost.discover(environ=environ))
    links = links_outside(_texts(settings), root)
    return Folder(
        root=root,
        file=file,
        document=document,
        env=env,
        items=_items_needing_trust(settings, file, named_files, plugin_files, links),
        named_files=frozenset(path.relative_to(root).as_posix() for path in named_files),
        links_outside=links,
    )


@dataclass(frozen=True, kw_only=True)
class _Settings:
    """The settings in a folder's ``delf.toml`` and ``.env``.

    Args:
        root: The folder.
        document: The content of ``delf.toml``.
        env: The ``.env`` file.
        variables: The environment variables to which the settings may refer.
    """

    root: Path
    document: Mapping[str, Any] = field(repr=False)
    env: EnvFile = field(repr=False)
    variables: Mapping[str, str] = field(repr=False)


def _root_and_file(search_start: Path, file: Path | None) -> tuple[Path, Path | None]:
    """Return the project's folder, and the path of its ``delf.toml`` if there is one.

    Args:
        search_start: The folder from which ``delf.toml`` is searched upwards.
        file: The ``delf.toml`` to use instead of searching.
    """
    if file is not None:
        root = file.parent.resolve()
        return root, root / file.name
    root = project_folder(search_start)
    found_file = root / CONFIG_FILE
    return root, (found_file if is_file(found_file) else None)


def _items_needing_trust(
    settings: _Settings,
    file: Path | None,
    named_files: list[Path],
    plugin_files: Iterable[Path],
    links: Mapping[str, str],
) -> Items:
    """Return the contents that the user has to trust, by file name.

    For ``delf.toml`` and ``.env``, these are the values. For any other file, the result has a
    digest of the content, and for each of ``links``, a digest of the target's path.
    """
    items = _items_of_settings(settings, file)
    _add_digests(items, settings.root, itertools.chain(named_files, plugin_files))
    for name, target in links.items():
        items.setdefault(name, digest_items(os.fsencode(target)))
    variable_names = [name for name, _ in settings.env.entries]
    # A program that the settings start may load any code in the folder, which then needs trust.
    if starts_program(settings.document, named_files, variable_names):
        items |= files_of_programs(settings.root, items, _data_paths(settings))
    return items


def _items_of_settings(settings: _Settings, file: Path | None) -> dict[str, Mapping[str, str]]:
    """Return the values in ``delf.toml``, the variables in ``.env`` and the digest of the prices.

    A file that does not exist is left out. But a missing ``delf.toml`` or ``.env`` that the user
    has trusted before is an item without settings.
    """
    root = settings.root
    env = settings.env
    items: dict[str, Mapping[str, str]] = {}
    if file is not None:
        items[file.name] = values_by_path(settings.document)
    if env.entries:
        items[env.path.relative_to(root).as_posix()] = env.assignments
    prices = read_file(root / PRICES_FILE, root)
    if prices is not None:
        items[PRICES_FILE] = digest_items(prices)
    return {**items, **_removed_files(root)}


def _removed_files(root: Path) -> Items:
    """Return ``{name: {}}`` for each trusted ``delf.toml`` or ``.env`` that was removed.

    In place of the removed settings, defaults apply. The empty item differs from the trusted
    settings, so that the user is asked about the removal.
    """
    trusted = load_trusted(root)
    known_files: Iterable[str] = () if trusted is None else trusted.digests
    return {
        file: {}
        for file in known_files
        if Path(file).name in (CONFIG_FILE, ENV_FILE) and not os.path.lexists(root / file)
    }


def _add_digests(items: dict[str, Mapping[str, str]], root: Path, paths: Iterable[Path]) -> None:
    """Add the digest of each file that is not among the items yet."""
    remaining_bytes = _MAX_BYTES
    for path in paths:
        name = path.relative_to(root).as_posix()
        if name in items:
            continue
        if len(items) >= _MAX_FILES:
            raise ConfigurationError(f"{root} has more than {_MAX_FILES:,} files that need trust")
        digest, size = _digest_and_size(path, root, remaining_bytes)
        items[name] = {"": digest}  # the empty key stands for the whole file
        remaining_bytes -= size


def _texts(settings: _Settings) -> Iterator[str]:
    """Yield all texts of ``delf.toml`` and ``.env``, as written and with variables expanded."""
    for value in (settings.document, dict(settings.env.entries)):
        yield from texts_in(value)
        yield from texts_in(_expand_variables(value, settings.variables))


def _plugin_files(settings: _Settings, host: PluginHost) -> Iterator[Path]:
    """Yield the files that affect a project according to its plugins."""
    variables = settings.variables
    folder = UntrustedFolder(
        root=settings.root.resolve(),
        document=_expand_variables(settings.document, variables),
        variables={name: variables.get(name, value) for name, value in settings.env.entries},
    )
    yield from host.project_files(folder)


def _expand_variables(value: Any, environ: Mapping[str, str]) -> Any:
    """Expand the environment variables in a setting; keep texts with unset variables unchanged."""
    if isinstance(value, Mapping):
        table = cast("Mapping[str, Any]", value)
        return {key: _expand_variables(item, environ) for key, item in table.items()}
    if isinstance(value, list):
        return [_expand_variables(item, environ) for item in cast("list[Any]", value)]
    try:
        return substitute(value, environ, "")
    except ConfigurationError:
        return value  # the error is reported when the setting is used


def _env_file(root: Path, search_start: Path) -> EnvFile:
    """Read the ``.env`` file of the project's folder, or else of the folder ``search_start``.

    If ``search_start`` is outside of the project's folder, the user only named the ``delf.toml``
    from there, and no ``.env`` file of ``search_start`` is read.
    """
    folders = [root, search_start] if search_start.is_relative_to(root) else [root]
    for folder in folders:
        if is_file(folder / ENV_FILE):
            return EnvFile.read(folder / ENV_FILE, root)
    return EnvFile(root / ENV_FILE)


def _named_files(settings: _Settings) -> Iterator[Path]:
    """Yield each file named in a setting, as in ``spec = "api.json"``; omit data files."""
    for keys, text in _texts_by_keys(settings):
        names_data = not _DATA_SETTINGS.isdisjoint(keys)
        if names_data:
            continue
        name = _expand_variables(text, settings.variables)
        path = _in_folder(settings.root, name)
        if path is not None and _may_have_settings_or_code(path, keys):
            yield path


def _texts_by_keys(settings: _Settings) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the texts that may name a file, each with the keys of its setting.

    A variable counts as a setting with one key: DELF_MAIL_CONFIG has the key ``config``.
    """
    for variable, value in settings.env.entries:
        last_word = variable.lower().rpartition("_")[2]
        yield (last_word,), value
    for keys, value in leaves(settings.document):
        if keys[0] in _NAMED_TABLES:
            for text in texts_in(value):
                yield _option_keys(keys), text


def _option_keys(keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return the keys of an option in its table, such as ``spec`` for ``connections.shop.spec``.

    The name of a connection is left out, because it could look like an option, such as ``files``.
    """
    return keys[2:] if keys[0] in _NAMED_TABLES else keys[1:]


def _may_have_settings_or_code(path: Path, keys: tuple[str, ...]) -> bool:
    """Return True if a file may have settings or code, so that a change needs new trust.

    Args:
        path: The file.
        keys: The keys of the option that names the file, such as ``spec``.
    """
    is_executable = os.access(path, os.X_OK)
    has_settings = any(key in _DOCUMENT_SETTINGS for key in keys)
    if is_executable or has_settings:
        return True
    if names_program(keys):
        return may_be_script(path)
    return not has_data_name(path)


def _data_paths(settings: _Settings) -> frozenset[Path]:
    """Return the paths in the settings of :data:`_DATA_SETTINGS`: data files and folders."""
    paths: set[Path] = set()
    for keys, value in leaves(settings.document):
        if _DATA_SETTINGS.isdisjoint(_option_keys(keys)):
            continue
        for text in texts_in(value):
            if len(text) <= _MAX_PATH_LENGTH and "\0" not in text:
                paths.add(Path(os.path.normpath(settings.root / text)))
    return frozenset(paths)


def _in_folder(root: Path, name: str) -> Path | None:
    """Return the path of the file called ``name`` if the file is inside ``root``, else None."""
    may_be_path = 0 < len(name) <= _MAX_PATH_LENGTH and name.isprintable()
    is_url = "://" in name
    if is_url or not may_be_path:
        return None
    path = Path(os.path.normpath(root / expand_home(name)))
    if not path.is_relative_to(root) or not is_file(path):
        return None
    # A link inside the folder may lead out of the folder.
    is_target_inside = path.resolve().is_relative_to(root.resolve())
    return path if is_target_inside else None


def _digest_and_size(path: Path, root: Path, remaining_bytes: int) -> tuple[str, int]:
    """Return the digest of a file, and the file's size in bytes.

    Args:
        path: The path of the file.
        root: The folder, without links in its path.
        remaining_bytes: The rest of ``_MAX_BYTES``, the limit for all files that need trust.

    Raises:
        ConfigurationError: If the file is a link out of the folder, too large or unreadable.
    """
    if not path.resolve().is_relative_to(root):
        raise ConfigurationError(
            f"{path} is a link out of its folder", hint="put the file itself there"
        )
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > remaining_bytes:
                raise ConfigurationError(
                    f"{path}: the files that need trust have more than {_MAX_BYTES:,} bytes"
                )
            return hashlib.file_digest(file, "sha256").hexdigest(), size
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
