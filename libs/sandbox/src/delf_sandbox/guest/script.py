"""Compilation of a model's script to one program with top-level await."""

from __future__ import annotations

import ast
import asyncio
import inspect
import warnings
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import Any

from delf_sandbox.guest.names import InitialNames
from delf_sandbox.guest.nodes import name, position_of
from delf_sandbox.guest.rewrite import Rewriting

VALUE = "__delf_value__"
MAIN = "__delf_main__"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Script:
    """A compiled script.

    Args:
        source: The script's text.
        filename: The file name that tracebacks show for the script.
        initial_names: The names that are defined when the script starts.

    Raises:
        SyntaxError: If the script is not valid Python, or uses a construct that delf rejects
            because the model may have meant something else (:class:`AmbiguousError`).
    """

    def __init__(self, source: str, filename: str, initial_names: InitialNames) -> None:
        # True if the script has a top-level ``return``, so that _compile() puts it into a function.
        self._is_wrapped = False
        self.rebound_names: list[str] = []
        """The tool names that the script binds to something else."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings would appear in the output
            try:
                self._code = self._compile(source, filename, initial_names)
            except SyntaxError as error:
                error.filename = filename
                raise

    def _compile(self, source: str, filename: str, initial_names: InitialNames) -> CodeType:
        """Rewrite a script so that it awaits its tool calls, and compile the script.

        Set the attributes that describe the rewritten script.
        """
        tree = ast.parse(source, filename)
        call_main_function(tree)
        rewriting = Rewriting(tree, initial_names)  # changes the tree in place
        self.rebound_names = rewriting.rebound_names
        self._is_wrapped = any(isinstance(node, ast.Return) for node in _top_level_nodes(tree))
        keep_last_value(tree.body)
        if self._is_wrapped:
            tree = _wrap_in_function(tree, {VALUE, *rewriting.bound_names})
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        return compile(tree, filename, "exec", flags=flags, dont_inherit=True)

    async def run(self, namespace: dict[str, Any]) -> Any:
        """Run the script with the global names of ``namespace``, to which the script may add.

        Returns:
            The returned value, or the value of the last expression.
        """
        namespace.pop(VALUE, None)  # left by an earlier script that failed after its last line
        coroutine = eval(self._code, namespace)  # noqa: S307 - this is what a sandbox is for
        if inspect.iscoroutine(coroutine):  # the script has an ``await`` outside of functions
            await coroutine
        returned_value = None
        if self._is_wrapped:
            # The script has a ``return`` outside of functions. The code above has only defined the
            # async function MAIN, whose body is the script's code.
            main = namespace.pop(MAIN)
            returned_value = await main()
        # The compiled script stored the value of its last expression under this name.
        last_value = namespace.pop(VALUE, None)
        value = last_value if returned_value is None else returned_value
        # A future, such as a task, is returned as it is: the session waits for it together with
        # the other tasks that the script left running.
        if asyncio.isfuture(value) or not inspect.isawaitable(value):
            return value
        return await value


_SCOPES = (*_FUNCTIONS, ast.Lambda, ast.ClassDef)


def _top_level_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a module, except those inside functions and classes."""
    for child in ast.iter_child_nodes(tree):
        yield child
        if not isinstance(child, _SCOPES):
            yield from _top_level_nodes(child)


def call_main_function(tree: ast.Module) -> None:
    """Add a call of the function that a script forgot to call, such as ``main``.

    If the last line is only a function's name, such as ``main``, the line becomes ``main()``. The
    function that :func:`uncalled_function` finds is called at the end of the script.
    """
    _call_function_named_last(tree)
    function = uncalled_function(tree)
    if function is not None:
        called_name = name(function, function.name)
        new_call = ast.Call(func=called_name, args=[], keywords=[], **position_of(function))
        tree.body.append(ast.Expr(value=new_call, **position_of(function)))


def _call_function_named_last(tree: ast.Module) -> None:
    """Turn a function's name on the last line into a call, if no argument is required."""
    match tree.body[-1:]:
        case [ast.Expr(value=ast.Name(id=word) as last) as line]:
            functions = [node for node in tree.body if isinstance(node, _FUNCTIONS)]
            for function in functions:
                if function.name == word and not _has_required_parameters(function):
                    line.value = ast.Call(func=last, args=[], keywords=[], **position_of(last))
                    break
        case _:
            pass


