import copy
import dataclasses
import inspect
import pickle
import threading
from dataclasses import FrozenInstanceError, field

import pytest

from delf.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    x: int
    tags: list[str] = field(default_factory=list)
    note: str = field(default="", repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place(Point):
    name: str = "here"


@dataclass(frozen=True)
class Pair:
    """A pair."""

    left: int
    right: int = 2
    total: int = field(default=0, init=False)

    def __post_init__(self):
        object.__setattr__(self, "total", self.left + self.right)


@dataclass(kw_only=True)
class Open:
    count: int = 0


OPTIONS = [{"frozen": True, "slots": True, "kw_only": True}, {"frozen": True}, {"kw_only": True}]


def both(options):
    """Return the same class as made by delf and by the standard library."""

    def plain():
        class Thing:
            a: int
            b: str = "x"
            c: list[int] = field(default_factory=list)
            d: int = field(default=7, repr=False, compare=False)
            e: list[int] = field(default_factory=list, init=False, hash=False)

        return Thing

    return dataclass(**options)(plain()), dataclasses.dataclass(**options)(plain())


@pytest.mark.parametrize("options", OPTIONS)
class TestDataclassCompatibility:
    def test_record_repr_and_asdict_match_dataclasses(self, options):
        ours, theirs = (cls(a=1, b="y") for cls in both(options))
        assert repr(ours) == repr(theirs)
        assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
        assert dataclasses.asdict(dataclasses.replace(ours, a=2)) == dataclasses.asdict(
            dataclasses.replace(theirs, a=2)
        )

    def test_records_compare_like_dataclasses(self, options):
        for cls in both(options):
            assert cls(a=1) == cls(a=1, d=8)
            assert cls(a=1) != cls(a=2)
            assert cls(a=1).__eq__(1) is NotImplemented

    def test_records_hash_like_dataclasses(self, options):
        for cls in both(options):
            if not options.get("frozen"):
                assert cls.__hash__ is None
                continue
            assert hash(cls(a=1, c=())) == hash(cls(a=1, c=(), d=8))
            with pytest.raises(TypeError, match="unhashable"):
                hash(cls(a=1))

    def test_records_work_with_dataclasses_and_inspect(self, options):
        ours, theirs = both(options)
        assert [f.name for f in dataclasses.fields(ours)] == [
            f.name for f in dataclasses.fields(theirs)
        ]
        assert ours.__match_args__ == theirs.__match_args__
        for cls in (ours, theirs):
            assert cls.__dataclass_params__.frozen is options.get("frozen", False)
        assert list(inspect.signature(ours).parameters) == list(
            inspect.signature(theirs).parameters
        )
        kinds = [[p.kind for p in inspect.signature(c).parameters.values()] for c in (ours, theirs)]
        assert kinds[0] == kinds[1]
        assert hasattr(ours(a=1), "__dict__") is hasattr(theirs(a=1), "__dict__")

    def test_record_rejects_wrong_arguments(self, options):
        for cls in both(options):
            for arguments in ({}, {"a": 1, "z": 2}, {"a": 1, "e": []}):
                with pytest.raises(TypeError, match="argument"):
                    cls(**arguments)


def test_record_defaults_are_created_per_instance():
    assert Point(x=1).tags is not Point(x=1).tags


def test_records_refuse_assignment():
    for item in (Point(x=1), Place(x=1), Pair(1)):
        name = dataclasses.fields(item)[0].name
        with pytest.raises(FrozenInstanceError, match=f"cannot assign to field '{name}'"):
            setattr(item, name, 2)
        with pytest.raises(FrozenInstanceError, match=f"cannot delete field '{name}'"):
            delattr(item, name)
        with pytest.raises(FrozenInstanceError):
            item.other = 1
    opened = Open()
    opened.count = 3
    assert opened == Open(count=3)


def test_record_can_be_a_base_of_a_standard_dataclass():
    assert repr(Place(x=1)) == "Place(x=1, tags=[], name='here')"
    assert Place(x=1) != Point(x=1)

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Far(Place):
        miles: int

    far = Far(x=1, miles=9)
    assert (far.name, far.miles) == ("here", 9)
    with pytest.raises(FrozenInstanceError):
        far.x = 2
    with pytest.raises(TypeError, match="frozen"):

        @dataclasses.dataclass
        class Thawed(Place):
            pass

    with pytest.raises(TypeError, match="Thawed: a dataclass and its bases must all be frozen"):
        dataclass()(type("Thawed", (Place,), {}))

    class Sub(Pair):
        def __init__(self, both):
            super().__init__(both, both)
            self.__dict__["more"] = True

    assert Sub(4).total == 8
    assert Pair(1, right=5).total == 6


def test_record_keeps_methods_defined_in_the_class():
    @dataclass(frozen=True)
    class Word:
        text: str

        def __eq__(self, other):
            return isinstance(other, Word) and other.text.lower() == self.text.lower()

        def __hash__(self):
            return hash(self.text.lower())

        def __repr__(self):
            return self.text

    assert {Word("A"), Word("a")} == {Word("A")}
    assert repr(Word("b")) == "b"


@pytest.mark.parametrize("item", [Point(x=1, tags=["t"]), Place(x=1, name="n"), Pair(1), Open()])
def test_records_can_be_copied_and_pickled(item):
    for other in (copy.copy(item), copy.deepcopy(item), pickle.loads(pickle.dumps(item))):
        assert other == item
        assert type(other) is type(item)


def test_record_class_can_be_completed_by_concurrent_threads():
    for _ in range(50):
        cls, _ = both(OPTIONS[0])
        gate, made = threading.Barrier(8), []

        def make(cls=cls, gate=gate, made=made):
            gate.wait()
            made.append(cls(a=1))

        threads = [threading.Thread(target=make) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == [cls(a=1)] * 8


def test_record_matches_positional_patterns():
    match Pair(1, 2):
        case Pair(1, right):
            assert right == 2
        case _:
            pytest.fail("no match")
