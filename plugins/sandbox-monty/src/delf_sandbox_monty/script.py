"""Prepares scripts for Monty: optional ``await``, and lowered syntax."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

from delf.protocols.sandbox import Failed, ToolNames
from delf_sandbox.guest.names import InitialNames
from delf_sandbox.guest.nodes import position_of
from delf_sandbox.guest.script import VALUE, call_main_function, keep_last_value
from delf_sandbox_monty.aliases import ALIASES
from delf_sandbox_monty.lowering import (
    LATER,
    SUBSET,
    Lowering,
    MontyRewriting,
    build_assignment,
    mark_called_attributes,
)
from delf_sandbox_monty.reraising import keep_lines_of_reraised

_STATEMENTS = (ast.stmt, ast.ExceptHandler)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A script that was rewritten for Monty.

    Args:
        code: The text that Monty runs.
        lines: For each line of ``code``, the number of the line in the model's text; empty if both
            texts are the same.
        reassigned_tools: The tool names that the script binds to something else.
        functions: The names of the async functions that the script defines.
        names: All names that the script defines for later scripts.
    """

    code: str
    lines: Sequence[int] = ()
    reassigned_tools: Sequence[str] = ()
    functions: frozenset[str] = frozenset()
    names: frozenset[str] = field(default_factory=frozenset[str])

    @property
    def may_leave_calls_unawaited(self) -> bool:
        """True if the script may end before it has awaited all of its tool calls."""
        # The rewriting calls LATER, a function of the prelude, for each tool call that the script
        # awaits later. The two other functions start tasks. If one of these words is only in a text
        # or comment of the script, the answer is a harmless True: the session then looks for
        # unawaited calls, and finds none.
        return LATER in self.code or "create_task" in self.code or "ensure_future" in self.code


