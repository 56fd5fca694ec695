"""Sources of the values of a script's calls, read from the script's text.

The analysis follows values from constants and from results of calls to the arguments of calls. It
ignores the order of statements: a variable has the sources of all values that the scripts give it.
What decides whether or how often a statement runs is a source of all that the statement assigns.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from delf_engine.origins.syntax import arguments_of, dotted, letters_of_name
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
_REFLECTION_NAMES: Final = ("globals", "locals", "vars", "setattr", "exec", "eval")
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
_BRANCHING_NODES: Final = (
    *(ast.Try, ast.TryStar, ast.With, ast.AsyncWith),
    *(ast.BoolOp, ast.IfExp, ast.Match),
)
UNKNOWN: Final = "?"
"""Stands for a source or a field name that the script does not show."""
FIELD: Final = "."
"""Marks a source that is the name of a field instead of an action, such as ``.email``."""
_Sources = set[str]
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class Scripts:
    """Data flow analysis of a task's scripts: which action results flow into which arguments.

    Only scripts whose author had read no untrusted data are analysed. The scripts share their
    variables.

    Args:
        parameters_of: Returns the parameter names of an action; None if there is no such action.
        given: The names of variables that hold untrusted data before the first script.
    """

    def __init__(
        self, parameters_of: Callable[[str], Sequence[str] | None], given: Iterable[str] = ()
    ) -> None:
        self._parameters_of = parameters_of
        self._trees: list[ast.Module] = []
        # The sources of the arguments of each call in the last script, by action and call.
        self._calls: dict[str, dict[ast.Call, Mapping[str, _Sources]]] = defaultdict(dict)
        # The sources of each variable.
        self._values: dict[str, _Sources] = {name: {UNKNOWN} for name in given}
        # For each variable, the other variables whose objects its value may contain.
        self._contained: dict[str, _Sources] = defaultdict(set)
        # The variables whose object another variable may also refer to, or contain.
        self._shared: set[str] = set()
        # The variables that refer only to immutable values: texts and numbers.
        self._fixed: set[str] = set()
        # The sources of all changes to shared objects, to which any variable may refer.
        self._shared_changes: _Sources = set()
        self._functions: dict[str, list[_Function]] = defaultdict(list)
        # The sources that decide whether or how often a statement runs.
        self._decisive: dict[ast.AST, _Sources] = defaultdict(set)
        # The sources that a function reads, so that its result may come from them.
        self._inside: dict[ast.AST, _Sources] = defaultdict(set)
        # The number of times that each name occurs in the scripts.
        self._uses: Counter[str] = Counter()
        # The number of times that each name occurs in a loop, condition or function.
        self._uses_in: dict[ast.AST, Counter[str]] = {}
        # The loops, conditions and functions that enclose the visited node, outermost first.
        self._enclosing: list[ast.AST] = []
        self._modules: set[str] = set()
        # The names without a binding that the script reads.
        #
        # A name that is only the function of an action call does not count.
        self._unbound_reads: set[str] = set()
        self._has_grown = True
        # The results of :meth:`sources` for the last script.
        self._cached_sources: dict[tuple[str, str, int | None], frozenset[str] | None] = {}

    def add(self, code: str) -> None:
        """Analyse another script of the task; invalid Python is ignored."""
        self._cached_sources.clear()
        try:
            tree = ast.parse(code)
            self._trees.append(tree)
            self._declare(tree)
            self._uses.update(_names_in(tree))
            self._fixed = {*self._values} - self._shared
            # Sources only grow, so passes end. Earlier scripts are read again, because this one may
            # change the lists to which their variables refer.
            for _ in range(_MAX_PASSES):
                self._has_grown = False
                for each in self._trees:
                    self._calls.clear()  # lines of an earlier script mean other calls
                    self.read(each)
                if not self._has_grown:
                    return
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            pass
        self._calls.clear()  # the analysis did not end, so that each call counts as unknown

    def sources(self, action: str, path: str, line: int | None) -> frozenset[str] | None:
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

    def _find_sources(self, action: str, parameter: str, line: int | None) -> frozenset[str] | None:
        arguments_by_call = [
            arguments
            for call, arguments in self._calls[action].items()
            if line is None or call.lineno <= line <= (call.end_lineno or 0)
        ]
        if not arguments_by_call or self._unbound_reads.intersection(
            (*_REFLECTION_NAMES, action.partition(".")[0])
        ):
            return None
        name = letters_of_name(parameter)
        values = [arguments.get(name, arguments.get("*")) for arguments in arguments_by_call]
        known = [sources for sources in values if sources is not None]
        return frozenset[str]().union(*known or [{UNKNOWN}])

    def _declare(self, tree: ast.Module) -> None:
        """Record the names that a script binds.

        Names bound by other means than an assignment, a call or a harmless import have unknown
        sources.
        """
        for node in ast.walk(tree):
            names: Sequence[str | None] = ()
            match node:
                case ast.Name(id=name, ctx=ast.Store()):
                    self._values.setdefault(name, set())
                case ast.arg(arg=name):
                    self._values.setdefault(name, set())
                    self._shared.add(name)
                case ast.FunctionDef(decorator_list=[]) | ast.AsyncFunctionDef(decorator_list=[]):
                    self._functions[node.name].append(node)
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda() as function):
                    self._functions[name].append(function)
                case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                    modules = {getattr(node, "module", None) or each.name for each in aliases}
                    names = [each.asname or each.name.partition(".")[0] for each in aliases]
                    # A script may import a name in different ways under a condition.
                    if modules <= {*_HARMLESS_MODULES.split()} and node in tree.body:
                        self._modules.update(names)
                        names = ()
                case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                    names = [node.name, *_parameters(node)]
                case ast.ExceptHandler() | ast.MatchAs() | ast.MatchStar() | ast.MatchMapping():
                    names = [getattr(node, "name", None) or getattr(node, "rest", None)]
                case _:
                    pass
            for name in filter(None, names):
                self._values.setdefault(name, set()).add(UNKNOWN)
                self._shared.add(name)

    def read(self, node: ast.AST) -> _Sources:
        """Return where the values that a node reads come from, and record what the node assigns."""
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                return self._sources_of(name)
            case ast.Attribute(value=value, attr=name):
                if name in _CHANGING_METHODS.split():  # a method that the script passes on
                    self._change(value, {UNKNOWN})
                if name.startswith("__"):  # such as ``__globals__``
                    self._unbound_reads.add(_REFLECTION_NAMES[0])
                is_field = not (isinstance(value, ast.Name) and value.id in self._modules)
                return self.read(value) | ({FIELD + name} if is_field else set())
            case ast.Subscript(value=value, slice=index):
                return self.read(value) | self.read(index) | _fields(index)
            case ast.Call():
                return self._read_call(node)
            case ast.Lambda():
                self._grow_parameters(node, {UNKNOWN})
                return self._read_parts(node)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda() as value):
                self._grow(self._contained[name], _names_in(value))
                return self._read_whole(value, ast.iter_child_nodes(value))
            case ast.Assign(targets=targets, value=value):
                return self._assign(targets, value)
            case (
                ast.AnnAssign(target=target, value=ast.expr() as value)
                | ast.NamedExpr(target=target, value=value)
                | ast.withitem(optional_vars=ast.expr() as target, context_expr=value)
            ):
                return self._assign([target], value)
            case ast.AugAssign() | ast.Delete():
                sources = self._read_parts(node)
                for each in [node.target] if isinstance(node, ast.AugAssign) else node.targets:
                    self._change(each, sources)
                return sources
            case ast.Return() | ast.Yield() | ast.YieldFrom() | ast.Break() | ast.Continue():
                return self._record_jump(self._read_parts(node))
            case ast.If(test=test) | ast.While(test=test):
                with self._within(node, self.read(test)):
                    return self._read_parts(node)
            case ast.For(target=target, iter=rows) | ast.AsyncFor(target=target, iter=rows):
                with self._within(node, self.read(rows)):
                    match target, rows:
                        case (
                            ast.Tuple(elts=[number, item]),
                            ast.Call(func=ast.Name(id="enumerate"), args=[values, *start]),
                        ):
                            # Within the loop, the rows decide only how often the script counts.
                            start += [each.value for each in rows.keywords]
                            self._bind(number, self._read_all(start), rows)
                            self._bind(item, self.read(values), ast.Starred(values))
                        case _:
                            self._bind(target, self.read(rows), ast.Starred(rows))
                    return self._read_parts(node)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                with self._within(node, set()):
                    for each in node.generators:
                        rows = ast.Starred(each.iter)
                        self._bind(each.target, self.read(rows), rows, is_passed=True)
                        self._grow(self._decisive[node], self._read_parts(each))
                    return self._decisive[node] | self._read_parts(node)
            case ast.FunctionDef(args=arguments) | ast.AsyncFunctionDef(args=arguments):
                # A condition may decide which of two functions has the name.
                self._grow_parameters(node, self._read_parts(arguments))
                self._grow(self._contained[node.name], _names_in(node))
                self._grow(self._values.setdefault(node.name, set()), *self._deciding(node.name))
                return self._read_whole(node, node.body)
            case ast.ExceptHandler(body=body):
                return self._read_all(body)
            case _ if isinstance(node, _BRANCHING_NODES):
                return self._read_whole(node, ast.iter_child_nodes(node))
            case _:
                return self._read_parts(node)

    def _read_all(self, nodes: Iterable[ast.AST]) -> _Sources:
        return set[str]().union(*map(self.read, nodes))

    def _read_whole(self, node: ast.AST, parts: Iterable[ast.AST]) -> _Sources:
        """Read a node in which any part may decide whether another part runs."""
        with self._within(node, set()):
            self._grow(self._inside[node], self._read_all(parts))
            self._grow(self._decisive[node], self._inside[node])
            return self._inside[node]

    def _read_parts(self, node: ast.AST) -> _Sources:
        return self._read_all(ast.iter_child_nodes(node))

    def _sources_of(self, name: str) -> _Sources:
        """Return the sources of the value of a name."""
        functions = self._functions.get(name)
        if functions:
            # The function is used as a value, so that it may be called with any arguments.
            for function in functions:
                self._grow_parameters(function, {UNKNOWN})
            return {UNKNOWN}
        if name in self._values or name in self._modules:
            return self._values.get(name, set()) | (
                set() if name in self._fixed else self._shared_changes
            )
        if name in _HARMLESS_BUILTINS.split():
            return set()
        self._unbound_reads.add(name)
        return {UNKNOWN}

    def _read_call(self, call: ast.Call) -> _Sources:
        """Follow the arguments of a call, and return the sources of its result."""
        name = dotted(call.func)
        arguments = [*call.args, *(each.value for each in call.keywords)]
        root = name.partition(".")[0]
        is_bound = root in self._values or root in self._functions
        parameters = None if is_bound else self._parameters_of(name)
        if parameters is not None:
            values = arguments_of(call, parameters).items()
            sources_by_name = {key: self.read(value) for key, value in values}
            self._calls[name][call] = sources_by_name
            return {name}.union(*sources_by_name.values())
        method, receiver = "", call.func
        if isinstance(receiver, ast.Attribute):
            method, receiver = receiver.attr, receiver.value
        functions = self._functions.get(name, ())
        receiver_sources = self._values.get(name, set()) if functions else self.read(receiver)
        argument_sources = self._read_all(each for each in arguments if not _is_lambda(each))
        if method == "get" and arguments:
            argument_sources |= _fields(arguments[0])
        # A function can give a lambda only what the function itself was given.
        for each in filter(_is_lambda, arguments):
            self._grow_parameters(each, receiver_sources | argument_sources)
            argument_sources |= self._read_parts(each)
        sources = receiver_sources | argument_sources
        for each in functions:
            sources |= self._call(each, call, arguments)
        is_known = root in self._modules or name in _HARMLESS_BUILTINS.split()
        is_harmless = is_known and name != "next" and not is_bound
        if (
            method in _CHANGING_METHODS.split()
            and dotted(receiver) not in _HARMLESS_BUILTINS.split()
        ):
            self._change(receiver, argument_sources, call)
        elif not (functions or is_harmless or method in _READING_METHODS.split()):
            # An unknown function may put any argument into any other argument.
            for each in (receiver, *arguments):
                if isinstance(each, (ast.Name, ast.Subscript, ast.Attribute, ast.Starred)):
                    self._spread(_roots(each), sources)
        return sources

    def _call(self, function: _Function, call: ast.Call, arguments: Sequence[ast.expr]) -> _Sources:
        """Follow a call's arguments into a function that the script defines.

        Returns:
            The sources of the function's result.
        """
        names = function.args
        named = arguments_of(call, [each.arg for each in (*names.posonlyargs, *names.args)])
        # What the function changes elsewhere also depends on whether the function is called.
        self._grow(self._decisive[function], *self._deciding())
        for each in (*names.posonlyargs, *names.args, *names.kwonlyargs):
            if value := named.get(letters_of_name(each.arg), named.get("*")):
                self._bind(ast.Name(each.arg), self.read(value), value, is_passed=True)
        for each in filter(None, (names.vararg, names.kwarg)):
            rest = ast.Tuple([*arguments])
            self._bind(ast.Name(each.arg), self.read(rest), rest, is_passed=True)
        return self._inside[function]

    def _assign(self, targets: Sequence[ast.expr], value: ast.expr) -> _Sources:
        sources = self.read(value)
        # The variables of ``a = b = []`` share their value.
        shared_value = ast.Starred(ast.Tuple([value, *targets])) if len(targets) > 1 else value
        for target in targets:
            self._bind(target, sources, shared_value)
        return sources

    def _bind(
        self, target: ast.AST, sources: _Sources, value: ast.expr, *, is_passed: bool = False
    ) -> None:
        """Add the sources of a value to the variables that an assignment target binds.

        With ``is_passed``, the target is a parameter or a comprehension variable. The conditions
        around the call then do not count as sources of the value.
        """
        match target:
            case ast.Name(id=name):
                deciding = () if is_passed else self._deciding(name)
                self._grow(self._values[name], sources, *deciding)
                self._grow(self._contained[name], _names_in(value))
                if not isinstance(value, (ast.Constant, ast.JoinedStr)):
                    self._fixed.discard(name)
                if not self._is_new(value):
                    self._grow(self._shared, [name])
            case ast.Attribute(value=changed_node) | ast.Subscript(value=changed_node):
                self.read(changed_node)
                index = target.slice if isinstance(target, ast.Subscript) else ast.Constant(0)
                self._change(changed_node, sources | self.read(index), value)
            case _:
                for each in ast.iter_child_nodes(target):
                    self._bind(each, sources, ast.Starred(value), is_passed=is_passed)

    def _is_new(self, value: ast.expr) -> bool:
        """Return whether an expression creates a new object, to which no variable refers yet."""
        value = value.value if isinstance(value, ast.Await) else value
        name = dotted(value.func) if isinstance(value, ast.Call) else ""
        is_constructed = name.rpartition(".")[2] in _CONSTRUCTORS.split()
        return (
            is_constructed
            or isinstance(value, _NEW_VALUES)
            or self._parameters_of(name) is not None
        )

    def _change(self, node: ast.AST, sources: _Sources, *added: ast.AST) -> None:
        """Add sources to all variables whose objects change if an expression's object is changed.

        Args:
            node: The expression whose object is changed.
            sources: The sources of the change.
            added: The expressions whose values the object contains afterwards.
        """
        names = [*_roots(node)]
        for name in names:
            self._grow(self._contained[name], *map(_names_in, added))
        # The object of a parameter or of a loop's item is unknown: it may be any shared object.
        if not names or not {*names} <= self._values.keys() - self._shared:
            outside = (each for each in sources if each[0] != FIELD)
            self._grow(self._shared_changes, outside, *self._deciding())
        # A change of the list that a variable refers to does not change the objects in the list.
        self._spread(names, sources, is_deep=not isinstance(node, ast.Name))

    def _spread(self, changed: Iterable[str], sources: _Sources, *, is_deep: bool = True) -> None:
        """Add sources to variables.

        If the change is deep, the sources are also added to the variables whose values these may
        contain.
        """
        names = [*changed]
        for name in names:
            if name in self._values or name in self._modules:
                known = self._values.setdefault(name, set())
                self._grow(known, sources, *self._deciding(name))
            names += self._contained[name].difference(names) if is_deep else ()

    @contextmanager
    def _within(self, node: ast.AST, sources: _Sources) -> Generator[None]:
        """Visit the parts of a node during the block.

        Args:
            node: The node.
            sources: The sources that decide whether or how often the parts run.
        """
        self._grow(self._decisive[node], sources)
        if node not in self._uses_in:
            # What an exception skips can be used outside of the body.
            body = node.body if isinstance(node, (ast.Try, ast.TryStar)) else [node]
            self._uses_in[node] = Counter(name for each in body for name in _names_in(each))
        self._enclosing.append(node)
        try:
            yield
        finally:
            self._enclosing.pop()

    def _deciding(self, name: str | None = None) -> Iterator[_Sources]:
        """Yield the sources that decide whether or how often the visited node runs.

        For a variable ``name`` that is used only inside an enclosing statement, the sources that
        decide about this statement are left out.
        """
        for node in self._enclosing:
            is_used_outside = name is not None and self._uses_in[node][name] < self._uses[name]
            if name is None or is_used_outside:
                yield self._decisive[node]

    def _record_jump(self, sources: _Sources) -> _Sources:
        """Record a statement that leaves a loop or function, such as ``return`` or ``break``.

        The sources that decide whether it runs also decide whether the skipped statements run.
        """
        deciding_sources = sources.union(*self._deciding())
        for node in self._enclosing:
            self._grow(self._decisive[node], deciding_sources)
        return sources

    def _grow_parameters(self, node: ast.AST, sources: _Sources) -> None:
        for name in _parameters(node):
            self._grow(self._values[name], sources)

    def _grow(self, known: _Sources, *more: Iterable[str]) -> None:
        size = len(known)
        known.update(*more)
        self._has_grown = self._has_grown or len(known) > size


def _parameters(node: ast.AST) -> Iterator[str]:
    """Yield the parameter names of a function or lambda, or of all methods of a class."""
    tree = getattr(node, "args", node)
    return (each.arg for each in ast.walk(tree) if isinstance(each, ast.arg))


def _is_lambda(node: ast.AST) -> bool:
    return isinstance(node, ast.Lambda)


def _fields(key: ast.expr) -> _Sources:
    """Return the field that a subscript's key names, as a set of one source.

    The set is empty for list indexes, and contains an unknown field for a computed key.
    """
    if isinstance(key, (ast.Slice, ast.UnaryOp)) or isinstance(getattr(key, "value", ""), int):
        return set()
    name = getattr(key, "value", None)
    return {f"{FIELD}{name if isinstance(name, str) else UNKNOWN}"}


def _roots(node: ast.AST) -> Iterator[str]:
    """Yield the variables whose objects change if the object of an expression is changed."""
    match node:
        case ast.Subscript(value=value) | ast.Attribute(value=value):
            return _roots(value)
        case ast.Call(func=ast.Attribute(value=value, attr="get" | "setdefault"), args=[_, *rest]):
            return (name for each in (value, *rest) for name in _roots(each))
        case _:
            return _names_in(node)


def _names_in(node: ast.AST) -> Iterator[str]:
    return (each.id for each in ast.walk(node) if isinstance(each, ast.Name))
