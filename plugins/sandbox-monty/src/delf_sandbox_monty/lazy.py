"""Checks of generators, which Monty evaluates eagerly while Python is lazy.

The result is the same if all items are used. A generator with write calls, or with changes of
variables outside of it, is refused if a script may use fewer items: every item would have its
effects. A generator without an end is refused, too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final

from delf_sandbox.guest.functions import Functions
from delf_sandbox.guest.nodes import AmbiguousError, attribute, name, position_of
from delf_sandbox.guest.scopes import FunctionNode, Scope

# The variable of a rewritten generator function that holds the list of the yielded values.
ITEMS: Final = "__delf_items__"
# Names of functions that consume all items of their argument immediately.
_CONSUMES_ALL: Final = frozenset(
    {"list", "tuple", "set", "frozenset", "dict", "sorted", "sum", "max", "min", "Counter", "deque"}
    | {"join", "extend", "update", "mean", "fmean", "median", "gather"}
)
_SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_EARLY_ENDS: Final = (ast.Break, ast.Return, ast.Raise, ast.Try)
# Names of methods that change a list, set or dict.
_CHANGING_METHODS: Final = frozenset(
    {"add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem"}
    | {"popleft", "remove", "reverse", "setdefault", "sort", "update"}
)


def check_generators(tree: ast.Module, functions: Functions) -> None:
    """Raise for generators whose eager evaluation could have additional effects.

    Monty evaluates generators at once, where Python evaluates only the items that are used.

    Args:
        tree: The parsed script.
        functions: The functions of the script.

    Raises:
        AmbiguousError: If the script has such a generator.
    """
    _check_generator_expressions(tree, functions)
    for scope in functions.syntax.functions:
        if isinstance(scope.node, FunctionNode) and scope.is_generator:
            _check_generator_function(scope, functions)


def _check_generator_expressions(tree: ast.Module, functions: Functions) -> None:
    """Raise for a generator expression or ``map`` call with effects, unless all items are used."""
    parents = {id(inner): node for node in ast.walk(tree) for inner in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        effect = _effect_of_each_item(node, functions)
        if effect is not None and not _may_be_evaluated_at_once(node, parents):
            raise AmbiguousError.at_node(
                node,
                "this sandbox goes through generators and map() at once, so "
                f"{effect} for every item: make a list of it, or write a loop",
            )


def _effect_of_each_item(node: ast.AST, functions: Functions) -> str | None:
    """Return an effect of evaluating an item of a lazy expression, such as "save is called".

    None for an expression without such an effect, and for any other node.
    """
    write_action = functions.write_action_for_each_item(node)
    if write_action is not None:
        return f"{write_action} is called"
    assigned_name = _name_assigned_in_generator(node)
    if assigned_name is not None:
        return f"{assigned_name} := … is evaluated"
    return None


def _name_assigned_in_generator(node: ast.AST) -> str | None:
    """Return the variable to which a generator expression assigns by ``:=``, if any.

    As Monty evaluates all items, the variable may later have another value than in Python.
    """
    if not isinstance(node, ast.GeneratorExp):
        return None
    for part in ast.walk(node):
        if isinstance(part, ast.NamedExpr):
            return part.target.id
    return None


def _check_generator_function(scope: Scope, functions: Functions) -> None:
    """Raise if a generator function has effects or no end.

    Monty runs the function to its end, although a caller may use only the first items.
    """
    effect = _effect_of_generator_function(scope, functions)
    if effect is not None:
        raise AmbiguousError.at_node(
            scope.node,
            f"this sandbox runs a generator to its end at once, with each {effect}: "
            "build a list and return it",
        )
    for part in _own_nodes(scope.node):
        if _is_endless(part):
            raise AmbiguousError.at_node(
                part,
                "this sandbox runs a generator to its end at once, and this loop has none: "
                "write a loop without a generator",
            )


def _effect_of_generator_function(scope: Scope, functions: Functions) -> str | None:
    """Return an effect of running a generator function, such as "print"; None if it has none."""
    write_action = functions.write_action_in(scope)
    if write_action is not None:
        return write_action
    if _calls_print(scope.node):
        return "print"
    changed_name = _changed_outer_name(scope, functions)
    return None if changed_name is None else f"change of {changed_name}"


def _changed_outer_name(scope: Scope, functions: Functions) -> str | None:
    """Return a variable outside of a generator function that the function changes, if any.

    The change is an assignment to the variable, to one of its items or attributes, or a call of a
    method such as ``append``.
    """
    if scope.declared_outside:
        return next(iter(scope.declared_outside))
    for word in filter(None, map(_name_of_changed_object, _own_nodes(scope.node))):
        is_variable = scope.find(word) is not None or functions.initial_names.is_bound(word)
        if is_variable and word not in scope.binding_kinds:
            return word
    return None


def _name_of_changed_object(node: ast.AST) -> str | None:
    """Return ``rows`` for ``rows[0] = 1``, ``rows.size = 1`` or ``rows.append(1)``, else None."""
    match node:
        case (
            ast.Subscript(value=ast.Name(id=word), ctx=ast.Store() | ast.Del())
            | ast.Attribute(value=ast.Name(id=word), ctx=ast.Store() | ast.Del())
        ):
            return word
        case ast.Call(func=ast.Attribute(value=ast.Name(id=word), attr=method)):
            return word if method in _CHANGING_METHODS else None
        case _:
            return None


def _is_endless(node: ast.AST) -> bool:
    """Return True for a ``while True`` loop that nothing ends."""
    match node:
        case ast.While(test=ast.Constant(value=value), body=body) if value:
            # The ``else`` of such a loop never runs.
            parts = _own_nodes(ast.Module(body=body, type_ignores=[]))
            leaves_function = any(isinstance(part, (ast.Return, ast.Raise)) for part in parts)
            return not leaves_function and not _has_own_break(body)
        case _:
            return False


def _has_own_break(statements: Iterable[ast.AST]) -> bool:
    """Return True if a ``break`` in the body of a loop ends this loop, and not an inner loop."""
    for statement in statements:
        parts: Iterable[ast.AST]
        match statement:
            case ast.Break():
                return True
            # A ``break`` in the inner loop's body ends the inner loop; after ``else``, the outer.
            case ast.For(orelse=orelse) | ast.AsyncFor(orelse=orelse) | ast.While(orelse=orelse):
                parts = orelse
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                parts = []
            case _:
                parts = ast.iter_child_nodes(statement)
        if _has_own_break(parts):
            return True
    return False


def _calls_print(function: ast.AST) -> bool:
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
    return any(isinstance(call.func, ast.Name) and call.func.id == "print" for call in calls)


def _may_be_evaluated_at_once(node: ast.AST, parents: dict[int, ast.AST]) -> bool:
    """Return True if Python uses all items of a lazy value at once, as in ``sorted(rows())``."""
    match parents[id(node)]:
        # ``sorted(rows())``
        case ast.Call(func=ast.Name(id=word) | ast.Attribute(attr=word)) as outer:
            is_argument = outer.func is not node
            return is_argument and word in _CONSUMES_ALL
        case ast.Starred() | ast.YieldFrom():  # ``[*rows()]``
            return True
        case ast.Expr():  # a statement of its own, whose value becomes a list in every sandbox
            return True
        # ``for row in rows(): …`` without a ``break`` or the like
        case ast.For(iter=given, body=body) if given is node:
            parts = chain.from_iterable(map(ast.walk, body))
            may_end_early = any(isinstance(part, _EARLY_ENDS) for part in parts)
            return not may_end_early
        # ``[row for row in rows()]``, but not the lazy ``(row for row in rows())``
        case ast.comprehension() as loop:
            return isinstance(parents[id(loop)], (ast.ListComp, ast.SetComp, ast.DictComp))
        case ast.Assign(targets=[ast.Tuple() | ast.List()]):  # ``first, second = rows()``
            return True
        case _:
            return False


def make_generator_return_list(node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    """Rewrite a generator function in place, so that it returns an iterator over a list.

    A generator function stays unchanged if it has a decorator, or uses the value of a ``yield``.
    """
    yields = [part for part in _own_nodes(node) if isinstance(part, (ast.Yield, ast.YieldFrom))]
    if not yields or node.decorator_list:
        return
    unused_values = {id(part.value) for part in _own_nodes(node) if isinstance(part, ast.Expr)}
    uses_value_of_yield = any(id(part) not in unused_values for part in yields)  # as with send()
    if uses_value_of_yield:
        return
    _Yields().generic_visit(node)  # visit() would skip the function itself
    items = ast.Name(id=ITEMS, ctx=ast.Store(), **position_of(node))
    empty = ast.List(elts=[], ctx=ast.Load(), **position_of(node))
    node.body.insert(0, ast.Assign(targets=[items], value=empty, **position_of(node)))
    node.body.append(_return_items(node.body[-1]))


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function, but not those inside nested functions and classes."""
    for part in ast.iter_child_nodes(function):
        yield part
        if not isinstance(part, _SCOPES):
            yield from _own_nodes(part)


