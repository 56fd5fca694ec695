"""Adapters for tools of other frameworks, detected by shape: none of their packages is imported.

Supported are LangChain's ``BaseTool``, smolagents' ``Tool``, pydantic-ai's ``Tool`` and toolsets,
llm's ``Tool`` and ``Toolbox``, cogency's ``Tool``, and functions with a schema of chat completions.
They declare no effects, so each call counts as irreversible and needs approval.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import keyword
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Final, Literal, Union, cast

from delf.errors import ToolDefinitionError, ToolExecutionError
from delf.protocols.connection import ConnectionLike
from delf.tools.function import as_connection, tool
from delf.tools.json_schema import Checker, resolve_reference
from delf.values.sequences import one_or_more

_TYPES: Final[Mapping[str, Any]] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list[Any],
    "object": dict[str, Any],
    "null": None,
}
_MAX_VALUES: Final = 100
# The keys of a schema whose values are data, and no schemas.
_DATA_KEYS: Final = frozenset({"const", "default", "enum", "examples"})
# The keys of a schema whose values are tables of schemas, by names that the author chose.
_NAMED_SCHEMAS: Final = frozenset({"$defs", "definitions", "patternProperties", "properties"})
_NUMBERS: Final = {
    "minimum": "ge",
    "maximum": "le",
    "exclusiveMinimum": "gt",
    "exclusiveMaximum": "lt",
}
_LIMITS: Final[Mapping[str, Mapping[str, str]]] = {
    "integer": _NUMBERS,
    "number": _NUMBERS,
    "string": {"minLength": "min_length", "maxLength": "max_length"},
    "array": {"minItems": "min_length", "maxItems": "max_length"},
}
_DEEPEST: Final = 8
_ONE_TEXT: Final[Mapping[str, Any]] = {
    "properties": {"tool_input": {"type": "string"}},
    "required": ["tool_input"],
}


def as_connections(items: Any) -> tuple[ConnectionLike, ...]:
    """Convert all items of ``tools`` to connections; a toolset gives a connection for each tool.

    Args:
        items: A list or another iterable of tools, or a single tool.

    Raises:
        ToolDefinitionError: If an object is not a tool.
    """
    connections: list[ConnectionLike] = []
    is_single_tool = isinstance(items, ConnectionLike) or _is_named(items)
    # one_or_more() would divide a tool that is iterable, such as a pydantic object, into its parts.
    item_list: Sequence[Any] = (items,) if is_single_tool else one_or_more(items)
    for item in item_list:
        functions = None if isinstance(item, ConnectionLike) else foreign_functions(item)
        if functions is None:
            connections.append(as_connection(item))
            continue
        for function in functions:
            foreign_tool = tool(function)
            # The framework may have got the description from a server.
            foreign_tool.description_trust = "outside"
            connections.append(foreign_tool)
    return tuple(connections)


def foreign_functions(item: Any) -> list[Callable[..., Any]] | None:
    """Return the functions behind another framework's tool or toolset; None for anything else.

    Args:
        item: An item of ``tools``.

    Raises:
        ToolDefinitionError: For a tool that only works within its own framework.
    """
    if isinstance(item, type):
        return None  # a class of tools has the attributes of a tool, but is none itself
    if isinstance(item, tuple):
        return _wrap_schema_pair(cast("tuple[Any, ...]", item))
    for wrap in (_wrap_langchain, _wrap_smolagents, _wrap_pydantic_ai, _wrap_llm, _wrap_cogency):
        function = wrap(item)
        if function is not None:
            return [function]
    return _wrap_toolset(item)


def _wrap_langchain(item: Any) -> Callable[..., Any] | None:
    """Wrap a tool of the library LangChain; return None for any other object."""
    if not (_is_named(item) and callable(getattr(item, "ainvoke", None))):
        return None
    if not hasattr(item, "args_schema"):
        return None
    # LangChain's oldest kind of tool takes one text, and has no schema.
    if item.args_schema is None and list(getattr(item, "args", ())) == ["tool_input"]:
        return _make_function(item.name, item.description, _ONE_TEXT, _wrap_text_tool(item))
    # ``tool_call_schema`` leaves out the arguments that LangChain injects.
    schema = getattr(item, "tool_call_schema", None) or item.args_schema

    async def call(**arguments: Any) -> Any:
        return await item.ainvoke(arguments)

    # LangChain does not check arguments against a schema that is a dict, as of an MCP tool.
    validates_itself = hasattr(item.args_schema, "model_json_schema")
    return _make_function(
        item.name, item.description, _schema_of(schema), call, validates_itself=validates_itself
    )


def _wrap_text_tool(item: Any) -> Callable[..., Any]:
    async def call(tool_input: str) -> Any:
        return await item.ainvoke(tool_input)

    return call


def _wrap_smolagents(item: Any) -> Callable[..., Any] | None:
    """Wrap a tool of the library smolagents; return None for any other object."""
    inputs = getattr(item, "inputs", None)
    is_tool = _is_named(item) and isinstance(inputs, Mapping) and hasattr(item, "output_type")
    if not is_tool:
        return None
    parameters = cast("Mapping[str, Mapping[str, Any]]", inputs)
    schema = {
        "properties": {
            name: _schema_of_smolagents_parameter(part) for name, part in parameters.items()
        },
        "required": [name for name, part in parameters.items() if not part.get("nullable")],
    }
    return _make_function(item.name, item.description, schema, item)


def _wrap_pydantic_ai(item: Any) -> Callable[..., Any] | None:
    """Wrap a tool of the library Pydantic AI; return None for any other object."""
    schema = getattr(getattr(item, "function_schema", None), "json_schema", None)
    if schema is None or not isinstance(getattr(item, "name", None), str):
        return None
    if getattr(item, "takes_ctx", False):
        raise _takes_context_error(item.name)
    function_schema = item.function_schema

    async def call(**arguments: Any) -> Any:
        validated_arguments = function_schema.validator.validate_python(arguments)
        return await function_schema.call(validated_arguments, None)  # None is the RunContext

    return _make_function(item.name, item.description or "", schema, call, validates_itself=True)


def _wrap_abstract_toolset(item: Any) -> list[Callable[..., Any]] | None:
    """Wrap the tools of a pydantic-ai toolset; return None for another object.

    Raises:
        ToolDefinitionError: If the tools are known only during a run of an agent of pydantic-ai, or
            a tool takes the context of such a run.
    """
    package: Any = sys.modules.get("pydantic_ai")
    # Nothing is an instance of (), which stands for the missing class of an older version.
    if package is None or not isinstance(item, getattr(package, "AbstractToolset", ())):
        return None
    # The tools are listed for a run, although delf has none: most toolsets ignore the context.
    run: Any = package.RunContext(deps=None, model=None, usage=package.RunUsage())
    try:
        with ThreadPoolExecutor(1) as thread:  # the caller's thread may run an event loop
            tools: Mapping[str, Any] = thread.submit(asyncio.run, item.get_tools(run)).result()
    except Exception as error:
        raise ToolDefinitionError(
            f"the tools of the toolset {type(item).__name__} cannot be listed: {error}",
            hint="for tools of a server, use a connection to the server",
        ) from error
    return [_wrap_toolset_tool(item, name, tool, run) for name, tool in tools.items()]


def _wrap_toolset_tool(toolset: Any, name: str, tool: Any, run: Any) -> Callable[..., Any]:
    """Make a function that calls a tool through the tool's toolset."""
    # A toolset may wrap the tools of another toolset, in several layers.
    innermost_tool = tool
    while (source_tool := getattr(innermost_tool, "source_tool", None)) is not None:
        innermost_tool = source_tool
    # ``call_func`` is a bound method of pydantic-ai's ``FunctionSchema``.
    method = getattr(innermost_tool, "call_func", None)
    function_schema = getattr(method, "__self__", None)
    takes_context = getattr(function_schema, "takes_ctx", False)
    if takes_context:
        raise _takes_context_error(name)

    async def call(**arguments: Any) -> Any:
        validated = tool.args_validator.validate_python(arguments)
        return await toolset.call_tool(name, validated, run, tool)

    definition = tool.tool_def
    schema = definition.parameters_json_schema
    return _make_function(name, definition.description or "", schema, call, validates_itself=True)


