"""The names that scripts bind, and what a name in a script stands for."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Sequence

from delf.bindings import name_bound_by
from delf_engine.origins.blocks import Blocks
from delf_engine.origins.library import (
    CONTEXTS_OF_DECIMAL,
    HARMLESS_BUILTINS,
    HARMLESS_MODULES,
    ITERATOR_FUNCTIONS,
    KNOWN_FUNCTIONS,
    READING_METHODS,
    REFLECTION_MODULES,
    REFLECTION_NAMES,
)
from delf_engine.origins.sources import UNKNOWN, Sources
from delf_engine.origins.syntax import (
    Function,
    dotted,
    imported_modules,
    last_name,
    parameter_names,
    root_of,
)
from delf_engine.origins.variables import Variables

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Names:
    """The names in a task's scripts: variables, functions, modules, actions and builtins.

    Args:
        parameters_of: Returns the parameter names of an action; None if there is no such action.
        variables: The variables, to which :meth:`declare` adds those of each script.
        blocks: The blocks, which hold the conditions of functions.
    """

    def __init__(
        self,
        parameters_of: Callable[[str], Sequence[str] | None],
        variables: Variables,
        blocks: Blocks,
    ) -> None:
        self._parameters_of = parameters_of
        self._variables = variables
        self._blocks = blocks
        # The functions and lambdas of the scripts; several functions may have the same name.
        self._functions: dict[str, list[Function]] = defaultdict(list)
        # The functions that return an iterator or defaultdict.
        self._iterator_functions = {*ITERATOR_FUNCTIONS}
        # The names under which the scripts import ``itertools``, or functions of it.
        self._itertools: set[str] = set()
        # The names without a binding that the scripts read, except in calls of actions.
        self._unbound_reads: set[str] = set()
        # True if a script uses a module or attribute that can change any variable or computation,
        # such as ``sys``, ``__globals__`` or ``decimal.getcontext``.
        self._has_hidden_effects = False

    def declare(self, tree: ast.Module) -> None:
        """Record the names that a script binds.

        Variables and parameters start without sources, because the analysis sees each value that
        they get. Names of caught exceptions and of patterns have unknown sources.
        """
        for node in ast.walk(tree):
            match node:
                case ast.Name() | ast.arg():
                    name = name_bound_by(node)
                    if name is not None:  # None if a script only reads the name
                        self._variables.declare(name)
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    self._declare_definition(node)
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda() as function):
                    self._functions[name].append(function)
                case ast.Import() | ast.ImportFrom():
                    self._declare_import(node, is_top_level=node in tree.body)
                case ast.Attribute(attr=name) | ast.alias(name=name) if name in CONTEXTS_OF_DECIMAL:
                    # ``decimal.getcontext().prec = 2`` changes all numbers that are computed later.
                    self._has_hidden_effects = True
                case ast.alias():
                    pass  # _declare_import() has declared the imported name
                case _:
                    # Any other syntax, such as ``except E as error``, gives a name a value that the
                    # analysis does not see.
                    name = name_bound_by(node)
                    if name is not None:
                        self._variables.share_any_object([name])

    def _declare_definition(self, node: _Definition) -> None:
        """Record a function by its name; record a class or decorated function as unknown."""
        if not isinstance(node, ast.ClassDef) and not node.decorator_list:
            self._functions[node.name].append(node)
            return
        self._variables.share_any_object([node.name])
        for each in ast.walk(node):
            if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)):
                # The analysis does not see the calls of a method or decorated function.
                self.record_passed_function(each)

    def _declare_import(self, node: ast.Import | ast.ImportFrom, *, is_top_level: bool) -> None:
        """Record the imported names as harmless modules, or else as unknown variables."""
        names = [name for alias in node.names if (name := name_bound_by(alias))]
        modules = imported_modules(node)
        if not REFLECTION_MODULES.isdisjoint(modules):
            self._has_hidden_effects = True
        if "itertools" in modules:
            self._itertools.update(names)
        for each in node.names:
            # The script may rename the function: ``from collections import defaultdict as table``.
            if each.asname and each.name in self._iterator_functions:
                self._iterator_functions.add(each.asname)
        # Inside an ``if``, another branch may bind the same name to something else.
        if is_top_level and _is_harmless_import(node):
            self._variables.declare_modules(names)
        else:
            self._variables.share_any_object(names)

    def record_passed_function(self, function: Function) -> None:
        """Record that a function may be called at any time, as ``f`` after ``call_later(f)``."""
        # The caller may pass objects of any variables.
        self._variables.share_any_object(parameter_names(function))
        self._blocks.record_call_by_unknown(function)

    def record_attribute(self, name: str) -> None:
        """Record that a script reads an attribute of some object."""
        # ``function.__globals__`` returns all variables, as ``globals()`` does.
        if name.startswith("__"):
            self._has_hidden_effects = True

    def read(self, name: str) -> Sources:
        """Return the sources of a name's value; record a use that the analysis cannot follow."""
        functions = self._functions.get(name)
        if functions:  # the script uses the function as a value, and may pass the function on
            for function in functions:
                self.record_passed_function(function)
            return {UNKNOWN}
        if self._variables.is_variable_or_module(name):
            return self._variables.sources_of_object(name)
        if name in HARMLESS_BUILTINS:
            return frozenset()
        # The name may mean a connection, or a builtin such as ``globals``.
        self._unbound_reads.add(name)
        return {UNKNOWN}

    def may_hide_calls(self, action: str) -> bool:
        """Return whether the scripts may call an action in a way that the analysis does not see.

        The script may call the action by another name after it has read the connection as a value,
        as in ``post = mail``, or a builtin such as ``globals``.
        """
        hiding_names = {*REFLECTION_NAMES, root_of(action)}
        return self._has_hidden_effects or not hiding_names.isdisjoint(self._unbound_reads)

    def functions_called(self, call: ast.Call) -> Sequence[Function]:
        """Return the functions of the scripts that a call may call; a script may define several."""
        return self._functions.get(dotted(call.func), ())

    def parameters_of_action(self, call: ast.Call) -> Sequence[str] | None:
        """Return the parameter names of the called action; None for a call of anything else."""
        name = dotted(call.func)
        return None if self.is_bound(name) else self._parameters_of(name)

    def is_bound(self, name: str) -> bool:
        """Return whether a dotted name begins with a variable or function of the scripts.

        For example, ``sorted`` is bound after ``sorted = my_function``.
        """
        root = root_of(name)
        return root in self._variables or root in self._functions

    def name_of_builtin(self, function: ast.expr) -> str:
        """Return the dotted name of a called function; empty if the scripts bind this name."""
        name = dotted(function)
        return "" if self.is_bound(name) else name

    def is_plain_call(self, call: ast.Call, builtin: str) -> bool:
        """Return whether a call is one of ``builtin``, without ``*arguments``: ``zip(a, b)``."""
        is_builtin = dotted(call.func) == builtin and not self.is_bound(builtin)
        return is_builtin and not any(isinstance(each, ast.Starred) for each in call.args)

    def may_change_arguments(self, function: ast.expr) -> bool:
        """Return whether a call of a function or method may change its arguments or its object."""
        if isinstance(function, ast.Attribute) and function.attr in READING_METHODS:
            return False
        name = dotted(function)
        if self.is_bound(name):  # the script may have defined its own ``sorted``
            return True
        is_of_module = self._variables.is_module(root_of(name))
        return not is_of_module and name not in HARMLESS_BUILTINS

    def is_iterator_function(self, name: str) -> bool:
        """Return whether a function or method of this name returns an iterator or defaultdict."""
        return name in self._iterator_functions

    def returns_iterator(self, call: ast.Call) -> bool:
        """Return whether a call returns an iterator or defaultdict."""
        is_of_itertools = root_of(dotted(call.func)) in self._itertools
        return is_of_itertools or self.is_iterator_function(last_name(call.func))


def _is_harmless_import(node: ast.Import | ast.ImportFrom) -> bool:
    """Return whether an import binds only names of harmless modules, and hides no builtin."""
    # ``from json import loads as list`` hides the function list().
    hides_known_function = any(each.asname in KNOWN_FUNCTIONS for each in node.names)
    return not hides_known_function and imported_modules(node) <= HARMLESS_MODULES
