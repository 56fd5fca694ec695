"""Actions: the callables of scripts. ``@action`` marks a connection's methods."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Any, Final, TypeVar, get_args, overload

from delf.errors import ToolDefinitionError, did_you_mean
from delf.records import dataclass
from delf.tools.signature import (
    ArgumentValidator,
    FullTypes,
    Parameter,
    Signature,
    check_hints,
    check_name,
    read_signature,
)
from delf.types import Effect, Trust
from delf.values.encoding import dumps
from delf.values.sequences import one_or_more

EFFECTS: Final[tuple[Effect, ...]] = get_args(Effect)
TRUSTS: Final[tuple[Trust, ...]] = ("own", "outside")
_MARK = "__delf_action__"
_read_method = lru_cache(1000)(read_signature)  # all connections of a class share its methods

F = TypeVar("F", bound=Callable[..., Any])


def strictest(effects: Iterable[Effect]) -> Effect:
    """Return the strictest of some effects.

    Args:
        effects: At least one.
    """
    return EFFECTS[max(map(EFFECTS.index, effects))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An action of a connection, as scripts call it.

    Args:
        name: The method's name in the script.
        permission: The name of the action's group in ``allow`` and ``confirm``, or the action's own
            name.
        effect: The effect of a call.
        summary: One paragraph for the model.
        parameters: The parameters, in order.
        returns: The type of the result in stub notation.
        validate: Converts arguments or raises ``ToolRefusedError``.
        call: Makes the call with validated arguments as keywords; plain or async.
        handle_error: The treatment of a ``ToolException``; see :func:`delf.tools.function.tool`.
        schema: The arguments as a JSON schema, made on demand.
        defaults: The known defaults of omitted arguments. A call that passes a default explicitly
            counts as the same call.
        context: The parameter of ``call`` that gets the :class:`delf.tools.context.CallContext`.
        tags: Category tags, under which searches find the action.
        description: The complete description, for searching; the model reads ``summary``.
        resumes: Whether the action does all its work in child tasks. delf makes an interrupted call
            of such an action again without asking a person.
        version: The version that the connection's service states for the action. A service may
            change an action without a new name or description; a new version then makes
            :attr:`digest` change.
        trust: The trust in the result, as in :func:`action`.
        sinks: The parameters that choose the target or the effect, as in :func:`action`.
        contents: The parameters that are only text, as in :func:`action`.
        egress: True for a reading action that sends its arguments out, as in :func:`action`.
        author: The field or parameter with the content's author, as in :func:`action`.
        full_types: Makes the parameters and the result with complete types, if ``parameters`` and
            ``returns`` are shortened. The function is called if a prompt has space for complete
            types, or a script asks for them.
        returns_doc: The description of the result.
        notes: Further text after ``summary`` if a prompt has space, such as units and warnings.
        declares_effect: False if the effect is only the default of ``@action`` or ``@tool``.
        is_async: Whether ``call`` is a coroutine function; others run in a thread.
        signature: The parameters and the result type as text, such as
            ``(statement: str, limit: int = 100) -> list[dict]``.
    """

    name: str
    permission: str
    effect: Effect
    summary: str
    parameters: tuple[Parameter, ...]
    returns: str
    validate: Callable[[Mapping[str, Any]], dict[str, Any]]
    call: Callable[..., Any]
    handle_error: str | Callable[[Exception], str] | None = None
    schema: Callable[[], dict[str, Any]] | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    context: str | None = None
    tags: tuple[str, ...] = ()
    description: str = ""
    resumes: bool = False
    version: str | None = None
    trust: Trust | Mapping[str, Trust] = "outside"
    sinks: tuple[str, ...] | None = None
    contents: tuple[str, ...] | None = None
    egress: bool = False
    author: str | None = None
    full_types: Callable[[], FullTypes] | None = None
    returns_doc: str = ""
    notes: str = ""
    declares_effect: bool = True
    is_async: bool = field(init=False)
    signature: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_async", inspect.iscoroutinefunction(self.call))
        signature = f"({', '.join(map(str, self.parameters))}) -> {self.returns}"
        object.__setattr__(self, "signature", signature)

    @property
    def digest(self) -> str:
        """The digest of everything about the action that a person sees when they approve a call.

        A remembered decision is void once this digest has changed. The digest covers the name,
        effect, permission, description, parameters, schema, result and ``version``.
        """
        content: list[Any] = [
            self.name,
            self.effect,
            self.permission,
            self.summary,
            [[p.name, p.type_text, p.default_text, p.doc] for p in self.parameters],
            [self.returns, self.returns_doc, self.notes],
            None if self.schema is None else self.schema(),
            self.version,
        ]
        return hashlib.sha256(dumps(content)).hexdigest()

    def texts(self) -> Iterator[str]:
        """Yield all descriptions that a prompt may show."""
        if self.full_types is None:
            parameters, result_notes = self.parameters, ""
        else:
            full_types = self.full_types()
            parameters, result_notes = full_types.parameters, full_types.notes
        yield from (self.summary, self.notes, self.returns_doc, result_notes)
        for parameter in parameters:
            yield from (parameter.doc, parameter.notes)

    def describe(self, *, verbose: bool = False) -> dict[str, Any]:
        """Return the action as data for ``inspect``."""
        result: dict[str, Any] = {"name": self.name, "effect": self.effect}
        if self.permission != self.name:
            result["permission"] = self.permission
        if verbose:
            result["description"] = self.summary
            result["signature"] = f"{self.name}{self.signature}"
            result["parameters"] = [_describe_parameter(each) for each in self.parameters]
        return result