def _takes_context_error(name: str) -> ToolDefinitionError:
    return ToolDefinitionError(
        f"the tool {name!r} takes a RunContext, which only its own framework has",
        hint="wrap it in a function without that parameter",
    )


def _wrap_llm(item: Any) -> Callable[..., Any] | None:
    """Return a function for a tool of the library ``llm``; None for any other object."""
    schema = getattr(item, "input_schema", None)
    implementation = getattr(item, "implementation", None)
    if not (isinstance(schema, Mapping) and callable(implementation)):
        return None
    return _make_function(item.name, item.description or "", cast("Any", schema), implementation)


def _wrap_cogency(item: Any) -> Callable[..., Any] | None:
    """Wrap a tool of the library cogency; return None for any other object."""
    declared = getattr(item, "schema", None)
    execute = getattr(item, "execute", None)
    if not _is_named(item) or not isinstance(declared, Mapping):
        return None
    if not hasattr(item, "describe") or not inspect.iscoroutinefunction(execute):
        return None
    properties: dict[str, Any] = {}
    required_names: list[str] = []
    for name, part in cast("Mapping[str, Mapping[str, Any]]", declared).items():
        properties[name] = _schema_of_cogency_parameter(part)
        if part.get("required", True):
            required_names.append(name)
    schema = {"properties": properties, "required": required_names}

    async def call(**arguments: Any) -> Any:
        result = await execute(**arguments)
        # ``outcome`` is a short message for people, ``content`` the data for the model.
        if result.error:
            messages = [str(part) for part in (result.outcome, result.content) if part]
            raise ToolExecutionError("\n".join(messages))
        return result.outcome if result.content is None else result.content

    return _make_function(item.name, item.description, schema, call)


