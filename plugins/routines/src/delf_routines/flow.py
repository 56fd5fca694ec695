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
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from delf.bindings import name_bound_by
from delf.events import ASK

# Regex lookahead that refuses options (``-x``), comments (``--``), and the paths ``.`` and ``..``.
_SAFE_PREFIX: Final = r"(?!-|\.?$|.*(?:\.\.|--))"
VALUE_WITHOUT_QUOTES: Final = rf"{_SAFE_PREFIX}[\w .@-]+"
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
# Functions that only print their argument, or whose result does not contain its text.
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


def value_patterns(
    script: str, defaults: Mapping[str, str], actions: Collection[str]
) -> Mapping[str, str | None]:
    """Return a regex for the values of each parameter; None if any value is safe.

    - Any value is safe if the script inserts no value into another text: ``send(to=name)``.
    - Only values without quotes are safe between quotes, as in ``f"name = '{name}'"``.
    - Only values of the same form as the default are safe anywhere else: ``f"id = {number}"``.

    Args:
        script: The Python source.
        defaults: The values of the parameters in the original task, by name.
        actions: The full names of the callable actions.
    """
    patterns: dict[str, str | None] = {}
    try:
        tree = ast.parse(script)
        all_actions = {*actions, *_BUILT_IN_ACTIONS}
        # Analyse the script twice: once for values of any kind, and once for values of which is
        # assumed that they contain no quotes.
        uses_of_any_value = _VariableUses(tree, all_actions, without_quotes=False)
        uses_of_unquoted_value = _VariableUses(tree, all_actions, without_quotes=True)
        for name, default in defaults.items():
            if uses_of_any_value.has_only_harmless_uses(name, is_parameter=True):
                patterns[name] = None
            elif uses_of_unquoted_value.has_only_harmless_uses(name, is_parameter=True):
                patterns[name] = VALUE_WITHOUT_QUOTES
            else:
                patterns[name] = _pattern_like(default)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # Without an analysis, all parameters get the strictest regex.
        return {name: _pattern_like(default) for name, default in defaults.items()}
    return patterns


def _pattern_like(default: str) -> str:
    """Return the regex for values of the same form as a default.

    If the default is a number, values are numbers. Otherwise, values have at most as many words as
    the default, and begin with no dash, because a command would take such a value for an option.
    """
    if re.fullmatch(_NUMBER, default):
        return _NUMBER
    further_words = len(default.split()) - 1
    pattern = f"{_SAFE_PREFIX}{_WORD}"
    if further_words > 0:
        return f"{pattern}(?: {_WORD}){{0,{further_words}}}"
    return pattern


def _in_quotes(value: ast.FormattedValue, f_string: ast.JoinedStr) -> bool:
    """Return True if an f-string has quotes around a value: ``'{name}'`` or ``{name!r}``."""
    if value.format_spec is not None:  # a format may cut off a quote, as in {name!r:.3}
        return False
    pieces = f_string.values
    if _open_quote(_text_without_values(pieces)):  # an unpaired quote, such as that of "it's"
        return False
    pieces_before_value = pieces[: pieces.index(value)]
    open_quote = _open_quote(_text_without_values(pieces_before_value))
    if value.conversion == ord("r"):  # brings its own quotes, but '{name!r}' becomes ''Ann''
        return open_quote != "'"
    return open_quote != ""


def _text_without_values(pieces: Iterable[ast.expr]) -> str:
    """Return the text of an f-string's pieces without the inserted values."""
    return "".join(str(piece.value) for piece in pieces if isinstance(piece, ast.Constant))


def _open_quote(text: str) -> str:
    """Return the quote that a text leaves open: ``'`` for ``name = 'Ann``; else an empty text."""
    open_quote = ""
    for character in text:
        if character == open_quote:
            open_quote = ""
        elif character in _QUOTES and not open_quote:
            open_quote = character
    return open_quote


