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

# Regex lookahead that refuses options, comments, ``.`` and ``..`` in a part of a path.
_SAFE_PREFIX: Final = r"(?!-|\.?$|.*(?:\.\.|--))"
QUOTED_VALUE: Final = rf"{_SAFE_PREFIX}[\w .@-]+"
"""Regex of the parameter values that are safe between quotes in a text that a script builds.

An example of a text is the query ``f"name = '{value}'"``.
"""
_NUMBER: Final = r"[0-9]+(?:\.[0-9]+)?"
_WORD: Final = r"[\w.@-]+"
_QUOTES: Final = "'\""
# The actions that every task has, which a routine's header does not record.
_BUILT_IN_ACTIONS: Final = frozenset(
    {"add_to_output_files", "files.read", "files.list", "llm", ASK}
)
# Functions whose result does not contain the text that they get, or that only print it.
_DISPLAY_FUNCTIONS: Final = frozenset({"print", "len", "int", "float", "bool"})
# Methods that search for their argument.
_SEARCH_METHODS: Final = frozenset({"get", "startswith", "endswith", "count"})
# String methods that return the complete text, possibly in another case or without blanks.
_UNCHANGING_METHODS: Final = frozenset(
    {"strip", "lower", "upper", "title", "casefold", "capitalize"}
)
# Names with which a script could access variables or output indirectly.
_INDIRECT_NAMES: Final = frozenset(
    {"globals", "locals", "vars", "eval", "exec", "compile", "dir", "getattr", "__import__"}
    | {"__main__", "__builtins__", "__dict__", "f_locals", "f_globals", "sys", "inspect"}
    | {"builtins", "gc", "redirect_stdout", "StringIO"}
)


def bounds(
    script: str, defaults: Mapping[str, str], actions: Collection[str]
) -> Mapping[str, str | None]:
    """Return a regex for the values of each parameter.

    A parameter needs no regex, and has None, if the script uses it only as a complete value and
    never as a part of another text.

    Args:
        script: The Python source.
        defaults: The values of the parameters in the original task, by name.
        actions: The full names of the callable actions.
    """
    if not defaults:
        return {}
    patterns: dict[str, str | None] = {
        name: _unquoted_pattern(text) for name, text in defaults.items()
    }
    try:
        tree = ast.parse(script)
        # The second pass overrides the first: parameters that are complete values even if quotes
        # do not count need no regex.
        for pattern, quotes in ((QUOTED_VALUE, True), (None, False)):
            flow = _VariableUses(tree, {*actions, *_BUILT_IN_ACTIONS}, quotes=quotes)
            whole_names = [name for name in defaults if flow.is_whole(name, is_parameter=True)]
            patterns |= dict.fromkeys(whole_names, pattern)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass  # without an analysis, all parameters keep the strictest regex
    return patterns


def _unquoted_pattern(default: str) -> str:
    """Return the regex for values of a parameter that is inserted into a text without quotes."""
    if re.fullmatch(_NUMBER, default):
        return _NUMBER
    more = len(default.split()) - 1
    return f"{_SAFE_PREFIX}{_WORD}" + (f"(?: {_WORD}){{0,{more}}}" if more > 0 else "")


def _in_quotes(value: Any, text: Any) -> bool:
    """Return True if an f-string has quotes around a value that it inserts."""
    if value.format_spec is not None:
        return False
    open_quote = ""
    is_quoted = value.conversion == ord("r")  # !r adds quotes
    for piece in text.values:
        if piece is value:
            is_quoted = is_quoted or bool(open_quote)
        elif isinstance(piece, ast.Constant):
            for character in str(piece.value):
                if character == open_quote:
                    open_quote = ""
                elif character in _QUOTES and not open_quote:
                    open_quote = character
    return is_quoted and not open_quote