def _describe_parameter(parameter: Parameter) -> dict[str, Any]:
    description: dict[str, Any] = {
        "name": parameter.name,
        "type": parameter.type_text,
        "required": parameter.required,
    }
    if not parameter.required:
        description["default"] = parameter.default_text
    if parameter.doc:
        description["description"] = parameter.doc
    return description


@dataclass(frozen=True, slots=True)
class _Mark:
    permission: str | None
    effect: Effect | None
    resumes: bool = False
    tags: tuple[str, ...] = ()
    flow: Mapping[str, Any] = field(default_factory=dict[str, Any])


@overload
def action(function: F, /) -> F: ...
@overload  # the implementation below describes the parameters
def action(
    group: str | None = None,
    /,
    *,
    effect: Effect | None = None,
    resumes: bool = False,
    tags: Sequence[str] = (),
    trust: Trust | Mapping[str, Trust] = "outside",
    sinks: Sequence[str] | None = None,
    contents: Sequence[str] | None = None,
    egress: bool = False,
    author: str | None = None,
) -> Callable[[F], F]: ...
def action(
    group_or_function: Any = None,
    /,
    *,
    effect: Effect | None = None,
    resumes: bool = False,
    tags: Sequence[str] = (),
    trust: Trust | Mapping[str, Trust] = "outside",
    sinks: Sequence[str] | None = None,
    contents: Sequence[str] | None = None,
    egress: bool = False,
    author: str | None = None,
) -> Any:
    """Mark a connection's method as an action.

    Args:
        group_or_function: The name of the action's group; or the method, if ``@action`` stands
            without parentheses. ``allow`` and ``confirm`` may name the group instead of each of its
            actions. A group must not have the name of an action. An action without a group is
            named by its method.
        effect: A level of :data:`delf.types.Effect`; undeclared means irreversible.
        resumes: Whether the action does all its work in child tasks (``CallContext.delegate``), so
            that an interrupted call may be made again when its task is resumed.
        tags: Words under which prefilters find the action.
        trust: ``own`` if the result contains only data of the user and of the user's own services,
            ``outside`` if it may contain untrusted data. For a mixed result, a mapping from field
            name to trust, where ``*`` stands for all other fields: ``{"id": "own", "*":
            "outside"}``.
        sinks: The names of the parameters that choose the target or the effect of a call, such as
            ``["to"]``. All other parameters are contents: only text for people to read, such as
            ``body``. If neither ``sinks`` nor ``contents`` is given, the parameters with usual
            names of contents, such as ``text`` and ``title``, are contents, and all other
            parameters are sinks.
        contents: The names of the contents, such as ``["body"]``, in place of ``sinks``. All other
            parameters are sinks.
        egress: Whether a call sends its arguments to somebody else although the effect is ``read``,
            such as a web search.
        author: The name of the field or parameter that holds the author of the content, such as
            ``sender``. If the result is a record or a list of records, this is a field of the
            records, otherwise a parameter of the action. Only for a service that guarantees that
            the author is genuine. A task may tell delf to follow instructions of this author.

    Raises:
        ToolDefinitionError: For an unknown effect or trust, for both ``sinks`` and ``contents``,
            and for a parameter without a type hint. An unknown parameter in ``sinks`` or
            ``contents`` raises when the connection's actions are read.
    """

    def mark(function: F) -> F:
        # The name of the method, such as ``Shop.orders``, for error messages.
        place = getattr(function, "__qualname__", "@action")
        check_effect(place, effect)
        flow = check_flow(place, trust, sinks, contents, egress=egress, author=author)
        # A missing type hint raises an error. Static methods, class methods and callable objects
        # are not checked, because they have no ``__code__``.
        if code := getattr(function, "__code__", None):
            # co_varnames lists the parameters before the local variables. Leave out the first
            # parameter, ``self``, and the local variables.
            parameter_count = code.co_argcount + code.co_kwonlyargcount
            parameter_names = code.co_varnames[1:parameter_count]
            unannotated = [item for item in parameter_names if item not in function.__annotations__]
            check_hints(place, unannotated)
        # A method decorated with ``@action("orders")`` has a group; with ``@action``, none.
        group = group_or_function if isinstance(group_or_function, str) else None
        setattr(function, _MARK, _Mark(group, effect, resumes, one_or_more(tags), flow))
        return function

    return mark(group_or_function) if callable(group_or_function) else mark


