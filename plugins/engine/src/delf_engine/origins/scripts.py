"""Sources of the values of a script's calls, read from the script's text.

The analysis follows values from constants and from results of calls to the arguments of calls. It
ignores the order of statements: a variable has the sources of all values that the scripts give it.
What decides whether or how often a statement runs is a source of all that the statement assigns.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Final, TypeVar

from delf_engine.origins.sources import (
    UNKNOWN,
    UNKNOWN_FIELD,
    Source,
    Sources,
    enclosed,
    field_of_value,
    result_of,
    with_enclosed_as_whole_results,
    without_unenclosed_results,
    without_whole_results,
)
from delf_engine.origins.syntax import arguments_of, arguments_of_action, dotted
from delf_engine.origins.values import parameter_of

# Builtins that return no untrusted data and change no argument, except ``next``.
_HARMLESS_BUILTINS: Final = (
    "abs all any bool chr dict enumerate filter float format int isinstance iter len list map max "
    "min next ord print range repr reversed round set sorted str sum tuple type zip"
)
# Modules whose functions return no untrusted data and do not modify their arguments.
_HARMLESS_MODULES: Final = (
    "asyncio base64 collections copy dataclasses datetime decimal enum fractions functools hashlib "
    "html itertools json math re statistics string textwrap typing urllib.parse uuid "
    "zoneinfo"
)
# Functions with which a script can change variables without an assignment.
_REFLECTION_NAMES: Final = (
    *("globals", "locals", "vars", "setattr", "exec", "eval"),
    *("__builtins__", "__import__"),
)
# Modules with which a script can change variables without an assignment, or replace a builtin.
_REFLECTION_MODULES: Final = frozenset({"__main__", "builtins", "importlib", "inspect", "sys"})
# Methods that change neither their object nor their arguments.
_READING_METHODS: Final = (
    "casefold count date endswith format get index isoformat items join keys lower replace split "
    "splitlines startswith strftime strip title upper values"
)
# Methods that change their list, dict or set, but not their arguments.
_CHANGING_METHODS: Final = (
    "add append clear discard extend insert pop popitem remove reverse setdefault sort update"
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
_CONSTRUCTORS: Final = "list dict set sorted tuple defaultdict Counter deque OrderedDict"
# Nodes in which the value or an exception of one part decides whether another part runs.
_BRANCHING_NODES: Final = (ast.Try, ast.TryStar, ast.With, ast.AsyncWith, ast.BoolOp)
# Functions whose result is an argument or has the items of an argument, so that a field of the
# result is a field of a record. Any other function may put a whole record under another name.
_SELECTING_FUNCTIONS: Final = (
    "as_completed chain copy create_task cycle deepcopy deque ensure_future enumerate filter "
    "from_iterable gather groupby islice iter list loads map max min next pop popleft reversed "
    "run set shield sorted tuple wait_for zip"
)
# Methods whose argument becomes an item of a list or set, which has no fields of its own.
_METHODS_THAT_ADD_ITEMS: Final = "add append extend insert"
# Functions whose name tells the analysis what they do, unless the script gives the name to another.
_KNOWN_FUNCTIONS: Final = frozenset(
    f"{_HARMLESS_BUILTINS} {_CONSTRUCTORS} {_SELECTING_FUNCTIONS}".split()
)
# Functions whose result changes when a script reads it: an iterator moves on, and a defaultdict
# gets the missing key.
_FUNCTIONS_OF_MOVING_OBJECTS: Final = (
    "DefaultDict as_completed defaultdict enumerate filter finditer iter iterencode map reversed "
    "zip"
)
# Functions of harmless modules that change how others of their module compute.
_CHANGING_FUNCTIONS: Final = "localcontext setcontext"
# Functions of ``itertools`` whose items are no iterators, if those of the arguments are none.
_ITERATORS_OF_PLAIN_ITEMS: Final = (
    "accumulate chain combinations count cycle dropwhile from_iterable islice pairwise "
    "permutations product repeat takewhile zip_longest"
)
# Functions that read an iterator to its end, so that their result is none.
_CONSUMING_FUNCTIONS: Final = (
    "all any dict float frozenset int join len list max min next set sorted str sum tuple"
)
_Item = TypeVar("_Item")
_Sources = set[Source]
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


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

        # -- The sources that the analysis has found: the actions whose results flow into a value,
        # and the fields that the scripts read from the results.
        #
        # The sources of the arguments of each call in the last script, by action and call.
        self._argument_sources: dict[str, dict[ast.Call, Mapping[str, _Sources]]] = defaultdict(
            dict
        )
        # The sources of each variable.
        self._variable_sources: dict[str, _Sources] = {
            name: {UNKNOWN} for name in untrusted_variables
        }
        # The sources of the values that decide whether or how often the parts of a loop, branch or
        # function run.
        self._condition_sources: dict[ast.AST, _Sources] = defaultdict(set)
        # The sources that a function or branch reads, so that its result may come from them.
        self._sources_read_in: dict[ast.AST, _Sources] = defaultdict(set)
        # The sources of the values that a function returns or yields.
        self._sources_returned_by: dict[ast.AST, _Sources] = defaultdict(set)
        # The results of sources() for the last script. The key is an action, a parameter, and the
        # line of the call, which is None for all calls of the action.
        self._cached_sources: dict[tuple[str, str, int | None], Sources | None] = {}

        # -- The objects of variables. A change of an object counts for all variables through which
        # the script may read the object. Two maps tell which variables these are:
        #
        # For each variable, the other variables whose objects it may contain: ``b`` for ``a`` after
        # ``a = [b]``. A change of ``a[0]`` counts for ``b``, too.
        self._contained_variables: dict[str, set[str]] = defaultdict(set)
        # The variables whose object may also belong to another variable, as in ``a = b = []``:
        # ``a.append(x)`` changes ``b``, too. The other variable is not known.
        self._aliased_variables: set[str] = set()
        # The variables that refer only to immutable values: texts and numbers.
        self._immutable_variables: set[str] = set()
        # The sources of all values that the scripts put into objects of aliased variables. Any
        # variable that is not immutable may refer to such an object.
        self._alias_change_sources: _Sources = set()

        # The variables and functions whose object changes when a script reads it, such as an
        # iterator or a defaultdict.
        self._moving_variables: set[str] = set()
        # The parameters that may get the object of any variable.
        self._parameters_of_any_object: set[str] = set()

        # -- The names in the scripts.
        #
        # The functions and lambdas that the scripts define, by name; a script may define several
        # functions of one name.
        self._functions: dict[str, list[_Function]] = defaultdict(list)
        # The names under which the scripts import harmless modules, or functions of them.
        self._modules: set[str] = set()
        # The names of functions that change how others of their module compute, and the names that
        # the scripts import from such a module.
        self._names_of_changing_functions = {*_CHANGING_FUNCTIONS.split()}
        self._names_of_decimal: set[str] = set()
        # The names of functions whose result changes when a script reads it.
        self._names_of_moving_functions = {*_FUNCTIONS_OF_MOVING_OBJECTS.split()}
        # The names under which the scripts import ``itertools``, or functions of it.
        self._names_of_itertools: set[str] = set()
        # The names without a binding that the script reads.
        #
        # A name that is only the function of an action call does not count.
        self._unbound_reads: set[str] = set()
        # The number of times that each name occurs in all scripts, and in each loop, branch or
        # function. If the two numbers of a variable are equal, the script reads the variable only
        # inside of the loop or branch: _enclosing_conditions() then leaves its condition out.
        self._use_counts: Counter[str] = Counter()
        self._use_counts_in: dict[ast.AST, Counter[str]] = {}
        # The loops, branches and functions that enclose the visited node, outermost first.
        self._enclosing_nodes: list[ast.AST] = []

    def add(self, code: str) -> None:
        """Analyse another script of the task, to find the sources of its calls' arguments.

        If the script is no valid Python or too complex, :meth:`sources` returns None for its calls.
        """
        self._cached_sources.clear()
        try:
            tree = ast.parse(code)
            self._trees.append(tree)
            self._declare(tree)
            self._use_counts.update(_names_in(tree))
            # At first, variables count as immutable. _bind() removes a variable from the set at an
            # assignment of anything else than a text or number.
            self._immutable_variables = {*self._variable_sources} - self._aliased_variables
            is_complete = self._read_until_complete()
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            is_complete = False
        if not is_complete:
            # Without recorded arguments, the sources of all calls are unknown.
            self._argument_sources.clear()

    def _read_until_complete(self) -> bool:
        """Read all scripts until a pass finds no new source; return False if the passes run out.

        Sources of variables, functions and conditions are never removed, so that a pass that finds
        no new source is the last one. Earlier scripts are read again, because the last script may
        change the lists to which their variables refer.
        """
        for _ in range(_MAX_PASSES):
            self._has_new_sources = False
            for each in self._trees:
                # The arguments of earlier scripts' calls are not needed: sources() finds a call
                # by its line, and only in the last script.
                self._argument_sources.clear()
                self.read(each)
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
        key = action, parameter_of(path), line
        if key not in self._cached_sources:
            self._cached_sources[key] = self._find_sources(*key)
        return self._cached_sources[key]

    def _find_sources(self, action: str, parameter: str, line: int | None) -> Sources | None:
        """Return the actions and fields whose values flow into a parameter of an action's calls.

        ``{UNKNOWN}`` if no call passes the parameter; None if the script's text has no such call,
        or if the script may change variables in a way that its text does not show.
        """
        calls = self._argument_sources[action]
        if line is not None:
            calls = {call: calls[call] for call in calls if _is_on_line(call, line)}
        # A script that reads the connection's name or a builtin such as globals() as a value may
        # call the action by another name.
        connection_name = action.partition(".")[0]
        can_hide_calls = not self._unbound_reads.isdisjoint((*_REFLECTION_NAMES, connection_name))
        if not calls or can_hide_calls:
            return None
        passed: list[Sources] = []
        for sources_by_parameter in calls.values():
            # The name "*" stands for arguments that a call passes with * or **.
            unpacked = sources_by_parameter.get("*")
            sources = sources_by_parameter.get(parameter, unpacked)
            if sources is not None:
                passed.append(sources)
        if not passed:
            return frozenset({UNKNOWN})
        # sources_of_expression() does the same, so that callers can compare the two results.
        return with_enclosed_as_whole_results(_Sources().union(*passed))

    def sources_of_expression(self, node: ast.expr) -> Sources:
        """Return the actions and fields whose values flow into the value of an expression.

        A result inside the value, as in ``{"id": find()}``, counts like the result itself.
        """
        return with_enclosed_as_whole_results(self.read(node))

    def _declare(self, tree: ast.Module) -> None:
        """Record the names that a script binds.

        The sources of a name are the actions and fields from which its value comes. :meth:`read`
        later adds the sources of variables and of the parameters of functions, which have none yet.
        Functions without decorators and the modules in ``_HARMLESS_MODULES`` need no sources. All
        other names, such as classes and caught exceptions, have unknown sources.

        Parameters, and the names with unknown sources, are recorded as aliased, which means that
        another variable may refer to the same object.
        """
        for node in ast.walk(tree):
            match node:
                case ast.Name(id=name, ctx=ast.Store()):
                    self._variable_sources.setdefault(name, set())
                case ast.arg(arg=name):
                    self._variable_sources.setdefault(name, set())
                    # A call passes an object that may belong to a variable of the caller.
                    self._aliased_variables.add(name)
                case ast.FunctionDef(decorator_list=[]) | ast.AsyncFunctionDef(decorator_list=[]):
                    self._functions[node.name].append(node)
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda() as function):
                    self._functions[name].append(function)
                case ast.Import() | ast.ImportFrom():
                    self._declare_import(node, is_top_level=node in tree.body)
                # Only functions with decorators reach this case, because an earlier case matches
                # all other functions.
                case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                    self._declare_unknown_functions(name, node)
                case ast.AsyncFunctionDef(name=name):
                    self._declare_unknown_functions(name, node)
                case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                    self._declare_unknown(name)
                case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                    self._declare_unknown(name)
                case _:
                    pass

    def _declare_import(self, node: ast.Import | ast.ImportFrom, *, is_top_level: bool) -> None:
        """Record the imported names as those of harmless modules, or as unknown variables."""
        names = [each.asname or each.name.partition(".")[0] for each in node.names]
        modules = _imported_modules(node)
        if not _REFLECTION_MODULES.isdisjoint(modules):
            # Such a module returns all variables, as ``globals()`` does.
            self._unbound_reads.add("globals")
        is_harmless = modules <= {*_HARMLESS_MODULES.split()}
        if "itertools" in modules:
            self._names_of_itertools.update(names)
        for each in node.names:
            # ``from collections import defaultdict as table``
            for known in (self._names_of_moving_functions, self._names_of_changing_functions):
                if each.asname and each.name in known:
                    known.add(each.asname)
        if "decimal" in modules:
            # A change of the context, through any of these names, counts for all of them.
            self._names_of_decimal.update(names)
            for name in self._names_of_decimal:
                self._contained_variables[name] |= self._names_of_decimal
        # For example, ``from json import loads as list`` hides the function list().
        hides_known_function = any(each.asname in _KNOWN_FUNCTIONS for each in node.names)
        # Inside a condition, another branch may bind the same name to something else.
        if is_harmless and is_top_level and not hides_known_function:
            self._modules.update(names)
        else:
            self._declare_unknown(*names)

    def _declare_unknown_functions(self, name: str, node: ast.AST) -> None:
        """Record a class or decorated function: others call it, as often as they like."""
        self._declare_unknown(name, *_parameters(node))
        for each in ast.walk(node):
            if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self._record_passed_function(each)

    def _declare_unknown(self, *names: str) -> None:
        """Record names whose values have unknown sources.

        The object of such a name may be that of any variable. The names therefore count as aliased,
        so that a change of the object counts for all variables that may hold the object.
        """
        for name in names:
            self._variable_sources.setdefault(name, set()).add(UNKNOWN)
            self._aliased_variables.add(name)

    def read(self, node: ast.AST) -> _Sources:
        """Return where the values that a node reads come from, and record what the node assigns."""
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                return self._sources_of_name(name)
            case ast.Attribute():
                return self._read_attribute(node)
            case ast.Subscript(value=value, slice=index):
                sources = field_of_value(self.read(value), _fields(index))
                index_sources = self.read(index)
                # Reading a missing key of a defaultdict inserts the key.
                self._record_move(value, index_sources)
                return sources | index_sources
            case ast.Starred(value=value, ctx=ast.Load()):
                self._record_move(value, set())
                return self.read(value)
            case ast.Dict(keys=keys, values=values):
                return self._read_dict(keys, values)
            case ast.Compare() | ast.JoinedStr() | ast.BinOp(op=ast.Mod()):
                return self._read_formed_value(node)
            case ast.Call():
                return self._read_call(node)
            case ast.Lambda():
                # A lambda that is neither an argument nor assigned may be called with any values.
                return self._read_passed_function(node)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda() as value):
                self._add_to_parameters(value, self._read_parts(value.args))
                # After ``f = lambda: rows``, ``f().append(x)`` changes the object of ``rows``.
                self._add_to(self._contained_variables[name], _names_in(value))
                if self._makes_moving_object(value.body):
                    self._add_to(self._moving_variables, [name])
                return self._read_branching(value, ast.iter_child_nodes(value))
            case ast.Assign(targets=targets, value=value):
                return self._assign(targets, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self.read(node.annotation)
                return self._assign([target], value)
            case ast.NamedExpr(target=target, value=value):
                return self._assign([target], value)
            case ast.withitem(optional_vars=ast.expr() as target, context_expr=value):
                return self._assign([target], value)
            case ast.AugAssign(target=target):
                return self._read_change(node, [target])
            case ast.Delete(targets=targets):
                return self._read_change(node, targets)
            case ast.Return() | ast.Yield() | ast.YieldFrom():
                return self._read_return(node)
            case ast.Break() | ast.Continue():
                self._record_jump(set())
                return set()
            case ast.If(test=test) | ast.While(test=test):
                with self._visiting(node, self._read_test(test)):
                    return self._read_parts(node)
            case ast.For(target=target, iter=rows) | ast.AsyncFor(target=target, iter=rows):
                # Only the number of rows decides how often the loop runs, and not their fields. A
                # whole result is a source that stands for all fields, so it is left out.
                with self._visiting(node, without_whole_results(self.read(rows))):
                    self._bind_loop_target(target, rows)
                    return self._read_parts(node)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self._read_comprehension(node)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return self._read_definition(node)
            case ast.ExceptHandler(type=caught, body=body):
                if caught is not None:
                    self.read(caught)
                return self._read_all(body)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._read_branching(node, [body, orelse], tests=[test])
            # ``a and b`` is read like ``b if a else a``, without the last ``a``: the expression has
            # this value only if ``a`` is empty or false, and then it has no fields.
            case ast.BoolOp(op=ast.And(), values=[*tests, last]):
                return self._read_branching(node, [last], tests=tests)
            case ast.Match():
                return self._read_match(node)
            case _ if isinstance(node, _BRANCHING_NODES):
                return self._read_branching(node, ast.iter_child_nodes(node))
            case _:
                return self._read_parts(node)

    def _read_attribute(self, node: ast.Attribute) -> _Sources:
        """Return the sources of an attribute, which counts as a field of its object."""
        if node.attr in _CHANGING_METHODS.split():
            # The script passes the method on, and may call the method later with any arguments.
            self._record_change(node.value, {UNKNOWN})
        if node.attr.startswith("__"):
            # ``function.__globals__`` returns all variables, as ``globals()`` does.
            self._unbound_reads.add("globals")
        sources = self.read(node.value)
        is_of_module = isinstance(node.value, ast.Name) and node.value.id in self._modules
        if is_of_module:
            return sources
        return field_of_value(sources, {Source("field", node.attr)})

    def _read_return(self, node: ast.Return | ast.Yield | ast.YieldFrom) -> _Sources:
        """Record that the enclosing function returns or yields a value; return its sources."""
        sources = self._read_parts(node)
        # One of the enclosing nodes is the function. The entries of the others, such as an ``if``
        # around the ``return``, are never read.
        for enclosing_node in self._enclosing_nodes:
            self._add_to(self._sources_returned_by[enclosing_node], sources)
        is_generator = not isinstance(node, ast.Return)
        if is_generator or (node.value is not None and self._makes_moving_object(node.value)):
            names = [getattr(each, "name", "") for each in self._enclosing_nodes]
            self._add_to(self._moving_variables, filter(None, names))
        self._record_jump(sources)
        return sources

    def _read_change(self, node: ast.AST, targets: Iterable[ast.expr]) -> _Sources:
        """Record that a statement such as ``a += b`` or ``del a[0]`` changes its targets."""
        sources = self._read_parts(node)
        for target in targets:
            self._record_change(target, sources)
        return sources

    def _read_definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> _Sources:
        """Read the definition of a function, whose parameters get at least their defaults."""
        self._read_all(node.decorator_list)
        if node.returns is not None:
            self.read(node.returns)
        self._add_to_parameters(node, self._read_parts(node.args))
        # ``f()`` may return the object of any variable that the function uses. So a change of the
        # result, as by ``f().append(x)``, counts for all of these variables.
        self._add_to(self._contained_variables[node.name], _names_in(node))
        # Each branch of ``if paid:`` may define a function ``f``. Then ``paid`` decides which one a
        # call of ``f`` runs: _read_function_call() adds the sources of the name to the result.
        name_sources = self._variable_sources.setdefault(node.name, set())
        self._add_to(name_sources, *self._enclosing_conditions(node.name))
        return self._read_branching(node, node.body)

    def _read_all(self, nodes: Iterable[ast.AST]) -> _Sources:
        return _Sources().union(*map(self.read, nodes))

    def _read_dict(self, keys: Sequence[ast.expr | None], values: Sequence[ast.expr]) -> _Sources:
        """Return the sources of a dict; a key of None stands for ``**``."""
        sources: _Sources = set()
        for key, value in zip(keys, values, strict=True):
            if key is None:  # ``{**record}`` has the fields of the record
                sources |= self.read(value)
            else:
                # In ``{"id": record}``, the key ``id`` is no field of the record: a script that
                # reads the key gets the whole record. enclosed() marks the record's sources, so
                # that this read does not count as the read of a single field.
                sources |= self.read(key) | enclosed(self.read(value))
        return sources

    def _read_formed_value(self, node: ast.Compare | ast.JoinedStr | ast.BinOp) -> _Sources:
        """Return the sources of a comparison's result, or of a text with values in it."""
        sources = self._read_parts(node)
        # ``value in numbers`` moves an iterator on to the value; ``text % table`` may read any key.
        match node:
            case ast.Compare(comparators=read_nodes):
                pass
            case ast.BinOp(right=right):
                read_nodes = [right]
            case _:
                read_nodes = []
        for each in read_nodes:
            self._record_move(each, sources)
        match node:
            # ``record is None`` reveals no field of the record.
            case ast.Compare(ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant()]):
                return without_whole_results(sources)
            case _:
                # The value may reveal all fields of a record, even where the script then reads
                # only a part of the value, as in ``str(record)[:9]``.
                return enclosed(sources)

    def _read_match(self, node: ast.Match) -> _Sources:
        """Return the sources of a ``match`` statement, whose subject decides which case runs."""
        guards = [case.guard for case in node.cases if case.guard is not None]
        # A pattern such as ``{"paid": True}`` may test any field of the subject, so that all
        # sources of the subject are sources of the condition. They are added here, because
        # _read_branching() leaves out whole results, which stand for all fields.
        self._add_to(self._condition_sources[node], self.read(node.subject))
        return self._read_branching(node, [node.subject, *node.cases], tests=guards)

    def _read_test(self, test: ast.expr) -> _Sources:
        """Return the actions and fields whose values decide a condition.

        ``if rows`` tests only whether there are rows, which reveals no field of the rows, so that
        the source ``whole result`` is left out. ``if "Bob" in str(rows)`` searches all fields: the
        text encloses the rows, and its source ``enclosed result`` is kept.
        """
        return without_unenclosed_results(self.read(test))

    def _read_comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
    ) -> _Sources:
        """Bind the variables of a comprehension, and return the sources of its value.

        In ``[row.name for row in rows if row.paid]``, the rows and the test decide how many items
        the list has. Their sources are therefore sources of the list. They are not added to the
        variable ``row`` (``ignores_conditions``), which gets only the sources of a row.
        """
        conditions = self._condition_sources[node]
        # The conditions are not known yet, and are added in the loop below.
        with self._visiting(node, set()):
            for clause in node.generators:
                self._bind_loop_target(clause.target, clause.iter, ignores_conditions=True)
                # The number of rows reveals none of their fields.
                self._add_to(conditions, without_whole_results(self.read(clause.iter)))
                self._add_to(conditions, *map(self._read_test, clause.ifs))
            if isinstance(node, ast.DictComp):
                return conditions | self._read_dict([node.key], [node.value])
            sources = conditions | self.read(node.elt)
            if isinstance(node, ast.GeneratorExp):
                # In ``any(n == wanted for n in numbers)``, the item decides where reading ends.
                for clause in node.generators:
                    self._record_move(clause.iter, sources)
            return sources

    def _bind_loop_target(
        self, target: ast.expr, rows: ast.expr, *, ignores_conditions: bool = False
    ) -> None:
        """Record the sources of the variables to which a loop or comprehension assigns its rows.

        Args:
            target: The variable, or the tuple of variables.
            rows: The expression of the rows.
            ignores_conditions: Whether the conditions around the loop are no sources of the
                variables; True for a comprehension, whose value has these sources instead.
        """
        # The conditions around and in the loop decide how far an iterator moves on.
        self._record_move(rows, set())
        if isinstance(target, ast.Tuple) and isinstance(rows, ast.Call):
            name = dotted(rows.func)
            is_shadowed = self._is_variable_or_function(name)
            has_star = any(map(_is_starred, (*target.elts, *rows.args)))
            if name == "enumerate" and not is_shadowed and not has_star:
                self._bind_enumerated(target, rows, ignores_conditions=ignores_conditions)
                return
            if name == "zip" and not is_shadowed and not has_star:
                self._bind_zipped(target, rows, ignores_conditions=ignores_conditions)
                return
        self._bind(target, self.read(rows), _item_of(rows), ignores_conditions=ignores_conditions)

    def _bind_enumerated(
        self, target: ast.Tuple, rows: ast.Call, *, ignores_conditions: bool
    ) -> None:
        """Record the sources of the variables in ``for number, item in enumerate(values)``."""
        match target.elts, rows.args:
            case [number, item], [values, *start]:
                # The number comes only from the argument ``start``, not from the values.
                start += [each.value for each in rows.keywords]
                self._bind(
                    number, self._read_all(start), rows, ignores_conditions=ignores_conditions
                )
                self._bind(
                    item,
                    self.read(values),
                    _item_of(values),
                    ignores_conditions=ignores_conditions,
                )
            case _:
                self._bind(
                    target,
                    self.read(rows),
                    _item_of(rows),
                    ignores_conditions=ignores_conditions,
                )

    def _bind_zipped(self, target: ast.Tuple, rows: ast.Call, *, ignores_conditions: bool) -> None:
        """Record the sources of the variables in ``for a, b in zip(first, second)``."""
        if len(target.elts) != len(rows.args):
            self._bind(
                target, self.read(rows), _item_of(rows), ignores_conditions=ignores_conditions
            )
            return
        # zip() ends with the shortest list. So the length of each list also decides which items of
        # the other lists the script gets. A length reveals no field of the items, so that whole
        # results, which stand for all fields, are left out.
        length_sources = without_whole_results(self.read(rows))
        for each, values in zip(target.elts, rows.args, strict=True):
            sources = self.read(values) | length_sources
            self._bind(each, sources, _item_of(values), ignores_conditions=ignores_conditions)

    def _read_branching(
        self, node: ast.AST, parts: Iterable[ast.AST], tests: Iterable[ast.expr] = ()
    ) -> _Sources:
        """Collect the sources of a node whose parts decide which parts run, such as ``a or b``.

        Args:
            node: The node.
            parts: The parts of the node.
            tests: Further parts, which decide which of ``parts`` run and are not the node's value.

        Returns:
            The sources: the actions and fields from which the values in all parts come.
        """
        # While the parts are read, _enclosing_conditions() yields the sources in
        # ``_condition_sources[node]``. In the first pass over the scripts, the set is still empty.
        # It is filled below, after which _read_until_complete() makes another pass.
        with self._visiting(node, set()):
            test_sources = _Sources().union(*map(self._read_test, tests))
            sources = self._sources_read_in[node]
            self._add_to(sources, test_sources, self._read_all(parts))
            # Any part may raise an exception, which skips the parts after it. For example, the
            # statement ``ship(row["id"])`` in a ``try`` fails if the field ``id`` is missing. Only
            # the fields that the part names can cause that, so whole results, which stand for all
            # fields, are left out.
            exception_sources = without_whole_results(sources)
            self._add_to(self._condition_sources[node], test_sources, exception_sources)
            return sources

    def _read_parts(self, node: ast.AST) -> _Sources:
        return self._read_all(ast.iter_child_nodes(node))

    def _read_passed_function(self, node: ast.Lambda) -> _Sources:
        """Read a lambda that may be called at any time, with any values."""
        self._record_passed_function(node)
        with self._visiting(node, set()):
            return self._read_parts(node)

    def _record_passed_function(self, function: _Function) -> None:
        """Record that a function may be called as often as any value says, with any values.

        So what the function changes outside of itself has unknown sources.
        """
        self._add_to_parameters(function, {UNKNOWN})
        self._add_to(self._parameters_of_any_object, _parameters(function))
        self._add_to(self._condition_sources[function], {UNKNOWN})

    def _sources_of_name(self, name: str) -> _Sources:
        """Return the actions and fields from which the value of a name comes.

        Also record uses that the analysis cannot follow: a function as a value, and a name without
        a binding, which may be the name of a connection or builtin.

        The set contains ``UNKNOWN`` if the script does not show where the value comes from.
        """
        functions = self._functions.get(name)
        if functions:
            # The function is used as a value, so that it may be called with any arguments.
            for function in functions:
                self._record_passed_function(function)
            return {UNKNOWN}
        if name in self._variable_sources or name in self._modules:
            sources = self._variable_sources.get(name, set())
            # The variable's object may also have been changed through another variable.
            is_changeable = name not in self._immutable_variables
            if is_changeable:
                return sources | self._alias_change_sources
            return {*sources}
        if name in _HARMLESS_BUILTINS.split():
            return set()
        self._unbound_reads.add(name)
        return {UNKNOWN}

    def _read_call(self, call: ast.Call) -> _Sources:
        """Return the sources of the result of a call: of an action, or of any other function."""
        name = dotted(call.func)
        if self._is_variable_or_function(name):
            return self._read_function_call(call)
        parameters = self._parameters_of(name)
        if parameters is None:
            return self._read_function_call(call)
        return self._read_action_call(call, parameters)

    def _read_action_call(self, call: ast.Call, parameters: Sequence[str]) -> _Sources:
        """Record the sources of an action call's arguments; return the sources of its result."""
        name = dotted(call.func)
        values = arguments_of_action(call, parameters).items()
        sources_by_parameter = {parameter: self.read(value) for parameter, value in values}
        self._argument_sources[name][call] = sources_by_parameter
        # A service may copy a whole record from its arguments into one field of its result. A
        # script that reads only this field still gets the whole record, so that enclosed() marks
        # the sources of the arguments.
        return result_of(name).union(*map(enclosed, sources_by_parameter.values()))

    def _is_variable_or_function(self, name: str) -> bool:
        """Return whether a dotted name begins with a variable or function of the scripts."""
        root = name.partition(".")[0]
        return root in self._variable_sources or root in self._functions

    def _is_harmless(self, name: str) -> bool:
        """Return whether a dotted name is a known function that changes no argument.

        A function is known if it is a builtin or belongs to a module in ``_HARMLESS_MODULES``.
        """
        is_known = name.partition(".")[0] in self._modules or name in _HARMLESS_BUILTINS.split()
        # next() is a known function, but changes its argument: it takes an item of the iterator.
        is_changing = name == "next" or name.rpartition(".")[2] in self._names_of_changing_functions
        return is_known and not is_changing and not self._is_variable_or_function(name)

    def _is_changing(self, node: ast.expr) -> bool:
        """Return whether a value is a function such as ``setcontext``, which another calls."""
        return dotted(node).rpartition(".")[2] in self._names_of_changing_functions

    def _read_function_call(self, call: ast.Call) -> _Sources:
        """Record into which variables and parameters the arguments of a call flow.

        The call is a call of a function or method, and not of an action.

        Returns:
            The actions and fields from which the call's result comes.
        """
        name = dotted(call.func)
        # Reading the arguments may add variables, so that this value is computed before.
        arguments = [*call.args, *(each.value for each in call.keywords)]
        is_harmless = self._is_harmless(name) and not any(map(self._is_changing, arguments))
        method = ""
        receiver = call.func
        if isinstance(receiver, ast.Attribute):
            method = receiver.attr
            receiver = receiver.value
        # The functions of the script with this name; it may define several.
        functions = self._functions.get(name, ())
        if functions:
            # A function of the script has no receiver. If a condition decides which of several
            # definitions the name has, _read_definition() has added the sources of the condition to
            # the sources of the name.
            receiver_sources = self._variable_sources.get(name, set())
        else:
            receiver_sources = self.read(receiver)
        argument_sources = self._read_all(each for each in arguments if not _is_lambda(each))
        lambda_sources = self._read_lambdas(arguments, receiver_sources | argument_sources)
        result_sources: _Sources = set()
        for function in functions:
            result_sources |= self._follow_into_function(function, call, arguments)
        fields_read = _fields_read_by_call(call, method)
        # After ``def len(rows): …``, the name ``len`` is not that of the builtin.
        is_shadowed = not method and self._is_variable_or_function(name)
        known_name = "" if is_shadowed else method or name
        result_sources |= self._sources_of_result(
            known_name,
            field_of_value(receiver_sources, fields_read),
            argument_sources,
            lambda_sources,
            is_followed=bool(functions),
        )
        # ``list.append(rows, row)`` changes its argument ``rows``, and not the receiver ``list``.
        is_receiver_builtin = dotted(receiver) in _HARMLESS_BUILTINS.split()
        changes_receiver = method in _CHANGING_METHODS.split() and not is_receiver_builtin
        changes_nothing_else = functions or is_harmless or method in _READING_METHODS.split()
        if changes_receiver:
            self._record_change_by_method(method, receiver, argument_sources | lambda_sources, call)
        elif not changes_nothing_else:
            # An unknown function may put any argument into any other argument.
            for each in (receiver, *arguments):
                if isinstance(each, (ast.Name, ast.Subscript, ast.Attribute, ast.Starred)):
                    self._add_to_variables(_variables_reaching(each), result_sources)
        # Also a harmless function moves an iterator, as far as its other arguments say.
        if not functions:
            for each in (receiver, *arguments):
                self._record_move(each, result_sources)
        return result_sources

    def _record_change_by_method(
        self, method: str, receiver: ast.expr, argument_sources: _Sources, call: ast.Call
    ) -> None:
        """Record that a method such as ``append`` puts its arguments into its object."""
        # After ``rows.append(record)``, the record is an item of ``rows``, and a field of the item
        # is a field of the record. After ``wrapped.update(id=record)``, the field ``id`` is the
        # whole record, which enclosed() marks.
        adds_items = method in _METHODS_THAT_ADD_ITEMS.split()
        added_sources = argument_sources if adds_items else enclosed(argument_sources)
        self._record_change(receiver, added_sources, call)

    def _read_lambdas(self, arguments: Sequence[ast.expr], passed_sources: _Sources) -> _Sources:
        """Read the lambdas among a call's arguments; return the sources of their results.

        Args:
            arguments: The arguments of the call.
            passed_sources: The sources of the receiver and of the other arguments. The called
                function can pass nothing else to the parameters of a lambda, which otherwise get
                their defaults.
        """
        result_sources: _Sources = set()
        for each in arguments:
            if isinstance(each, ast.Lambda):
                default_sources = self._read_parts(each.args)
                self._add_to_parameters(each, passed_sources | default_sources)
                for name in _parameters(each):
                    self._add_to(self._contained_variables[name], *map(_names_in, arguments))
                # The other arguments decide how often the lambda is called, as ``values`` does in
                # ``map(lambda value: done.append(1), values)``.
                with self._visiting(each, passed_sources):
                    result_sources |= self._read_parts(each)
        return result_sources

    @staticmethod
    def _sources_of_result(
        function: str,
        receiver_sources: _Sources,
        argument_sources: _Sources,
        lambda_sources: _Sources,
        *,
        is_followed: bool,
    ) -> _Sources:
        """Return the sources that the result of a function or method has by its arguments.

        If an argument is a record of an action's result, its sources have a ``whole result``, which
        stands for all fields of the record. What happens to this source depends on the function:

        - A function of the script, and ``map`` with a lambda, show in their bodies which fields
          they use. The source is dropped.
        - ``len`` uses no field. The source is dropped.
        - A function such as ``sorted`` or ``max`` returns records as they are. The source stays, so
          that a later read of a field takes its place.
        - Any other function may put the record into a field of its result. The source becomes an
          ``enclosed result``, which a later read of a field does not replace.

        Args:
            function: The name of the function or method; empty for a function of unknown effect.
            receiver_sources: The sources of what the method reads of its object.
            argument_sources: The sources of the arguments that are no lambda.
            lambda_sources: The sources of the results of lambdas among the arguments.
            is_followed: Whether the script defines the function. The caller then adds the sources
                of what the function's body returns.
        """
        has_known_body = is_followed or (function == "map" and bool(lambda_sources))
        if has_known_body:
            return without_whole_results(receiver_sources | argument_sources) | lambda_sources
        sources = receiver_sources | argument_sources | lambda_sources
        if function == "len":
            return without_whole_results(sources)
        if function in _SELECTING_FUNCTIONS.split():
            return sources
        return enclosed(sources)

    def _follow_into_function(
        self, function: _Function, call: ast.Call, arguments: Sequence[ast.expr]
    ) -> _Sources:
        """Follow a call's arguments into a function that the script defines.

        Returns:
            The sources of the function's result.
        """
        parameters = function.args
        positional = [*parameters.posonlyargs, *parameters.args]
        named = arguments_of(call, [parameter.arg for parameter in positional])
        # The conditions around this call also decide whether the function changes variables that
        # are defined outside of it.
        self._add_to(self._condition_sources[function], *self._enclosing_conditions())
        # An argument that the call passes with * or ** may belong to any parameter.
        unpacked_arguments = named.get("*")
        for parameter in (*positional, *parameters.kwonlyargs):
            value = named.get(parameter.arg, unpacked_arguments)
            if value is not None:
                # The function's condition already has the conditions around the call.
                self._bind(
                    ast.Name(parameter.arg), self.read(value), value, ignores_conditions=True
                )
        # The function's own ``*args`` and ``**kwargs`` may receive any of the arguments, and are
        # collections that contain whole records (``enclosed``).
        any_argument = ast.Tuple([*arguments])
        for parameter in (parameters.vararg, parameters.kwarg):
            if parameter is not None:
                sources = enclosed(self.read(any_argument))
                self._bind(ast.Name(parameter.arg), sources, any_argument, ignores_conditions=True)
        sources_read = self._sources_read_in[function]
        if _is_lambda(function):
            return sources_read  # all that a lambda reads may be in its result
        # The body also reads values that it does not return, such as ``row["paid"]`` in ``if
        # row["paid"]: return 1``. The result then depends on the field ``paid``, but on no other
        # field of the row, so that whole results, which stand for all fields, are left out.
        return without_whole_results(sources_read) | self._sources_returned_by[function]

    def _assign(self, targets: Sequence[ast.expr], value: ast.expr) -> _Sources:
        """Record that an assignment binds its targets to a value; return the value's sources."""
        sources = self.read(value)
        if len(targets) == 1:
            self._bind(targets[0], sources, value)
            return sources
        # The variables of ``a = b = []`` refer to one object. Each target is therefore bound as if
        # to an item of a tuple of all targets: the targets then count as aliased, and a change of
        # one target counts for all.
        shared_value = _item_of(ast.Tuple([value, *targets]))
        for target in targets:
            self._bind(target, sources, shared_value)
        return sources

    def _bind(
        self,
        target: ast.AST,
        sources: _Sources,
        value: ast.expr,
        *,
        ignores_conditions: bool = False,
    ) -> None:
        """Add the sources of a value to the variables that an assignment target binds.

        Args:
            target: The assignment target.
            sources: The actions and fields from which the value comes.
            value: The expression of the value.
            ignores_conditions: Whether the conditions around the assignment are no sources of the
                value, as for a parameter of a called function or a variable of a comprehension.
        """
        match target:
            case ast.Name(id=name):
                conditions = () if ignores_conditions else self._enclosing_conditions(name)
                self._add_to(self._variable_sources[name], sources, *conditions)
                self._record_object(name, value)
            case ast.Attribute(value=changed_node):
                self.read(changed_node)
                self._record_change(changed_node, enclosed(sources), value)
            case ast.Subscript(value=changed_node, slice=index):
                self.read(changed_node)
                self._record_change(changed_node, enclosed(sources) | self.read(index), value)
            case _:
                # Each variable of ``a, b = value`` gets an item of the value.
                for each in ast.iter_child_nodes(target):
                    self._bind(
                        each, sources, _item_of(value), ignores_conditions=ignores_conditions
                    )

    def _record_object(self, name: str, value: ast.expr) -> None:
        """Record through which other variables the object of an assigned variable may change.

        Args:
            name: The name of the variable.
            value: The expression of the assigned value.
        """
        # After ``a = [b]``, a change of ``a[0]`` is also a change of ``b``.
        self._add_to(self._contained_variables[name], _names_in(value))
        if self._makes_moving_object(value):
            self._add_to(self._moving_variables, [name])
        is_immutable_value = isinstance(value, (ast.Constant, ast.JoinedStr))
        if not is_immutable_value and name in self._immutable_variables:
            self._immutable_variables.discard(name)
            # Until now, reads of the variable did not count changes through other variables
            # (``_alias_change_sources``). Another pass reads the scripts again.
            self._has_new_sources = True
        # After ``a = b``, a change of ``a`` is also a change of ``b``, or of any variable that
        # refers to the same object. After ``a = [b]``, no other variable refers to the new list.
        if not self._creates_object(value):
            self._add_to(self._aliased_variables, [name])

    def _creates_object(self, value: ast.expr) -> bool:
        """Return whether an expression creates a new object, to which no variable refers yet."""
        if isinstance(value, ast.Await):
            value = value.value
        if not isinstance(value, ast.Call):
            return isinstance(value, _NEW_VALUES)
        name = dotted(value.func)
        if self._is_variable_or_function(name):
            return False
        if self._parameters_of(name) is not None:
            return True  # an action returns a new object
        _, _, function = name.rpartition(".")
        return function in _CONSTRUCTORS.split()

    def _makes_moving_object(self, node: ast.AST, *, is_consumed: bool = False) -> bool:
        """Return whether a value is, or contains, a new object that changes when it is read.

        Args:
            node: The expression of the value.
            is_consumed: Whether an enclosing expression reads the object to its end, as ``list``
                does in ``list(zip(a, b))``.
        """
        match node:
            case ast.GeneratorExp() if not is_consumed:
                return True
            case ast.Name(id=name) | ast.Attribute(attr=name) if (
                name in self._names_of_moving_functions
            ):
                return True  # the function itself, as in ``map(iter, lists)``
            case ast.Starred(value=value) | ast.comprehension(iter=value):
                return self._makes_moving_object(value, is_consumed=True)
            case ast.Call(func=function, args=args, keywords=keywords):
                name = dotted(function)
                is_action = self._parameters_of(name) is not None
                if is_action and not self._is_variable_or_function(name):
                    return False
                root, _, _ = name.partition(".")
                # A method such as ``", ".join`` has no dotted name.
                last = function.attr if isinstance(function, ast.Attribute) else name
                makes = last in self._names_of_moving_functions or root in self._names_of_itertools
                # Functions such as groupby() return iterators of iterators.
                has_plain_items = (
                    last in _ITERATORS_OF_PLAIN_ITEMS.split()
                    or last in self._names_of_moving_functions
                )
                if makes and not (is_consumed and has_plain_items):
                    return True
                consumes = makes or last in _CONSUMING_FUNCTIONS.split()
                parts = [*args, *(each.value for each in keywords)]
                return any(self._makes_moving_object(each, is_consumed=consumes) for each in parts)
            case _:
                parts = ast.iter_child_nodes(node)
                return any(map(self._makes_moving_object, parts))

    def _record_move(self, node: ast.expr, sources: _Sources) -> None:
        """Record that a script reads an object, if reading changes the object.

        Args:
            node: The expression of the object.
            sources: The actions and fields whose values decide how far an iterator moves on, or
                which key a defaultdict gets.
        """
        moving = self._moving_variables | self._parameters_of_any_object
        names = [*_variables_reaching(node)]
        inside = self._names_inside(
            name for name in names if not moving.isdisjoint(self._names_inside([name]))
        )
        if not inside:
            return
        # A value of an unknown origin may be any such object. A constant key tells little of it.
        if sources and not inside.isdisjoint(self._parameters_of_any_object):
            inside |= self._names_inside(self._moving_variables)
        # Other variables may refer to the same object, or to one that reads it.
        moved = inside & moving
        others = self._names_containing(moved)
        # A module of such a function, such as ``itertools``, is also that of other objects.
        changed = (inside | others) - self._modules
        self._add_to_variables(changed, sources, is_deep=False)

    def _names_containing(self, names: AbstractSet[str]) -> AbstractSet[str]:
        """Return names and those of the variables whose objects may contain theirs."""
        containers: dict[str, list[str]] = defaultdict(list)
        for container, contained in self._contained_variables.items():
            for name in contained:
                containers[name].append(container)
        found = {*names}
        remaining = [*found]
        while remaining:
            new = [each for each in containers.get(remaining.pop(), ()) if each not in found]
            found.update(new)
            remaining += new
        return found

    def _names_inside(self, names: Iterable[str]) -> AbstractSet[str]:
        """Return names and those of the variables whose objects theirs may contain."""
        inside = {*names}
        remaining = [*inside]
        while remaining:
            new = self._contained_variables.get(remaining.pop(), set()) - inside
            inside |= new
            remaining += new
        return inside

    def _record_change(self, node: ast.AST, sources: _Sources, *added: ast.AST) -> None:
        """Record that an object is changed in place, such as ``rows`` by ``rows.append(x)``.

        The sources of the change are added to the variables in the expression, here ``rows``. If
        the object may also belong to other variables, as after ``rows = all_rows``, the sources are
        also added to ``_alias_change_sources``: they then count as sources of each variable
        that may hold a mutable object.

        Args:
            node: The expression whose value is the changed object, such as ``a.b`` for a change of
                the variable ``a``.
            sources: The actions and fields from which the change comes.
            added: The expressions whose values the object contains afterwards.
        """
        # ``a.append(x)`` changes the object of ``a`` itself. ``a[0].append(x)`` changes a part of
        # it, which is also the object of ``b`` after ``a = [b]``.
        is_part_changed = not isinstance(node, ast.Name)
        if is_part_changed:
            # After ``a["rows"].append(record)``, a script that reads ``a["rows"]`` gets the whole
            # record. With enclosed(), this does not count as the read of a single field of the
            # record.
            sources = enclosed(sources)
        names = [*_variables_reaching(node)]
        # After ``a.append(b)``, the object of ``a`` contains that of ``b``.
        for name in names:
            self._add_to(self._contained_variables[name], *map(_names_in, added))
        if any(map(self._makes_moving_object, added)):
            self._add_to(self._moving_variables, names)
        # After ``a = []``, no other variable than ``a`` refers to the list. After ``a = b``, the
        # object of ``a`` is also that of ``b``: ``a`` is aliased.
        unaliased_variables = self._variable_sources.keys() - self._aliased_variables
        # An expression without variables, such as ``f()``, may have the object of any variable.
        may_be_aliased = not names or not {*names} <= unaliased_variables
        if may_be_aliased:
            self._add_to(self._alias_change_sources, sources, *self._enclosing_conditions())
        # If a part is changed, also add the sources to each variable whose object may be the part.
        self._add_to_variables(names, sources, is_deep=is_part_changed)

    def _add_to_variables(
        self, changed: Iterable[str], sources: _Sources, *, is_deep: bool = True
    ) -> None:
        """Add sources to changed variables.

        Args:
            changed: The names of the changed variables.
            sources: The actions and fields from which the new values in the variables come.
            is_deep: Whether objects inside the objects of the changed variables may have changed,
                too. The sources are then also added to each variable that may refer to such an
                inner object.
        """
        reached_names = [*changed]
        # The list grows during this loop: the variables whose objects may be inside the object of
        # ``name`` are appended, and then visited, too.
        for name in reached_names:
            # Other names, such as those of builtins, have no value that the script could change. A
            # module counts, because the script can store a value in it.
            if name in self._variable_sources or name in self._modules:
                known = self._variable_sources.setdefault(name, set())
                # In ``if paid: rows.append(x)``, the length of ``rows`` tells whether ``paid`` was
                # true. So the sources of the condition are added, too.
                self._add_to(known, sources, *self._enclosing_conditions(name))
            if is_deep:
                reached_names += self._contained_variables[name].difference(reached_names)

    @contextmanager
    def _visiting(self, node: ast.AST, sources: _Sources) -> Generator[None]:
        """Mark a node as the innermost loop, condition or function while its parts are read.

        Args:
            node: The node.
            sources: The actions and fields whose values decide whether or how often the parts run.
        """
        self._add_to(self._condition_sources[node], sources)
        if node not in self._use_counts_in:
            # For _enclosing_conditions(), which asks whether a variable is used only in the node.
            self._use_counts_in[node] = _count_uses(node)
        self._enclosing_nodes.append(node)
        try:
            yield
        finally:
            self._enclosing_nodes.pop()

    def _enclosing_conditions(self, variable: str | None = None) -> Iterator[_Sources]:
        """Yield the sources of the condition of each enclosing loop or branch.

        Args:
            variable: The name of a variable; None to leave out nothing. A loop or branch that
                contains all uses of this variable is left out. For example, ``if paid: text =
                "paid"`` is the only place that uses ``text``. No statement outside of the ``if``
                can then find out, by the value of ``text``, whether ``paid`` was true.

        Yields:
            The actions and fields from which the values in the condition come.
        """
        for node in self._enclosing_nodes:
            # If the node has as many uses of the name as all scripts together, no statement outside
            # of the node uses the name.
            has_all_uses = (
                variable is not None
                and self._use_counts_in[node][variable] >= self._use_counts[variable]
            )
            if not has_all_uses:
                yield self._condition_sources[node]

    def _record_jump(self, value_sources: _Sources) -> None:
        """Record a statement that leaves a loop or function, such as ``return`` or ``break``.

        After ``if row["paid"]: continue``, the other statements of the loop run only if the field
        ``paid`` is false, although they are outside of the ``if``. So the sources of all conditions
        around the jump are added to the condition of each enclosing loop, branch and function.

        Args:
            value_sources: The actions and fields from which the returned value comes, if any.
        """
        # A statement such as ``return row`` reveals no field of the row by leaving the function, so
        # that whole results, which stand for all fields, are left out.
        jump_sources = without_whole_results(value_sources).union(*self._enclosing_conditions())
        for node in self._enclosing_nodes:
            self._add_to(self._condition_sources[node], jump_sources)

    def _add_to_parameters(self, node: ast.AST, sources: _Sources) -> None:
        for name in _parameters(node):
            self._add_to(self._variable_sources[name], sources)

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


