"""The names and calls of a script, collected in one walk over its syntax tree.

The rewriting needs the scope and value of each name, the place of each call, and whether ``await``
is allowed there.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
Step = int | str
"""An index into a tuple, or :data:`EACH`."""
Path = tuple[Step, ...]
"""A path into a value: ``("*", 1)`` leads to the second part of each item of a list of pairs."""
EACH: Step = "*"
"""The step to each item of a collection."""
OUT_OF: Step = "-"
"""The step from an item to its collection: the value that is bound is an item of the target."""

CONSUMERS = frozenset(
    {
        "gather",
        "wait",
        "wait_for",
        "shield",
        "as_completed",
        "create_task",
        "ensure_future",
        "run",
        "run_coroutine_threadsafe",
        "Task",
    }
)
"""asyncio functions that take awaitables."""
METHOD_CONSUMERS = frozenset(
    {"create_task", "ensure_future", "run_until_complete", "gather", "as_completed"}
)
AWAITABLE = frozenset({"gather", "wait", "wait_for", "shield", "sleep", "to_thread"})
"""asyncio functions whose result must be awaited."""
_INSERTS = {"append": (), "add": (), "appendleft": (), "put_nowait": (), "extend": (EACH,)}
_SKIPPED = (ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop, ast.Constant)
_GENERIC = (ast.pattern, ast.match_case, ast.ExceptHandler)


class Scope:
    """A scope of names.

    Args:
        kind: ``module``, ``function``, ``lambda``, ``class``, ``list`` for eager comprehensions,
            ``generator`` for lazy ones.
        node: The syntax node.
        parent: The enclosing scope.
    """

    __slots__ = (
        "binds",
        "is_generator",
        "kind",
        "names",
        "node",
        "outside",
        "params",
        "parent",
        "returns",
        "yields",
    )

    def __init__(self, kind: str, node: Any, parent: Scope | None) -> None:
        self.kind = kind
        self.node = node
        self.parent = parent
        self.names: dict[str, set[str]] = {}
        """The kind of binding of each name: ``param``, ``function``, ``import`` or ``data``."""
        self.outside: dict[str, str] = {}
        self.params: list[str] = []
        self.binds: dict[str, list[tuple[ast.expr, Scope, Path]]] = {}
        self.returns: list[ast.expr] = []
        self.yields: list[ast.expr] = []
        self.is_generator = False

    @property
    def function(self) -> Scope:
        """The enclosing function, lambda, class or module of a comprehension."""
        scope = self
        while scope.kind == "list" and scope.parent is not None:
            scope = scope.parent
        return scope

    def visible_scopes(self) -> Iterator[Scope]:
        """Yield the scopes whose names are visible here."""
        scope: Scope | None = self
        while scope is not None:
            if scope is self or scope.kind != "class":
                yield scope
            scope = scope.parent

    def owner(self, name: str) -> Scope:
        """Return the scope that an assignment to a name here binds."""
        scope = self
        while scope.parent is not None and (word := scope.outside.get(name)):
            scope = scope.parent
            while word == "global" and scope.parent is not None:
                scope = scope.parent
        return scope

    def find(self, name: str) -> Scope | None:
        """Return the visible scope that binds a name; None if the script does not bind it."""
        for scope in self.visible_scopes():
            if name in scope.outside:
                owner = scope.owner(name)
                return owner if name in owner.names else owner.find(name)
            if name in scope.names:
                return scope
        return None


class Place:
    """A node with its parent, so that it can be replaced."""

    __slots__ = ("_is_listed", "box", "key", "node", "scope")

    def __init__(self, node: Any, scope: Scope, box: Any, key: Any) -> None:
        self._is_listed = isinstance(box, list)
        self.node = node
        self.scope = scope
        self.box = box
        self.key = key

    @property
    def current(self) -> Any:
        """The current node at this place."""
        return self.box[self.key] if self._is_listed else getattr(self.box, self.key)

    def put(self, new: ast.AST) -> None:
        """Replace the node."""
        if self._is_listed:
            self.box[self.key] = new
        else:
            setattr(self.box, self.key, new)


class CallPlace(Place):
    """A call with its scope and the use of its result."""

    __slots__ = ("stays_awaitable",)

    def __init__(self, node: Any, scope: Scope, box: Any, key: Any) -> None:
        super().__init__(node, scope, box, key)
        self.stays_awaitable = False
        """True if the call must return an awaitable instead of its result."""


class Seen:
    """Everything in a script that the rewriting needs.

    Args:
        tree: The parsed script.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.module = Scope("module", tree, None)
        self.calls: dict[int, CallPlace] = {}
        self.awaits: list[Place] = []
        self.loads: list[tuple[Place, bool]] = []
        """Reads of names, each with True if the name is called."""
        self.attributes: list[tuple[Place, bool]] = []
        """Reads of attributes of names, each with True if the attribute is called."""
        self.scopes: dict[int, Scope] = {}
        self.functions: list[Scope] = []
        self.definitions: list[Place] = []
        """The definitions of functions, classes and named lambdas."""
        self.generators: list[Place] = []
        self.loops: list[Place] = []
        self.contexts: list[Place] = []
        self.imports: list[tuple[Place, bool]] = []
        """The imports, each with True if it is inside a ``try``."""
        self.stores: dict[str, list[tuple[ast.expr, Scope, Path]]] = {}
        """The values assigned to an attribute name, of any object."""
        self.asyncio_names = {"asyncio"}
        self.from_asyncio: dict[str, str] = {}
        self.awaitables: list[tuple[ast.expr, Scope, Path]] = []
        """The values passed where an awaitable is expected."""
        self._tries = 0
        # A dict made once, because it is asked for each node of the script.
        self._visit_by = self._visitors()
        for index, node in enumerate(tree.body):
            self._visit(node, self.module, tree.body, index)
        self._find_consumers()

    # -- the walk -----------------------------------------------------------------------

    def _visitors(self) -> dict[type, Callable[[Any, Scope, Any, Any], None]]:
        """Return the visitor for each node type; other nodes are only descended into."""
        return {
            ast.Name: self._name,
            ast.Attribute: self._attribute,
            ast.Call: self._call,
            ast.Assign: self._assign,
            ast.AnnAssign: self._ann_assign,
            ast.AugAssign: self._aug_assign,
            ast.NamedExpr: self._named,
            ast.For: self._for,
            ast.AsyncFor: self._for,
            ast.With: self._with,
            ast.AsyncWith: self._with,
            ast.FunctionDef: self._function,
            ast.AsyncFunctionDef: self._function,
            ast.Lambda: self._lambda,
            ast.ClassDef: self._class,
            ast.ListComp: self._comprehension,
            ast.SetComp: self._comprehension,
            ast.DictComp: self._comprehension,
            ast.GeneratorExp: self._comprehension,
            ast.Await: self._await,
            ast.Return: self._return,
            ast.Yield: self._yield,
            ast.YieldFrom: self._yield,
            ast.Global: self._declared,
            ast.Nonlocal: self._declared,
            ast.Import: self._import,
            ast.ImportFrom: self._import,
            ast.Try: self._try,
            ast.TryStar: self._try,
            ast.ExceptHandler: self._caught,
            ast.MatchAs: self._captured,
            ast.MatchStar: self._captured,
            ast.MatchMapping: self._captured,
        }

    def _visit(self, node: Any, scope: Scope, box: Any, key: Any) -> None:
        visit = self._visit_by.get(node.__class__)
        if visit is None:
            self._inside(node, scope)
        else:
            visit(node, scope, box, key)

    def _inside(self, node: Any, scope: Scope) -> None:
        for name in node._fields:
            value: Any = getattr(node, name, None)
            if value.__class__ is list:
                for index, item in enumerate(value):
                    if isinstance(item, ast.AST) and not isinstance(item, _SKIPPED):
                        self._visit(item, scope, value, index)
            elif isinstance(value, ast.AST) and not isinstance(value, _SKIPPED):
                self._visit(value, scope, node, name)

    def _each(self, nodes: list[Any], scope: Scope) -> None:
        for index, node in enumerate(nodes):
            if node is not None:
                self._visit(node, scope, nodes, index)

    def _name(self, node: ast.Name, scope: Scope, box: Any, key: Any) -> None:
        if node.ctx.__class__ is ast.Load:
            self.loads.append((Place(node, scope, box, key), False))
        else:
            _bind(scope, node.id, "data")

    def _attribute(self, node: ast.Attribute, scope: Scope, box: Any, key: Any) -> None:
        if node.ctx.__class__ is ast.Load and node.value.__class__ is ast.Name:
            self.attributes.append((Place(node, scope, box, key), False))
        self._visit(node.value, scope, node, "value")

    def _call(self, node: ast.Call, scope: Scope, box: Any, key: Any) -> None:
        """Record a call and visit its function and arguments."""
        self.calls[id(node)] = CallPlace(node, scope, box, key)
        function: Any = node.func
        if function.__class__ is ast.Name:
            self.loads.append((Place(function, scope, node, "func"), True))
        elif function.__class__ is ast.Attribute:
            inner: Any = function.value
            if inner.__class__ is ast.Name:
                self.attributes.append((Place(function, scope, node, "func"), True))
            self._visit(inner, scope, function, "value")
            self._record_insert(node, scope)
        else:
            self._visit(function, scope, node, "func")
        self._each(node.args, scope)
        for keyword in node.keywords:
            self._visit(keyword.value, scope, keyword, "value")

    def _record_insert(self, node: ast.Call, scope: Scope) -> None:
        """Record a value that is added to a container, as in ``names.append(…)``."""
        function = node.func
        if not isinstance(function, ast.Attribute):
            return
        inserted = _INSERTS.get(function.attr)
        if inserted is not None and len(node.args) == 1:
            # ``append`` inserts the value itself, ``extend`` its items.
            path = (OUT_OF,) if inserted == () else ()
            self._record_binding(function.value, node.args[0], scope, path)

    def _record_binding(self, target: ast.expr, value: ast.expr, scope: Scope, path: Path) -> None:
        """Record that a target is bound to a value, or to the part of it at a path."""
        match target:
            case ast.Name(id=name):
                scope.owner(name).binds.setdefault(name, []).append((value, scope, path))
            case ast.Attribute(attr=name):
                self.stores.setdefault(name, []).append((value, scope, path))
            case ast.Subscript(value=inner):
                self._record_binding(inner, value, scope, (OUT_OF, *path))
            case ast.Tuple(elts=items) | ast.List(elts=items):
                for index, item in enumerate(items):
                    if isinstance(item, ast.Starred):
                        self._record_binding(item.value, value, scope, path)
                    else:
                        self._record_binding(item, value, scope, (*path, index))
            case _:
                pass

    def _assign(self, node: ast.Assign, scope: Scope, box: Any, key: Any) -> None:
        self._visit(node.value, scope, node, "value")
        for index, target in enumerate(node.targets):
            self._record_binding(target, node.value, scope, ())
            self._visit(target, scope, node.targets, index)
            if isinstance(target, ast.Name) and isinstance(node.value, ast.Lambda):
                self.definitions.append(Place(node, scope, box, key))

    def _ann_assign(self, node: ast.AnnAssign, scope: Scope, box: Any, key: Any) -> None:
        if node.value is not None:
            self._visit(node.value, scope, node, "value")
            self._record_binding(node.target, node.value, scope, ())
            self._visit(node.target, scope, node, "target")

    def _aug_assign(self, node: ast.AugAssign, scope: Scope, box: Any, key: Any) -> None:
        self._visit(node.value, scope, node, "value")
        self._record_binding(node.target, node.value, scope, ())
        self._visit(node.target, scope, node, "target")

    def _named(self, node: ast.NamedExpr, scope: Scope, box: Any, key: Any) -> None:
        owner = scope
        # PEP 572: ``:=`` in a comprehension binds in the function around it.
        while owner.kind in ("list", "generator") and owner.parent is not None:
            owner = owner.parent
        self._visit(node.value, scope, node, "value")
        name = node.target.id
        _bind(owner, name, "data")
        owner.binds.setdefault(name, []).append((node.value, scope, ()))

    def _for(self, node: ast.For | ast.AsyncFor, scope: Scope, box: Any, key: Any) -> None:
        self.loops.append(Place(node, scope, box, key))
        self._visit(node.iter, scope, node, "iter")
        self._record_binding(node.target, node.iter, scope, (EACH,))
        self._visit(node.target, scope, node, "target")
        self._each(node.body, scope)
        self._each(node.orelse, scope)

    def _with(self, node: ast.With | ast.AsyncWith, scope: Scope, box: Any, key: Any) -> None:
        self.contexts.append(Place(node, scope, box, key))
        self._inside(node, scope)

    def _function(self, node: FunctionNode, scope: Scope, box: Any, key: Any) -> None:
        _bind(scope, node.name, "function")
        self.definitions.append(Place(node, scope, box, key))
        self._each(node.decorator_list, scope)
        inner = self._arguments(node, Scope("function", node, scope), scope)
        self.functions.append(inner)
        self._each(node.body, inner)

    def _lambda(self, node: ast.Lambda, scope: Scope, box: Any, key: Any) -> None:
        inner = self._arguments(node, Scope("lambda", node, scope), scope)
        self._visit(node.body, inner, node, "body")

    def _arguments(self, node: Any, inner: Scope, scope: Scope) -> Scope:
        """Record a function's parameters in its scope, and visit their defaults."""
        arguments = node.args
        # In the outer scope: Python evaluates defaults at the definition, before the function has
        # names.
        self._each(arguments.defaults, scope)
        self._each(arguments.kw_defaults, scope)
        positional = [*arguments.posonlyargs, *arguments.args]
        inner.params = [argument.arg for argument in positional]
        starred = [arguments.vararg, arguments.kwarg]
        for argument in [*positional, *arguments.kwonlyargs, *(item for item in starred if item)]:
            _bind(inner, argument.arg, "param")
        self.scopes[id(node)] = inner
        return inner

    def _class(self, node: ast.ClassDef, scope: Scope, box: Any, key: Any) -> None:
        _bind(scope, node.name, "function")
        self.definitions.append(Place(node, scope, box, key))
        self._each(node.decorator_list, scope)
        self._each(node.bases, scope)
        for keyword in node.keywords:
            self._visit(keyword.value, scope, keyword, "value")
        inner = self.scopes[id(node)] = Scope("class", node, scope)
        self._each(node.body, inner)

    def _comprehension(self, node: Any, scope: Scope, box: Any, key: Any) -> None:
        """Record a comprehension as a scope of its own, and visit its parts."""
        is_lazy = node.__class__ is ast.GeneratorExp
        inner = Scope("generator" if is_lazy else "list", node, scope)
        self.scopes[id(node)] = inner
        if is_lazy:
            self.generators.append(Place(node, scope, box, key))
        for index, part in enumerate(node.generators):
            # Python evaluates the first iterable outside the comprehension, and the others inside.
            around = scope if index == 0 else inner
            self.loops.append(Place(part, around, node.generators, index))
            self._visit(part.iter, around, part, "iter")
            self._record_binding(part.target, part.iter, inner, (EACH,))
            self._visit(part.target, inner, part, "target")
            self._each(part.ifs, inner)
        # Last, as Python runs them: the loops have bound the names that the item uses.
        for name in ("key", "value", "elt"):
            part = getattr(node, name, None)
            if part is not None:
                self._visit(part, inner, node, name)

    def _await(self, node: ast.Await, scope: Scope, box: Any, key: Any) -> None:
        self.awaits.append(Place(node, scope, box, key))
        self.awaitables.append((node.value, scope, ()))
        self._visit(node.value, scope, node, "value")

    def _return(self, node: ast.Return, scope: Scope, box: Any, key: Any) -> None:
        if node.value is not None:
            scope.returns.append(node.value)
            self._visit(node.value, scope, node, "value")

    def _yield(self, node: ast.Yield | ast.YieldFrom, scope: Scope, box: Any, key: Any) -> None:
        scope.function.is_generator = True
        if node.value is not None:
            if isinstance(node, ast.Yield):
                scope.yields.append(node.value)
            self._visit(node.value, scope, node, "value")

    def _declared(self, node: ast.Global | ast.Nonlocal, scope: Scope, box: Any, key: Any) -> None:
        word = "global" if isinstance(node, ast.Global) else "nonlocal"
        scope.outside.update(dict.fromkeys(node.names, word))

    def _import(self, node: ast.Import | ast.ImportFrom, scope: Scope, box: Any, key: Any) -> None:
        self.imports.append((Place(node, scope, box, key), self._tries > 0))
        is_asyncio = isinstance(node, ast.ImportFrom) and node.module == "asyncio"
        for item in node.names:
            bound_name = item.asname or item.name.partition(".")[0]
            _bind(scope, bound_name, "import")
            if is_asyncio:
                self.from_asyncio[bound_name] = item.name
            elif isinstance(node, ast.Import) and item.name == "asyncio":
                self.asyncio_names.add(bound_name)

    def _try(self, node: Any, scope: Scope, box: Any, key: Any) -> None:
        # Only with handlers: ``try … finally`` does not catch a failed import.
        self._tries += bool(node.handlers)
        self._each(node.body, scope)
        self._tries -= bool(node.handlers)
        self._each(node.handlers, scope)
        self._each(node.orelse, scope)
        self._each(node.finalbody, scope)

    def _caught(self, node: ast.ExceptHandler, scope: Scope, box: Any, key: Any) -> None:
        if node.name:
            _bind(scope, node.name, "data")
        self._inside(node, scope)

    def _captured(self, node: Any, scope: Scope, box: Any, key: Any) -> None:
        name = getattr(node, "rest", None) or getattr(node, "name", None)
        if name:
            _bind(scope, name, "data")
        self._inside(node, scope)

    # -- what the walk found ------------------------------------------------------------

    def asyncio_function(self, function: ast.expr, scope: Scope) -> str | None:
        """Return the name of the asyncio function that an expression refers to, if any."""
        match function:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute):
                return attribute if name in self.asyncio_names else None
            case ast.Name(id=name) if name in self.from_asyncio:
                owner = scope.find(name)
                is_import = owner is None or owner.names[name] == {"import"}
                return self.from_asyncio[name] if is_import else None
            case _:
                return None

    def _find_consumers(self) -> None:
        for call in self.calls.values():
            node = call.node
            name = self.asyncio_function(node.func, call.scope)
            is_consumer = name in CONSUMERS
            if isinstance(node.func, ast.Attribute) and node.func.attr in METHOD_CONSUMERS:
                is_consumer = True
            if is_consumer:
                arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
                self.awaitables += [(item, call.scope, ()) for item in arguments]


def _bind(scope: Scope, name: str, path: str) -> None:
    scope.owner(name).names.setdefault(name, set()).add(path)