class _VariableUses:
    """Analyses how a script uses its variables: as complete values, or as parts of other texts.

    Args:
        tree: The parsed script.
        actions: The full names of the callable actions.
        quotes: Whether a value between quotes of another text counts as a complete value.
    """

    def __init__(self, tree: ast.Module, actions: Collection[str], *, quotes: bool) -> None:
        self._actions = actions
        self._quotes = quotes
        self._parents: dict[int, Any] = {}
        self._loads: dict[str, list[ast.Name]] = {}
        self._assignment_counts: Counter[str] = Counter()
        words: set[str] = set()
        for node in ast.walk(tree):
            for child in ast.iter_child_nodes(node):
                self._parents[id(child)] = node
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                self._loads.setdefault(node.id, []).append(node)
            self._assignment_counts.update(_assigned_names(node))
            match node:
                case ast.Name(id=word) | ast.Attribute(attr=word) | ast.alias(name=word):
                    words.update(word.split("."))
                case _:
                    pass
        self._has_indirect_access = not _INDIRECT_NAMES.isdisjoint(words)
        self._being_checked: set[str] = set()

    def is_whole(self, name: str, *, is_parameter: bool = False) -> bool:
        """Return True if no use of a variable takes a part of its value or builds a text from it.

        Args:
            name: The name of the variable.
            is_parameter: Whether the variable is a parameter, which the script never assigns.
        """
        if self._has_indirect_access or self._assignment_counts[name] > (0 if is_parameter else 1):
            return False
        if name in self._being_checked:  # a cycle of assignments adds no other use
            return True
        self._being_checked.add(name)
        try:
            return all(map(self._is_used_whole, self._loads.get(name, ())))
        finally:
            self._being_checked.discard(name)

    def _is_used_whole(self, node: Any) -> bool:
        """Return True if an expression's value is only used as a complete value."""
        parent = self._parents.get(id(node))
        match parent:
            case ast.Compare() | ast.Expr() | ast.Assert() | ast.If() | ast.While():
                return True
            case ast.UnaryOp(op=ast.Not()):
                return True
            case ast.Subscript():
                return parent.slice is node  # a key
            case ast.IfExp():
                return parent.test is node or self._is_used_whole(parent)
            case ast.BoolOp() | ast.Await() | ast.List() | ast.Tuple() | ast.Set():
                return self._is_used_whole(parent)
            case ast.Dict():
                return node in parent.values and self._is_used_whole(parent)
            case ast.keyword():
                return parent.arg is not None and self._takes_whole_argument(
                    self._parents[id(parent)], node
                )
            case ast.Call():
                return parent.func is not node and self._takes_whole_argument(parent, node)
            case ast.Attribute():
                return self._returns_whole_text(parent)
            case ast.FormattedValue():
                text = self._parents[id(parent)]
                is_f_string = isinstance(text, ast.JoinedStr)
                is_quoted = self._quotes and is_f_string and _in_quotes(parent, text)
                return parent.value is node and (is_quoted or self._is_only_printed(text))
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
        """Return True if an assignment is inside a class, where the name becomes an attribute."""
        while (node := self._parents.get(id(node))) is not None:
            if isinstance(node, ast.ClassDef):
                return True
        return False

    def _takes_whole_argument(self, call: Any, node: Any) -> bool:
        """Return True if a call neither takes a part of an argument nor builds a text from it.

        Calls of actions and of functions that only display values are such calls.

        Args:
            call: The call.
            node: The argument.
        """
        function = call.func
        if isinstance(node, ast.Starred):
            return False
        full_name = ast.unparse(function)
        if full_name in self._actions:
            connection = full_name.partition(".")[0]
            is_reassigned = self._assignment_counts[connection] > 0
            return not is_reassigned
        match function:
            case ast.Name(id="str"):
                return not self._assignment_counts["str"] and self._is_used_whole(call)
            case ast.Name(id=word):
                may_print_to_file = any(item.arg in (None, "file") for item in call.keywords)
                is_built_in = word in _DISPLAY_FUNCTIONS and not self._assignment_counts[word]
                return is_built_in and not may_print_to_file
            case ast.Attribute(attr=method):
                return method in _SEARCH_METHODS
            case _:
                return False

    def _returns_whole_text(self, attribute: Any) -> bool:
        """Return True if an attribute is a call of a method that keeps a text whole, as ``strip``.

        The result of the call must also be used as a whole (see :meth:`_is_used_whole`).
        """
        call = self._parents.get(id(attribute))
        if not isinstance(call, ast.Call) or call.func is not attribute:
            return False
        if attribute.attr not in _UNCHANGING_METHODS or call.args or call.keywords:
            return False
        return self._is_used_whole(call)

    def _is_only_printed(self, text: Any) -> bool:
        """Return True if an f-string is only printed."""
        outer = self._parents.get(id(text))
        match outer:
            case ast.Expr():
                return True
            case ast.Call(func=ast.Name(id="print")):
                return text in outer.args and self._takes_whole_argument(outer, text)
            case _:
                return False


def _assigned_names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a syntax node assigns or declares."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            yield name
        case ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in aliases)
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name
        case ast.MatchMapping(rest=str(name)):
            yield name
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            yield from names
        case _:
            pass
