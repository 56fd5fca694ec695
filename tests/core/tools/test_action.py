import pytest

from delf.errors import ToolDefinitionError, ToolRefusedError
from delf.tools.action import Action, action, action_from_function, actions_of, permission_names


class Base:
    @action(effect="read")
    async def find(self, status: str, limit: int = 50) -> list[str]:
        """Tickets in a state.

        Args:
            status: Which state.
        """
        return [status] * limit

    @action("edit", effect="write")
    def close(self, ticket: int) -> None:
        """Close a ticket."""

    @action("edit")
    def reopen(self, ticket: int) -> None: ...

    @action
    def wipe(self) -> None: ...

    def helper(self) -> None: ...


class Child(Base):
    def find(self, status: str) -> str:
        """Overridden."""
        return f"child {status}"

    @action(effect="read")
    def extra(self) -> int:
        return 1


def by_name(owner, instance=None):
    return {item.name: item for item in actions_of(owner, instance, "desk")}


def test_decorated_methods_become_actions_in_definition_order():
    found = actions_of(Base, Base(), "desk")
    assert [(item.name, item.permission, item.effect) for item in found] == [
        ("find", "find", "read"),
        ("close", "edit", "write"),
        ("reopen", "edit", "irreversible"),
        ("wipe", "wipe", "irreversible"),
    ]
    assert [item.declares_effect for item in found] == [True, True, False, False]


def test_subclass_inherits_and_overrides_actions():
    found = by_name(Child, Child())
    assert list(found) == ["find", "close", "reopen", "wipe", "extra"]
    assert found["find"].call(status="x") == "child x"
    assert found["find"].summary == "Overridden."
    assert found["find"].effect == "read"


def test_action_has_signature_summary_and_async_flag():
    found = by_name(Base, Base())
    assert found["find"].signature == "(status: str, limit: int = 50) -> list[str]"
    assert found["find"].is_async
    assert not found["close"].is_async
    assert found["reopen"].summary == "reopen"


async def test_action_calls_its_instance():
    assert await by_name(Base, Base())["find"].call(status="x", limit=2) == ["x", "x"]


def test_arguments_are_validated_under_the_connections_name():
    find = by_name(Base)["find"]
    assert find.validate({"status": "x", "limit": "2"}) == {"status": "x", "limit": 2}
    with pytest.raises(ToolRefusedError, match=r"^desk\.find: missing argument 'status'"):
        find.validate({})


def test_static_and_class_methods_keep_their_first_parameter():
    class Desk:
        @staticmethod
        @action(effect="read")
        def add(a: int, b: int) -> int:
            return a + b

        @classmethod
        @action(effect="read")
        def name(cls, suffix: str) -> str:
            return cls.__name__ + suffix

    found = by_name(Desk, Desk())
    assert found["add"].signature == "(a: int, b: int) -> int"
    assert found["add"].call(a=1, b=2) == 3
    assert found["name"].signature == "(suffix: str) -> str"
    assert found["name"].call(suffix="!") == "Desk!"


def test_action_describes_itself_as_data():
    found = by_name(Base)
    assert found["find"].describe() == {"name": "find", "effect": "read"}
    assert found["close"].describe()["permission"] == "edit"
    assert found["find"].describe(verbose=True) == {
        "name": "find",
        "effect": "read",
        "description": "Tickets in a state.",
        "signature": "find(status: str, limit: int = 50) -> list[str]",
        "parameters": [
            {"name": "status", "type": "str", "required": True, "description": "Which state."},
            {"name": "limit", "type": "int", "required": False, "default": "50"},
        ],
    }


def test_permission_names_lists_each_permission_once():
    assert permission_names(actions_of(Base)) == ("find", "edit", "close", "reopen", "wipe")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"effect": "maybe"}, "unknown effect 'maybe'; one of: read, write"),
        ({"trust": "mine"}, "unknown trust 'mine'"),
        ({"sinks": "to"}, "sinks is a text"),
    ],
)
def test_wrong_option_of_an_action_is_refused_with_the_action(options, problem):
    def find(self) -> None: ...

    with pytest.raises(ToolDefinitionError, match=f"find: {problem}"):
        action(**options)(find)


def test_action_without_self_is_refused():
    class Desk:
        @action(effect="read")
        def find(words: str, limit: int = 3) -> None: ...

    with pytest.raises(ToolDefinitionError, match=r"Desk\.find has no parameter self"):
        actions_of(Desk)


def test_action_with_star_args_is_refused():
    class Desk:
        @action(effect="read")
        def find(self, *words: str) -> None: ...

    with pytest.raises(ToolDefinitionError, match=r"takes \*words"):
        actions_of(Desk)


def test_private_method_is_not_an_action():
    class Desk:
        @action(effect="read")
        def _find(self) -> None: ...

    with pytest.raises(ToolDefinitionError, match="'_find' cannot be called"):
        actions_of(Desk)


def test_action_can_be_made_from_a_function():
    made = action_from_function(lambda x: x, name="echo", summary="Says it again.", effect="read")
    assert isinstance(made, Action)
    assert (made.name, made.permission, made.summary) == ("echo", "echo", "Says it again.")
    with pytest.raises(ToolDefinitionError, match="'<lambda>' cannot be called"):
        action_from_function(lambda x: x)


def test_parameter_without_type_hint_is_refused_at_definition():
    with pytest.raises(ToolDefinitionError) as caught:

        class Desk:
            @action(effect="read")
            def find(self, limit: int, context, **more) -> int: ...

    assert "Desk.find does not say what 'context' must be" in caught.value.message
    assert caught.value.hint is not None
    assert "as context: CallContext" in caught.value.hint
