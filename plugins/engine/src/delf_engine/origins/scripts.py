"""Sources of the values of a script's calls, read from the script's text.

The analysis follows values from constants and from results of calls to the arguments of calls. It
ignores the order of statements: a variable has the sources of all values that the scripts give it.
The values that decide whether or how often a statement runs are sources of all that the statement
assigns.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import field
from typing import Final, NamedTuple, TypeVar

from delf.records import dataclass
from delf_engine.origins.sources import (
    UNKNOWN,
    UNKNOWN_FIELD,
    Source,
    Sources,
    as_enclosed,
    sources_of_action_result,
    sources_of_field,
    with_enclosed_as_whole_results,
    without_results,
    without_whole_results,
)
from delf_engine.origins.syntax import arguments_of, arguments_of_action, dotted
from delf_engine.origins.values import parameter_of


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Builtins that return no untrusted data and change no argument. Some of them advance an iterator:
# see _record_reading().
_HARMLESS_BUILTINS: Final = _words(
    "abs all any bool chr dict enumerate filter float format int isinstance iter len list map max "
    "min next ord print range repr reversed round set sorted str sum tuple type zip"
)
# Modules whose functions return no untrusted data and do not modify their arguments.
_HARMLESS_MODULES: Final = _words(
    "asyncio base64 collections copy dataclasses datetime decimal enum fractions functools hashlib "
    "html itertools json math re statistics string textwrap typing urllib.parse uuid "
    "zoneinfo"
)
# Functions with which a script can change variables without an assignment.
_REFLECTION_NAMES: Final = (
    *("globals", "locals", "vars", "setattr", "exec", "eval"),
    *("__builtins__", "__import__"),
)
# Names of the module ``decimal`` with which a script can change how the module computes.
_CONTEXTS_OF_DECIMAL: Final = _words(
    "BasicContext DefaultContext ExtendedContext getcontext localcontext setcontext"
)
# Modules with which a script can change variables without an assignment, or replace a builtin.
_REFLECTION_MODULES: Final = frozenset({"__main__", "builtins", "importlib", "inspect", "sys"})
# Methods that change neither their object nor their arguments.
_READING_METHODS: Final = _words(
    "casefold count date endswith format get index isoformat items join keys lower replace split "
    "splitlines startswith strftime strip title upper values"
)
# Methods that change their list, dict or set, but not their arguments.
_CHANGING_METHODS: Final = _words(
    "add append clear discard extend insert pop popitem remove reverse setdefault sort update"
)
# Methods of queues, generators and the like that change their object, and that a script may pass on
# to a function, as in ``map(queue.appendleft, rows)``.
_PASSED_CHANGING_METHODS: Final = _words(
    "appendleft asend athrow difference_update extendleft intersection_update move_to_end put "
    "put_nowait rotate send set_exception set_result subtract symmetric_difference_update throw"
)
# The maximum number of passes over the scripts.
#
# Each pass follows values through at least one more assignment.
_MAX_PASSES: Final = 30
# Expressions that create a new object, to which no variable refers yet.
_NEW_VALUES: Final = (
    *(ast.List, ast.Dict, ast.Set, ast.Tuple, ast.ListComp, ast.SetComp, ast.DictComp),
    *(ast.BinOp, ast.Compare, ast.Constant, ast.JoinedStr),
)
# Functions that create a new object, to which no variable refers yet.
_CONSTRUCTORS: Final = _words("list dict set sorted tuple defaultdict Counter deque OrderedDict")
# Functions whose result is an argument or has the items of an argument, so that a field of the
# result is a field of a record. Any other function may put a whole record under another name.
_SELECTING_FUNCTIONS: Final = _words(
    "as_completed chain copy create_task cycle deepcopy deque ensure_future enumerate filter "
    "from_iterable gather groupby islice iter list loads map max min next pop popleft reversed "
    "run set shield sorted tuple wait_for zip"
)
# Methods whose argument becomes an item of a list or set, which has no fields of its own.
_METHODS_THAT_ADD_ITEMS: Final = _words("add append extend insert")
# Functions that the analysis knows by name, unless the script gives the name to another function.
_KNOWN_FUNCTIONS: Final = _HARMLESS_BUILTINS | _CONSTRUCTORS | _SELECTING_FUNCTIONS
# Functions that return an iterator or a defaultdict. Both change when a script reads them.
_ITERATOR_FUNCTIONS: Final = _words(
    "DefaultDict as_completed defaultdict enumerate filter finditer iter iterencode map reversed "
    "zip"
)
# Functions of ``itertools`` whose items are iterators.
_ITERATORS_OF_ITERATORS: Final = _words("groupby tee")
# Functions that read the items of an iterator and whose result is no iterator.
_CONSUMING_FUNCTIONS: Final = _words(
    "all any dict float frozenset int join len list max min next set sorted str sum tuple"
)
# Stands for all variables, where the analysis does not know which variables refer to an object.
_ANY_VARIABLE: Final = "any variable"
_Item = TypeVar("_Item")
_Sources = set[Source]
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class _Binding(NamedTuple):
    """A variable to which a loop assigns its rows, or a part of each row."""

    target: ast.expr
    sources: _Sources
    """The actions and fields from which the values come."""
    value: ast.expr
    """An expression that stands for the values."""


@dataclass()
class _Names:
    """The names in the scripts of a task."""

    functions: dict[str, list[_Function]] = field(default_factory=lambda: defaultdict(list))
    """The functions and lambdas of the scripts; several functions may have the same name."""
    modules: set[str] = field(default_factory=set[str])
    """The names under which the scripts import harmless modules, or functions of them."""
    iterator_functions: set[str] = field(default_factory=lambda: set(_ITERATOR_FUNCTIONS))
    """The functions that return an iterator or defaultdict."""
    itertools: set[str] = field(default_factory=set[str])
    """The names under which the scripts import ``itertools``, or functions of it."""
    unbound_reads: set[str] = field(default_factory=set[str])
    """The names without a binding that the scripts read, except in calls of actions."""
    has_hidden_effects: bool = False
    """True if a script uses a module or attribute that can change any variable or computation.

    For example, ``sys``, ``__globals__`` or ``decimal.getcontext``.
    """


@dataclass()
class _Objects:
    """The objects to which the variables refer.

    A change of an object counts for all variables through which the script may read the object.
    """

    contained: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """For each variable or function, the variables whose objects its value may be or contain.

    After ``a = [b]`` and after ``a = b``, this is ``b`` for ``a``.
    """
    aliased: set[str] = field(default_factory=set[str])
    """The variables that may be another name of a contained variable's object.

    After ``a = b``, this is ``a``, because ``a.append(x)`` also changes ``b``. After ``a = [b]``,
    ``a`` is no other name of ``b``.
    """
    iterators: set[str] = field(default_factory=set[str])
    """The variables and functions whose object changes when a script reads the object.

    The object is, contains or returns an iterator or defaultdict.
    """

    def with_contained(self, names: Iterable[str]) -> AbstractSet[str]:
        """Return variables together with all variables whose objects these variables may contain.

        After ``a = [b]`` and ``b = [c]``, return ``a``, ``b`` and ``c`` for ``a``.
        """
        found = {*names}
        remaining = [*found]
        while remaining:
            new = self.contained.get(remaining.pop(), set()) - found
            found |= new
            remaining += new
        return found


@dataclass()
class _Blocks:
    """The loops, branches and functions of the scripts, as nodes of the syntax tree."""

    enclosing: list[ast.AST] = field(default_factory=list[ast.AST])
    """The loops, branches and functions that enclose the visited node, outermost first."""
    condition_sources: dict[ast.AST, _Sources] = field(default_factory=lambda: defaultdict(set))
    """The sources of the values that decide whether or how often the parts of a block run."""
    sources_read: dict[ast.AST, _Sources] = field(default_factory=lambda: defaultdict(set))
    """The sources that a function reads, so that the result of a call may come from them."""
    returned_sources: dict[ast.AST, _Sources] = field(default_factory=lambda: defaultdict(set))
    """The sources of the values that a function returns or yields."""
    use_counts: dict[ast.AST, Counter[str]] = field(default_factory=dict[ast.AST, Counter[str]])
    """The number of times that each name occurs in a block."""


class Scripts:
    """Data flow analysis of a task's scripts: which action results flow into which arguments.

    A script is analysed only if its author, the model or the user who saved a routine, had read no
    untrusted data before writing the script. The scripts share their variables.

    Args:
        parameters_of: Returns the parameter names of an action; None if there is no such action.
        untrusted_variables: The names of variables that hold untrusted data before the first
            script.
    """

    def __init__(
        self,
        parameters_of: Callable[[str], Sequence[str] | None],
        untrusted_variables: Iterable[str] = (),
    ) -> None:
        self._parameters_of = parameters_of
        # All scripts so far; each pass of the analysis reads all of them.
        self._trees: list[ast.Module] = []
        # Whether the current pass has found new sources, so that another pass is needed.
        self._has_new_sources = True
        # The sources of the arguments of each call in the last script, by action and call.
        self._argument_sources: dict[str, dict[ast.Call, Mapping[str, _Sources]]] = defaultdict(
            dict
        )
        # The sources of each variable.
        self._variable_sources: dict[str, _Sources] = {
            name: {UNKNOWN} for name in untrusted_variables
        }
        # After ``unknown().append(record)``, any variable may contain the record.
        self._variable_sources[_ANY_VARIABLE] = set()
        self._names = _Names()
        self._objects = _Objects()
        self._blocks = _Blocks()
        # The number of times that each name occurs in all scripts.
        self._use_counts: Counter[str] = Counter()

    def add(self, code: str) -> None:
        """Analyse the next script of the task, to find the sources of its calls' arguments."""
        try:
            tree = ast.parse(code)
            self._trees.append(tree)
            self._declare(tree)
            self._use_counts.update(_names_in(tree))
            is_complete = self._read_until_complete()
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            is_complete = False  # the script is no valid Python, or nested too deeply
        if not is_complete:
            self._argument_sources.clear()  # sources() then returns None for all calls

    def _read_until_complete(self) -> bool:
        """Read all scripts until a pass finds no new source; return False if the passes run out."""
        for _ in range(_MAX_PASSES):
            self._has_new_sources = False
            # Earlier scripts are read again: the last script may change their variables' lists.
            for tree in self._trees:
                # Clear the arguments before each script: sources() needs only those of the last
                # script.
                self._argument_sources.clear()
                self.read(tree)
            if not self._has_new_sources:
                return True
        return False

    def sources(self, action: str, path: str, line: int | None) -> Sources | None:
        """Return the actions and fields whose values flow into an argument in the last script.

        Args:
            action: The called action.
            path: The path of a value in the arguments.
            line: The line of the call; if it is None, all calls of the action count.

        Returns:
            The sources. None if the script's text has no such call, or if the script may change
            variables in a way that its text does not show.
        """
        parameter = parameter_of(path)
        calls = self._argument_sources[action]
        if line is not None:
            calls = {call: calls[call] for call in calls if _is_on_line(call, line)}
        if not calls or self._may_hide_calls(action):
            return None
        passed: list[Sources] = []
        for sources_by_parameter in calls.values():
            unpacked = sources_by_parameter.get("*")  # ``**record`` may contain any argument
            sources = sources_by_parameter.get(parameter, unpacked)
            if sources is not None:
                passed.append(sources)
        if not passed:  # no call has the argument
            return frozenset({UNKNOWN})
        # sources_of_expression(), whose result is compared with this one, does the same.
        return with_enclosed_as_whole_results(_Sources().union(*passed))

    def _may_hide_calls(self, action: str) -> bool:
        """Return whether the scripts may call an action in a way that the analysis does not see.

        A script may call the action by another name if the script reads the connection's name as a
        value, or a builtin such as ``globals``.
        """
        connection_name = action.partition(".")[0]
        names = {*_REFLECTION_NAMES, connection_name}
        return self._names.has_hidden_effects or not names.isdisjoint(self._names.unbound_reads)

    def sources_of_expression(self, node: ast.expr) -> Sources:
        """Return the actions and fields whose values flow into the value of an expression.

        A result inside the value, as in ``{"id": find()}``, counts like the result itself.
        """
        # The expression may bind names, as ``sum(row.price for row in find())`` binds ``row``.
        self._declare(ast.Module(body=[ast.Expr(node)], type_ignores=[]))
        return with_enclosed_as_whole_results(self.read(node))

    def _declare(self, tree: ast.Module) -> None:
        """Record the names that a script binds.

        Variables and parameters start without sources; :meth:`read` adds these. Names of caught
        exceptions and of patterns have unknown sources.
        """
        for node in ast.walk(tree):
            match node:
                case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                    self._variable_sources.setdefault(name, set())
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    self._declare_definition(node)
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda() as function):
                    self._names.functions[name].append(function)
                case ast.Import() | ast.ImportFrom():
                    self._declare_import(node, is_top_level=node in tree.body)
                case ast.Attribute(attr=name) | ast.alias(name=name) if (
                    name in _CONTEXTS_OF_DECIMAL
                ):
                    # ``decimal.getcontext().prec = 2`` changes all numbers that are computed later.
                    self._names.has_hidden_effects = True
                case (
                    ast.ExceptHandler(name=str(name))
                    | ast.MatchAs(name=str(name))
                    | ast.MatchStar(name=str(name))
                    | ast.MatchMapping(rest=str(name))
                ):
                    self._declare_unknown(name)
                case _:
                    pass

    def _declare_definition(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    ) -> None:
        """Record a function by its name; record a class or decorated function as unknown."""
        if not isinstance(node, ast.ClassDef) and not node.decorator_list:
            self._names.functions[node.name].append(node)
            return
        self._declare_unknown(node.name)
        for each in ast.walk(node):
            if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)):
                # The analysis does not see the calls of a method or decorated function.
                self._record_passed_function(each)

    def _declare_import(self, node: ast.Import | ast.ImportFrom, *, is_top_level: bool) -> None:
        """Record the imported names as those of harmless modules, or as unknown variables."""
        names = [each.asname or each.name.partition(".")[0] for each in node.names]
        modules = _imported_modules(node)
        if not _REFLECTION_MODULES.isdisjoint(modules):
            self._names.has_hidden_effects = True
        if "itertools" in modules:
            self._names.itertools.update(names)
        for each in node.names:
            # The script may rename the function: ``from collections import defaultdict as table``.
            if each.asname and each.name in self._names.iterator_functions:
                self._names.iterator_functions.add(each.asname)
        # Inside an ``if``, another branch may bind the same name to something else.
        if is_top_level and _is_harmless_import(node):
            self._names.modules.update(names)
        else:
            self._declare_unknown(*names)

    def _declare_unknown(self, *names: str) -> None:
        """Record names with unknown sources, which may refer to the object of any variable."""
        self._share_objects(names, {UNKNOWN}, [_ANY_VARIABLE])

    def _share_objects(
        self, names: Iterable[str], sources: _Sources, variables: Iterable[str]
    ) -> None:
        """Record that each name may refer to the objects of all ``variables``.

        Args:
            names: The names, such as the parameters of a function.
            sources: The actions and fields from which the objects come.
            variables: The variables.
        """
        shared = {*variables}
        for name in names:
            self._add_to(self._variable_sources.setdefault(name, set()), sources)
            self._add_to(self._objects.contained[name], shared)
            self._add_to(self._objects.aliased, [name])  # ``name.append(x)`` changes them, too

    def read(self, node: ast.AST) -> _Sources:
        """Return where the values that a node reads come from, and record what the node assigns."""
        match node:
            case ast.expr():
                return self._read_expression(node)
            case ast.stmt():
                return self._read_statement(node)
            case ast.withitem(optional_vars=ast.expr() as target, context_expr=value):
                return self._assign([target], value)
            case ast.ExceptHandler():
                return self._read_handler(node)
            case _:
                return self._read_parts(node)

    def _read_expression(self, node: ast.expr) -> _Sources:
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                return self._read_name(name)
            case ast.Attribute():
                return self._read_attribute(node)
            case ast.Subscript():
                return self._read_subscript(node)
            case ast.Starred(value=value, ctx=ast.Load()):
                return self._read_unpacked(value)
            case ast.Dict(keys=keys, values=values):
                return self._read_dict(keys, values)
            case ast.Compare():
                return self._read_comparison(node)
            case ast.JoinedStr() | ast.BinOp(op=ast.Mod()):  # f"{value}" or "%s" % value
                return self._read_text(node)
            case ast.Call():
                return self._read_call(node)
            case ast.Lambda():
                # The script may store the lambda, for example in a list, and call it later with any
                # values.
                return self._read_passed_function(node)
            case ast.NamedExpr(target=target, value=value):
                return self._assign([target], value)
            case ast.Yield() | ast.YieldFrom():
                return self._read_return(node)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self._read_comprehension(node)
            case ast.IfExp() | ast.BoolOp():
                return self._read_choice(node)
            case _:
                return self._read_parts(node)

    def _read_statement(self, node: ast.stmt) -> _Sources:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda() as function):
                return self._read_named_lambda(name, function)
            case ast.Assign(targets=targets, value=value):
                return self._assign(targets, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self.read(node.annotation)
                return self._assign([target], value)
            case ast.AugAssign(target=target, value=value):
                sources = self._read_parts(node)
                self._record_change(target, sources, value)
                return sources
            case ast.Delete(targets=targets):
                return self._read_delete(targets)
            case ast.Return():
                return self._read_return(node)
            case ast.Break() | ast.Continue():
                self._record_jump(set())
                return set()
            case ast.If(test=test) | ast.While(test=test):
                with self._visiting(node, self._read_test(test)):
                    return self._read_parts(node)
            case ast.For() | ast.AsyncFor():
                return self._read_loop(node)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return self._read_definition(node)
            case ast.Match():
                return self._read_match(node)
            case ast.Try() | ast.TryStar() | ast.With() | ast.AsyncWith():
                # An exception in one part decides whether another part runs.
                return self._read_branching(node, ast.iter_child_nodes(node))
            case _:
                return self._read_parts(node)

    def _read_unpacked(self, values: ast.expr) -> _Sources:
        """Return the sources of the items in ``*values``."""
        # An iterator is read to its end, so no value decides how far it moves on.
        self._record_reading(values, decided_by=set())
        return self.read(values)

    def _read_choice(self, node: ast.IfExp | ast.BoolOp) -> _Sources:
        """Return the sources of ``a if b else c``, ``a and b`` or ``a or b``."""
        match node:
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._read_branching(node, [body, orelse], tests=[test])
            case ast.BoolOp(op=ast.And(), values=[*tests, last]):
                # The value is ``last``, or an empty or false test, which has no fields.
                return self._read_branching(node, [last], tests=tests)
            case _:  # each part of ``a or b`` may be the value
                return self._read_branching(node, ast.iter_child_nodes(node))

    def _read_named_lambda(self, name: str, function: ast.Lambda) -> _Sources:
        """Read an assignment such as ``f = lambda: rows``, like the definition of a function."""
        self._bind_defaults(function)
        # ``f().append(x)`` changes the object of ``rows``.
        self._record_contents(name, function)
        return self._read_branching(function, ast.iter_child_nodes(function))

    def _read_delete(self, targets: Sequence[ast.expr]) -> _Sources:
        sources = self._read_all(targets)
        for target in targets:
            self._record_change(target, sources)
        return sources

    def _read_handler(self, node: ast.ExceptHandler) -> _Sources:
        """Return the sources of the statements in an ``except``."""
        # The value of the expression after ``except`` is a class, so its sources are ignored. The
        # expression is read because it may change an object, as in ``except kinds.pop():``.
        if node.type is not None:
            self.read(node.type)
        return self._read_all(node.body)

    def _read_subscript(self, node: ast.Subscript) -> _Sources:
        sources = sources_of_field(self.read(node.value), _fields(node.slice))
        index_sources = self.read(node.slice)
        # Reading a missing key of a defaultdict inserts the key.
        self._record_reading(node.value, decided_by=index_sources)
        return sources | index_sources

    def _read_loop(self, node: ast.For | ast.AsyncFor) -> _Sources:
        # Only the number of rows decides how often the loop runs, not the fields of a row.
        length_sources = without_results(self.read(node.iter))
        with self._visiting(node, length_sources):
            # No value decides how far an iterator is read: the loop reads to the end, or to a
            # ``break``, whose condition is always added.
            self._record_reading(node.iter, decided_by=set())
            for target, sources, item in self._loop_bindings(node.target, node.iter):
                self._bind(target, sources, item)
            return self._read_parts(node)

    def _read_attribute(self, node: ast.Attribute) -> _Sources:
        """Return the sources of an attribute, which counts as a field of its object."""
        if node.attr in _CHANGING_METHODS | _PASSED_CHANGING_METHODS:
            # The script passes the method on, and may call the method later with any arguments.
            self._record_change(node.value, {UNKNOWN})
        # ``function.__globals__`` returns all variables, as ``globals()`` does.
        if node.attr.startswith("__"):
            self._names.has_hidden_effects = True
        sources = self.read(node.value)
        is_of_module = isinstance(node.value, ast.Name) and node.value.id in self._names.modules
        if is_of_module:
            return sources
        return sources_of_field(sources, {Source("field", node.attr)})

    def _read_return(self, node: ast.Return | ast.Yield | ast.YieldFrom) -> _Sources:
        """Record that the enclosing function returns or yields a value; return its sources."""
        sources = self._read_parts(node)
        function = self._innermost_function()
        if function is not None:
            self._add_to(self._blocks.returned_sources[function], sources)
        is_generator = not isinstance(node, ast.Return)
        returns_iterator = is_generator or self._creates_iterator(node)  # ``return iter(rows)``
        if returns_iterator and isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self._add_to(self._objects.iterators, [function.name])
        self._record_jump(sources)
        return sources

    def _innermost_function(self) -> _Function | None:
        """Return the function that contains the visited node; None outside of functions."""
        for node in reversed(self._blocks.enclosing):
            if isinstance(node, _Function):
                return node
        return None

    def _read_definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> _Sources:
        """Read the definition of a function; return the sources of all that the function reads."""
        self._read_all(node.decorator_list)
        if node.returns is not None:
            self.read(node.returns)
        self._bind_defaults(node)
        # After ``def f(): return rows``, ``f().append(x)`` changes the object of ``rows``.
        self._add_to(self._objects.contained[node.name], _names_in(node))
        # In ``if paid: def f(): ...``, ``paid`` decides which function the name ``f`` stands for.
        name_sources = self._variable_sources.setdefault(node.name, set())
        self._add_to(name_sources, *self._enclosing_conditions(node.name))
        return self._read_branching(node, node.body)

    def _bind_defaults(self, function: _Function) -> None:
        """Read the defaults of a function's parameters."""
        default_sources = self._read_parts(function.args)
        # In ``def f(rows=all_rows)``, ``rows`` may refer to the object of ``all_rows``.
        self._share_objects(_parameters(function), default_sources, _names_in(function.args))

    def _read_all(self, nodes: Iterable[ast.AST]) -> _Sources:
        return _Sources().union(*map(self.read, nodes))

    def _read_dict(self, keys: Sequence[ast.expr | None], values: Sequence[ast.expr]) -> _Sources:
        """Return the sources of a dict; a key of None stands for ``**``."""
        sources: _Sources = set()
        for key, value in zip(keys, values, strict=True):
            if key is None:  # ``{**record}`` has the fields of the record
                sources |= self.read(value)
            else:
                # In ``{"id": record}``, the key ``id`` is no single field of the record, but gives
                # the whole record.
                sources |= self.read(key) | as_enclosed(self.read(value))
        return sources

    def _read_comparison(self, node: ast.Compare) -> _Sources:
        sources = self._read_parts(node)
        match node:
            case ast.Compare(ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant()]):
                return without_results(sources)  # ``record is None`` reveals no field
            case _:
                for each in node.comparators:
                    # ``value in numbers`` reads the iterator ``numbers`` up to the value.
                    self._record_reading(each, decided_by=sources)
                return as_enclosed(sources)  # ``record == other`` compares all fields

    def _read_text(self, node: ast.JoinedStr | ast.BinOp) -> _Sources:
        """Return the sources of a text with values in it: ``f"{value}"`` or ``text % value``."""
        sources = self._read_parts(node)
        if isinstance(node, ast.BinOp):
            # ``text % table`` may read any key of the table.
            self._record_reading(node.right, decided_by=sources)
        return as_enclosed(sources)  # any part of the text may reveal any field

    def _read_match(self, node: ast.Match) -> _Sources:
        """Return the sources of a ``match`` statement, whose subject decides which case runs."""
        guards = [case.guard for case in node.cases if case.guard is not None]
        # A pattern such as ``{"paid": True}`` may test any field, unlike a test such as ``if row``.
        self._add_to(self._blocks.condition_sources[node], self.read(node.subject))
        return self._read_branching(node, [node.subject, *node.cases], tests=guards)

    def _read_test(self, test: ast.expr) -> _Sources:
        """Return the sources whose values decide a condition."""
        # ``if rows`` uses no field of the rows, so the source ``whole result`` is removed. In ``if
        # "Bob" in str(rows)``, which uses all fields, the source is an ``enclosed result``, which
        # is kept.
        return without_whole_results(self.read(test))

    def _read_comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
    ) -> _Sources:
        """Bind the variables of a comprehension, and return the sources of its value."""
        with self._visiting(node) as conditions:
            for clause in node.generators:
                self._read_clause(clause, conditions)  # adds to ``conditions``
            if isinstance(node, ast.DictComp):
                item_sources = self._read_dict([node.key], [node.value])
            else:
                item_sources = self.read(node.elt)
            # The conditions decide how many items the value has.
            sources = conditions | item_sources
            decided_by: _Sources = set()  # ``[n for n in numbers]`` reads ``numbers`` to its end
            if isinstance(node, ast.GeneratorExp):
                # ``any(n == wanted for n in numbers)`` reads ``numbers`` up to a certain item.
                decided_by = sources
            for clause in node.generators:
                self._record_reading(clause.iter, decided_by=decided_by)
            return sources

    def _read_clause(self, clause: ast.comprehension, conditions: _Sources) -> None:
        """Bind the variables of a comprehension's ``for``, such as ``for row in rows if row.paid``.

        Args:
            clause: The ``for`` with its tests.
            conditions: A set to which this method adds the sources of all values that decide how
                many items there are.
        """
        for target, row_sources, item in self._loop_bindings(clause.target, clause.iter):
            # Conditions decide how many rows there are, and not the value of a row.
            self._bind(target, row_sources, item, adds_conditions=False)
        # The number of rows decides how many items there are, not the fields of a row.
        self._add_to(conditions, without_results(self.read(clause.iter)))
        self._add_to(conditions, *map(self._read_test, clause.ifs))

    def _loop_bindings(self, target: ast.expr, rows: ast.expr) -> Iterator[_Binding]:
        """Yield what a loop or comprehension binds to its variables.

        Args:
            target: The variable, or the tuple of variables.
            rows: The expression of the rows.
        """
        if isinstance(target, ast.Tuple) and isinstance(rows, ast.Call):
            variables, arguments = target.elts, rows.args
            if self._is_plain_call(rows, "enumerate") and len(variables) == 2 and arguments:
                # ``for number, item in enumerate(values, start=1)``
                number, item = variables
                values, *start = _arguments(rows)
                yield _Binding(number, self._read_all(start), rows)
                yield _Binding(item, self.read(values), _item_of(values))
                return
            if self._is_plain_call(rows, "zip") and len(variables) == len(arguments):
                # zip() ends with the shortest list, so each variable depends on all lengths.
                length_sources = without_results(self.read(rows))
                for variable, values in zip(variables, arguments, strict=True):
                    yield _Binding(variable, self.read(values) | length_sources, _item_of(values))
                return
        yield _Binding(target, self.read(rows), _item_of(rows))

    def _is_plain_call(self, call: ast.Call, name: str) -> bool:
        """Return whether a call, such as ``zip(a, b)``, calls a builtin without ``*arguments``."""
        is_builtin = dotted(call.func) == name and not self._is_variable_or_function(name)
        return is_builtin and not any(isinstance(each, ast.Starred) for each in call.args)

    def _read_branching(
        self, node: ast.AST, parts: Iterable[ast.AST], tests: Iterable[ast.expr] = ()
    ) -> _Sources:
        """Return the sources of a node that runs only some of its parts, as ``a if c else b``.

        Args:
            node: The node.
            parts: The parts that may be its value, such as ``a`` and ``b``.
            tests: The parts that only decide which of ``parts`` run, such as ``c``.
        """
        with self._visiting(node) as conditions:
            test_sources = _Sources().union(*map(self._read_test, tests))
            sources = test_sources | self._read_all(parts)
            self._add_to(self._blocks.sources_read[node], sources)
            # In a ``try``, ``ship(row["id"])`` fails without the field ``id``. So only the fields
            # that the earlier parts name decide whether the next part runs.
            self._add_to(conditions, test_sources, without_results(sources))
            return sources

    def _read_parts(self, node: ast.AST) -> _Sources:
        # Not by _read_all(), because each call counts for the depth of the recursion.
        return _Sources().union(*map(self.read, ast.iter_child_nodes(node)))

    def _read_passed_function(self, node: ast.Lambda) -> _Sources:
        """Read a lambda that may be called at any time, with any values."""
        self._record_passed_function(node)
        with self._visiting(node):
            return self._read_parts(node)

    def _record_passed_function(self, function: _Function) -> None:
        """Record that a function may be called at any time, as ``f`` after ``call_later(f)``."""
        # Its arguments may be the objects of any variable.
        self._share_objects(_parameters(function), {UNKNOWN}, [_ANY_VARIABLE])
        # The caller is unknown, and so are the sources of all that the function changes.
        self._add_to(self._blocks.condition_sources[function], {UNKNOWN})

    def _read_name(self, name: str) -> _Sources:
        """Return the sources of a name's value; record a use that the analysis cannot follow."""
        functions = self._names.functions.get(name)
        if functions:  # the script uses the function as a value, and may pass the function on
            for function in functions:
                self._record_passed_function(function)
            return {UNKNOWN}
        if name in self._names.modules or name in self._variable_sources:
            # A change such as ``unknown().append(record)`` may have changed this object.
            changes = self._variable_sources[_ANY_VARIABLE]
            return changes | self._variable_sources.get(name, set())
        if name in _HARMLESS_BUILTINS:
            return set()
        # The name may be that of a connection, or of a builtin such as ``globals``.
        self._names.unbound_reads.add(name)
        return {UNKNOWN}

    def _read_call(self, call: ast.Call) -> _Sources:
        """Record what a call passes on and changes; return the sources of its result."""
        parameters = self._parameters_of_action(call)
        if parameters is not None:
            return self._read_action_call(call, parameters)
        functions = self._names.functions.get(dotted(call.func))
        if functions:
            return self._read_call_of_defined(functions, call)
        return self._read_call_of_other(call)

    def _parameters_of_action(self, call: ast.Call) -> Sequence[str] | None:
        """Return the parameter names of the called action; None for a call of anything else."""
        name = dotted(call.func)
        return None if self._is_variable_or_function(name) else self._parameters_of(name)

    def _read_action_call(self, call: ast.Call, parameters: Sequence[str]) -> _Sources:
        """Record the sources of an action call's arguments; return the sources of its result."""
        name = dotted(call.func)
        values = arguments_of_action(call, parameters).items()
        sources_by_parameter = {parameter: self.read(value) for parameter, value in values}
        self._argument_sources[name][call] = sources_by_parameter
        result_sources = sources_of_action_result(name)
        for argument_sources in sources_by_parameter.values():
            # In ``save(record)["data"]``, the service may have put the record into ``data``.
            result_sources |= as_enclosed(argument_sources)
        return result_sources

    def _is_variable_or_function(self, name: str) -> bool:
        """Return whether a dotted name begins with a variable or function of the scripts."""
        root = name.partition(".")[0]
        return root in self._variable_sources or root in self._names.functions

    def _may_change_arguments(self, function: ast.expr) -> bool:
        """Return whether a call of a function or method may change its arguments or its object."""
        if isinstance(function, ast.Attribute) and function.attr in _READING_METHODS:
            return False
        name = dotted(function)
        root = name.partition(".")[0]
        is_harmless = root in self._names.modules or name in _HARMLESS_BUILTINS
        is_redefined = self._is_variable_or_function(name)  # as after ``sorted = my_function``
        return is_redefined or not is_harmless

    def _read_call_of_defined(self, functions: Sequence[_Function], call: ast.Call) -> _Sources:
        """Return the sources of what a function of the script returns.

        Args:
            functions: The functions of the called name; a script may define several.
            call: The call.
        """
        # In ``if paid: def f(): ...``, ``paid`` decides which function is called.
        choice_sources = self._variable_sources.get(dotted(call.func), set())
        argument_sources = self._read_all_but_lambdas(_arguments(call))
        lambda_sources = self._read_lambdas(call, choice_sources | argument_sources)
        # Passing a record uses no field. The fields that the function reads are added below.
        sources = without_results(choice_sources | argument_sources)
        sources |= _fields_read_by_call(call, method="") | lambda_sources
        for function in functions:
            sources |= self._follow_into_function(function, call)
        return sources

    def _read_call_of_other(self, call: ast.Call) -> _Sources:
        """Return the sources of what a method, builtin or unknown function returns."""
        receiver, method = _receiver_and_method(call.func)
        receiver_sources = self.read(receiver)
        argument_sources = self._read_all_but_lambdas(_arguments(call))
        lambda_sources = self._read_lambdas(call, receiver_sources | argument_sources)
        used_fields = _fields_read_by_call(call, method)
        used_sources = sources_of_field(receiver_sources, used_fields) | argument_sources
        known_name = method or self._name_of_builtin(call.func)
        result_sources = _sources_of_function_result(known_name, used_sources, lambda_sources)
        self._record_changes_by_call(call, argument_sources | lambda_sources, result_sources)
        return result_sources

    def _record_changes_by_call(
        self, call: ast.Call, argument_sources: _Sources, result_sources: _Sources
    ) -> None:
        """Record the objects that a method, builtin or unknown function changes."""
        receiver, method = _receiver_and_method(call.func)
        values = [receiver, *_arguments(call)]
        if _changes_receiver(receiver, method):  # such as ``rows.append(record)``
            self._record_change(receiver, _added_sources(method, argument_sources), call)
        elif self._may_change_arguments(call.func) or any(map(self._is_unknown, _arguments(call))):
            # ``map(operator.iadd, tables, rows)`` also calls an unknown function.
            self._record_unknown_changes(values, result_sources)
        # Even ``zip(numbers, rows)`` changes the iterator ``numbers``.
        for value in values:
            self._record_reading(value, decided_by=result_sources)

    def _read_all_but_lambdas(self, arguments: Iterable[ast.expr]) -> _Sources:
        return self._read_all(each for each in arguments if not _is_lambda(each))

    def _name_of_builtin(self, function: ast.expr) -> str:
        """Return the name of a builtin; empty if the script gives the name to something else."""
        name = dotted(function)
        return "" if self._is_variable_or_function(name) else name

    def _record_unknown_changes(self, values: Iterable[ast.expr], sources: _Sources) -> None:
        """Record that a function may put each of its arguments into each other argument.

        Args:
            values: The arguments, and the object of a method.
            sources: The actions and fields from which the changes come.
        """
        variables: set[str] = set()
        for value in values:
            if not self._is_text_or_data(value):
                variables.update(_base_variables(value))
        # Leave out variables that may contain the objects of all variables anyway, such as that of
        # a caught exception.
        contained = self._objects.contained
        exchanging = {name for name in variables if _ANY_VARIABLE not in contained[name]}
        for name in exchanging:
            self._add_to(contained[name], exchanging)
        # The function may also change the objects inside its arguments.
        changed = self._objects.with_contained(variables) - {_ANY_VARIABLE}
        self._add_to_variables(changed, sources)

    def _is_unknown(self, value: ast.expr) -> bool:
        """Return whether a value may be any object or function, as an imported name may be."""
        root = dotted(value).partition(".")[0]
        return _ANY_VARIABLE in self._objects.contained.get(root, ())

    def _is_text_or_data(self, value: ast.expr) -> bool:
        """Return whether a value is surely a new object, such as a text or an action's result.

        No variable refers to a new object yet. The value of ``rows`` or ``make(rows)`` may be an
        object to which a variable refers.
        """
        if isinstance(value, ast.Call):
            return self._parameters_of_action(value) is not None
        # A comparison is True or False.
        return isinstance(value, (ast.Constant, ast.JoinedStr, ast.Compare))

    def _read_lambdas(self, call: ast.Call, passed_sources: _Sources) -> _Sources:
        """Read the lambdas among a call's arguments; return the sources of their results.

        Args:
            call: The call.
            passed_sources: The sources of all values that the called function can pass to a lambda.
        """
        result_sources: _Sources = set()
        for each in _arguments(call):
            if isinstance(each, ast.Lambda):
                self._bind_defaults(each)
                # In ``rows.sort(key=lambda row: …)``, ``row`` may be an object inside ``rows``.
                variables_in_call = {*_names_in(call)} - self._names.modules
                self._share_objects(_parameters(each), passed_sources, variables_in_call)
                # The passed values also decide how often the lambda runs, such as ``values`` in
                # ``map(lambda value: …, values)``.
                with self._visiting(each, sources=passed_sources):
                    result_sources |= self._read_parts(each)
        return result_sources

    def _follow_into_function(self, function: _Function, call: ast.Call) -> _Sources:
        """Follow the arguments of a call into a function; return the sources of its result."""
        # The conditions around the call decide whether the body runs.
        self._add_to(self._blocks.condition_sources[function], *self._enclosing_conditions())
        self._bind_parameters(function.args, call)
        sources_read = self._blocks.sources_read[function]
        if _is_lambda(function):
            return sources_read  # the value of a lambda may come from all that the lambda reads
        # ``if row["paid"]: return 1`` reads only the field ``paid``, while ``return row`` returns
        # the whole row. So whole results count only if they are returned.
        actions_and_fields_read = without_results(sources_read)
        return actions_and_fields_read | self._blocks.returned_sources[function]

    def _bind_parameters(self, parameters: ast.arguments, call: ast.Call) -> None:
        """Bind the parameters of a called function to the arguments of the call."""
        positional = [*parameters.posonlyargs, *parameters.args]
        named = arguments_of(call, [parameter.arg for parameter in positional])
        # The name "*" stands for arguments that the call passes with * or **, to any parameter.
        unpacked = named.get("*")
        for parameter in (*positional, *parameters.kwonlyargs):
            value = named.get(parameter.arg, unpacked)
            if value is not None:
                self._bind_parameter(parameter, self.read(value), value)
        # ``*args`` and ``**kwargs`` of the function may contain any argument.
        any_argument = ast.Tuple(_arguments(call))
        for parameter in (parameters.vararg, parameters.kwarg):
            if parameter is not None:
                self._bind_parameter(parameter, as_enclosed(self.read(any_argument)), any_argument)

    def _bind_parameter(self, parameter: ast.arg, sources: _Sources, value: ast.expr) -> None:
        """Bind a parameter of a called function to an argument."""
        self._add_to(self._variable_sources[parameter.arg], sources)
        self._record_object(parameter.arg, value)

    def _assign(self, targets: Sequence[ast.expr], value: ast.expr) -> _Sources:
        """Record that an assignment binds its targets to a value; return the value's sources."""
        sources = self.read(value)
        for target in targets:
            self._bind(target, sources, value)
        if len(targets) > 1:
            # The variables of ``a = b = []`` refer to one object, whose sources are added above.
            names = {name for target in targets for name in _base_variables(target)}
            self._share_objects(names, sources=set(), variables=names)
        return sources

    def _bind(
        self,
        target: ast.AST,
        sources: _Sources,
        value: ast.expr,
        *,
        adds_conditions: bool = True,
    ) -> None:
        """Add the sources of a value to the variables that an assignment target binds.

        Args:
            target: The assignment target.
            sources: The actions and fields from which the value comes.
            value: The expression of the value.
            adds_conditions: Whether the variables also get the sources of the conditions around the
                assignment; False in comprehensions.
        """
        match target:
            case ast.Name(id=name):
                conditions = self._enclosing_conditions(name) if adds_conditions else ()
                self._add_to(self._variable_sources[name], sources, *conditions)
                self._record_object(name, value)
            case ast.Attribute(value=changed_node):
                self.read(changed_node)
                self._record_change(changed_node, as_enclosed(sources), value)
            case ast.Subscript(value=changed_node, slice=index):
                self.read(changed_node)
                self._record_change(changed_node, as_enclosed(sources) | self.read(index), value)
            case _:
                # Each variable of ``a, b = value`` gets an item of the value.
                for each in ast.iter_child_nodes(target):
                    self._bind(each, sources, _item_of(value), adds_conditions=adds_conditions)

    def _record_object(self, name: str, value: ast.expr) -> None:
        """Record the objects to which a variable may refer after an assignment of a value."""
        self._record_contents(name, value)
        if not self._creates_object(value):  # such as ``a = b``
            self._add_to(self._objects.aliased, [name])

    def _record_contents(self, name: str, value: ast.AST) -> None:
        """Record that a variable or function may share objects with the variables in a value.

        For example, ``a`` shares an object with ``b`` after ``a = b`` and after ``a = [b]``.
        """
        self._add_to(self._objects.contained[name], _names_in(value))
        if self._creates_iterator(value):
            self._add_to(self._objects.iterators, [name])

    def _creates_object(self, value: ast.expr) -> bool:
        """Return whether an expression creates a new object, to which no variable refers yet."""
        if isinstance(value, ast.Await):
            value = value.value
        if not isinstance(value, ast.Call):
            return isinstance(value, _NEW_VALUES)
        if self._parameters_of_action(value) is not None:
            return True  # an action returns a new object
        name = dotted(value.func)
        if self._is_variable_or_function(name):
            return False  # after ``list = my_list``, ``list()`` may return an existing object
        return name.rpartition(".")[2] in _CONSTRUCTORS

    def _creates_iterator(self, node: ast.AST, *, is_consumed: bool = False) -> bool:
        """Return whether an expression creates an iterator or defaultdict, or a list with one.

        Args:
            node: The expression.
            is_consumed: Whether the value of the expression is read to its end at once, as ``map``
                in ``list(map(str, rows))``. Then only the items of the value can be iterators, as
                in ``list(map(iter, rows))``.
        """
        match node:
            case ast.GeneratorExp():
                return not is_consumed or self._has_part_with_iterator(node)
            case ast.Name(id=name) | ast.Attribute(attr=name) if (
                name in self._names.iterator_functions
            ):
                return True  # the function itself, as in ``map(iter, lists)``
            case ast.Starred(value=rows) | ast.comprehension(iter=rows):  # such as ``[*rows]``
                return self._creates_iterator(rows, is_consumed=True)
            case ast.Call() if self._parameters_of_action(node) is not None:
                return False  # an action returns data, and no iterator
            case ast.Call(func=function):
                name = _last_name(function)
                returns_iterator = self._returns_iterator(node)
                if returns_iterator and (not is_consumed or name in _ITERATORS_OF_ITERATORS):
                    return True
                # A script that reads ``map(str, rows)`` to its end also reads ``rows`` to its end.
                # An unknown function may return its arguments unread.
                reads_arguments = returns_iterator or name in _CONSUMING_FUNCTIONS
                return any(
                    self._creates_iterator(each, is_consumed=reads_arguments)
                    for each in _arguments(node)
                )
            case _:
                return self._has_part_with_iterator(node)

    def _has_part_with_iterator(self, node: ast.AST) -> bool:
        return any(map(self._creates_iterator, ast.iter_child_nodes(node)))

    def _returns_iterator(self, call: ast.Call) -> bool:
        """Return whether a call returns an iterator or defaultdict."""
        root, _, _ = dotted(call.func).partition(".")
        is_of_itertools = root in self._names.itertools
        return is_of_itertools or _last_name(call.func) in self._names.iterator_functions

    def _record_reading(self, node: ast.expr, *, decided_by: _Sources) -> None:
        """Record that a script reads an object: the reading changes an iterator or defaultdict.

        Args:
            node: The expression of the object.
            decided_by: The actions and fields whose values decide how far an iterator moves on, or
                which key a defaultdict gets.
        """
        for name in _base_variables(node):
            # After ``z = zip(rows, numbers)``, reading ``z`` also changes the iterator ``numbers``.
            read = self._objects.with_contained([name])
            if _ANY_VARIABLE in read:  # the object may contain any iterator
                read |= self._objects.with_contained(self._objects.iterators)
            if not read.isdisjoint(self._objects.iterators):
                # In ``itertools.chain(rows)``, the module does not change.
                changed = read - self._names.modules - {_ANY_VARIABLE}
                self._add_to_variables(changed, decided_by)

    def _record_change(self, node: ast.AST, sources: _Sources, *added: ast.AST) -> None:
        """Record that an object is changed in place, as by ``rows.append(record)``.

        Args:
            node: The expression of the object, such as ``rows`` or ``a["rows"]``.
            sources: The actions and fields from which the change comes.
            added: The expressions whose values the object may contain afterwards.
        """
        is_part_changed = not isinstance(node, ast.Name)
        if is_part_changed:
            # After ``a["rows"].append(record)``, the field ``rows`` contains the whole record.
            sources = as_enclosed(sources)
        for name in _base_variables(node):
            for value in added:
                self._record_contents(name, value)
            changed = self._variables_changed_with(name, is_part_changed=is_part_changed)
            self._add_to_variables(changed, sources)

    def _variables_changed_with(self, name: str, *, is_part_changed: bool) -> AbstractSet[str]:
        """Return the variables that change with ``name``, as ``b`` with ``a`` after ``a = b``.

        Args:
            name: The name of the changed object.
            is_part_changed: Whether an object inside the object changes, as ``a[0]`` for ``a``.
        """
        changed: AbstractSet[str] = {name}
        # ``a.append(x)`` changes ``b`` after ``a = b``; ``a[0].append(x)`` also after ``a = [b]``.
        if is_part_changed or name in self._objects.aliased:
            changed = self._objects.with_contained(changed)
        is_variable = name in self._variable_sources or name in self._names.modules
        if is_variable:
            return changed
        # A builtin: ``map(list.append, tables, rows)`` changes the tables, which may be any
        # variables, and not ``list``.
        return changed | {_ANY_VARIABLE}

    def _add_to_variables(self, names: Iterable[str], sources: _Sources) -> None:
        """Add the sources of a change to variables and modules; ignore names such as ``len``."""
        for name in names:
            if name in self._variable_sources or name in self._names.modules:
                known = self._variable_sources.setdefault(name, set())
                # In ``if paid: rows.append(x)``, the length of ``rows`` reveals ``paid``.
                self._add_to(known, sources, *self._enclosing_conditions(name))

    @contextmanager
    def _visiting(self, node: ast.AST, sources: Sources = frozenset()) -> Generator[_Sources]:
        """Mark a node as the innermost loop, condition or function while its parts are read.

        Args:
            node: The node.
            sources: The actions and fields whose values decide whether or how often the parts run.

        Yields:
            The set of the node's condition sources, to which the caller may add sources.
        """
        conditions = self._blocks.condition_sources[node]
        self._add_to(conditions, sources)
        if node not in self._blocks.use_counts:
            self._blocks.use_counts[node] = _count_uses(node)
        self._blocks.enclosing.append(node)
        try:
            yield conditions
        finally:
            self._blocks.enclosing.pop()

    def _enclosing_conditions(self, variable: str = _ANY_VARIABLE) -> Iterator[_Sources]:
        """Yield the sources of each enclosing condition that the value of a variable may reveal.

        After ``if paid: note = "x"``, the value of ``note`` reveals ``paid``. A variable that is
        used nowhere outside the ``if`` reveals nothing.

        Args:
            variable: The name of the variable; omit it to yield the sources of all conditions.
        """
        use_count = self._use_counts[variable]  # 0 for _ANY_VARIABLE, which is not a variable
        for node in self._blocks.enclosing:
            is_used_only_inside = 0 < use_count <= self._blocks.use_counts[node][variable]
            if not is_used_only_inside:
                yield self._blocks.condition_sources[node]

    def _record_jump(self, value_sources: _Sources) -> None:
        """Record a statement that leaves a loop or function, such as ``return`` or ``continue``.

        After ``if row["paid"]: continue``, the rest of the loop runs only if ``paid`` is false. So
        the conditions around the jump also count for the loop.

        Args:
            value_sources: The actions and fields from which the returned value comes, if any.
        """
        # Whether ``return row`` runs depends on no field of ``row``.
        jump_sources = without_results(value_sources).union(*self._enclosing_conditions())
        for node in self._blocks.enclosing:
            self._add_to(self._blocks.condition_sources[node], jump_sources)

    def _add_to(self, known: set[_Item], *more: Iterable[_Item]) -> None:
        """Add items to a set, and note whether the set has grown."""
        size = len(known)
        known.update(*more)
        self._has_new_sources = self._has_new_sources or len(known) > size


