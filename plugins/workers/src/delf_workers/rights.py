"""Rights of a worker: its own connections, or for a generated one some of its maker's."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar, cast

from delf.errors import ConfigurationError
from delf.protocols.connection import ConnectionLike, SupportsClose
from delf.tools.context import Connect
from delf.tools.function import Tool
from delf.tools.permissions import check_permission
from delf.types import Permission
from delf_cli.toolfile import load_tools
from delf_workers.definition import TOOLS, WorkerDefinition
from delf_workers.registry import Registry

WORKERS: Final = "workers"
_PERMISSIONS: Final = frozenset({"allow", "confirm"})
_MAX_MAKERS: Final = 20
W = TypeVar("W", bound=ConnectionLike)


@dataclass
class Workshop(Generic[W]):
    """Creates the connections of workers once per agent, and closes them.

    Args:
        registry: The workers.
        tools: The agent's connections, by name.
        connect: Creates further connections.
        environ: Environment variables for settings in ``tools.py`` files.
        for_worker: Called with the connection ``workers``, a worker, and patterns of names. Returns
            a copy of the connection, with which the worker can call only workers whose names match
            a pattern.
    """

    registry: Registry
    tools: Mapping[str, ConnectionLike]
    connect: Connect
    environ: Mapping[str, str] = field(repr=False)
    for_worker: Callable[[W, WorkerDefinition, tuple[str, ...]], ConnectionLike]
    _connections_by_worker: dict[str, list[ConnectionLike]] = field(
        default_factory=dict[str, "list[ConnectionLike]"], repr=False
    )
    # Concurrent calls of a worker share its connections. The lock is reentrant, because tools_of()
    # calls itself for the maker of a worker.
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    def tools_of(self, worker: WorkerDefinition, agent_workers: W) -> list[ConnectionLike]:
        """Return the connections of a worker, which are created at the first call.

        Args:
            worker: The worker.
            agent_workers: The agent's connection ``workers``, of which the worker gets a restricted
                copy.

        Raises:
            ConfigurationError: If the worker's file is invalid. The message names file, line and
                key.
        """
        # The key is the content of the files, so that a changed worker gets new connections. A
        # generated worker's connections follow from those of its makers.
        workers = lineage(self.registry, worker)
        key = "\n".join(each.model_dump_json() for each in workers)
        with self._lock:
            if key not in self._connections_by_worker:
                connections = list(self._create_connections(worker, agent_workers))
                self._connections_by_worker[key] = connections
            return self._connections_by_worker[key]

    def _create_connections(
        self, worker: WorkerDefinition, agent_workers: W
    ) -> Iterator[ConnectionLike]:
        """Create and yield a worker's connections.

        A generated worker gets connections of its maker: the agent or worker that created it.
        """
        if worker.generated:
            yield from self._inherited_connections(worker, agent_workers)
            return
        has_filesystem = any(worker.kind_of(name) == "filesystem" for name in worker.connections)
        if worker.sandbox.paths and not has_filesystem:
            raise ConfigurationError(
                f"{worker.place('sandbox', 'paths')}: the paths need connections.filesystem, "
                "which is missing"
            )
        for name in worker.connections:
            yield from self._connection(worker, name, agent_workers)

    def _connection(
        self, worker: WorkerDefinition, name: str, agent_workers: W
    ) -> Iterator[ConnectionLike]:
        """Create and yield the connections for one entry of ``connections`` in a worker's file.

        The entry ``tools`` stands for functions of ``tools.py``, and the entry ``workers`` for a
        restricted copy of the agent's connection. An entry without settings, or with permissions
        only, stands for the agent's connection of that name with these permissions. An entry with
        other settings makes a new connection.
        """
        where = worker.place("connections", name)
        settings = dict(worker.connections[name])
        has_type = settings.pop("type", None) is not None
        kind = worker.kind_of(name) or name  # an unknown name may be a type that a plugin provides
        if kind == "filesystem" and worker.sandbox.paths:
            # The folders of llm-do's sandbox are the roots of the connection.
            folders = worker.sandbox.paths.items()
            roots = {root_name: _with_create(root) for root_name, root in folders}
            settings.setdefault("roots", roots)
        if name == TOOLS:
            yield from self._tools_of_file(worker, settings, where)
        elif kind == WORKERS:
            yield self.for_worker(agent_workers, worker, _patterns(settings, where))
        elif settings.keys() <= _PERMISSIONS and not has_type:
            yield _with_permissions(self._connection_by_name(name, where), settings, where)
        else:
            # The name may be the import path of a class; scripts use the last part.
            name_in_scripts = name.rpartition(".")[2].lower()
            yield self._make_connection(name_in_scripts, kind, settings, where)

    def _make_connection(
        self, name: str, kind: str | None, settings: Mapping[str, Any], where: str
    ) -> ConnectionLike:
        """Create a connection. Errors name the line in the worker's file."""
        try:
            return self.connect(name, kind=kind, settings=settings, where=where)
        except ConfigurationError as error:
            if error.message.startswith(where):
                raise
            raise _with_place(error, where) from None

    def _connection_by_name(self, name: str, where: str) -> ConnectionLike:
        """Return the agent's connection with a name, or else create a connection.

        Args:
            name: A name with dots is the import path of a class. Any other name refers to a section
                in ``delf.toml`` or, without such a section, to a connection type.
            where: The place of the name in the worker's file, for errors.
        """
        if name in self.tools:
            return self.tools[name]
        try:
            is_import_path = "." in name
            if is_import_path:
                name_in_scripts = name.rpartition(".")[2].lower()
                return self.connect(name_in_scripts, kind=name, settings={}, where=where)
            return self.connect(name)
        except ConfigurationError as error:
            raise _with_place(error, where) from None

    def _tools_of_file(
        self, worker: WorkerDefinition, settings: Mapping[str, Any], where: str
    ) -> Iterator[ConnectionLike]:
        """Load ``tools.py``, and yield those of its functions that the worker's file lists."""
        path = self.registry.tools_file(worker)
        tools = {t.name: t for t in load_tools(path, self.environ, self.registry.read, settings)}
        for name, options in settings.items():
            if name not in tools:
                names = ", ".join(tools)
                raise ConfigurationError(f"{where}.{name}: tools.py has no {name!r}; {names}")
            is_pre_approved = _is_pre_approved(options, f"{where}.{name}")
            # A copy, because other workers may list the function with another pre_approved.
            tool = copy.copy(tools[name])
            if is_pre_approved:
                tool.confirm = False
            elif isinstance(tool, Tool):
                tool.confirm = True
            # Else ``tool`` is a connection defined in tools.py, which keeps its own ``confirm``.
            yield cast("ConnectionLike", tool)

    def _inherited_connections(
        self, worker: WorkerDefinition, agent_workers: W
    ) -> Iterator[ConnectionLike]:
        """Yield a generated worker's connections.

        Each connection is a restricted copy of a connection of the maker, which is the worker or
        the agent that generated this worker.

        Args:
            worker: The generated worker.
            agent_workers: The agent's connection ``workers``.
        """
        maker_connections = self._maker_connections(worker, agent_workers)
        for name, settings in worker.connections.items():
            where = worker.place("connections", name)
            if name not in maker_connections:
                maker_text = "the agent" if worker.maker is None else f"the worker {worker.maker!r}"
                raise ConfigurationError(
                    f"{where}: its maker, {maker_text}, does not have {name!r}",
                    hint=f"it has: {', '.join(maker_connections) or 'nothing'}",
                )
            inherited = maker_connections[name]
            if name == WORKERS:  # the settings restrict which workers can be called
                yield self.for_worker(cast("W", inherited), worker, _patterns(settings, where))
            else:
                yield _narrow_to_allowed(inherited, settings.get("allow"), where)

    def _maker_connections(
        self, worker: WorkerDefinition, agent_workers: W
    ) -> Mapping[str, ConnectionLike]:
        """Return the connections of the agent or worker that created a worker, by name."""
        if worker.maker is None:
            return self.tools
        lineage(self.registry, worker)  # raises for a circle, in which tools_of would not end
        maker = self.registry.find(worker.maker)
        return {connection.name: connection for connection in self.tools_of(maker, agent_workers)}

    async def aclose(self) -> None:
        """Close the connections created for workers. The agent's own connections stay open."""
        # Several workers may share a connection, which is closed once.
        connections_by_id: dict[int, ConnectionLike] = {}
        for connections in self._connections_by_worker.values():
            for connection in connections:
                connections_by_id[id(connection)] = connection
        self._connections_by_worker = {}
        for connection in self.tools.values():
            connections_by_id.pop(id(connection), None)
        for connection in connections_by_id.values():
            if isinstance(connection, SupportsClose):
                await connection.aclose()


