"""``@tool``: a Python function as a tool."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, cast, overload

from delf.errors import ToolDefinitionError
from delf.protocols.connection import ConnectionLike
from delf.tools.action import Action, action_from_function, check_effect, check_flow
from delf.tools.connection import describe_actions
from delf.tools.signature import ArgumentValidator, warn_of_missing_hints
from delf.types import Effect, Permission, Trust

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, TypeVar

    P = ParamSpec("P", default=...)
    R = TypeVar("R", default=Any)
else:  # only type checkers need the defaults, which make `list[Tool]` a complete type
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")

HandleError = bool | str | Callable[[Exception], str] | None


class Tool(Generic[P, R]):
    """A function that scripts can call by name; in Python it stays callable as before.

    Made by :func:`tool`. A tool can be passed wherever a connection can. It is then a connection
    with one action, and the action has the tool's name.
    """

    is_function = True

    def __init__(self, function: Callable[P, R], action: Action, confirm: bool) -> None:
        functools.update_wrapper(self, function)
        self.description_trust: Trust = "own"
        """``own`` for a description by the user, ``outside`` if a server may have written it."""
        self.function = function
        self.action = action
        self.name = action.name
        self.summary = action.summary
        self.description = action.summary
        self.allow: Permission = None
        self.confirm: Permission = confirm

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the wrapped function directly."""
        return self.function(*args, **kwargs)

    async def actions(self) -> Sequence[Action]:
        """Return the only action."""
        return (self.action,)

    def inspect(self, *, verbose: bool = False) -> dict[str, Any]:
        """Return the tool's name and summary; with ``verbose`` also its action's parameters."""
        return describe_actions(self.name, self.summary, (self.action,), verbose=verbose)

    def __repr__(self) -> str:
        return f"<tool {self.name}{self.action.signature}>"


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    tool_name: str | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    handle_error: HandleError = True,
    confirm: bool = True,
    effect: Effect | None = None,
    trust: Trust | Mapping[str, Trust] = "outside",
    sinks: Sequence[str] | None = None,
    contents: Sequence[str] | None = None,
    egress: bool = False,
    author: str | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    function: Callable[..., Any] | str | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    handle_error: HandleError = True,
    confirm: bool = True,
    effect: Effect | None = None,
    trust: Trust | Mapping[str, Trust] = "outside",
    sinks: Sequence[str] | None = None,
    contents: Sequence[str] | None = None,
    egress: bool = False,
    author: str | None = None,
) -> Any:
    """Make a function a tool.

    Args:
        function: A plain or async function with type hints and a docstring; or the tool's name, as
            in ``@tool("find")``.
        name: The name in scripts; by default the function's name.
        description: The description for the model; the docstring's text when omitted.
        handle_error: The treatment of a ``ToolException`` that the function raises. With True,
            False or None, the script gets a ``ToolError``, so that no script takes a failure for a
            success. Otherwise, the call returns a text: with ``"text"``, the exception's message;
            with any other string, this string; with a callable, the text that the callable returns
            for the exception.
        confirm: Whether a person is asked before each call.
        effect: A level of :data:`delf.types.Effect`, which also decides whether an interrupted call
            may be made again when its task is resumed; undeclared means irreversible.
        trust: The trust in the result: ``own``, ``outside``, or by field, as in
            :func:`delf.tools.action.action`.
        sinks: The names of the parameters that choose the target or the effect of a call, as in
            :func:`delf.tools.action.action`.
        contents: The names of the parameters that are only text, as in
            :func:`delf.tools.action.action`.
        egress: Whether a call that reads sends its arguments out, as in
            :func:`delf.tools.action.action`.
        author: The field or parameter with the content's author, as in
            :func:`delf.tools.action.action`.

    Raises:
        ToolDefinitionError: If the function cannot be called from a script.
    """
    if isinstance(function, str):
        if name is not None:
            raise ToolDefinitionError(f"@tool has two names, {function!r} and {name!r}")
        name = function
        function = None

    def make(target: Callable[..., Any]) -> Tool[Any, Any]:
        """Make the tool of a function, after checking the options."""
        if isinstance(target, functools.partial):
            target = _with_function_metadata(cast("functools.partial[Any]", target))
        _check_options(target, handle_error, confirm, effect)
        place = str(getattr(target, "__name__", "@tool"))
        # Where the tool's data come from, and where they may go.
        data_flow = check_flow(place, trust, sinks, contents, egress=egress, author=author)
        tool_action = action_from_function(
            target,
            flow=data_flow,
            name=name,
            summary=description,
            effect=effect,
            handle_error=_handler(handle_error),
        )
        _check_hints(target)
        # Build the validator now, so that a type that cannot be validated raises at the definition
        # of the tool and not in a task.
        if isinstance(tool_action.validate, ArgumentValidator):
            tool_action.validate.build()
            tool_action.validate.check_defaults()
        return Tool(target, tool_action, confirm)

    if function is None:
        return make
    return make(function)