def uncalled_function(tree: ast.Module) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Return the function that a script forgot to call; None if the script forgot none.

    If the script defines ``main`` and never uses the name, the function is ``main``. Otherwise, the
    script must contain only imports, constants and definitions, and exactly one function that is
    never used. Functions with required parameters do not count.
    """
    definitions = [node for node in tree.body if isinstance(node, _FUNCTIONS)]
    functions = [node for node in definitions if not _has_required_parameters(node)]
    if not functions:
        return None
    used_names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    unused_functions = {node.name: node for node in functions if node.name not in used_names}
    if "main" in unused_functions:
        return unused_functions["main"]
    if len(unused_functions) == 1 and _only_defines(tree):
        return next(iter(unused_functions.values()))
    return None


def _only_defines(tree: ast.Module) -> bool:
    """Return True if a script only defines functions, classes, imports and constants."""
    for node in tree.body:
        match node:
            case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom():
                pass
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                pass
            case ast.Assign() | ast.AnnAssign():
                if any(isinstance(part, (ast.Call, ast.Await)) for part in ast.walk(node)):
                    return False
            case _:
                return False
    return True


def _has_required_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    arguments = function.args
    positional_count = len(arguments.posonlyargs) + len(arguments.args)
    has_required_keyword = None in arguments.kw_defaults  # None stands for no default
    return positional_count > len(arguments.defaults) or has_required_keyword


def keep_last_value(body: list[ast.stmt]) -> None:
    """Add a statement that stores the value of a script's last expression or assignment."""
    if not body:
        return
    last = body[-1]
    match last:
        # A last line ``...`` is a placeholder like ``pass``, and no value.
        case ast.Expr(value=value) if not _is_ellipsis(value):
            target = _name(VALUE, ast.Store(), last)
            body[-1] = ast.Assign(targets=[target], value=value, **position_of(last))
        case (
            ast.Assign(targets=[ast.Name(id=word)])
            | ast.AugAssign(target=ast.Name(id=word))
            | ast.AnnAssign(target=ast.Name(id=word), value=ast.expr())
        ):
            target = _name(VALUE, ast.Store(), last)
            value = _name(word, ast.Load(), last)
            body.append(ast.Assign(targets=[target], value=value, **position_of(last)))
        case ast.If(body=first, orelse=second):
            keep_last_value(first)
            keep_last_value(second)
        # In a ``try`` with ``else``, the statements after ``else`` run last, not the body.
        case ast.With(body=inner) | ast.AsyncWith(body=inner) | ast.Try(body=inner, orelse=[]):
            keep_last_value(inner)
        case _:
            pass


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...


def _name(word: str, context: ast.expr_context, node: ast.AST) -> ast.Name:
    return ast.Name(id=word, ctx=context, **position_of(node))


def _wrap_in_function(tree: ast.Module, names: Iterable[str]) -> ast.Module:
    """Move the code of a script with a top-level ``return`` into an async function.

    Args:
        tree: The script.
        names: The names of the script, which stay global, so that later scripts find them.
    """
    module_level_nodes: list[ast.stmt] = []
    body: list[ast.stmt] = []
    for node in tree.body:
        if _is_module_level_only(node):
            module_level_nodes.append(node)
        else:
            body.append(_FunctionBodyRewriter().visit(node))
    body.insert(0, ast.Global(names=sorted(names)))
    function = ast.AsyncFunctionDef(
        name=MAIN,
        args=ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[]),
        body=body,
        decorator_list=[],
    )
    if "type_params" in ast.AsyncFunctionDef._fields:  # required since Python 3.12
        function.type_params = []  # pyright: ignore[reportAttributeAccessIssue]
    module = ast.Module(body=[*module_level_nodes, function], type_ignores=[])
    return ast.fix_missing_locations(module)


def _is_module_level_only(node: ast.stmt) -> bool:
    """Return True for a ``__future__`` or star import, which functions must not contain."""
    return isinstance(node, ast.ImportFrom) and (
        node.module == "__future__" or node.names[0].name == "*"
    )


class _FunctionBodyRewriter(ast.NodeTransformer):
    """Rewrites a script's statements as the body of a function that declares all names ``global``.

    ``global`` statements become ``pass``, and annotations of variables are removed, because both
    would clash with the function's own ``global`` statement. Nested functions and classes are not
    changed.
    """

    def visit_Global(self, node: ast.Global) -> ast.AST:
        # The function itself begins with one ``global`` statement for all names.
        return ast.copy_location(ast.Pass(), node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        assign = ast.Assign(targets=[node.target], value=node.value)
        return ast.copy_location(assign, node)

    def _keep(self, node: ast.stmt) -> ast.AST:
        """Return a nested function or class unchanged, because its names are not global names."""
        return node

    visit_ClassDef = visit_FunctionDef = visit_AsyncFunctionDef = _keep  # noqa: N815 - names of ast
