"""Loading of one plugin: import its module and collect the specs of its hooks.

A failure of a plugin is recorded, and not raised. If one hook fails, no spec of the plugin is used.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, cast

import pluggy

from delf.errors import describe_exception, did_you_mean
from delf.hookspecs import HOOKS, PLUGIN_API
from delf.plugins.discovery import Candidate
from delf.plugins.report import PluginRecord, State
from delf.specs import CommandSpec, ConnectionSpec, ModelSpec, Provider, SandboxSpec, Spec
from delf.types import ISOLATION_ORDER

_FACTORY = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")
# A distribution has its API number in a keyword, because an entry point cannot hold a number.
_API = re.compile(r"delf-plugin-api-(\d+)", re.IGNORECASE)
_PROJECT: Final = "delf"


class _BadPluginError(Exception):
    """A plugin violates a rule for hooks and specs; the message names the rule."""


@pluggy.HookspecMarker(_PROJECT)
def _hook() -> Iterable[Spec]:  # pyright: ignore[reportReturnType]
    """Return the specs of a plugin; the common signature of all hooks."""


def new_manager() -> pluggy.PluginManager:
    """Return a pluggy manager with delf's hooks, in which no plugin is registered."""
    manager = pluggy.PluginManager(_PROJECT)
    class_with_hooks = type("Hooks", (), dict.fromkeys(HOOKS, _hook))  # one method for each hook
    manager.add_hookspecs(class_with_hooks)
    return manager


def load(candidate: Candidate, manager: pluggy.PluginManager) -> PluginRecord:
    """Import a plugin and call its hooks; return a record of the result.

    A failure is caught and recorded. A plugin that :func:`why_not_imported` excludes is not
    imported, and the record has the reason.

    Args:
        candidate: The plugin.
        manager: The manager that registers the plugin.
    """
    state_and_reason = why_not_imported(candidate)
    if state_and_reason is not None:
        state, reason = state_and_reason
        return PluginRecord(plugin=candidate, state=state, reason=reason)
    started = time.perf_counter()
    specs: tuple[Spec, ...] = ()
    warnings: tuple[str, ...] = ()
    problem: str | None = None
    try:
        specs, warnings = _load_specs(candidate, manager)
    except KeyboardInterrupt:
        raise
    except _BadPluginError as error:
        problem = str(error)
    except BaseException as error:  # SystemExit and pytest's outcomes are not Exceptions
        problem = explain(error)
    return PluginRecord(
        plugin=candidate,
        state="loaded" if problem is None else "failed",
        reason=problem,
        specs=specs,
        warnings=warnings,
        load_ms=round((time.perf_counter() - started) * 1000, 2),
    )


def _spec_of_class(candidate: Candidate) -> ConnectionSpec:
    """Return the spec of a class that an entry point names; nothing is imported."""
    target = candidate.connection or ""
    return ConnectionSpec(name=candidate.name, summary=candidate.summary, factory=target)


def _load_specs(
    candidate: Candidate, manager: pluggy.PluginManager
) -> tuple[tuple[Spec, ...], tuple[str, ...]]:
    """Import a plugin, and return its specs and warnings about its hooks.

    A plugin can also be a single connection class, whose spec is made without an import.
    """
    if candidate.connection is not None:
        spec = _check_spec("delf_connections", ConnectionSpec, _spec_of_class(candidate))
        return (spec,), ()
    plugin = candidate.plugin
    if plugin is None:
        plugin = import_target(candidate.target)
    implemented_hooks = _register(plugin, candidate, manager)
    return tuple(_collect(plugin, implemented_hooks)), tuple(_hook_warnings(plugin))


def why_not_imported(candidate: Candidate) -> tuple[State, str] | None:
    """Return the state of a plugin that must not be imported, and the reason; else None.

    A plugin must not be imported if it is blocked, broken or written for another plugin API. The
    installer, not this function, checks the plugin's required packages.
    """
    if candidate.blocked is not None:
        return "disabled", candidate.blocked
    if candidate.problem is not None:
        return "failed", candidate.problem
    matches = map(_API.fullmatch, candidate.keywords)
    numbers = [int(match[1]) for match in matches if match]
    if numbers and PLUGIN_API not in numbers:
        api_numbers = " or ".join(map(str, sorted(numbers)))
        return "skipped", f"needs delf with plugin API {api_numbers}, this has {PLUGIN_API}"
    return None