def _is_on_line(call: ast.Call, line: int) -> bool:
    return call.lineno <= line <= (call.end_lineno or 0)


def _imported_modules(node: ast.Import | ast.ImportFrom) -> AbstractSet[str]:
    """Return the modules of ``import a, b``, or the module of ``from a import b``."""
    if isinstance(node, ast.ImportFrom) and node.module:
        return {node.module}
    return {each.name for each in node.names}


def _is_harmless_import(node: ast.Import | ast.ImportFrom) -> bool:
    """Return whether an import binds only names of harmless modules, and hides no builtin."""
    # ``from json import loads as list`` hides the function list().
    hides_known_function = any(each.asname in _KNOWN_FUNCTIONS for each in node.names)
    return not hides_known_function and _imported_modules(node) <= _HARMLESS_MODULES


def _parameters(function: _Function) -> Iterator[str]:
    return (each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg))


def _arguments(call: ast.Call) -> list[ast.expr]:
    """Return the values of the positional and keyword arguments of a call."""
    return [*call.args, *(each.value for each in call.keywords)]


def _last_name(function: ast.expr) -> str:
    """Return the name of a called function or method, without its module or object."""
    return function.attr if isinstance(function, ast.Attribute) else dotted(function)


def _sources_of_function_result(
    function: str, sources: _Sources, lambda_sources: _Sources
) -> _Sources:
    """Return the sources of the result of a function or method that the script does not define.

    Args:
        function: The name of the function or method; empty for a function of unknown effect.
        sources: The sources of the arguments, and of what a method reads of its object.
        lambda_sources: The sources of the results of lambdas among the arguments.
    """
    if function == "map" and lambda_sources:
        # ``map(lambda row: row["id"], rows)`` uses only the field ``id`` of the rows.
        return without_results(sources) | lambda_sources
    if function == "len":  # a length reveals no field
        return without_results(sources | lambda_sources)
    if function in _SELECTING_FUNCTIONS:  # ``max(rows)`` is a record of ``rows``
        return sources | lambda_sources
    # Any other function may put a whole record into a field of its result.
    return as_enclosed(sources | lambda_sources)