class _VariableUses:
    """Finds the variables of a script whose values are never inserted into a longer text.

    A value is inserted by an f-string or ``+``, for example.

    Args:
        tree: The parsed script.
        actions: The full names of the callable actions.
        without_quotes: Whether the values of the parameters contain no quotes. Such a value may
            become a part of an f-string that has quotes around the value, as in
            ``f"name = '{value}'"``.
    """

    def __init__(self, tree: ast.Module, actions: Collection[str], *, without_quotes: bool) -> None:
        self._actions = actions
        self._are_values_without_quotes = without_quotes  # an assumption
        self._parents: dict[int, Any] = {}  # from the id() of a node to the node around it
        self._loads: dict[str, list[ast.Name]] = {}  # where the script reads a variable, by name
        self._assignment_counts: Counter[str] = Counter()
        words: set[str] = set()  # all names of variables, attributes and imports
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
        # With ``locals()``, for example, a script can read a variable without its name.
        self._has_indirect_access = not _INDIRECT_NAMES.isdisjoint(words)
        # The variables whose uses are being checked, to end cycles such as ``a = b; b = a``.
        self._names_in_progress: set[str] = set()

    def has_only_harmless_uses(self, name: str, *, is_parameter: bool = False) -> bool:
        """Return True if all uses of a variable are harmless.

        A use is harmless if it neither inserts the value into another text nor extracts a part of
        the value. Inserting the value into a text that is only printed is harmless, too.

        Args:
            name: The name of the variable.
            is_parameter: Whether the variable is a parameter, which has a value before the script
                runs. If the script assigns to a parameter, the result is False.
        """
        # A variable with several assignments may get its value from any of them.
        allowed_assignments = 0 if is_parameter else 1
        if self._has_indirect_access or self._assignment_counts[name] > allowed_assignments:
            return False
        if name in self._names_in_progress:
            # In a cycle such as ``a = b; b = a``, an outer call is checking all uses of the name.
            return True
        self._names_in_progress.add(name)
        try:
            return all(map(self._is_harmless_use, self._loads.get(name, ())))
        finally:
            self._names_in_progress.discard(name)

    def _is_harmless_use(self, node: Any) -> bool:
        """Return True if the use of an expression's value is harmless, whatever the value is.

        A use is harmless if it neither inserts the value into another text nor takes a part of it:
        the value is compared, tested, passed as an argument of an action, or only printed.
        """
        parent = self._parents.get(id(node))
        match parent:
            case ast.Compare() | ast.Expr() | ast.Assert() | ast.If() | ast.While():
                return True
            case ast.UnaryOp(op=ast.Not()):
                return True
            case ast.comprehension() if node in parent.ifs:
                return True
            case ast.Subscript():  # harmless is prices[value], but not value[0]
                return parent.slice is node
            case ast.IfExp():
                return parent.test is node or self._is_harmless_use(parent)
            case ast.BoolOp() | ast.Await() | ast.List() | ast.Tuple() | ast.Set():
                return self._is_harmless_use(parent)
            case ast.Dict():
                return node in parent.values and self._is_harmless_use(parent)
            case ast.keyword():  # send(to=value), but not send(**value)
                owner = self._parents[id(parent)]
                is_named_argument = parent.arg is not None and isinstance(owner, ast.Call)
                return is_named_argument and self._is_harmless_argument(owner, node)
            case ast.Call():  # send(value), but not value()
                return parent.func is not node and self._is_harmless_argument(parent, node)
            case ast.Attribute():  # such as value.strip()
                return self._is_harmless_method(parent)
            case ast.FormattedValue():  # f"{value}", but not f"{price:{value}}"
                return parent.value is node and self._is_harmless_field(parent)
            case _:
                return self._is_harmless_assignment(parent, node)

    def _is_harmless_assignment(self, statement: Any, right_side: Any) -> bool:
        """Return True if a statement assigns a value to a variable that has only harmless uses.

        The variable must get the value itself, as in ``other = name``, ``other = str(name)`` and
        ``for other in [name]``. ``other = [name]`` assigns a list with the value, and ``for other
        in name`` assigns parts of the value.
        """
        match statement:
            case ast.Assign(targets=[ast.Name(id=word)]) | ast.AnnAssign(target=ast.Name(id=word)):
                gets_value_itself = isinstance(right_side, (ast.Name, ast.Call))
            case ast.For(target=ast.Name(id=word)) | ast.comprehension(target=ast.Name(id=word)):
                gets_value_itself = isinstance(right_side, (ast.List, ast.Tuple, ast.Set))
            case _:
                return False
        return gets_value_itself and self._is_harmless_variable(word, statement)

    def _is_harmless_field(self, field: ast.FormattedValue) -> bool:
        """Return True if an f-string inserts a value harmlessly: in quotes, or only to print it.

        Anywhere else, the value could change the meaning of the text, such as a query or a command.
        """
        f_string = self._parents[id(field)]
        is_f_string = isinstance(f_string, ast.JoinedStr)
        # In f"name = '{value}'", only a value with a quote could end the text in quotes.
        if self._are_values_without_quotes and is_f_string and _in_quotes(field, f_string):
            return True
        return self._is_only_printed(f_string)

    def _is_harmless_variable(self, name: str, assignment: Any) -> bool:
        """Return True if all uses of an assigned variable are harmless.

        Return False for an assignment in a class: it makes an attribute, whose uses are unknown.
        """
        return not self._in_class(assignment) and self.has_only_harmless_uses(name)

    def _in_class(self, node: Any) -> bool:
        """Return True if a node is inside a class."""
        while (node := self._parents.get(id(node))) is not None:
            if isinstance(node, ast.ClassDef):
                return True
        return False

    def _is_harmless_argument(self, call: Any, node: Any) -> bool:
        """Return True if a call neither inserts its argument into another text nor splits it.

        Harmless are ``gmail.send(name)``, ``print(name)`` and ``text.startswith(name)``. The calls
        ``text.format(name)`` and ``list(name)`` are not harmless: the first inserts the name into a
        text, such as a query, whose meaning the name could change, and the second splits the name.

        Args:
            call: The call.
            node: The argument.
        """
        function = call.func
        if isinstance(node, ast.Starred):
            return False
        full_name = ast.unparse(function)
        if full_name in self._actions:
            # The argument of an action is harmless. But if the script assigns something else to the
            # name of the connection, such as ``gmail``, then the call may not be one of an action.
            connection = full_name.partition(".")[0]
            is_reassigned = self._assignment_counts[connection] > 0
            return not is_reassigned
        match function:
            case ast.Name(id=word) if self._assignment_counts[word]:
                return False  # a script's own function, which may have the name of a built-in one
            case ast.Name(id="str"):  # str(name) is the name itself: check how the text is used
                return self._is_harmless_use(call)
            case ast.Name(id=word):
                keywords = {item.arg for item in call.keywords}
                # ``**options``, whose keyword is None here, may have a ``file`` too.
                may_print_to_file = "file" in keywords or None in keywords
                return word in _DISPLAY_FUNCTIONS and not may_print_to_file
            case ast.Attribute(attr=method):
                if method not in _SEARCH_METHODS:
                    return False
                # The first argument is only searched for, as in text.count(name). A second one may
                # be the result, as in d.get(key, name), so check how the result is used.
                return node in call.args[:1] or self._is_harmless_use(call)
            case _:
                return False

    def _is_harmless_method(self, attribute: Any) -> bool:
        """Return True if an attribute is called as a method, and the result is used harmlessly.

        The method must be one that returns the whole text, such as ``strip`` or ``lower``. A use is
        harmless if it neither inserts the result into another text nor takes a part of it.
        """
        call = self._parents.get(id(attribute))
        if not isinstance(call, ast.Call) or call.func is not attribute:
            return False
        if attribute.attr not in _UNCHANGING_METHODS or call.args or call.keywords:
            return False
        return self._is_harmless_use(call)

    def _is_only_printed(self, f_string: Any) -> bool:
        """Return True if an f-string is only printed, and not to a file."""
        parent = self._parents.get(id(f_string))
        match parent:
            case ast.Expr():  # a statement of its own, whose value is shown at most
                return True
            case ast.Call(func=ast.Name(id="print")):
                return f_string in parent.args and self._is_harmless_argument(parent, f_string)
            case _:
                return False


def _assigned_names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a syntax node assigns, deletes or declares."""
    bound_name = name_bound_by(node)
    if bound_name is not None:
        yield bound_name
    match node:
        case ast.Name(id=name, ctx=ast.Del()):
            yield name
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            yield from names
        case _:
            pass
