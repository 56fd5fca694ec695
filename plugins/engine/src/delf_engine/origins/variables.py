"""The variables of scripts: the sources of their values, and the objects that they may share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Final

from delf_engine.origins.blocks import Blocks
from delf_engine.origins.sources import UNKNOWN, Source, Sources

# Stands for all variables, where the analysis does not know which variables refer to an object.
ANY_VARIABLE: Final = "any variable"


class Variables:
    """The variables of a task's scripts: the sources of their values, and their objects.

    A variable has the sources of all values that the scripts give it, in any order. A change of an
    object counts for all variables through which a script may read the object: after ``a = b``,
    ``a.append(x)`` also changes ``b``.

    Args:
        blocks: The blocks whose conditions decide what is assigned.
        untrusted_variables: The names of variables that hold untrusted data before the first
            script.
    """

    def __init__(self, blocks: Blocks, untrusted_variables: Iterable[str]) -> None:
        self._blocks = blocks
        self._sources: dict[str, set[Source]] = {name: {UNKNOWN} for name in untrusted_variables}
        # After ``unknown().append(record)``, any variable may contain the record.
        self._sources[ANY_VARIABLE] = set()
        # The names under which the scripts import harmless modules, or functions of them. A module
        # has no sources, until a script changes it, as by ``json.dumps = f``.
        self._modules: set[str] = set()
        # For each variable or function, the variables whose objects its value may be or contain.
        # After ``a = [b]`` and after ``a = b``, this is ``b`` for ``a``.
        self._contained: dict[str, set[str]] = defaultdict(set)
        # The variables that may be another name of a contained variable's object. After ``a = b``,
        # this is ``a``, because ``a.append(x)`` also changes ``b``. After ``a = [b]``, ``a`` is no
        # other name of ``b``.
        self._aliases: set[str] = set()
        # The variables and functions whose object changes when a script reads the object: it is,
        # contains or returns an iterator or defaultdict.
        self._iterators: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._sources

    @property
    def size(self) -> int:
        """The number of recorded sources and shared objects, which never shrinks."""
        recorded = (*self._sources.values(), *self._contained.values())
        return sum(map(len, recorded)) + len(self._aliases) + len(self._iterators)

    def declare(self, name: str) -> None:
        """Add a variable that has no sources yet."""
        self._sources.setdefault(name, set())

    def declare_modules(self, names: Iterable[str]) -> None:
        """Add names of harmless modules, or of functions of these modules.

        Functions of a harmless module return no untrusted data and do not modify their arguments.
        """
        self._modules.update(names)

    def is_module(self, name: str) -> bool:
        """Return whether a name is that of a harmless module, or of a function of a module."""
        return name in self._modules

    def is_variable_or_module(self, name: str) -> bool:
        """Return whether a script gives a name a value; False for a builtin such as ``len``."""
        return name in self._sources or name in self._modules

    def without_modules(self, names: Iterable[str]) -> AbstractSet[str]:
        """Return the names that do not stand for a module."""
        return {*names} - self._modules

    def sources_of(self, name: str) -> Sources:
        """Return the sources of a variable's value, apart from changes that any object may have."""
        return self._sources.get(name, frozenset())

    def sources_of_object(self, name: str) -> Sources:
        """Return the sources of what a script finds in a variable or module."""
        # A change such as ``unknown().append(record)`` may have changed this object.
        return self._sources[ANY_VARIABLE] | self.sources_of(name)

    def may_be_any_object(self, name: str) -> bool:
        """Return whether a name may refer to any object or function, as an imported name may."""
        return ANY_VARIABLE in self._contained.get(name, ())

    def add_sources(self, name: str, sources: Sources) -> None:
        """Add sources of a variable's value, but not those of the conditions around a statement."""
        self._sources.setdefault(name, set()).update(sources)

    def assign(self, name: str, sources: Sources) -> None:
        """Add the sources of a value that a statement assigns to a variable."""
        # In ``if paid: note = "x"``, the value of ``note`` reveals ``paid``.
        known = self._sources.setdefault(name, set())
        known.update(sources, *self._blocks.conditions_revealed_by(name))

    def add_contained(self, name: str, contained: Iterable[str]) -> None:
        """Record the variables whose objects a variable's or function's value may be or contain."""
        self._contained[name].update(contained)

    def add_alias(self, name: str) -> None:
        """Record that a variable may be another name of an object, as ``a`` after ``a = b``."""
        self._aliases.add(name)

    def add_iterator(self, name: str) -> None:
        """Record that the object of a variable or function may be or contain an iterator."""
        self._iterators.add(name)

    def share_objects(
        self, names: Iterable[str], sources: Sources, variables: Iterable[str]
    ) -> None:
        """Record that each name may refer to the objects of all ``variables``.

        Args:
            names: The names, such as the parameters of a function.
            sources: The actions and fields from which the objects come.
            variables: The variables.
        """
        shared = {*variables}
        for name in names:
            self.add_sources(name, sources)
            self.add_contained(name, shared)
            self.add_alias(name)  # ``name.append(x)`` changes the objects, too

    def share_any_object(self, names: Iterable[str]) -> None:
        """Record that names may refer to the objects of any variables."""
        self.share_objects(names, {UNKNOWN}, [ANY_VARIABLE])

    def exchange_objects(self, names: AbstractSet[str]) -> None:
        """Record that a function may put the object of each variable into each other variable."""
        # Leave out variables that may contain the objects of all variables anyway, such as that of
        # a caught exception.
        exchanging = {name for name in names if not self.may_be_any_object(name)}
        for name in exchanging:
            self.add_contained(name, exchanging)

    def record_reading(self, name: str, decided_by: Sources) -> None:
        """Record that a script reads an object, which changes an iterator or a defaultdict.

        Args:
            name: The variable that refers to the object.
            decided_by: The actions and fields whose values decide how far an iterator moves on, or
                which key a defaultdict gets.
        """
        # After ``z = zip(rows, numbers)``, reading ``z`` also changes the iterator ``numbers``.
        read = self._with_contained([name])
        if ANY_VARIABLE in read:  # the object may contain any iterator
            read |= self._with_contained(self._iterators)
        if not read.isdisjoint(self._iterators):
            # In ``itertools.chain(rows)``, the module does not change.
            changed = read - self._modules - {ANY_VARIABLE}
            self._add_change(changed, decided_by)

    def record_change(self, name: str, sources: Sources, *, is_part_changed: bool) -> None:
        """Record that the object of a variable is changed in place.

        Args:
            name: The variable that refers to the object; or a builtin.
            sources: The actions and fields from which the change comes.
            is_part_changed: Whether an object inside the object changes, as ``a[0]`` for ``a``.
        """
        changed = {name}
        # ``a.append(x)`` changes ``b`` after ``a = b``; ``a[0].append(x)`` also after ``a = [b]``.
        if is_part_changed or name in self._aliases:
            changed = self._with_contained(changed)
        if not self.is_variable_or_module(name):
            # A builtin: ``map(list.append, tables, rows)`` changes the tables, which may be any
            # variables, and not ``list``.
            changed.add(ANY_VARIABLE)
        self._add_change(changed, sources)

    def record_change_inside(self, names: Iterable[str], sources: Sources) -> None:
        """Record that a function may change the objects of variables, and the objects inside."""
        self._add_change(self._with_contained(names) - {ANY_VARIABLE}, sources)

    def _with_contained(self, names: Iterable[str]) -> set[str]:
        """Return variables together with all variables whose objects these variables may contain.

        After ``a = [b]`` and ``b = [c]``, return ``a``, ``b`` and ``c`` for ``a``.
        """
        found = {*names}
        remaining = [*found]
        while remaining:
            new = self._contained.get(remaining.pop(), set()) - found
            found |= new
            remaining += new
        return found

    def _add_change(self, names: Iterable[str], sources: Sources) -> None:
        """Add the sources of a change to variables and modules; ignore names such as ``len``."""
        for name in names:
            if self.is_variable_or_module(name):
                # In ``if paid: rows.append(x)``, the length of ``rows`` reveals ``paid``.
                self.assign(name, sources)