def prepare(source: str, initial_names: InitialNames) -> Prepared | Failed:
    """Rewrite a script for Monty. Return the reason as an outcome if the script cannot run.

    Args:
        source: The text of the model's script.
        initial_names: The names that are defined when the script starts.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _rewrite(source, initial_names)
    except SyntaxError as error:  # AmbiguousError is a subclass
        return _failed(type(error).__name__, error, source)
    except (ValueError, RecursionError, MemoryError) as error:
        return Failed(kind="SyntaxError", message=f"the script cannot be read: {error}")


def _failed(kind: str, error: SyntaxError, source: str) -> Failed:
    message = f"{error.msg} (line {error.lineno})"
    return Failed(
        kind=kind, message=message, line=error.lineno, source=line_of(source, error.lineno)
    )


def _rewrite(source: str, initial_names: InitialNames) -> Prepared:
    """Rewrite a script for Monty; a script that needs no changes keeps its text."""
    tree = ast.parse(source)
    original_dump = ast.dump(tree)
    call_main_function(tree)
    # Add each missing ``await`` first; then replace syntax and modules missing in Monty.
    rewriting = MontyRewriting(tree, initial_names)
    reassigned_tools = rewriting.rebound_names
    # Lowering replaces ``row.price`` by ``row["price"]``, but not a method such as ``row.keys()``.
    mark_called_attributes(tree)
    Lowering(set(initial_names.tools).difference(reassigned_tools)).lower(tree)
    _export_main_variables(tree, rewriting)
    _end_with_value(tree)
    keep_lines_of_reraised(tree)
    if ast.dump(tree) == original_dump:
        code = source
        lines = ()
    else:
        code = _unparsed(tree)
        lines = _map_lines(tree, ast.parse(code))
    return Prepared(code, lines, reassigned_tools, rewriting.async_functions, rewriting.bound_names)


def line_of(source: str, number: int | None) -> str | None:
    """Return the text of a line; None if the line does not exist.

    Args:
        source: The text of the script.
        number: The number of the line, from 1.
    """
    lines = source.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if number is None or not 0 < number <= len(lines):
        return None
    text = lines[number - 1].strip()
    return text[:400] or None


def _end_with_value(tree: ast.Module) -> None:
    """Append an expression with the last value to a script that ends in an assignment or a block.

    For a block, such as an ``if``, the last value is that of the last assignment or expression in
    the branch that runs; None if there is no such value.
    """
    if not tree.body or isinstance(tree.body[-1], (ast.Expr, ast.Return)):
        return
    original_last = tree.body[-1]
    # Adds ``VALUE = total`` after a last ``total = 3``, or to each branch of a last ``if``.
    keep_last_value(tree.body)
    nodes_at_end = ast.walk(tree.body[-1])
    has_value = any(isinstance(node, ast.Name) and node.id == VALUE for node in nodes_at_end)
    if not has_value:  # for example after a last ``def``
        return
    # Begin with ``VALUE = None``, because an ``if`` without ``else`` may store no value.
    none = ast.Constant(value=None, **position_of(tree.body[0]))
    tree.body.insert(0, build_assignment(tree.body[0], VALUE, none))
    value = ast.Name(id=VALUE, ctx=ast.Load(), **position_of(original_last))
    tree.body.append(ast.Expr(value=value, **position_of(original_last)))


def _export_main_variables(tree: ast.Module, rewriting: MontyRewriting) -> None:
    """Make the variables of ``main()`` global, because models use them in their next script."""
    for main in tree.body:
        if not isinstance(main, (ast.FunctionDef, ast.AsyncFunctionDef)) or main.name != "main":
            continue
        has_scope_declaration = any(
            isinstance(node, (ast.Nonlocal, ast.Global)) for node in ast.walk(main)
        )
        has_parameters = any(isinstance(node, ast.arg) for node in ast.walk(main.args))
        names = sorted(rewriting.names_bound_in_function(main))
        if names and not has_scope_declaration and not has_parameters:
            main.body.insert(0, ast.Global(names=names, **position_of(main.body[0])))


def _unparsed(tree: ast.Module) -> str:
    try:
        return ast.unparse(tree)
    except ValueError:  # an f-string that needs quotes this Python does not allow
        return ast.unparse(_FormatCalls().visit(tree))


class _FormatCalls(ast.NodeTransformer):
    """Converts f-strings to calls of ``format``."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        """Replace an f-string by a call of ``str.format`` with the same values."""
        self.generic_visit(node)
        template, values = _format_template(node)
        text = ast.Constant(value=template, **position_of(node))
        function = ast.Attribute(value=text, attr="format", ctx=ast.Load(), **position_of(node))
        return ast.Call(func=function, args=values, keywords=[], **position_of(node))


def _format_template(node: ast.JoinedStr) -> tuple[str, list[ast.expr]]:
    """Convert an f-string to a template for ``str.format``, and return its values, too.

    For ``f"{total:.2f} EUR"``, return ``"{:.2f} EUR"`` and the expression ``total``.
    """
    parts: list[str] = []
    values: list[ast.expr] = []
    for part in node.values:
        match part:
            case ast.Constant(value=str(text)):
                parts.append(text.replace("{", "{{").replace("}", "}}"))
            case ast.FormattedValue(value=value, conversion=conversion, format_spec=spec):
                values.append(value)
                mark = f"!{chr(conversion)}" if conversion >= 0 else ""
                spec_template = ""
                if isinstance(spec, ast.JoinedStr):
                    inner_template, inner_values = _format_template(spec)
                    spec_template = f":{inner_template}"
                    values += inner_values
                parts.append(f"{{{mark}{spec_template}}}")
            case _:
                pass
    return "".join(parts), values


def _map_lines(tree: ast.Module, reparsed: ast.Module) -> list[int]:
    """Return, for each line of a rewritten script from 1, the number of the original line.

    Args:
        tree: The rewritten tree, whose nodes have the line numbers of the original script.
        reparsed: The same script, unparsed to text and parsed again, so that its nodes have the
            line numbers of the rewritten text.
    """
    original_line_by_line = dict(_lines_of_statements(tree, reparsed))
    lines: list[int] = []
    original_line = 1
    for number in range(1, max(original_line_by_line, default=0) + 1):
        # A line at which no statement begins, such as ``else:``, belongs to the statement before.
        original_line = original_line_by_line.get(number, original_line)
        lines.append(original_line)
    return lines


def _lines_of_statements(node: ast.AST, reparsed_node: ast.AST) -> Iterator[tuple[int, int]]:
    """Yield the line of each statement in the rewritten text, with its line in the original.

    Args:
        node: A node of the rewritten tree, with the line number in the original.
        reparsed_node: The same node after unparsing and parsing again, with the line number in the
            rewritten text.
    """
    # Both trees have the same statements. Their expressions may differ, but contain no statements.
    pairs = zip(ast.iter_child_nodes(node), ast.iter_child_nodes(reparsed_node), strict=False)
    for child, reparsed_child in pairs:
        if type(child) is not type(reparsed_child) or isinstance(child, ast.expr):
            continue
        if isinstance(child, _STATEMENTS) and isinstance(reparsed_child, _STATEMENTS):
            yield reparsed_child.lineno, child.lineno
        yield from _lines_of_statements(child, reparsed_child)


@cache
def prelude() -> str:
    """Return the code that Monty runs before the first script of a session.

    Two placeholders in the code are filled: ``{ALIASES}`` with a table from the names of Monty's
    exceptions to those of delf's exceptions, and ``{SUBSET}`` with the beginning of messages about
    unsupported Python.
    """
    text = resources.files("delf_sandbox_monty").joinpath("prelude.txt").read_text("utf-8")
    delf_name_by_alias = {alias: name for name, alias in ALIASES.items()}
    return text.replace("{ALIASES}", repr(delf_name_by_alias)).replace("{SUBSET}", SUBSET)


class ScriptNames:
    """The names that the scripts of a session have defined so far."""

    def __init__(self) -> None:
        self.all: set[str] = set()
        self.async_functions: set[str] = set()

    def add(self, script: Prepared) -> None:
        """Add the names that a script defines."""
        self.all |= script.names
        self.async_functions |= script.functions


def initial_names_of(
    tools: Sequence[ToolNames], modules: frozenset[str], script_names: ScriptNames
) -> InitialNames:
    """Return the names that are defined when a session's scripts start.

    Args:
        tools: The tools of the session.
        modules: The names of the importable modules.
        script_names: The names that earlier scripts have defined. The result also knows names that
            are added to this object later.
    """
    return InitialNames(
        tools={tool.name: tool.methods for tool in tools},
        write_actions=_write_actions(tools),
        can_import=lambda module: module.partition(".")[0] in modules,
        is_bound=script_names.all.__contains__,
        is_async=script_names.async_functions.__contains__,
    )


def _write_actions(tools: Sequence[ToolNames]) -> set[str]:
    """Return the names of calls that change data, such as ``mail.send``."""
    write_actions: set[str] = set()
    for tool in tools:
        for method in tool.changing:
            # A plain tool has no methods; an empty method name stands for the tool itself.
            write_actions.add(f"{tool.name}.{method}" if method else tool.name)
    return write_actions
