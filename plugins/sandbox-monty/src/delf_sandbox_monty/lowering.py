"""Rewrites Python that Monty does not support as Python that Monty supports."""

from __future__ import annotations

import ast
from collections.abc import Collection
from typing import Any, Final, cast

from delf_sandbox.guest.functions import label_of
from delf_sandbox.guest.names import BUILTINS, tool_of_item
from delf_sandbox.guest.nodes import (
    AS_AWAITABLE,
    ASYNC_ITER,
    ASYNC_WITH,
    ITER,
    TOOLS,
    AmbiguousError,
    attribute,
    await_node,
    call,
    name,
    position_of,
)
from delf_sandbox.guest.rewrite import Rewriting
from delf_sandbox.guest.scopes import CallPlace, Place
from delf_sandbox_monty.lazy import check_generators, make_generator_return_list

LATER: Final = "__delf_later__"
"""The prelude's function that wraps a tool; a call of the result only prepares the tool's call.

The tool is called when the script awaits the prepared call.
"""
SUBSET: Final = "this sandbox runs a subset of Python"
# Library functions, each with the name of the function that replaces it in Monty.
_REPLACED_FUNCTIONS: Final = {
    ("dataclasses", "asdict"): "__delf_asdict__",
    ("functools", "wraps"): "__delf_wraps__",
    ("collections", "OrderedDict"): "dict",
}
# The names that Monty's module ``typing`` has.
#
# Monty does not evaluate other names in annotations.
_TYPING_NAMES: Final = frozenset(
    {"Annotated", "Any", "Callable", "ClassVar", "Dict", "Final", "FrozenSet", "Generator"}
    | {"Generic", "Iterable", "Iterator", "List", "Literal", "Mapping", "Never", "NoReturn"}
    | {"Optional", "Protocol", "Self", "Sequence", "Set", "TYPE_CHECKING", "Tuple", "Type"}
    | {"TypeVar", "Union"}
)
# Modules, each with the name of the object in the prelude that replaces the module.
_REPLACED_MODULES: Final = {
    "asyncio": "asyncio",
    "json": "__delf_json_module__",
    "sys": "__delf_sys_module__",
    "html": "__delf_html_module__",
    "pprint": "__delf_pprint_module__",
    "statistics": "__delf_statistics_module__",
    "heapq": "__delf_heapq_module__",
    "io": "__delf_io_module__",
    "operator": "__delf_operator_module__",
}
SHIMS: Final = frozenset(_REPLACED_MODULES) | {"nest_asyncio"}
_RENAMED: Final = {
    "getattr": "__delf_getattr__",
    "hasattr": "__delf_hasattr__",
    "repr": "__delf_repr__",
    "round": "__delf_round__",
}
_TAKES_FUNCTION: Final = frozenset({"map", "filter", "sorted", "min", "max", "reduce"})
_UNWRAPPED: Final = frozenset({ASYNC_ITER, ITER, ASYNC_WITH})
# The attributes of dicts, which are not items of a record.
_DICT_ATTRIBUTES: Final = frozenset(dir(dict))
# The special methods of classes that Monty supports.
_SUPPORTED_METHODS: Final = frozenset(
    {"__init__", "__post_init__", "__repr__", "__str__", "__eq__", "__hash__", "__contains__"}
    | {"__call__", "__getitem__", "__setitem__", "__iter__", "__next__", "__int__"}
    | {"__enter__", "__exit__", "__aenter__", "__aexit__"}
    | {"__add__", "__sub__", "__mul__", "__truediv__", "__floordiv__", "__mod__", "__pow__"}
    | {"__radd__", "__iadd__", "__neg__"}
)
# The statements that replace ``async with MANAGER as TARGET: BODY``, as PEP 492 defines them. The
# variable ``__delf_fine_…__`` prevents a second call of ``__aexit__`` after an error.
_EXPANDED_ASYNC_WITH: Final = f"""
__delf_manager_{{number}}__ = MANAGER
TARGET = await {AS_AWAITABLE}(__delf_manager_{{number}}__.__aenter__())
__delf_fine_{{number}}__ = True
try:
    try:
        BODY
    except BaseException as __delf_error_{{number}}__:
        __delf_fine_{{number}}__ = False
        if not await __delf_manager_{{number}}__.__aexit__(
            type(__delf_error_{{number}}__), __delf_error_{{number}}__, None
        ):
            raise
finally:
    if __delf_fine_{{number}}__:
        await __delf_manager_{{number}}__.__aexit__(None, None, None)
"""
_STORE: Final = ast.Store()
_ORDERED: Final = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def method_name(connection: str, method: str) -> str:
    """Return the name of the plain function that stands for a connection's method in Monty.

    In Monty, methods are not values.
    """
    return f"__delf_{connection}__{method}"