def actions_of(owner: type, instance: object | None = None, where: str = "") -> list[Action]:
    """Return the marked methods of a class as actions, base classes first, in order of definition.

    Args:
        owner: The class.
        instance: The object whose methods the actions call; None if the actions are only listed,
            which needs no credentials.
        where: The connection's name, for messages.

    Raises:
        ToolDefinitionError: If a marked method cannot be an action.
    """
    marks_by_name: dict[str, _Mark] = {}
    for cls in reversed(owner.__mro__):
        for name, member in vars(cls).items():
            # Depending on the order of the decorators, a static or class method has the mark, or
            # the function inside the method has it.
            function_inside = getattr(member, "__func__", None)
            mark = getattr(member, _MARK, getattr(function_inside, _MARK, None))
            # A method without a mark that overrides an action keeps the mark of the base class.
            if isinstance(mark, _Mark):
                marks_by_name[name] = mark
    result: list[Action] = []
    for name, mark in marks_by_name.items():
        function = getattr(owner, name)
        definition = inspect.getattr_static(owner, name)
        result.append(
            action_from_function(
                function,
                call=function if instance is None else getattr(instance, name),
                name=name,
                permission=mark.permission,
                effect=mark.effect,
                resumes=mark.resumes,
                tags=mark.tags,
                flow=mark.flow,
                place=f"{where}.{name}" if where else name,
                # Static methods have no first parameter to skip, and class methods are bound.
                skip_first=not isinstance(definition, (staticmethod, classmethod)),
            )
        )
    return result