def _parameters(node: ast.AST) -> Iterator[str]:
    """Yield the parameter names of a function or lambda, or of all methods of a class."""
    tree = getattr(node, "args", node)
    return (each.arg for each in ast.walk(tree) if isinstance(each, ast.arg))


def _is_lambda(node: ast.AST) -> bool:
    return isinstance(node, ast.Lambda)


def _is_starred(node: ast.AST) -> bool:
    return isinstance(node, ast.Starred)


def _item_of(values: ast.expr) -> ast.expr:
    """Return an expression that stands for one of the items of a list or other iterable.

    In ``for row in rows``, the script has an expression for the rows, but none for a single row.
    The analysis uses the starred expression ``*rows`` for it, because this expression

    - contains the name ``rows``, so that a change of the row counts for ``rows``, too
    - is none of the ``_NEW_VALUES``, so that ``row`` counts as aliased: its object may also be that
      of another variable, such as ``first`` after ``first = rows[0]``
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


def _variables_reaching(node: ast.AST) -> Iterator[str]:
    """Yield the variables of which an expression reads a part: ``a`` for ``a.b["c"]``.

    For an expression that does not read a part of an object, yield all names in the expression.
    """
    match node:
        case ast.Subscript(value=value) | ast.Attribute(value=value):
            yield from _variables_reaching(value)
        # ``a.get(key, default)`` returns a part of ``a``, or the default.
        case ast.Call(
            func=ast.Attribute(value=value, attr="get" | "setdefault"), args=[_key, *defaults]
        ):
            for part in (value, *defaults):
                yield from _variables_reaching(part)
        case _:
            yield from _names_in(node)


def _count_uses(node: ast.AST) -> Counter[str]:
    """Count how often a loop, condition or function uses each name.

    :meth:`Scripts._enclosing_conditions` compares these counts with the counts in all scripts, to
    find the variables that the script uses only inside of the node.

    Of a ``try`` statement, only the uses in its body are counted. A use in a handler is one outside
    of the body: after ``try: text = "a"; ship(); text = "b"``, a handler that reads ``"a"`` knows
    that ``ship()`` failed.
    """
    if isinstance(node, (ast.Try, ast.TryStar)):
        return Counter(name for statement in node.body for name in _names_in(statement))
    return Counter(_names_in(node))


def _names_in(node: ast.AST) -> Iterator[str]:
    return (each.id for each in ast.walk(node) if isinstance(each, ast.Name))