class MontyRewriting(Rewriting):
    """The rewriting of tool calls for Monty, which allows ``await`` in every scope.

    Monty has no methods as values, so ``mail.send`` in ``f = mail.send`` becomes a plain function.
    The call of a connection itself, as in ``shop()``, becomes the connection.
    """

    await_everywhere = True

    def _rewrite_tree(self) -> None:
        # Monty runs a generator to its end at once, so raise if that could have additional effects.
        # Check the original tree, because the error messages name lines and names of the script.
        check_generators(cast("ast.Module", self._syntax.module.node), self._functions)
        super()._rewrite_tree()
        for place, is_called in self._syntax.attributes:
            if not is_called:
                self._replace_method_value(place)
        for place in self._syntax.calls.values():
            self._replace_call_of_connection(place)

    def _replace_method_value(self, place: Any) -> None:
        """Replace an action that is used as a value, as in ``f = mail.send``, by a function."""
        node = place.node
        connection = getattr(node.value, "id", "")
        is_method = node.attr in self._initial_names.tools.get(connection, ())
        is_redefined_by_script = place.scope.find(connection) is not None
        # An earlier step may have replaced the node, for example by ``LATER("…", …)``.
        is_replaced = place.current is not node
        if not is_replaced and is_method and not is_redefined_by_script:
            place.put(name(node, method_name(connection, node.attr)))

    def _replace_call_of_connection(self, place: CallPlace) -> None:
        """Replace a call of a connection itself, as in ``shop()``, by the connection."""
        function = place.node.func
        if not isinstance(function, ast.Name):
            return
        has_methods = bool(self._initial_names.tools.get(function.id))  # a plain tool has none
        is_redefined_by_script = place.scope.find(function.id) is not None
        if has_methods and not is_redefined_by_script:
            place.put(name(place.node, function.id))

    def make_awaitable(self, place: CallPlace, *, is_awaited: bool) -> None:
        """Rewrite a tool call so that it returns an awaitable, which the script awaits later.

        Args:
            place: The call.
            is_awaited: Whether the call is in an ``await``, and so needs no rewriting.
        """
        if is_awaited:
            return
        node = place.node
        label = self._names.calls[id(node)]
        connection, _, method = label.partition(".")
        # ``fetch(x)`` becomes ``LATER("fetch(…) on line 3", fetch)(x)``. The text in double quotes
        # names the call in the error message for a call that the script never awaits.
        function = node.func
        if method:
            # Monty cannot pass ``mail.send`` as an argument, so pass the plain function that stands
            # for it, such as ``__delf_mail__send``.
            function = name(node.func, method_name(connection, method))
        node.func = _let_return_awaitables(function, label, line=node.lineno)

    def replace_passed_function(self, place: Place) -> None:
        """Wrap a tool that is passed to a function, so that calls of the tool return awaitables.

        In ``asyncio.gather(*map(fetch, urls))``, the tool ``fetch`` becomes
        ``LATER("fetch(…) on line 3", fetch)``.
        """
        node = place.node
        label = label_of(node)
        if label is None:  # an expression such as ``tools[0]``
            return
        tool_name, _, method = label.partition(".")  # ``fetch`` has no method, ``mail.send`` has
        is_rebound_by_script = place.scope.find(tool_name) is not None
        if tool_name in self._initial_names.tools and not is_rebound_by_script:
            function_name = method_name(tool_name, method) if method else tool_name
            function = name(node, function_name)
            place.put(_let_return_awaitables(function, label, line=node.lineno))

    def has_awaitables(self) -> bool:
        """Return True if a call of an unknown function may return an awaitable."""
        if super().has_awaitables():
            return True
        # After ``f = get`` for a tool ``get``, the call ``f()`` is the call of an unknown function.
        tool_names = {*self._initial_names.tools, TOOLS}
        names_used_as_values = {
            place.node.id for place, is_called in self._syntax.loads if not is_called
        }
        return not tool_names.isdisjoint(names_used_as_values)

    def awaitable_variant(self, function: Any) -> Any:
        """Return a function unchanged, because Monty needs no awaitable variants of functions."""
        return function

    def must_rewrite_lazy(self, place: Place) -> bool:
        """Return True for a lazy expression that is a statement, or whose value is assigned.

        Monty evaluates any lazy expression to a list at once. Two cases need a rewriting. In a
        statement, the tool calls have to be awaited. An assigned value, as in ``rows = map(…)``,
        has to be an iterator, so that a second loop over ``rows`` finds no items, as in Python.
        """
        return isinstance(place.container, (ast.Expr, ast.Assign))

    def let_call_accept_async_functions(self, place: CallPlace) -> None:
        """Rewrite a call such as ``sorted(names, key=fetch)`` if ``fetch`` may await tool calls.

        The called function is replaced by a variant, such as ``__delf_sorted__``, that awaits each
        result of the passed function.
        """
        node = place.node
        if self._functions.targets(node.func, place.scope):  # the script defines the function
            return
        match node.func:
            case ast.Name(id=word) if word in _TAKES_FUNCTION:
                if word in ("map", "filter", "reduce"):
                    passed_functions = node.args[:1]
                else:
                    passed_functions = [item.value for item in node.keywords if item.arg == "key"]
                if any(self._may_wait(function) for function in passed_functions):
                    node.func = name(node.func, f"__delf_{word}__")
            case _:
                pass

    def _may_wait(self, argument: Any) -> bool:
        """Return True if a function that is passed as an argument may wait for a tool call."""
        match argument:
            case ast.Lambda():
                return _has_call_or_await(argument)
            case ast.Name(id=word):
                return word not in BUILTINS
            case ast.Attribute():
                return True
            case _:
                return False


