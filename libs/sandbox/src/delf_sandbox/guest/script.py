"""Turns a model's script into one program with top-level await."""

from __future__ import annotations

import ast
import inspect
import warnings
from collections.abc import Iterator
from types import CodeType
from typing import Any

VALUE = "__delf_value__"
MAIN = "__delf_main__"
_RUNNERS = ("run", "run_until_complete")


class Script:
    """A compiled script.

    Args:
        source: The text.
        filename: How tracebacks name it.

    Raises:
        SyntaxError: When it is no Python.
    """

    def __init__(self, source: str, filename: str) -> None:
        self.source = source
        self.filename = filename
        self._wrapped = False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they would stand in the script's output
            self._code = self._compile()

    def _compile(self) -> CodeType:
        tree = ast.parse(self.source, self.filename)
        _await_runners(tree)
        _call_forgotten_main(tree)
        self._wrapped = any(isinstance(node, ast.Return) for node in _own_nodes(tree))
        if self._wrapped:
            tree = _wrap(tree)
        else:
            _keep_last_value(tree)
        ast.fix_missing_locations(tree)
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        return compile(tree, self.filename, "exec", flags=flags, dont_inherit=True)

    async def run(self, namespace: dict[str, Any]) -> Any:
        """Run it in a namespace, which keeps what the script defined.

        Returns:
            What it returned, or the value of its last expression.
        """
        namespace.pop(VALUE, None)
        result = eval(self._code, namespace)  # noqa: S307 - this is what a sandbox is for
        if inspect.iscoroutine(result):
            await result
        if self._wrapped:
            value = await namespace.pop(MAIN)()
        else:
            value = namespace.pop(VALUE, None)
        return await value if inspect.isawaitable(value) else value


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def _own_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node of the top-level scope; functions and classes are named but not entered."""
    for child in ast.iter_child_nodes(tree):
        yield child
        if not isinstance(child, _SCOPES):
            yield from _own_nodes(child)


class _RunnerToAwait(ast.NodeTransformer):
    """``asyncio.run(x)`` and ``loop.run_until_complete(x)`` at the top level become awaits."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        function = node.func
        if not isinstance(function, ast.Attribute) or function.attr not in _RUNNERS:
            return node
        if not node.args or isinstance(node.args[0], ast.Starred):
            return node
        is_asyncio = isinstance(function.value, ast.Name) and function.value.id == "asyncio"
        if function.attr == "run" and not is_asyncio:
            return node
        return ast.copy_location(ast.Await(value=node.args[0]), node)


def _await_runners(tree: ast.Module) -> None:
    _RunnerToAwait().visit(tree)


def _call_forgotten_main(tree: ast.Module) -> None:
    main = forgotten_main(tree)
    if main is not None:
        call: ast.expr = ast.Call(func=_name("main"), args=[], keywords=[])
        if isinstance(main, ast.AsyncFunctionDef):
            call = ast.Await(value=call)
        tree.body.append(ast.copy_location(ast.Expr(value=call), main))


def forgotten_main(tree: ast.Module) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The function ``main`` of a script that defines it, means to run it and never does."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    mains = [node for node in tree.body if isinstance(node, kinds) and node.name == "main"]
    if not mains or mains[-1].args.args or mains[-1].args.kwonlyargs:
        return None
    used = any(isinstance(node, ast.Name) and node.id == "main" for node in ast.walk(tree))
    return None if used else mains[-1]


def _name(name: str, context: ast.expr_context | None = None) -> ast.Name:
    return ast.Name(id=name, ctx=context or ast.Load())


def _keep_last_value(tree: ast.Module) -> None:
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = tree.body[-1]
        keep = ast.Assign(targets=[_name(VALUE, ast.Store())], value=last.value)
        tree.body[-1] = ast.copy_location(keep, last)


def _wrap(tree: ast.Module) -> ast.Module:
    """Put a script with a top-level ``return`` into a function that shares its names."""
    names = sorted(bound_names(tree))
    outside = [node for node in tree.body if _only_at_module_level(node)]
    body: list[ast.stmt] = [_ForFunction().visit(n) for n in tree.body if n not in outside]
    if body and isinstance(body[-1], ast.Expr):
        body[-1] = ast.copy_location(ast.Return(value=body[-1].value), body[-1])
    if names:
        body.insert(0, ast.Global(names=names))
    function = ast.AsyncFunctionDef(
        name=MAIN,
        args=ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[]),
        body=body,
        decorator_list=[],
    )
    if "type_params" in ast.AsyncFunctionDef._fields:
        function.type_params = []  # pyright: ignore[reportAttributeAccessIssue]
    return ast.Module(body=[*outside, function], type_ignores=[])


def _only_at_module_level(node: ast.stmt) -> bool:
    """Whether a statement is one of those that no function may hold."""
    return isinstance(node, ast.ImportFrom) and (
        node.module == "__future__" or node.names[0].name == "*"
    )


class _ForFunction(ast.NodeTransformer):
    """Rewrites what is legal at the top level, and not in a function that declares its names.

    ``global`` statements do nothing there; annotations of names mean nothing to a script.
    """

    def visit_Global(self, node: ast.Global) -> ast.AST:
        return ast.copy_location(ast.Pass(), node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        assign = ast.Assign(targets=[node.target], value=node.value)
        return ast.copy_location(assign, node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return node


def bound_names(tree: ast.AST) -> set[str]:
    """The names that a scope binds: a module's, or a function's."""
    names: set[str] = set()
    for node in _own_nodes(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                names.add(name)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Import() | ast.ImportFrom():
                names.update(a.asname or a.name.split(".")[0] for a in node.names)
            case ast.ExceptHandler(name=str(name)):
                names.add(name)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                names.add(name)
            case ast.MatchMapping(rest=str(name)):
                names.add(name)
            case _:
                pass
    names.discard("*")
    return names - _comprehension_names(tree)


def _comprehension_names(tree: ast.AST) -> set[str]:
    """Names bound by comprehensions only; they live in scopes of their own."""
    inner: set[str] = set()
    outer: set[str] = set()
    targets: set[int] = set()
    for node in _own_nodes(tree):
        if isinstance(node, ast.comprehension):
            for part in ast.walk(node.target):
                targets.add(id(part))
                if isinstance(part, ast.Name):
                    inner.add(part.id)
    for node in _own_nodes(tree):
        if (
            isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Store)
            and id(node) not in targets
        ):
            outer.add(node.id)
    return inner - outer