def _receiver_and_method(function: ast.expr) -> tuple[ast.expr, str]:
    """Split a called expression: ``rows.append`` into ``rows`` and the name ``append``.

    For a function such as ``len``, return the function itself and an empty name.
    """
    if isinstance(function, ast.Attribute):
        return function.value, function.attr
    return function, ""


def _changes_receiver(receiver: ast.expr, method: str) -> bool:
    """Return whether a method, such as ``append``, changes its object and no argument."""
    # ``list.append(rows, row)`` changes its argument ``rows``, and not the receiver ``list``.
    is_receiver_builtin = dotted(receiver) in _HARMLESS_BUILTINS
    return method in _CHANGING_METHODS and not is_receiver_builtin


def _added_sources(method: str, sources: _Sources) -> _Sources:
    """Return the sources that ``rows`` gets from the argument of ``rows.append(record)``."""
    # After ``rows.append(record)``, ``rows[0]["id"]`` is the field ``id`` of the record.
    if method in _METHODS_THAT_ADD_ITEMS:
        return sources
    # After ``d.update(id=record)``, ``d["id"]`` is the whole record, and not its field ``id``.
    return as_enclosed(sources)


def _is_lambda(node: ast.AST) -> bool:
    return isinstance(node, ast.Lambda)


def _item_of(values: ast.expr) -> ast.expr:
    """Return the expression ``*rows``, which stands for one item of ``rows`` in the analysis.

    The analysis reads ``for row in rows`` like an assignment ``row = *rows``.
    """
    return ast.Starred(values)