def _schema_of_cogency_parameter(part: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a parameter of a cogency tool to a JSON Schema."""
    new_names = {
        "min": "minimum",
        "max": "maximum",
        "min_length": "minLength",
        "max_length": "maxLength",
    }
    schema: dict[str, Any] = {}
    for key, value in part.items():
        if key != "required":
            schema[new_names.get(key, key)] = value
    if schema.get("type") == "float":
        schema["type"] = "number"
    return schema


def _wrap_toolset(item: Any) -> list[Callable[..., Any]] | None:
    """Wrap the tools of a toolset of pydantic-ai or llm; return None for any other object."""
    tools = getattr(item, "tools", None)
    if isinstance(tools, Mapping):
        tools = list(cast("Mapping[Any, Any]", tools).values())
    elif inspect.ismethod(tools):
        tools = tools()
    if not isinstance(tools, Iterable) or isinstance(tools, (str, bytes)):
        return _wrap_abstract_toolset(item)
    functions: list[Callable[..., Any]] = []
    for each in cast("Iterable[Any]", tools):
        tool_functions = foreign_functions(each)
        if tool_functions is None:
            return None
        functions += tool_functions
    return functions or None  # an object with an empty list ``tools`` is no toolset


def _wrap_schema_pair(pair: tuple[Any, ...]) -> list[Callable[..., Any]] | None:
    """Make a tool from a pair of a function and a schema in the chat completions format.

    Either part may come first. Returns a list with the tool; None for any other tuple.
    """
    if len(pair) != 2:
        return None
    functions = [part for part in pair if callable(part)]
    schemas = [cast("Mapping[str, Any]", part) for part in pair if isinstance(part, Mapping)]
    if len(functions) != 1 or len(schemas) != 1:
        return None
    (schema,) = schemas
    # Some libraries have the name and the parameters within ``{"function": …}``.
    declared = cast("Mapping[str, Any]", schema.get("function", schema))
    name = declared.get("name")
    if not isinstance(name, str):
        return None
    description = str(declared.get("description") or "")
    parameters: Any = declared.get("parameters") or declared.get("input_schema") or {}
    return [_make_function(name, description, parameters, functions[0])]


def _is_named(item: Any) -> bool:
    return all(isinstance(getattr(item, part, None), str) for part in ("name", "description"))


def _schema_of(source: Any) -> Mapping[str, Any]:
    """Return the JSON Schema of a foreign tool's arguments.

    Args:
        source: The JSON Schema itself, or a pydantic model; anything else gives an empty schema.
    """
    make = getattr(source, "model_json_schema", None)
    schema = make() if callable(make) else source
    if isinstance(schema, Mapping):
        return cast("Mapping[str, Any]", schema)
    return {}


def _schema_of_smolagents_parameter(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a parameter's schema from smolagents as JSON Schema.

    JSON Schema does not have the key ``nullable`` and the types ``any``, ``image`` and ``audio``,
    which are left out.
    """
    kind = part.get("type")
    schema_keys = {key: value for key, value in part.items() if key not in ("type", "nullable")}
    return {**schema_keys, "type": kind} if kind in _TYPES else schema_keys


def _make_checker(name: str, schema: Mapping[str, Any]) -> Checker:
    """Make a checker of single arguments of a tool.

    Raises:
        ToolDefinitionError: If the schema is invalid.
    """
    # Leave out ``required``, so that the schema can check each parameter alone.
    checked_keys = ("$schema", "$defs", "definitions", "properties")
    checked = {key: schema[key] for key in checked_keys if key in schema}
    return Checker(_without_loose_parts(_as_json(checked), schema), f"the tool {name!r}")


def _without_loose_parts(part: Any, root: Mapping[str, Any]) -> Any:
    """Return a part of a tool's schema as valid JSON Schema, for checks of arguments.

    Types such as ``any`` and ``float``, and references to schemas that do not exist, are left out:
    other frameworks accept these. Ids are left out, too. A list of ``items``, the form of older
    drafts, becomes ``prefixItems``.

    Args:
        part: A part of the schema, as JSON data.
        root: The whole schema, in which the references are looked up.
    """
    if isinstance(part, list):
        return [_without_loose_parts(each, root) for each in cast("list[Any]", part)]
    if not isinstance(part, dict):
        return part
    kept: dict[str, Any] = {}
    for key, value in cast("dict[str, Any]", part).items():
        if key in _DATA_KEYS:
            kept[key] = value
        elif key in _NAMED_SCHEMAS and isinstance(value, dict):
            # A parameter may have the name of a keyword, such as ``type`` or ``default``.
            schemas = cast("dict[str, Any]", value)
            kept[key] = {name: _without_loose_parts(each, root) for name, each in schemas.items()}
        else:
            kept[key] = _without_loose_parts(value, root)
    kind, ref = kept.get("type"), kept.get("$ref")
    if isinstance(kind, (str, list)):
        has_only_known_types = {*one_or_more(kind)} <= _TYPES.keys()
        if not has_only_known_types:
            del kept["type"]
    if isinstance(ref, str) and _target(ref, root) is None:
        del kept["$ref"]
    if isinstance(kept.get("$id"), str):  # references would be resolved against the id
        del kept["$id"]
    if isinstance(kept.get("items"), list):
        kept["prefixItems"] = kept.pop("items")
    return kept


def _make_function(
    name: str,
    description: str,
    schema: Mapping[str, Any],
    implementation: Callable[..., Any],
    *,
    validates_itself: bool = False,
) -> Callable[..., Any]:
    """Make a function with the name, description and parameters of a foreign tool.

    Args:
        name: The tool's name.
        description: The description for the model.
        schema: A JSON Schema of its arguments.
        implementation: The function to call with keyword arguments.
        validates_itself: Whether the tool validates its arguments itself.
    """
    properties = cast("Mapping[str, Any]", schema.get("properties") or {})
    required_names = set(cast("Iterable[str]", schema.get("required") or ()))
    schema_names = {_python_identifier(schema_name): schema_name for schema_name in properties}
    if len(schema_names) < len(properties):
        raise ToolDefinitionError(f"parameters of the tool {name!r} have the same name in Python")
    checker = None if validates_itself else _make_checker(name, schema)
    parameters: list[inspect.Parameter] = []
    for python_name, schema_name in schema_names.items():
        part = properties[schema_name]
        hint = _type_of_schema(part, schema)
        if checker is not None:
            hint = _with_check(hint, schema_name, checker)
        is_required = schema_name in required_names
        parameters.append(_parameter(python_name, part, hint, is_required=is_required))

    def by_schema_name(keywords: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments by their names in the schema; leave out optional None values."""
        given: dict[str, Any] = {}
        for python_name, value in keywords.items():
            schema_name = schema_names[python_name]
            # None is the default of an optional parameter, even if the schema forbids null.
            if value is not None or schema_name in required_names:
                given[schema_name] = value
        return given

    async def call_async(**keywords: Any) -> Any:
        return await implementation(**by_schema_name(keywords))

    def call(**keywords: Any) -> Any:
        return implementation(**by_schema_name(keywords))

    function: Any = call_async if inspect.iscoroutinefunction(implementation) else call
    function.__name__ = function.__qualname__ = _python_identifier(name)
    parts_by_name = {python_name: properties[each] for python_name, each in schema_names.items()}
    function.__doc__ = _docstring(description.strip() or name, parts_by_name)
    function.__signature__ = inspect.Signature(parameters)
    function.__annotations__ = {each.name: each.annotation for each in parameters}
    return function


def _docstring(description: str, parts_by_name: Mapping[str, Any]) -> str:
    """Return a docstring from which ``@tool`` reads the descriptions of parameters.

    Args:
        description: The description of the function.
        parts_by_name: The schemas of the parameters.
    """
    lines: list[str] = []
    for name, part in parts_by_name.items():
        words = str(_annotations(part).get("description") or "").split()
        if words:
            lines.append(f"    {name}: {' '.join(words)}")
    return "\n".join([description, "\nArgs:", *lines]) if lines else description


def _annotations(part: Any) -> Mapping[str, Any]:
    """Return the keys of a schema, such as ``default``; none for a schema such as True."""
    return cast("Mapping[str, Any]", part) if isinstance(part, Mapping) else {}


def _parameter(name: str, part: Any, hint: Any, *, is_required: bool) -> inspect.Parameter:
    """Return a keyword parameter.

    An optional parameter has the default of its schema, or None if the schema has no default.

    Args:
        name: The name in Python.
        part: The schema of the parameter.
        hint: The type of the values that the schema accepts.
        is_required: Whether each call needs the parameter.
    """
    default: Any = inspect.Parameter.empty
    if not is_required:
        hint = Union[hint, None]  # noqa: UP007 - the hint is known only at run time
        default = _annotations(part).get("default")
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=hint)


def _with_check(hint: Any, schema_name: str, checker: Checker) -> Any:
    """Return a parameter's type that also validates values against the tool's schema.

    Args:
        hint: The type of the parameter.
        schema_name: The name of the parameter in the schema.
        checker: Checks the parameters of the tool.
    """
    from pydantic import AfterValidator

    def check(value: Any) -> Any:
        fault = checker.fault(_as_json({schema_name: value}))
        if fault is not None:
            path_in_value = fault.path[1:]  # without the parameter, which the error names anyway
            raise ValueError(str(fault._replace(path=path_in_value)))
        return value

    return Annotated[hint, AfterValidator(check)]


def _as_json(value: Any) -> Any:
    """Return a copy of a value as JSON data; other values, such as dates, become text."""
    return json.loads(json.dumps(value, default=str, skipkeys=True))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_literal(value: Any) -> bool:
    return value is None or isinstance(value, (str, int))


def _target(ref: str, root: Mapping[str, Any]) -> Any:
    """Return the schema that a reference names; None if it is not in the root schema."""
    try:
        return resolve_reference(root, ref)
    except ValueError:
        return None


def _python_identifier(text: str) -> str:
    """Return a valid name in Python: ``user-id`` becomes ``user_id``, and ``from`` ``from_``."""
    name = re.sub(r"\W+", "_", text).strip("_") or "tool"
    if name[0].isdigit():
        return f"_{name}"
    return f"{name}_" if keyword.iskeyword(name) else name


def _type_of_schema(part: Any, root: Mapping[str, Any], depth: int = 0) -> Any:
    """Convert a JSON Schema to a type, as far as a signature can express the schema.

    Args:
        part: The schema; None if it is missing.
        root: The schema that has the definitions of references.
        depth: The depth of the schema within the tool's schema.
    """
    if not isinstance(part, Mapping) or depth > _DEEPEST:
        return Any
    schema = cast("Mapping[str, Any]", part)
    if isinstance(ref := schema.get("$ref"), str):
        return _type_of_schema(_target(ref, root), root, depth + 1)
    if values := _allowed_values(schema):
        return Literal[tuple(values)]
    if alternatives := _alternatives(schema):
        return Union[tuple(_type_of_schema(each, root, depth + 1) for each in alternatives)]  # noqa: UP007
    kind: Any = schema.get("type")
    if not isinstance(kind, str):
        return Any
    python_type = _TYPES.get(kind, Any)
    if kind == "array" and "items" in schema:
        item = _type_of_schema(schema["items"], root, depth + 1)
        python_type = list[item]
    return _with_limits(python_type, kind, schema)


def _allowed_values(schema: Mapping[str, Any]) -> Sequence[Any]:
    """Return the values of ``enum`` or ``const``; empty if a signature cannot list them."""
    values: Any = schema.get("enum")
    if not values and "const" in schema:
        values = [schema["const"]]
    can_be_listed = values and len(values) <= _MAX_VALUES and all(map(_is_literal, values))
    return values if can_be_listed else ()


def _alternatives(schema: Mapping[str, Any]) -> Sequence[Any]:
    """Return the alternatives of a schema: a valid value fits at least one of these schemas.

    For ``{"type": ["string", "null"]}`` this is one schema for each of the two types; for ``anyOf``
    or ``oneOf``, the listed schemas. Empty for any other schema.
    """
    kind: Any = schema.get("type")
    if isinstance(kind, (list, tuple)):
        return [{**schema, "type": each} for each in cast("Sequence[Any]", kind)]
    return schema.get("anyOf") or schema.get("oneOf") or ()


def _with_limits(python_type: Any, kind: str, schema: Mapping[str, Any]) -> Any:
    """Return a type with the limits of a schema, such as ``maximum`` for a number."""
    limits: dict[str, Any] = {}
    for limit_keyword, field_option in _LIMITS.get(kind, {}).items():
        limit = schema.get(limit_keyword)
        if _is_number(limit):
            limits[field_option] = limit
    if not limits:
        return python_type
    from pydantic import Field

    return Annotated[python_type, Field(**limits)]