def _handler(value: HandleError) -> str | Callable[[Exception], str] | None:
    """Return :attr:`Action.handle_error` for the option ``handle_error`` of ``@tool``.

    True, False and None all mean None: a failed call raises ``ToolError`` in the script.
    """
    if isinstance(value, bool):
        return None
    return str if value == "text" else value  # str(exception) is the exception's message


def _with_function_metadata(partial: functools.partial[Any]) -> functools.partial[Any]:
    """Return a copy of a partial with the name, docstring and hints of its function.

    Parameters that the partial binds by keyword are left out.
    """
    new_partial: Any = functools.partial(partial.func, *partial.args, **partial.keywords)
    function = inspect.unwrap(partial.func)
    # typing.get_type_hints() needs __globals__ to look up the names in hints.
    for name in ("__name__", "__qualname__", "__doc__", "__module__", "__globals__"):
        if hasattr(function, name):
            setattr(new_partial, name, getattr(function, name))
    signature = inspect.signature(partial)
    unbound = {
        name: item for name, item in signature.parameters.items() if name not in partial.keywords
    }
    new_partial.__signature__ = signature.replace(parameters=list(unbound.values()))
    hints = getattr(function, "__annotations__", {})
    new_partial.__annotations__ = {
        name: hint for name, hint in hints.items() if name in unbound or name == "return"
    }
    return new_partial


def _check_options(target: Any, handle_error: Any, confirm: Any, effect: Any) -> None:
    """Raise for a target that is no function, and for invalid options of ``@tool``."""
    if not callable(target) or not hasattr(target, "__name__"):
        raise ToolDefinitionError(
            f"@tool needs a function, got {type(target).__name__}",
            hint="use keywords for options: @tool(name=…, confirm=False)",
        )
    is_plain_value = handle_error is None or isinstance(handle_error, (bool, str))
    if not is_plain_value and not callable(handle_error):
        raise ToolDefinitionError(
            f"handle_error of {target.__name__} is a {type(handle_error).__name__}",
            hint="give True, False, a string or a callable, or leave handle_error out",
        )
    if inspect.iscoroutinefunction(handle_error):
        raise ToolDefinitionError(
            f"handle_error of {target.__name__} is async", hint="give a plain function"
        )
    if not isinstance(confirm, bool):
        raise ToolDefinitionError(f"confirm of {target.__name__} must be True or False")
    check_effect(str(target.__name__), effect)


def _check_hints(target: Callable[..., Any]) -> None:
    """Refuse a method without its object, and log a warning about parameters without a hint."""
    parameters = inspect.signature(target).parameters.values()
    hints = typing.get_type_hints(target)
    named_parameters = [item.name for item in parameters if _is_named(item)]
    if named_parameters[:1] == ["self"] and "self" not in hints:
        raise ToolDefinitionError(
            f"{target.__name__} is a method without its object",
            hint=f"give the method of an object: Name().{target.__name__}",
        )
    warn_of_missing_hints(target.__name__, [each for each in named_parameters if each not in hints])


def _is_named(item: inspect.Parameter) -> bool:
    """Return True if a parameter can be passed by keyword."""
    return item.kind in (item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY)


def as_connection(item: Any) -> ConnectionLike:
    """Convert an item of ``tools`` to a connection; plain functions become tools.

    Raises:
        ToolDefinitionError: If the item is not a tool or connection.
    """
    if isinstance(item, ConnectionLike):
        return item
    is_class = isinstance(item, type)
    type_name = f"{item.__name__} (a class)" if is_class else type(item).__name__
    if callable(item) and not is_class:
        has_name = isinstance(item, functools.partial) or hasattr(item, "__name__")
        if has_name:
            return tool(cast("Callable[..., Any]", item))
    raise ToolDefinitionError(
        f"{type_name} is not a tool",
        hint="give connections (made, not their classes), @tool functions or functions",
    )