def import_target(target: str) -> Any:
    """Return the object that ``module`` or ``module:attribute.path`` names.

    Raises:
        ImportError: If the module or attribute does not exist.
    """
    module_name, _, path = target.partition(":")
    value: Any = importlib.import_module(module_name.strip())
    if not path:
        return value
    # An entry point may end with extras, as in "module:attribute [extra]".
    path_without_extras, _, _ = path.partition("[")
    for part in path_without_extras.strip().split("."):
        try:
            value = getattr(value, part)
        except AttributeError as error:
            attribute_names = [name for name in dir(value) if not name.startswith("_")]
            raise ImportError(
                f"{module_name} has no {path!r}{did_you_mean(part, attribute_names)}",
                name=module_name,
            ) from error
    return value


def explain(error: BaseException) -> str:
    """Format an exception in one line: its type, the first line of its message, and its place."""
    text = describe_exception(error).strip().split("\n", 1)[0]
    place = _place_in_plugin(error)
    return f"{text} ({place})" if place else text


def _place_in_plugin(error: BaseException) -> str:
    """Return the innermost line of a traceback outside of Python and the core, if any.

    The result is a text such as ``mail.py, line 7``, or empty.
    """
    place = ""
    traceback = error.__traceback__
    if traceback is not None:
        traceback = traceback.tb_next  # skip the function that caught the exception
    while traceback is not None:
        frame = traceback.tb_frame
        package, _, _ = str(frame.f_globals.get("__name__")).partition(".")
        if package != "delf" and package not in sys.stdlib_module_names:
            place = f"{Path(frame.f_code.co_filename).name}, line {traceback.tb_lineno}"
        traceback = traceback.tb_next
    return place


def _register(
    plugin: object, candidate: Candidate, manager: pluggy.PluginManager
) -> list[pluggy.HookCaller]:
    """Register a plugin and return the hooks that it implements."""
    # pluggy refuses a module that is registered already, and a name that another plugin has. The
    # catalog reports such plugins as conflicts, so they must not fail here.
    if not manager.is_registered(plugin):
        name = candidate.name
        if manager.has_plugin(name):
            name = f"{name} ({candidate.origin})"
        try:
            manager.register(plugin, name=name)
        except pluggy.PluginValidationError as error:
            lines = map(str.strip, str(error).splitlines())
            raise _BadPluginError(" ".join(filter(None, lines))) from error
    callers = manager.get_hookcallers(plugin) or []
    known_callers = [caller for caller in callers if caller.name in HOOKS]
    return sorted(known_callers, key=lambda caller: caller.name)


def _collect(plugin: object, callers: Iterable[pluggy.HookCaller]) -> Iterator[Spec]:
    """Yield the specs that a plugin's hooks return, refusing duplicates."""
    seen_specs: set[tuple[str, str]] = set()
    for caller in callers:
        for impl in caller.get_hookimpls():
            if impl.plugin is not plugin:  # all plugins share the callers of the manager
                continue
            if impl.hookwrapper or impl.wrapper:
                raise _BadPluginError(f"{caller.name} is a wrapper; a hook only returns specs")
            for spec in _call_hook(caller.name, impl.function):
                key = (spec.kind, spec.name)
                if key in seen_specs:
                    raise _BadPluginError(f"it names the {spec.kind} {spec.name!r} twice")
                seen_specs.add(key)
                yield spec


def _call_hook(hook: str, function: Any) -> list[Spec]:
    """Call a plugin's function for a hook; return the specs after checking them."""
    if inspect.iscoroutinefunction(function):
        raise _BadPluginError(f"{hook} is async; hooks are plain functions")
    try:
        specs: Any = function()
        is_collection = isinstance(specs, Iterable) and not isinstance(specs, (str, bytes))
        # A single value becomes the only item. If it is not a spec, _check_spec() refuses it.
        items: list[object] = list(cast("Iterable[object]", specs)) if is_collection else [specs]
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _BadPluginError(f"{hook} raised {explain(error)}") from error
    return [_check_spec(hook, HOOKS[hook], item) for item in items]


def _is_name(value: object, max_words: int) -> bool:
    """Return True for a text of 1 to ``max_words`` words with single spaces between them."""
    if not isinstance(value, str):
        return False
    words = value.split()
    return 1 <= len(words) <= max_words and value == " ".join(words)