def _return_items(node: Any) -> ast.Return:
    """Build ``return iter(__delf_items__)``, by which a rewritten generator gives its values."""
    value = ast.Call(
        func=name(node, "iter"), args=[name(node, ITEMS)], keywords=[], **position_of(node)
    )
    return ast.Return(value=value, **position_of(node))


class _Yields(ast.NodeTransformer):
    """Rewrites a generator function to append its yielded values to a list."""

    def visit(self, node: ast.AST) -> Any:
        """Visit a node, except nested functions and classes."""
        return node if isinstance(node, _SCOPES) else super().visit(node)

    def visit_Expr(self, node: ast.Expr) -> Any:
        """Replace ``yield x`` by ``__delf_items__.append(x)``, and ``yield from x`` by ``extend``.

        ``__delf_items__`` is the list of the yielded values.
        """
        match node.value:
            case ast.Yield(value=value):
                method = "append"
                argument = value or ast.Constant(value=None, **position_of(node))
            case ast.YieldFrom(value=value):
                method = "extend"
                argument = value
            case _:
                return node
        function: Any = attribute(name(node, ITEMS), method)
        # A later pass rewrites an attribute that is not called, such as ``row.price``, to the item
        # of a dict: ``row["price"]``. The mark keeps that pass from rewriting this method.
        function.is_called = True
        node.value = ast.Call(func=function, args=[argument], keywords=[], **position_of(node))
        return node

    def visit_Return(self, node: ast.Return) -> Any:
        """Replace a ``return``, which ends a generator, by a return of its values so far."""
        return _return_items(node)