class Lowering(ast.NodeTransformer):
    """Rewrites a script in place to the syntax and modules that Monty supports.

    Args:
        tools: The names that only mean tools: the script binds them to nothing else.
    """

    def __init__(self, tools: Collection[str]) -> None:
        self._tools = tools
        self._modules_and_classes: set[str] = set()
        # The names of the functions that are passed to ``functools.wraps``. If there are any, other
        # functions of the script may be wrappers.
        self._functions_passed_to_wraps: set[str] = set()
        # The number of context managers rewritten so far, for unique names of variables.
        self._context_manager_count = 0

    def lower(self, tree: ast.Module) -> None:
        """Rewrite a script in place."""
        self._collect_names(tree)
        self.visit(tree)
        # Check the rewritten tree, because rewriting removes most of the unsupported syntax.
        _check_syntax(tree)

    def _collect_names(self, tree: ast.Module) -> None:
        """Store the names of modules and classes in a script, and of functions passed to ``wraps``.

        The methods ``visit_…`` look up these names.
        """
        for node in ast.walk(tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                for item in node.names:
                    top_level_module, _, _ = item.name.partition(".")
                    self._modules_and_classes.add(item.asname or top_level_module)
            elif isinstance(node, ast.ClassDef):
                self._modules_and_classes.add(node.name)
            elif isinstance(node, ast.Call):
                function_name = label_of(node.func)
                # ``wraps(f)`` or ``functools.wraps(f)``
                if function_name is not None and function_name.endswith("wraps"):
                    names = [item.id for item in node.args if isinstance(item, ast.Name)]
                    self._functions_passed_to_wraps.update(names)

    # -- modules ------------------------------------------------------------------------

    def visit_Import(self, node: ast.Import) -> Any:
        """Replace ``import json`` by ``json = __delf_json_module__``, and so on for other modules.

        The prelude defines these objects. Imports of modules without such an object stay.
        """
        other_imports = [item for item in node.names if item.name not in SHIMS]
        if len(other_imports) == len(node.names):
            return node
        new: list[ast.stmt] = []
        for item in node.names:
            if item.name not in SHIMS:
                continue
            shim = self._replacement_of_module(node, item.name)
            target = ast.Name(id=item.asname or item.name, ctx=_STORE, **position_of(node))
            new.append(ast.Assign(targets=[target], value=shim, **position_of(node)))
        if other_imports:
            node.names = other_imports
            new.append(node)
        return new

    def _replacement_of_module(self, node: Any, module: str) -> ast.expr:
        """Build the expression that replaces an imported module.

        The expression is an object of the prelude, the code that Monty runs before a script.
        """
        if module == "nest_asyncio":  # the prelude has a class with the same functions
            return ast.Call(
                func=name(node, "__delf_Nest__"), args=[], keywords=[], **position_of(node)
            )
        return name(node, _REPLACED_MODULES[module])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        """Replace an import of a name by an assignment of the name's replacement in the prelude.

        The prelude is the code that Monty runs before a script.
        """
        source = node.module or ""
        new: list[ast.stmt] = []
        # A copy, because replaced names are removed from the list.
        for item in list(node.names):
            if item.name == "*":
                raise AmbiguousError.at_node(
                    node, f"{SUBSET} without import *: import the names that the script uses"
                )
            value = self._replacement_of_import(node, source, item.name)
            if value is not None:
                new.append(build_assignment(node, item.asname or item.name, value))
                node.names.remove(item)
        return [node, *new] if node.names else new

    @staticmethod
    def _replacement_of_import(node: ast.ImportFrom, source: str, word: str) -> ast.expr | None:
        """Return the expression that replaces an imported name; None to keep the import.

        Args:
            node: The import statement.
            source: The module that the name is imported from.
            word: The imported name.
        """
        if source in _REPLACED_MODULES:
            return attribute(name(node, _REPLACED_MODULES[source]), word)
        if (source, word) in _REPLACED_FUNCTIONS:
            return name(node, _REPLACED_FUNCTIONS[source, word])
        if source in ("typing", "typing_extensions") and word not in _TYPING_NAMES:
            # Types have no effect in Monty, so any value can stand for a type.
            return ast.Constant(value=None, **position_of(node))
        return None

    # -- classes ------------------------------------------------------------------------

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        """Convert a ``TypedDict`` to ``dict``; raise for unsupported features of classes."""
        if [label_of(base) for base in node.bases] in (["TypedDict"], ["typing.TypedDict"]):
            return build_assignment(node, node.name, name(node, "dict"))
        _check_methods(node)
        self.generic_visit(node)
        return node

    # -- loops, contexts and statements -------------------------------------------------

    def visit_FunctionDef(self, node: Any) -> Any:
        """Convert a generator function to one that computes all values before it returns."""
        make_generator_return_list(node)
        self.generic_visit(node)
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> Any:
        """Convert an async generator function to one that computes all values before it returns."""
        return self.visit_FunctionDef(node)

    def visit_Assign(self, node: ast.Assign) -> Any:
        """Wrap in ``iter()`` a generator, map, filter or zip that is assigned to a name.

        Monty makes a list of such a value. Unlike in Python, a script could iterate over the list
        twice.
        """
        self.generic_visit(node)
        match node.value:
            case (
                ast.GeneratorExp()
                | ast.Call(
                    func=ast.Name(id="map" | "filter" | "zip" | "__delf_map__" | "__delf_filter__")
                )
            ) if isinstance(node.targets[0], ast.Name):
                node.value = call_of(name(node, "iter"), [node.value])
            case _:
                pass
        return node

    def visit_AsyncFor(self, node: ast.AsyncFor) -> Any:
        """Convert an ``async for`` to a plain loop over an awaited iterable."""
        self.generic_visit(node)
        node.iter = await_node(call(AS_AWAITABLE, node.iter))
        plain: Any = node
        # Change the node in place, because other parts of the tree refer to this node. Both classes
        # have the same fields.
        plain.__class__ = ast.For
        return plain

    def visit_comprehension(self, node: ast.comprehension) -> Any:
        """Convert an async comprehension to a plain one over an awaited iterable."""
        self.generic_visit(node)
        if node.is_async:
            node.iter = await_node(call(AS_AWAITABLE, node.iter))
            node.is_async = 0
        return node

    def visit_AsyncWith(self, node: ast.AsyncWith) -> Any:
        """Convert an ``async with`` to plain statements."""
        self.generic_visit(node)
        body = node.body
        # From the innermost to the outermost, because each wraps the statements so far.
        for item in reversed(node.items):
            body = self._expand_async_with(node, item, body)
        return body

    def _expand_async_with(
        self, node: Any, item: ast.withitem, body: list[ast.stmt]
    ) -> list[ast.stmt]:
        """Build the statements that replace ``async with MANAGER as TARGET: BODY``."""
        # Number the variables, so that a nested statement does not overwrite the outer one's.
        self._context_manager_count += 1
        template = _EXPANDED_ASYNC_WITH.format(number=self._context_manager_count)
        statements: list[Any] = list(ast.parse(template).body)
        for statement in statements:
            for part in ast.walk(statement):
                ast.copy_location(part, node)
        # Fill in the template: ``manager = MANAGER``, then ``TARGET = await …``, a flag, and
        # ``try: try: BODY``.
        assign_manager, assign_target, _, outer_try = statements
        assign_manager.value = item.context_expr
        if item.optional_vars is None:  # no TARGET: keep only the ``await …``
            statements[1] = ast.Expr(value=assign_target.value, **position_of(node))
        else:
            assign_target.targets = [item.optional_vars]
        inner_try = outer_try.body[0]
        inner_try.body = body
        return statements

    def visit_Delete(self, node: ast.Delete) -> Any:
        """Rewrite ``del``, which Monty does not support: ``del rows[0]`` becomes ``rows.pop(0)``.

        A deleted name becomes None. Any other ``del`` is left for _check_syntax() to refuse.
        """
        self.generic_visit(node)
        new: list[ast.stmt] = []
        for target in node.targets:
            match target:
                case ast.Name(id=word):
                    new.append(
                        build_assignment(node, word, ast.Constant(value=None, **position_of(node)))
                    )
                case ast.Subscript(value=value, slice=key) if not isinstance(key, ast.Slice):
                    value.ctx = ast.Load()  # pyright: ignore[reportAttributeAccessIssue]
                    popped = call_of(attribute(value, "pop"), [key])
                    new.append(ast.Expr(value=popped, **position_of(node)))
                case _:
                    return node
        return new

    def visit_Raise(self, node: ast.Raise) -> Any:
        """Rewrite ``raise SystemExit`` to a call of ``exit()``."""
        self.generic_visit(node)
        match node.exc:
            case ast.Name(id="SystemExit"):
                arguments: list[Any] = []
            case ast.Call(func=ast.Name(id="SystemExit"), args=arguments):
                pass
            case _:
                return node
        exit_call = call_of(name(node, "__delf_exit__"), arguments)
        return ast.Expr(value=exit_call, **position_of(node))

    # -- expressions --------------------------------------------------------------------

    def visit_Compare(self, node: ast.Compare) -> Any:
        """Let a script compare a date with another date that is written as ISO 8601 text.

        If both sides may be dates, ``==`` and ``!=`` become a call of ``__delf_same__``, which
        compares a date with a text as text. If a side of ``<``, ``<=``, ``>`` or ``>=`` is the text
        of a date, all sides are converted to text.
        """
        self.generic_visit(node)
        match node:
            case ast.Compare(ops=[ast.Eq() | ast.NotEq() as operator], comparators=[other]):
                if _may_be_date(node.left) and _may_be_date(other):
                    same = call_of(name(node, "__delf_same__"), [node.left, other])
                    if isinstance(operator, ast.Eq):
                        return same
                    return ast.UnaryOp(op=ast.Not(), operand=same, **position_of(node))
            case ast.Compare(ops=[*operators]) if all(isinstance(op, _ORDERED) for op in operators):
                operands = [node.left, *node.comparators]
                if any(map(_is_date_text, operands)):
                    node.left = _date_to_text(node.left)
                    node.comparators = [_date_to_text(side) for side in node.comparators]
            case _:
                pass
        return node

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        """Convert a sliced value to ISO 8601 text if it is a date, as in ``row["day"][:7]``."""
        self.generic_visit(node)
        if isinstance(node.slice, ast.Slice) and isinstance(node.ctx, ast.Load):
            node.value = _date_to_text(node.value)
        return node

    def visit_FormattedValue(self, node: ast.FormattedValue) -> Any:
        """Replace ``{x!r}`` in an f-string by ``{__delf_repr__(x)}``.

        If ``x`` is an exception that a tool raised, ``__delf_repr__`` returns a text with the name
        of the exception's class; Monty's ``repr`` would use another name.
        """
        self.generic_visit(node)
        if node.conversion == ord("r") and not isinstance(node.value, ast.Constant):
            node.value = call_of(name(node, "__delf_repr__"), [node.value])
            node.conversion = -1
        return node

    def visit_Call(self, node: ast.Call) -> Any:
        """Rewrite calls of functions missing in Monty, mostly to calls of the prelude's functions.

        The prelude is the code that Monty runs before a script.
        """
        self.generic_visit(node)
        match node.func:
            case ast.Name(id=word) if word in _UNWRAPPED:
                # The prelude does not have these wrappers of iterables and contexts.
                return node.args[0]
            case ast.Name(id=word) if word in _RENAMED:
                node.func = name(node.func, _RENAMED[word])
            case ast.Attribute(value=ast.Name(id="csv"), attr="reader" | "DictReader") if node.args:
                # The prelude's StringIO cannot be iterated over.
                node.args[0] = call_of(name(node, "__delf_lines__"), [node.args[0]])
            case ast.Attribute(value=ast.Name(id="re"), attr="sub") if len(node.args) > 2:
                # Monty's re.sub accepts no function as the replacement.
                if not _is_certainly_no_function(node.args[1]):
                    node.func = name(node.func, "__delf_sub__")
            case ast.Attribute(value=pattern, attr="sub"):
                # The method of a compiled pattern does not accept a function, either.
                if len(node.args) > 1 and isinstance(node.args[0], ast.Lambda):
                    node.args.insert(0, pattern)
                    node.func = name(node.func, "__delf_sub__")
            case ast.Attribute(attr="fromisoformat" | "strptime") if node.args:
                # The argument may already be a date, which these functions refuse.
                node.args[0] = _date_to_text(node.args[0])
            case ast.Attribute(attr="startswith" | "endswith" | "split" as word, value=inner):
                # Scripts may use a date as ISO 8601 text. Any value may be a date, and is converted
                # at run time if it is one.
                is_module_or_class = (
                    isinstance(inner, ast.Name) and inner.id in self._modules_and_classes
                )
                if not is_module_or_class:
                    node.func = attribute(_date_to_text(inner), word)
            case ast.Name(id="print") if any(item.arg == "file" for item in node.keywords):
                # The file may be an object of the prelude, into which Monty's print cannot write.
                node.func = name(node.func, "__delf_print__")
            case ast.Name(id="next") if node.args and isinstance(node.args[0], ast.GeneratorExp):
                # Monty's generator expressions are lists, which next() refuses.
                node.args[0] = call_of(name(node, "iter"), [node.args[0]])
            case ast.Attribute(value=inner, attr="sort") if self._sort_key_may_wait(node):
                node.args.insert(0, inner)
                node.func = name(node.func, "__delf_sort__")
            case _:
                pass
        return node

    @staticmethod
    def _sort_key_may_wait(node: ast.Call) -> bool:
        """Return True if the ``key`` of a call of ``sort`` may wait for a tool call."""
        match [item.value for item in node.keywords if item.arg == "key"]:
            case [ast.Lambda() as function]:
                return _has_call_or_await(function)
            case [ast.Name() | ast.Attribute()]:
                return True
            case _:
                return False

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        """Replace an attribute missing in Monty; each case below begins with an example."""
        is_called = getattr(node, "is_called", False)  # as set by mark_called_attributes()
        self.generic_visit(node)
        # tools["shop"].search, not called: the plain function that stands for the method
        connection = tool_of_item(node.value)
        if connection and not is_called:
            return name(node, method_name(connection, node.attr))
        # type(error).__name__, fetch.__name__: often another name in Monty
        if node.attr in ("__name__", "__qualname__") and isinstance(node.ctx, ast.Load):
            return self._replace_dunder_name(node)
        root = node.value.id if isinstance(node.value, ast.Name) else ""
        # functools.wraps: a function of the prelude
        if (root, node.attr) in _REPLACED_FUNCTIONS:
            return name(node, _REPLACED_FUNCTIONS[root, node.attr])
        # row.price = 1, shop.search(), row._price: unchanged
        is_assigned = not isinstance(node.ctx, ast.Load)
        is_private = node.attr.startswith("_")
        if is_assigned or is_called or is_private:
            return node
        # math.pi, an attribute of a module: unchanged
        if root in self._modules_and_classes or root == "asyncio":
            return node
        # self.price, or shop.search as a value: unchanged
        if root in ("self", "cls") or root in self._tools:
            return node
        # str.lower, not called: a function, because Monty cannot pass methods as values
        if root in ("str", "int", "float", "list", "dict", "set"):
            return _wrap_type_method(node)
        # row.items: the method of a dict; a script can write row["items"] for the item
        if node.attr in _DICT_ATTRIBUTES:
            return node
        # row.price: the item of a record, which is a dict in Monty
        text = ast.Constant(value=node.attr, **position_of(node))
        return call_of(name(node, "__delf_get__"), [node.value, text])

    def _replace_dunder_name(self, node: ast.Attribute) -> ast.expr:
        """Replace ``__name__`` or ``__qualname__`` by a call that returns the same name as Python.

        Keep the attribute if Monty returns the same name, or if no call can find out the name.
        """
        match node.value:
            # type(error).__name__, error.__class__.__name__: in Monty, delf's exceptions have
            # other names than in a script
            case (
                ast.Call(func=ast.Name(id="type"), args=[value])
                | ast.Attribute(attr="__class__", value=value)
            ) if node.attr == "__name__":
                return call_of(name(node, "__delf_kind__"), [value])
            # fetch.__name__: the name of the function, as the script defines it
            case ast.Name(id=word) if not self._keeps_dunder_name(word):
                return call_of(name(node, "__delf_name_of__"), [node.value])
            case _:
                return node

    def _keeps_dunder_name(self, word: str) -> bool:
        """Return True if ``word.__name__`` stays unchanged.

        Monty knows the names of modules and classes, and no call can find out a wrapper's name.
        """
        return word in self._modules_and_classes or self._may_be_wrapper(word)

    def _may_be_wrapper(self, word: str) -> bool:
        """Return True if a name may mean a wrapper that a decorator made with ``functools.wraps``.

        In a script that uses ``wraps``, a decorator may have wrapped any function. The prelude's
        ``wraps`` does not copy the name of the function to the wrapper.
        """
        uses_wraps = bool(self._functions_passed_to_wraps)
        # Inside a decorator with ``wraps(function)``, ``function`` means the function itself.
        is_wrapped_function = word in self._functions_passed_to_wraps
        return uses_wraps and not is_wrapped_function


def _wrap_type_method(node: ast.Attribute) -> ast.expr:
    """Wrap a method of a type, such as ``str.lower``, in a function.

    Monty can call such a method, but cannot pass it as a value.
    """
    parameter = ast.arg(arg="given", **position_of(node))
    parameters = ast.arguments(
        posonlyargs=[], args=[parameter], kwonlyargs=[], kw_defaults=[], defaults=[]
    )
    body = call_of(attribute(name(node, "given"), node.attr), [])
    return ast.Lambda(args=parameters, body=body, **position_of(node))


def _check_methods(node: ast.ClassDef) -> None:
    """Raise if a class defines special methods that Python calls and Monty does not.

    Raises:
        AmbiguousError: If the class has such a method.
    """
    for part in node.body:
        word = getattr(part, "name", "")
        if word.startswith("__") and word not in _SUPPORTED_METHODS:
            raise AmbiguousError.at_node(
                part,
                f"{SUBSET} without {word} of classes: write a method of another name and call it",
            )


def _check_syntax(tree: ast.Module) -> None:
    """Raise if a script has syntax that Monty does not support; the message has an alternative.

    Raises:
        AmbiguousError: If the script has such syntax. This class is for all refusals of a script
            before its start, not only for ambiguous scripts.
    """
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef() if node.bases or node.keywords:
                unsupported = "base classes: write functions, dicts or a dataclass without a base"
            case ast.ClassDef(body=body) if any(getattr(n, "decorator_list", ()) for n in body):
                unsupported = "decorators of methods: write a plain method and call it"
            case ast.Yield() | ast.YieldFrom():
                unsupported = "this yield: build a list and return it"
            case ast.Delete():
                unsupported = (
                    "this del: leave the name, or make a new list or dict without the item"
                )
            case ast.TryStar():
                unsupported = "except*: write except"
            case _:
                continue
        # SUBSET begins the message with "this sandbox runs a subset of Python".
        raise AmbiguousError.at_node(node, f"{SUBSET} without {unsupported}")


def mark_called_attributes(tree: ast.AST) -> None:
    """Mark the attributes that a script calls, as in ``row.keys()``.

    Only other attributes, as in ``row.price``, may mean an item: ``row["price"]``.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node.func.is_called = True  # pyright: ignore[reportAttributeAccessIssue]


def _is_date_text(node: Any) -> bool:
    """Return True for a constant text that begins like an ISO 8601 date: ``2026-``."""
    match node:
        case ast.Constant(value=str(text)):
            return text[:4].isdigit() and text[4:5] == "-"
        case _:
            return False


def _is_certainly_no_function(node: Any) -> bool:
    """Return True for a literal, an f-string or an operation, such as ``prefix + name``."""
    return isinstance(node, (ast.Constant, ast.JoinedStr, ast.BinOp))


def _date_to_text(node: Any) -> Any:
    """Build an expression that converts a date to ISO 8601 text, and keeps any other value."""
    is_never_date = isinstance(node, (ast.Constant, ast.JoinedStr, ast.List))
    return node if is_never_date else call_of(name(node, "__delf_text__"), [node])


def _may_be_date(node: Any) -> bool:
    """Return True if the value of an expression may be a date or the text of a date.

    Return False for arithmetic, such as ``price + tax``, although ``day + timedelta(days=1)`` gives
    a date.
    """
    match node:
        case ast.Constant(value=str()):
            return _is_date_text(node)
        case ast.Constant() | ast.BinOp() | ast.UnaryOp() | ast.JoinedStr() | ast.List():
            return False
        case _:
            return True


def _has_call_or_await(function: ast.Lambda) -> bool:
    parts = ast.walk(function.body)
    return any(isinstance(part, (ast.Await, ast.Call)) for part in parts)


def _let_return_awaitables(function: Any, label: str, *, line: int) -> ast.Call:
    """Build ``LATER("fetch(…) on line 3", fetch)`` for the function ``fetch`` of a tool.

    The value is a function like ``fetch`` whose calls return awaitables instead of results.

    Args:
        function: The expression of the tool's function.
        label: The tool's name in the script, for error messages.
        line: The line of the script, for error messages.
    """
    text = ast.Constant(value=f"{label}(…) on line {line}", **position_of(function))
    return call_of(name(function, LATER), [text, function])


def call_of(function: Any, arguments: list[Any]) -> ast.Call:
    """Build a call of a function, with the source position of that function."""
    return ast.Call(func=function, args=arguments, keywords=[], **position_of(function))


def build_assignment(node: Any, variable: str, value: Any) -> ast.stmt:
    """Build an assignment of a value to a variable, with the source position of ``node``."""
    target = ast.Name(id=variable, ctx=_STORE, **position_of(node))
    return ast.Assign(targets=[target], value=value, **position_of(node))