def _check_spec(hook: str, expected: type[Spec], item: object) -> Spec:
    """Return the item if it is a spec with fields of the declared types; raise otherwise."""
    if not isinstance(item, expected):
        is_class = isinstance(item, type)
        found = f"the class {item.__name__}" if is_class else f"a {type(item).__name__}"
        raise _BadPluginError(
            f"{hook} returned {found}, not a {expected.__name__}: yield each spec"
        )
    name: Any = item.name
    max_words = 2 if isinstance(item, CommandSpec) else 1  # a command may name its group first
    if not _is_name(name, max_words):
        raise _BadPluginError(f"{hook}: {name!r} is not a name: a name is a text without blanks")
    subject = f"{hook}: the spec {name!r}"
    if not isinstance(cast("Any", item.summary), str):  # shown in lists and in the help of commands
        raise _BadPluginError(f"{subject} has no summary")
    factory: Any = item.factory
    if not isinstance(factory, str) or not _FACTORY.fullmatch(factory):
        raise _BadPluginError(
            f"{subject} has the factory {factory!r}, not its name as text: 'module:attribute'"
        )
    _check_fields(item, subject)
    if isinstance(item, ModelSpec):
        for provider in item.providers:
            _check_fields(provider, f"{subject}: the provider {provider.name!r}")
    if isinstance(item, SandboxSpec) and item.isolation not in ISOLATION_ORDER:
        level_names = ", ".join(ISOLATION_ORDER)
        raise _BadPluginError(f"{subject} has isolation {item.isolation!r}; one of: {level_names}")
    return item


def _check_fields(item: Spec | Provider, subject: str) -> None:
    """Raise unless the fields of a spec or provider have their declared types."""
    for item_field in fields(item):
        value = getattr(item, item_field.name)
        is_valid, words = _FIELD_TYPES.get(str(item_field.type), _ANY_TYPE)
        if not is_valid(value):
            raise _BadPluginError(f"{subject} has {item_field.name}={value!r}, not {words}")


def _is_tuple_of(value: Any, kind: type) -> bool:
    return isinstance(value, tuple) and all(
        isinstance(part, kind) for part in cast("tuple[object, ...]", value)
    )


def _is_setting(pair: tuple[Any, ...]) -> bool:
    return len(pair) == 2 and isinstance(pair[0], str)


# For each annotation of a field: the check of the field's value, and the type's name in messages.
_FIELD_TYPES: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "str": (lambda value: isinstance(value, str), "a text"),
    "str | None": (lambda value: value is None or isinstance(value, str), "a text or None"),
    "bool": (lambda value: isinstance(value, bool), "True or False"),
    # A string instead of a tuple is a common mistake: it would be read letter by letter.
    "tuple[str, ...]": (lambda value: _is_tuple_of(value, str), "a tuple of texts"),
    "tuple[Provider, ...]": (lambda value: _is_tuple_of(value, Provider), "a tuple of Provider"),
    "tuple[tuple[str, object], ...]": (
        lambda value: _is_tuple_of(value, tuple) and all(map(_is_setting, value)),
        "a tuple of pairs of a name and a value",
    ),
}
_ANY_TYPE: Final[tuple[Callable[[Any], bool], str]] = (lambda _: True, "")


def _hook_warnings(plugin: object) -> Iterator[str]:
    """Yield a warning for each function that looks like a hook but is never called."""
    own_module = getattr(plugin, "__name__", type(plugin).__module__)
    for name, member in inspect.getmembers(plugin, inspect.isroutine):
        # The options of @hookimpl, which pluggy stores on the function; empty without @hookimpl.
        hook_options: dict[str, Any] = getattr(member, f"{_PROJECT}_impl", None) or {}
        is_marked = bool(hook_options)
        # A function that the plugin's module only imports is no hook.
        has_hook_name = (
            name.startswith(f"{_PROJECT}_") and getattr(member, "__module__", None) == own_module
        )
        if not is_marked and not has_hook_name:
            continue
        hook: str = hook_options.get("specname") or name
        if hook not in HOOKS and not hook_options.get("optionalhook"):
            yield f"{hook} is not a hook of this delf{did_you_mean(hook, HOOKS)}"
        elif not is_marked:
            yield f"{name} is not marked with @hookimpl and is ignored"