def _fields(key: ast.expr) -> _Sources:
    """Return a set with the field that a subscript's key names, as in ``record["email"]``.

    The set is empty for list indexes, and contains an unknown field for a computed key.
    """
    match key:
        case ast.Slice() | ast.UnaryOp() | ast.Constant(value=int()):
            return set()  # indexes of lists, such as ``[0]``, ``[-1]`` and ``[1:]``
        case ast.Constant(value=str(name)):
            return {Source("field", name)}
        case _:
            return {Source("field", UNKNOWN_FIELD)}


def _fields_read_by_call(call: ast.Call, method: str) -> _Sources:
    """Return a set with the fields that a function or method reads from a record.

    Args:
        call: The call of the function or method.
        method: The name of the method; empty for a function.
    """
    unknown_field = {Source("field", UNKNOWN_FIELD)}
    # ``f(**record)`` passes each field of the record.
    if any(each.arg is None for each in call.keywords):
        return unknown_field
    match method:
        case "get" | "pop" | "setdefault" if call.args:
            return _fields(call.args[0])
        case "items" | "popitem" | "values":
            return unknown_field
        case _:
            return set()


def _base_variables(node: ast.AST) -> Iterator[str]:
    """Yield the variables of which an expression reads a part.

    For ``a.b["c"]``, yield ``a``; for ``a.get(key, b)``, yield ``a`` and ``b``. For an expression
    of another form, yield all names in the expression.
    """
    match node:
        case ast.Subscript(value=value) | ast.Attribute(value=value):
            yield from _base_variables(value)
        # ``a.get(key, default)`` returns a part of ``a``, or the default.
        case ast.Call(
            func=ast.Attribute(value=value, attr="get" | "setdefault"), args=[_key, *defaults]
        ):
            for part in (value, *defaults):
                yield from _base_variables(part)
        case _:
            yield from _names_in(node)


def _count_uses(node: ast.AST) -> Counter[str]:
    """Count how often a loop, condition or function uses each name."""
    if isinstance(node, (ast.Try, ast.TryStar)):
        # The handlers count as outside: after ``try: text = "a"; ship(); text = "b"``, the text
        # ``"a"`` reveals to a handler that ``ship`` failed.
        return Counter(name for statement in node.body for name in _names_in(statement))
    return Counter(_names_in(node))


def _names_in(node: ast.AST) -> Iterator[str]:
    return (each.id for each in ast.walk(node) if isinstance(each, ast.Name))
