"""Determines which texts a script's parameter may hold, from how the script uses it.

A text inserted into another one, such as a statement, a command or a path, can change its meaning:
``x' or name = 'Bob``. A text that is used whole, as an action's argument or within a list or dict
there, may be anything. A text inside quotes of an f-string may be words that cannot end the quotes.
Any other use, or one that is not understood, counts as unquoted, like ``5`` in ``where id = 5``:
the value must have the form of the original, a number or as many words, which excludes ``5 or 1``.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from delf.events import ASK

_NO_PATH: Final = r"(?!-|\.?$|.*(?:\.\.|--))"
"""Pattern prefix for a part of a path: no option, no comment, no ``.`` or ``..``."""
QUOTED: Final = rf"{_NO_PATH}[\w .@-]+"
"""The pattern of a text within quotes of another text."""
_NUMBER: Final = r"[0-9]+(?:\.[0-9]+)?"
_WORD: Final = r"[\w.@-]+"
_QUOTES: Final = "'\""
_OWN_ACTIONS: Final = frozenset({"add_to_output_files", "files.read", "files.list", "llm", ASK})
"""Actions of every task, which no header names."""
_DISPLAY_FUNCTIONS: Final = frozenset({"print", "len", "int", "float", "bool"})
"""Functions whose result does not contain a text, or which only show it."""
_SEARCH_METHODS: Final = frozenset({"get", "startswith", "endswith", "count"})
"""Methods that search for their argument."""
_UNCHANGING_METHODS: Final = frozenset(
    {"strip", "lower", "upper", "title", "casefold", "capitalize"}
)
"""Methods that return a text unchanged as a whole, without arguments."""
_BEHIND: Final = frozenset(
    {"globals", "locals", "vars", "eval", "exec", "compile", "dir", "getattr", "__import__"}
    | {"__main__", "__builtins__", "__dict__", "f_locals", "f_globals", "sys", "inspect"}
    | {"builtins", "gc", "redirect_stdout", "StringIO"}
)
"""Names through which a script may access variables or output indirectly."""


def bounds(
    script: str, defaults: Mapping[str, str], actions: Collection[str]
) -> Mapping[str, str | None]:
    """Return the pattern for each parameter; None for parameters used with their full value.

    Args:
        script: The script, valid Python.
        defaults: The parameters, with their values in the original task.
        actions: The callable actions, by ``connection.method``.
    """
    if not defaults:
        return {}
    patterns: dict[str, str | None] = {
        name: _unquoted_pattern(text) for name, text in defaults.items()
    }
    try:
        tree = ast.parse(script)
        for pattern, quotes in ((QUOTED, True), (None, False)):
            flow = _Flow(tree, {*actions, *_OWN_ACTIONS}, quotes=quotes)
            whole_names = [name for name in defaults if flow.is_whole(name, is_given=True)]
            patterns |= dict.fromkeys(whole_names, pattern)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
    return patterns


def _unquoted_pattern(default: str) -> str:
    """Return the pattern for a text inserted without quotes."""
    if re.fullmatch(_NUMBER, default):
        return _NUMBER
    more = len(default.split()) - 1
    return f"{_NO_PATH}{_WORD}" + (f"(?: {_WORD}){{0,{more}}}" if more > 0 else "")


def _in_quotes(value: Any, text: Any) -> bool:
    """Return whether a value of an f-string is enclosed in quotes within the f-string."""
    if value.format_spec is not None:
        return False
    opened, is_quoted = "", value.conversion == ord("r")
    for piece in text.values:
        if piece is value:
            is_quoted = is_quoted or bool(opened)
        elif isinstance(piece, ast.Constant):
            for letter in str(piece.value):
                if letter == opened:
                    opened = ""
                elif letter in _QUOTES and not opened:
                    opened = letter
    return is_quoted and not opened


class _Flow:
    """The uses of a script's variables.

    Args:
        tree: The script.
        actions: The callable actions.
        quotes: Whether a text inserted between quotes of another text counts as used whole.
    """

    def __init__(self, tree: ast.Module, actions: Collection[str], *, quotes: bool) -> None:
        self._actions = actions
        self._quotes = quotes
        self._parents: dict[int, Any] = {}
        self._loads: dict[str, list[ast.Name]] = {}
        self._bound: Counter[str] = Counter()
        words: set[str] = set()
        for node in ast.walk(tree):
            for child in ast.iter_child_nodes(node):
                self._parents[id(child)] = node
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                self._loads.setdefault(node.id, []).append(node)
            self._bound.update(_bound_by(node))
            match node:
                case ast.Name(id=word) | ast.Attribute(attr=word) | ast.alias(name=word):
                    words.update(word.split("."))
                case _:
                    pass
        self._is_open = not _BEHIND.isdisjoint(words)
        self._trail: set[str] = set()

    def is_whole(self, name: str, *, is_given: bool = False) -> bool:
        """Return whether a variable is used whole everywhere.

        Args:
            name: The variable.
            is_given: Whether the variable is a parameter, which the script never assigns.
        """
        if self._is_open or self._bound[name] > (0 if is_given else 1):
            return False
        if name in self._trail:
            return True
        self._trail.add(name)
        try:
            return all(map(self._ends_whole, self._loads.get(name, ())))
        finally:
            self._trail.discard(name)

    def _ends_whole(self, node: Any) -> bool:
        """Return whether the value of an expression is used whole."""
        parent = self._parents.get(id(node))
        match parent:
            case ast.Compare() | ast.Expr() | ast.Assert() | ast.If() | ast.While():
                return True
            case ast.UnaryOp(op=ast.Not()):
                return True
            case ast.Subscript():
                return parent.slice is node  # a key
            case ast.IfExp():
                return parent.test is node or self._ends_whole(parent)
            case ast.BoolOp() | ast.Await() | ast.List() | ast.Tuple() | ast.Set():
                return self._ends_whole(parent)
            case ast.Dict():
                return node in parent.values and self._ends_whole(parent)
            case ast.keyword():
                return parent.arg is not None and self._is_taken_whole(
                    self._parents[id(parent)], node
                )
            case ast.Call():
                return parent.func is not node and self._is_taken_whole(parent, node)
            case ast.Attribute():
                return self._is_same_text(parent)
            case ast.FormattedValue():
                text = self._parents[id(parent)]
                is_quoted = self._quotes and isinstance(text, ast.JoinedStr)
                is_quoted = is_quoted and _in_quotes(parent, text)
                return parent.value is node and (is_quoted or self._is_shown(text))
            case ast.Assign(targets=[ast.Name(id=word)]) | ast.AnnAssign(target=ast.Name(id=word)):
                is_text = isinstance(node, (ast.Name, ast.Call)) and not self._in_class(parent)
                return is_text and self.is_whole(word)
            case ast.For(target=ast.Name(id=word)) | ast.comprehension(target=ast.Name(id=word)):
                is_row = isinstance(node, (ast.List, ast.Tuple, ast.Set))
                return is_row and not self._in_class(parent) and self.is_whole(word)
            case ast.comprehension():
                return node in parent.ifs
            case _:
                return False

    def _in_class(self, node: Any) -> bool:
        """Return True if an assignment is inside a class, where the name may be an attribute."""
        while (node := self._parents.get(id(node))) is not None:
            if isinstance(node, ast.ClassDef):
                return True
        return False

    def _is_taken_whole(self, call: Any, node: Any) -> bool:
        """Return whether a call takes a complete argument, and returns no part of the argument."""
        function = call.func
        if isinstance(node, ast.Starred):
            return False
        label = ast.unparse(function)
        if label in self._actions:
            return not self._bound[label.partition(".")[0]]
        match function:
            case ast.Name(id="str"):
                return not self._bound["str"] and self._ends_whole(call)
            case ast.Name(id=word):
                to_file = any(item.arg in (None, "file") for item in call.keywords)
                return word in _DISPLAY_FUNCTIONS and not self._bound[word] and not to_file
            case ast.Attribute(attr=method):
                return method in _SEARCH_METHODS
            case _:
                return False

    def _is_same_text(self, attribute: Any) -> bool:
        """Return whether a method returns its text unchanged or changed as a whole."""
        call = self._parents.get(id(attribute))
        if not isinstance(call, ast.Call) or call.func is not attribute:
            return False
        if attribute.attr not in _UNCHANGING_METHODS or call.args or call.keywords:
            return False
        return self._ends_whole(call)

    def _is_shown(self, text: Any) -> bool:
        """Return whether an f-string is printed and goes nowhere else."""
        outer = self._parents.get(id(text))
        match outer:
            case ast.Expr():
                return True
            case ast.Call(func=ast.Name(id="print")):
                return text in outer.args and self._is_taken_whole(outer, text)
            case _:
                return False


def _bound_by(node: ast.AST) -> Iterator[str]:
    """Yield the names that a part of a script binds."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            yield name
        case ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Import(names=found) | ast.ImportFrom(names=found):
            yield from ((item.asname or item.name).partition(".")[0] for item in found)
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name
        case ast.MatchMapping(rest=str(name)):
            yield name
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            yield from names
        case _:
            pass