def _with_place(error: ConfigurationError, where: str) -> ConfigurationError:
    """Return a copy of an error whose message begins with the place in the worker's file."""
    # Copy the error, because the constructors of some classes of errors need further arguments.
    changed = copy.copy(error)
    changed.message = f"{where}: {error.message}"
    changed.args = (changed.message,)
    return changed


def lineage(registry: Registry, worker: WorkerDefinition) -> list[WorkerDefinition]:
    """Return a worker followed by its maker, the maker's maker, and so on.

    Raises:
        ConfigurationError: If a worker is its own maker, directly or indirectly.
    """
    workers = [worker]
    while (maker := workers[-1].maker) is not None:
        workers.append(registry.find(maker))
        if len(workers) > _MAX_MAKERS:
            raise ConfigurationError(f"{worker.place('maker')}: its makers form a circle")
    return workers


def _with_create(root: Any) -> Any:
    """Return a folder's settings with the default ``create = true``."""
    if not isinstance(root, Mapping):
        return root
    return {"create": True, **cast("Mapping[str, Any]", root)}


def _patterns(settings: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """Return the patterns of callable workers in the settings of the connection ``workers``."""
    value = settings.get("allow_workers", [])
    patterns: Any = [value] if isinstance(value, str) else value
    are_texts = isinstance(patterns, (list, tuple)) and all(
        isinstance(pattern, str) for pattern in cast("Sequence[Any]", patterns)
    )
    has_other_settings = not settings.keys() <= {"allow_workers"}
    if has_other_settings or not are_texts:
        raise ConfigurationError(
            f"{where}: the only setting is allow_workers, a list of names or patterns"
        )
    return tuple(cast("Sequence[str]", patterns))


def _is_pre_approved(options: Any, where: str) -> bool:
    """Return True if calls of a function need no approval.

    Args:
        options: The value of the function's key in the worker's file.
        where: The place of the key, for error messages.
    """
    if options is None or options == {}:
        return False
    if isinstance(options, dict):
        settings = cast("dict[Any, Any]", options)
        is_pre_approved = settings.get("pre_approved")
        if len(settings) == 1 and isinstance(is_pre_approved, bool):
            return is_pre_approved
    raise ConfigurationError(f"{where}: the only setting is pre_approved, true or false")


def _with_permissions(
    connection: ConnectionLike, settings: Mapping[str, Any], where: str
) -> ConnectionLike:
    """Return a copy of a connection with the permissions that a worker's file gives it.

    Without ``settings`` for the connection in the file, return the connection itself.
    """
    if not settings:
        return connection
    changed = copy.copy(connection)
    for key in _PERMISSIONS & settings.keys():
        setattr(changed, key, check_permission(settings[key], key, where))
    return changed


def _narrow_to_allowed(connection: ConnectionLike, allow: Any, where: str) -> ConnectionLike:
    """Return a copy of a connection with fewer allowed actions, for a generated worker.

    Args:
        connection: The connection of the agent or worker that created the worker (its maker).
        allow: The actions that the worker's file allows; None for all that the maker may call. An
            action that the maker may not call stays forbidden.
        where: The place of the setting, for error messages.
    """
    names = _names_in(check_permission(allow, "allow", where))
    if names is None:
        return connection
    maker_names = _names_in(connection.allow)
    narrowed = copy.copy(connection)
    allowed_names = [name for name in names if maker_names is None or name in maker_names]
    narrowed.allow = tuple(allowed_names) if allowed_names else False
    return narrowed


def _names_in(permission: Permission) -> Sequence[str] | None:
    """Return the names of the allowed actions; None if all actions are allowed."""
    if permission is None or permission is True:
        return None
    if permission is False:
        return ()
    return (permission,) if isinstance(permission, str) else permission