def action_from_function(
    function: Callable[..., Any],
    *,
    call: Callable[..., Any] | None = None,
    name: str | None = None,
    permission: str | None = None,
    effect: Effect | None = None,
    summary: str | None = None,
    handle_error: str | Callable[[Exception], str] | None = None,
    place: str | None = None,
    skip_first: bool = False,
    resumes: bool = False,
    tags: tuple[str, ...] = (),
    flow: Mapping[str, Any] | None = None,
) -> Action:
    """Return an action from a function's signature and docstring.

    Args:
        function: The function with signature and docstring.
        call: The function to call; the function itself when omitted.
        name: The name in scripts; the function's when omitted.
        permission: The name of the action's group; the action's name when omitted.
        effect: The effect of a call; undeclared means irreversible.
        summary: One paragraph; the docstring's first when omitted.
        handle_error: The treatment of a ``ToolException``.
        place: The name of the function in error messages.
        skip_first: Whether the function is a method, whose ``self`` scripts do not pass.
        resumes: As in :class:`Action`.
        tags: As in :class:`Action`.
        flow: The result of :func:`check_flow`.

    Raises:
        ToolDefinitionError: If scripts could not call the function, or the ``sinks`` or
            ``contents`` in ``flow`` name a parameter that the function does not have.
    """
    checked_name = check_name(name or function.__name__, "the name")
    place = place or checked_name
    # The signature of a method is cached: all connections of a class share the method.
    reader = _read_method if skip_first else read_signature
    signature = reader(function, skip_first=skip_first)
    validator = ArgumentValidator(place, signature)
    flow = flow or {}
    _check_parameters_in_flow(flow, signature, place)
    return Action(
        name=checked_name,
        permission=permission or checked_name,
        effect=effect or "irreversible",
        declares_effect=effect is not None,
        summary=summary or signature.summary or checked_name.replace("_", " "),
        parameters=signature.parameters,
        returns=signature.returns,
        returns_doc=signature.returns_doc,
        notes="" if summary else signature.notes,  # notes continue the docstring's summary
        validate=validator,
        call=call or function,
        handle_error=handle_error,
        schema=validator.json_schema,
        defaults=signature.defaults,
        context=signature.context,
        resumes=resumes,
        tags=tags,
        **flow,
    )


def _check_parameters_in_flow(flow: Mapping[str, Any], signature: Signature, place: str) -> None:
    """Raise if ``sinks`` or ``contents`` name a parameter that a function does not have."""
    parameter_names = [parameter.name for parameter in signature.parameters]
    for kind in ("sinks", "contents"):
        for each in flow.get(kind) or ():
            if each not in parameter_names:
                suggestion = did_you_mean(each, parameter_names)
                raise ToolDefinitionError(
                    f"{place} has no parameter {each!r}, which {kind} names{suggestion}"
                )


def check_effect(place: str, effect: Effect | None) -> None:
    """Raise ``ToolDefinitionError`` for an unknown effect.

    Args:
        place: The name of the function in the error message.
        effect: The effect; None if it is not declared.
    """
    if effect is not None and effect not in EFFECTS:
        raise ToolDefinitionError(
            f"{place}: unknown effect {effect!r}; one of: {', '.join(EFFECTS)}"
        )


def check_flow(
    place: str,
    trust: Trust | Mapping[str, Trust],
    sinks: Sequence[str] | None = None,
    contents: Sequence[str] | None = None,
    *,
    egress: bool = False,
    author: str | None = None,
) -> dict[str, Any]:
    """Validate the trust options of :func:`action`; return them as fields of :class:`Action`.

    Args:
        place: The name in error messages.
        trust: As in :func:`action`.
        sinks: As in :func:`action`.
        contents: As in :func:`action`.
        egress: As in :func:`action`.
        author: As in :func:`action`.

    Raises:
        ToolDefinitionError: For an unknown trust, for a string instead of a list of names, and if
            both ``sinks`` and ``contents`` are given.
    """
    all_trusts = [trust] if isinstance(trust, str) else trust.values()
    for each in all_trusts:
        if each not in TRUSTS:
            trust_names = ", ".join(TRUSTS)
            raise ToolDefinitionError(f"{place}: unknown trust {each!r}; one of: {trust_names}")
    for option, names in (("sinks", sinks), ("contents", contents)):
        if isinstance(names, str):
            raise ToolDefinitionError(
                f"{place}: {option} is a text",
                hint=f"write a list of names: {option}=[{names!r}]",
            )
    if sinks is not None and contents is not None:
        raise ToolDefinitionError(
            f"{place}: sinks and contents are given at once",
            hint="give only sinks (then all other parameters are contents) or only contents",
        )
    return {
        "trust": trust if isinstance(trust, str) else dict(trust),
        "sinks": None if sinks is None else tuple(sinks),
        "contents": None if contents is None else tuple(contents),
        "egress": egress,
        "author": author,
    }


def permission_names(actions: Sequence[Action]) -> tuple[str, ...]:
    """Return the names that ``allow`` and ``confirm`` may use: the names of groups and actions."""
    names: dict[str, None] = {}
    for item in actions:
        names.setdefault(item.permission)
        names.setdefault(item.name)
    return tuple(names)
