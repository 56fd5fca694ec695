"""The names and calls of a script, collected in one walk over its syntax tree.

The rewriting needs the scope and value of each name, the place of each call, and whether ``await``
is allowed there.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
Step = int | str
"""A step of the path to a value inside another value.

The step is the index of an item, or :data:`EACH_ITEM`.
"""
Path = tuple[Step, ...]
"""The steps from a value to a value nested in it.

``("*", 1)`` leads from a list of pairs to the second member of each pair.
"""
EACH_ITEM: Step = "*"
"""The step from a collection to each of its items."""

AWAITING_FUNCTIONS = frozenset(
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
"""Names of asyncio functions that take awaitables as arguments."""
AWAITING_METHODS = frozenset(
    {"create_task", "ensure_future", "run_until_complete", "gather", "as_completed"}
)
FUNCTIONS_TO_AWAIT = frozenset({"gather", "wait", "wait_for", "shield", "sleep", "to_thread"})
"""Names of asyncio functions whose result the caller must await."""
_METHODS_THAT_ADD_ITEM = frozenset({"append", "add", "appendleft", "put_nowait"})
_NODES_WITHOUT_NAMES = (
    ast.expr_context,
    ast.operator,
    ast.unaryop,
    ast.cmpop,
    ast.boolop,
    ast.Constant,
)


class ValuePart(NamedTuple):
    """A part of an expression's value that the script assigns or puts into a collection.

    For ``first, last = pair``, ``first`` gets the part of ``pair`` with the path ``(0,)``. For
    ``tasks.append(value)`` and ``tasks[key] = value``, ``tasks`` gets ``value`` with the depth 1.

    Args:
        expression: The expression.
        scope: The scope of the expression.
        path: The steps from the expression's value to the part; empty for the whole value.
        container_depth: How deeply the script nests the part in collections: 0 for the part itself,
            1 after ``tasks.append(part)``.
    """

    expression: ast.expr
    scope: Scope
    path: Path = ()
    container_depth: int = 0

    def item(self, step: Step) -> ValuePart:
        """Return one item of this part, or each item."""
        return self._replace(path=(*self.path, step))

    def in_container(self) -> ValuePart:
        """Return a collection that contains this part."""
        return self._replace(container_depth=self.container_depth + 1)


class Scope:
    """A part of a script with names of its own: the module, a function, class or comprehension.

    Args:
        kind: ``module``, ``function``, ``lambda``, ``class``, ``generator`` for a generator
            expression, or ``comprehension`` for any other comprehension.
        node: The syntax node of the scope.
        parent: The enclosing scope; None for the module.
    """

    __slots__ = (
        "assigned_values",
        "binding_kinds",
        "declared_outside",
        "is_generator",
        "kind",
        "node",
        "params",
        "parent",
        "returns",
        "yields",
    )

    def __init__(self, kind: str, node: Any, parent: Scope | None) -> None:
        self.kind = kind
        self.node = node
        self.parent = parent
        self.binding_kinds: dict[str, set[str]] = {}
        """The ways in which each name is bound.

        The ways are ``param``, ``import``, ``variable``, ``function`` and ``class``.
        """
        self.declared_outside: dict[str, str] = {}
        """The names declared ``global`` or ``nonlocal``, each mapped to one of these keywords."""
        self.params: list[str] = []
        self.assigned_values: dict[str, list[ValuePart]] = {}
        """The values assigned to each name.

        After ``other, name = expression``, the value of ``name`` has the path ``(1,)``.
        """
        self.returns: list[ast.expr] = []
        self.yields: list[ast.expr] = []
        self.is_generator = False

    @property
    def function_scope(self) -> Scope:
        """This scope; for a list, set or dict comprehension, the scope that contains it."""
        scope = self
        while scope.kind == "comprehension" and scope.parent is not None:
            scope = scope.parent
        return scope

    def visible_scopes(self) -> Iterator[Scope]:
        """Yield the scopes whose names are visible in this scope, innermost first."""
        scope: Scope | None = self
        while scope is not None:
            if scope is self or scope.kind != "class":
                yield scope
            scope = scope.parent

    def owner(self, name: str) -> Scope:
        """Return the scope in which an assignment to a name binds that name."""
        for scope in self.visible_scopes():
            declaration = scope.declared_outside.get(name)
            if declaration is None:
                return scope
            if declaration == "global":
                break
            # After ``nonlocal name``, go on with the enclosing functions: one of them binds the
            # name.
        return self.module

    @property
    def module(self) -> Scope:
        """The outermost scope."""
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope

    def find(self, name: str) -> Scope | None:
        """Return the scope whose binding of a name is visible in this scope.

        None if the script does not bind the name.
        """
        for scope in self.visible_scopes():
            if name in scope.binding_kinds:
                return scope
            if scope.declared_outside.get(name) == "global":
                return self.module if name in self.module.binding_kinds else None
        return None


class Place:
    """A node together with its position in the syntax tree, where it can be replaced.

    Args:
        node: The node.
        scope: The scope in which the node stands.
        container: The parent node, or the list of nodes, that contains the node.
        key: The field of the parent node, or the index in the list.
    """

    __slots__ = ("_is_listed", "container", "key", "node", "scope")

    def __init__(self, node: Any, scope: Scope, container: Any, key: Any) -> None:
        self._is_listed = isinstance(container, list)
        self.node = node
        self.scope = scope
        self.container = container
        self.key = key

    @property
    def current(self) -> Any:
        """The node that is now at this position; an edit may have replaced ``node``."""
        if self._is_listed:
            return self.container[self.key]
        return getattr(self.container, self.key)

    def put(self, new: ast.AST) -> None:
        """Replace the node in the syntax tree."""
        if self._is_listed:
            self.container[self.key] = new
        else:
            setattr(self.container, self.key, new)


class CallPlace(Place):
    """The place of a call, and whether the rewriting must leave the call without ``await``."""

    __slots__ = ("must_not_await_in_place",)

    def __init__(self, node: Any, scope: Scope, container: Any, key: Any) -> None:
        super().__init__(node, scope, container, key)
        self.must_not_await_in_place = False
        """True if the call has to stay as it is, without an added ``await``.

        The script awaits the call's result later, or iterates the result with ``async for``.
        """


class Read(NamedTuple):
    """The place where a script reads a name or an attribute, and whether it calls the value."""

    place: Place
    is_called: bool


class ScriptSyntax:
    """The scopes, names, calls and other nodes of a script that the rewriting needs.

    Args:
        tree: The parsed script.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.module = Scope("module", tree, None)
        self.calls: dict[int, CallPlace] = {}
        self.awaits: list[Place] = []
        self.loads: list[Read] = []
        """The places where the script reads a name, including the name in a call: ``fetch()``."""
        self.attributes: list[Read] = []
        """The reads of attributes of names, such as ``mail.send``."""
        self.scopes: dict[int, Scope] = {}
        self.functions: list[Scope] = []
        self.definitions: list[Place] = []
        """The definitions of functions, classes and named lambdas."""
        self.generators: list[Place] = []
        """The generator expressions."""
        self.loops: list[Place] = []
        """The ``for`` statements, and the ``for`` clauses of comprehensions."""
        self.contexts: list[Place] = []
        """The ``with`` statements."""
        self.imports: list[tuple[Place, bool]] = []
        """The import statements; the flag is True inside a ``try`` that has ``except`` clauses."""
        self.stores: dict[str, list[ValuePart]] = {}
        """The values assigned to each attribute name, whatever the object."""
        self.asyncio_names = {"asyncio"}
        """The names under which the script uses the module ``asyncio``."""
        self.from_asyncio: dict[str, str] = {}
        """The names imported from ``asyncio``, each with the original name."""
        self.awaitables: list[ValuePart] = []
        """The values that the script awaits, or passes to asyncio functions that await values."""
        self._try_depth = 0
        # Built once, because the mapping is read for each node of the script.
        self._visitor_by_type = self._visitors()
        for index, node in enumerate(tree.body):
            self._visit(node, self.module, tree.body, index)
        self._record_arguments_of_awaiting_functions()

    # -- the walk -----------------------------------------------------------------------

    def _visitors(self) -> dict[type, Callable[[Any, Scope, Any, Any], None]]:
        """Return a mapping from node type to visitor.

        For a node of any other type, only the node's fields are visited.
        """
        return {
            ast.Name: self._visit_name,
            ast.Attribute: self._visit_attribute,
            ast.Call: self._visit_call,
            ast.Assign: self._visit_assignment,
            ast.AnnAssign: self._visit_annotated_assignment,
            ast.AugAssign: self._visit_augmented_assignment,
            ast.NamedExpr: self._visit_named_expression,
            ast.For: self._visit_for,
            ast.AsyncFor: self._visit_for,
            ast.With: self._visit_with,
            ast.AsyncWith: self._visit_with,
            ast.FunctionDef: self._visit_function,
            ast.AsyncFunctionDef: self._visit_function,
            ast.Lambda: self._visit_lambda,
            ast.ClassDef: self._visit_class,
            ast.ListComp: self._visit_comprehension,
            ast.SetComp: self._visit_comprehension,
            ast.DictComp: self._visit_comprehension,
            ast.GeneratorExp: self._visit_comprehension,
            ast.Await: self._visit_await,
            ast.Return: self._visit_return,
            ast.Yield: self._visit_yield,
            ast.YieldFrom: self._visit_yield,
            ast.Global: self._visit_global_or_nonlocal,
            ast.Nonlocal: self._visit_global_or_nonlocal,
            ast.Import: self._visit_import,
            ast.ImportFrom: self._visit_import,
            ast.Try: self._visit_try,
            ast.TryStar: self._visit_try,
            ast.ExceptHandler: self._visit_except_handler,
            ast.MatchAs: self._visit_capture_pattern,
            ast.MatchStar: self._visit_capture_pattern,
            ast.MatchMapping: self._visit_capture_pattern,
        }

    def _visit(self, node: Any, scope: Scope, container: Any, key: Any) -> None:
        """Visit a node with the visitor of its type.

        Args:
            node: The node.
            scope: The scope of the node.
            container: The list that contains the node; the parent node if there is no list.
            key: The index of the node in the list, or the name of the parent's field.
        """
        visit = self._visitor_by_type.get(node.__class__)
        if visit is None:
            self._visit_fields(node, scope)
        else:
            visit(node, scope, container, key)

    def _visit_fields(self, node: Any, scope: Scope) -> None:
        """Visit the children of a node, each with the place from which it can be replaced.

        The place is the list and the child's index, or the node and the name of the field.
        """
        for name in node._fields:
            value: Any = getattr(node, name, None)
            if value.__class__ is list:
                for index, item in enumerate(value):
                    if isinstance(item, ast.AST) and not isinstance(item, _NODES_WITHOUT_NAMES):
                        self._visit(item, scope, value, index)
            elif isinstance(value, ast.AST) and not isinstance(value, _NODES_WITHOUT_NAMES):
                self._visit(value, scope, node, name)

    def _visit_all(self, nodes: list[Any], scope: Scope) -> None:
        for index, node in enumerate(nodes):
            if node is not None:
                self._visit(node, scope, nodes, index)

    def _visit_name(self, node: ast.Name, scope: Scope, container: Any, key: Any) -> None:
        """Record a read of a name, or the variable that an assignment, loop or ``del`` binds."""
        if node.ctx.__class__ is ast.Load:
            self.loads.append(Read(Place(node, scope, container, key), is_called=False))
        else:
            _bind(scope, node.id, "variable")

    def _visit_attribute(self, node: ast.Attribute, scope: Scope, container: Any, key: Any) -> None:
        if node.ctx.__class__ is ast.Load and node.value.__class__ is ast.Name:
            self.attributes.append(Read(Place(node, scope, container, key), is_called=False))
        self._visit(node.value, scope, node, "value")

    def _visit_call(self, node: ast.Call, scope: Scope, container: Any, key: Any) -> None:
        """Record a call, and visit its function and arguments."""
        self.calls[id(node)] = CallPlace(node, scope, container, key)
        function: Any = node.func
        if function.__class__ is ast.Name:
            self.loads.append(Read(Place(function, scope, node, "func"), is_called=True))
        elif function.__class__ is ast.Attribute:
            inner: Any = function.value
            # ``mail.send()`` calls the attribute ``mail.send``, and reads the name ``mail``.
            if inner.__class__ is ast.Name:
                self.attributes.append(Read(Place(function, scope, node, "func"), is_called=True))
            self._visit(inner, scope, function, "value")
            self._record_item_added_by_call(node, scope)
        else:
            self._visit(function, scope, node, "func")
        self._visit_all(node.args, scope)
        for keyword in node.keywords:
            self._visit(keyword.value, scope, keyword, "value")

    def _record_item_added_by_call(self, node: ast.Call, scope: Scope) -> None:
        """Record the values that a call such as ``names.append(value)`` adds to a collection.

        The call is recorded like an assignment of the argument's value to ``names``.
        """
        function = node.func
        if not isinstance(function, ast.Attribute) or len(node.args) != 1:
            return
        argument = ValuePart(node.args[0], scope)
        if function.attr in _METHODS_THAT_ADD_ITEM:
            self._record_binding(function.value, argument.in_container())
        elif function.attr == "extend":
            self._record_binding(function.value, argument.item(EACH_ITEM).in_container())

    def _record_binding(self, target: ast.expr, part: ValuePart) -> None:
        """Record that a target such as ``name`` in ``name = value`` gets a value.

        Args:
            target: The assigned name, attribute, item or tuple.
            part: The part of a value that the target gets: the whole value in ``name = value``, an
                item in ``for name in value``.
        """
        match target:
            case ast.Name(id=name):
                owner = part.scope.owner(name)
                owner.assigned_values.setdefault(name, []).append(part)
            case ast.Attribute(attr=name):
                self.stores.setdefault(name, []).append(part)
            # After ``names[key] = value``, ``names`` contains the value, as after
            # ``names = [value]``.
            case ast.Subscript(value=collection):
                self._record_binding(collection, part.in_container())
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                self._record_unpacking(targets, part)
            case _:
                pass

    def _record_unpacking(self, targets: list[ast.expr], part: ValuePart) -> None:
        """Record which items of a value each target gets, as in ``first, *others, last = value``.

        The length of ``others`` is unknown, so ``others`` and ``last`` may have any item.
        """
        is_after_star = False
        for index, target in enumerate(targets):
            if isinstance(target, ast.Starred):
                is_after_star = True
                self._record_binding(target.value, part.item(EACH_ITEM).in_container())
            else:
                self._record_binding(target, part.item(EACH_ITEM if is_after_star else index))

    def _visit_assignment(self, node: ast.Assign, scope: Scope, container: Any, key: Any) -> None:
        """Visit an assignment, and record the values that its targets get."""
        self._visit(node.value, scope, node, "value")
        for index, target in enumerate(node.targets):
            self._record_binding(target, ValuePart(node.value, scope))
            self._visit(target, scope, node.targets, index)
            # ``name = lambda: …`` defines a function, as ``def name`` does.
            if isinstance(target, ast.Name) and isinstance(node.value, ast.Lambda):
                self.definitions.append(Place(node, scope, container, key))

    def _visit_annotated_assignment(
        self, node: ast.AnnAssign, scope: Scope, container: Any, key: Any
    ) -> None:
        if node.value is not None:
            self._visit(node.value, scope, node, "value")
            self._record_binding(node.target, ValuePart(node.value, scope))
            self._visit(node.target, scope, node, "target")

    def _visit_augmented_assignment(
        self, node: ast.AugAssign, scope: Scope, container: Any, key: Any
    ) -> None:
        """Visit ``tasks += [first]`` as if the statement were ``tasks = [first]``.

        Values recorded earlier for ``tasks`` stay recorded, because ``tasks`` keeps their items.
        """
        self._visit(node.value, scope, node, "value")
        self._record_binding(node.target, ValuePart(node.value, scope))
        self._visit(node.target, scope, node, "target")

    def _visit_named_expression(
        self, node: ast.NamedExpr, scope: Scope, container: Any, key: Any
    ) -> None:
        """Visit ``name := value``; record a variable of this name, and its assigned value."""
        owner = scope
        # PEP 572: ``:=`` in a comprehension binds in the enclosing function.
        while owner.kind in ("comprehension", "generator") and owner.parent is not None:
            owner = owner.parent
        self._visit(node.value, scope, node, "value")
        name = node.target.id
        _bind(owner, name, "variable")
        values = owner.assigned_values.setdefault(name, [])
        values.append(ValuePart(node.value, scope))

    def _visit_for(
        self, node: ast.For | ast.AsyncFor, scope: Scope, container: Any, key: Any
    ) -> None:
        """Visit a ``for`` loop, which assigns each item of the iterable to the loop's target."""
        self.loops.append(Place(node, scope, container, key))
        self._visit(node.iter, scope, node, "iter")
        self._record_binding(node.target, ValuePart(node.iter, scope).item(EACH_ITEM))
        self._visit(node.target, scope, node, "target")
        self._visit_all(node.body, scope)
        self._visit_all(node.orelse, scope)

    def _visit_with(
        self, node: ast.With | ast.AsyncWith, scope: Scope, container: Any, key: Any
    ) -> None:
        self.contexts.append(Place(node, scope, container, key))
        self._visit_fields(node, scope)

    def _visit_function(self, node: FunctionNode, scope: Scope, container: Any, key: Any) -> None:
        _bind(scope, node.name, "function")
        self.definitions.append(Place(node, scope, container, key))
        self._visit_all(node.decorator_list, scope)
        inner = Scope("function", node, scope)
        self._visit_parameters(node, inner, scope)
        self.functions.append(inner)
        self._visit_all(node.body, inner)

    def _visit_lambda(self, node: ast.Lambda, scope: Scope, container: Any, key: Any) -> None:
        inner = Scope("lambda", node, scope)
        self._visit_parameters(node, inner, scope)
        inner.returns.append(node.body)
        self._visit(node.body, inner, node, "body")

    def _visit_parameters(self, node: Any, inner: Scope, scope: Scope) -> None:
        """Record a function's scope and its parameters, and visit their defaults."""
        arguments = node.args
        # Python evaluates defaults in the outer scope, when the function is defined.
        self._visit_all(arguments.defaults, scope)
        self._visit_all(arguments.kw_defaults, scope)
        positional = arguments.posonlyargs + arguments.args
        inner.params = [argument.arg for argument in positional]
        parameters = positional + arguments.kwonlyargs
        for starred in (arguments.vararg, arguments.kwarg):
            if starred is not None:
                parameters.append(starred)
        for parameter in parameters:
            _bind(inner, parameter.arg, "param")
        self.scopes[id(node)] = inner

    def _visit_class(self, node: ast.ClassDef, scope: Scope, container: Any, key: Any) -> None:
        """Visit a class: decorators, bases and keywords in ``scope``, the body in a new scope."""
        _bind(scope, node.name, "class")
        self.definitions.append(Place(node, scope, container, key))
        self._visit_all(node.decorator_list, scope)
        self._visit_all(node.bases, scope)
        for keyword in node.keywords:
            self._visit(keyword.value, scope, keyword, "value")
        inner = Scope("class", node, scope)
        self.scopes[id(node)] = inner
        self._visit_all(node.body, inner)

    def _visit_comprehension(self, node: Any, scope: Scope, container: Any, key: Any) -> None:
        """Record a comprehension as a separate scope, and visit its parts."""
        is_lazy = node.__class__ is ast.GeneratorExp
        kind = "generator" if is_lazy else "comprehension"
        inner = Scope(kind, node, scope)
        self.scopes[id(node)] = inner
        if is_lazy:
            self.generators.append(Place(node, scope, container, key))
        for index, part in enumerate(node.generators):
            # Python evaluates the first iterable outside the comprehension, and the others inside.
            outer_scope = scope if index == 0 else inner
            self.loops.append(Place(part, outer_scope, node.generators, index))
            self._visit(part.iter, outer_scope, part, "iter")
            # Bind the target in ``inner``, because the target is a variable of the comprehension.
            self._record_binding(part.target, ValuePart(part.iter, inner).item(EACH_ITEM))
            self._visit(part.target, inner, part, "target")
            self._visit_all(part.ifs, inner)
        # Visit the item last, because the loops bind the names that the item uses.
        for name in ("key", "value", "elt"):
            item = getattr(node, name, None)
            if item is not None:
                self._visit(item, inner, node, name)

    def _visit_await(self, node: ast.Await, scope: Scope, container: Any, key: Any) -> None:
        self.awaits.append(Place(node, scope, container, key))
        self.awaitables.append(ValuePart(node.value, scope))
        self._visit(node.value, scope, node, "value")

    def _visit_return(self, node: ast.Return, scope: Scope, container: Any, key: Any) -> None:
        if node.value is not None:
            scope.returns.append(node.value)
            self._visit(node.value, scope, node, "value")

    def _visit_yield(
        self, node: ast.Yield | ast.YieldFrom, scope: Scope, container: Any, key: Any
    ) -> None:
        function = scope.function_scope
        function.is_generator = True
        if node.value is not None:
            if isinstance(node, ast.Yield):
                function.yields.append(node.value)
            self._visit(node.value, scope, node, "value")

    def _visit_global_or_nonlocal(
        self, node: ast.Global | ast.Nonlocal, scope: Scope, container: Any, key: Any
    ) -> None:
        word = "global" if isinstance(node, ast.Global) else "nonlocal"
        scope.declared_outside.update(dict.fromkeys(node.names, word))

    def _visit_import(
        self, node: ast.Import | ast.ImportFrom, scope: Scope, container: Any, key: Any
    ) -> None:
        is_in_try = self._try_depth > 0
        self.imports.append((Place(node, scope, container, key), is_in_try))
        is_asyncio = isinstance(node, ast.ImportFrom) and node.module == "asyncio"
        for item in node.names:
            bound_name = item.asname or item.name.partition(".")[0]
            _bind(scope, bound_name, "import")
            if is_asyncio:
                self.from_asyncio[bound_name] = item.name
            elif isinstance(node, ast.Import) and item.name == "asyncio":
                self.asyncio_names.add(bound_name)

    def _visit_try(self, node: Any, scope: Scope, container: Any, key: Any) -> None:
        # Only a ``try`` with ``except`` can catch a failed import in its body.
        added_depth = 1 if node.handlers else 0
        self._try_depth += added_depth
        self._visit_all(node.body, scope)
        self._try_depth -= added_depth
        self._visit_all(node.handlers, scope)
        self._visit_all(node.orelse, scope)
        self._visit_all(node.finalbody, scope)

    def _visit_except_handler(
        self, node: ast.ExceptHandler, scope: Scope, container: Any, key: Any
    ) -> None:
        if node.name:  # the name in ``except Error as name``
            _bind(scope, node.name, "variable")
        self._visit_fields(node, scope)

    def _visit_capture_pattern(self, node: Any, scope: Scope, container: Any, key: Any) -> None:
        """Record the variable that a pattern of a ``match`` statement binds, if any."""
        # Only a mapping pattern has ``rest``; the other patterns have ``name``.
        name = getattr(node, "rest", None) or getattr(node, "name", None)
        if name:
            _bind(scope, name, "variable")
        self._visit_fields(node, scope)

    # -- results of the walk ------------------------------------------------------------

    def asyncio_function(self, function: ast.expr, scope: Scope) -> str | None:
        """Return the name of the asyncio function to which an expression refers, if any."""
        match function:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute):
                return attribute if name in self.asyncio_names else None
            case ast.Name(id=name) if name in self.from_asyncio:
                # The script may bind the name to something else, too, for example as a parameter.
                owner = scope.find(name)
                is_rebound = owner is not None and owner.binding_kinds[name] != {"import"}
                return None if is_rebound else self.from_asyncio[name]
            case _:
                return None

    def _record_arguments_of_awaiting_functions(self) -> None:
        """Record the arguments of calls that await their arguments, such as ``gather``."""
        for call in self.calls.values():
            node = call.node
            name = self.asyncio_function(node.func, call.scope)
            is_method = isinstance(node.func, ast.Attribute) and node.func.attr in AWAITING_METHODS
            if is_method or name in AWAITING_FUNCTIONS:
                arguments = node.args + [keyword.value for keyword in node.keywords]
                self.awaitables += [ValuePart(item, call.scope) for item in arguments]


def _bind(scope: Scope, name: str, kind: str) -> None:
    scope.owner(name).binding_kinds.setdefault(name, set()).add(kind)
