import pytest

from delf.errors import (
    AgentConfirmationError,
    ConnectionConfigurationError,
    ToolDefinitionError,
)
from delf.tools.action import Action
from delf.tools.permissions import (
    check_groups,
    check_permission,
    check_permission_names,
    is_allowed,
    needs_confirmation,
)


def act(name, permission=None, effect="write"):
    return Action(
        name=name,
        permission=permission or name,
        effect=effect,
        summary="",
        parameters=(),
        returns="None",
        validate=dict,
        call=lambda: None,
    )


FIND = act("find", effect="read")
CLOSE = act("close", "edit")
REOPEN = act("reopen", "edit")
WIPE = act("wipe", effect="irreversible")
ALL = (FIND, CLOSE, REOPEN, WIPE)


def names(test, value):
    return [action.name for action in ALL if test(value, action)]


@pytest.mark.parametrize(
    ("allow", "allowed"),
    [
        (None, ["find", "close", "reopen", "wipe"]),
        (True, ["find", "close", "reopen", "wipe"]),
        (False, []),
        ([], []),
        ("find", ["find"]),
        (["find", "edit"], ["find", "close", "reopen"]),
        (("close",), ["close"]),
        ("fin", []),
    ],
)
def test_allow_selects_actions(allow, allowed):
    assert names(is_allowed, allow) == allowed
    assert names(is_allowed, check_permission(allow, "allow", "desk")) == allowed


@pytest.mark.parametrize(
    ("confirm", "asked"),
    [
        (None, ["close", "reopen", "wipe"]),
        (True, ["find", "close", "reopen", "wipe"]),
        (False, []),
        ([], []),
        ("find", ["find"]),
        (["edit"], ["close", "reopen"]),
        (["reopen", "wipe"], ["reopen", "wipe"]),
    ],
)
def test_confirm_selects_actions(confirm, asked):
    assert names(needs_confirmation, confirm) == asked
    assert names(needs_confirmation, check_permission(confirm, "confirm", "desk")) == asked


def test_check_permission_returns_sorted_names():
    assert check_permission("find", "allow", "desk") == ("find",)
    assert check_permission({"b", "a"}, "allow", "desk") == ("a", "b")
    assert check_permission(["b", "a"], "allow", "desk") == ("b", "a")
    assert check_permission(None, "allow", "desk") is None


@pytest.mark.parametrize("value", [3, 1.5, {"a": 1}, [1], ["a", None], object])
def test_permission_must_be_switch_or_names(value):
    with pytest.raises(ConnectionConfigurationError, match="allow of 'desk' is"):
        check_permission(value, "allow", "desk")
    with pytest.raises(AgentConfirmationError, match="confirm of 'desk' is") as caught:
        check_permission(value, "confirm", "desk")
    assert "true, false" in (caught.value.hint or "")


def test_unknown_permission_name_is_refused_with_a_suggestion():
    for good in (None, True, False, (), "find", ("edit", "close", "wipe")):
        check_permission_names(good, "allow", "desk", ALL)
    with pytest.raises(
        ConnectionConfigurationError, match=r"names 'fnd'.*did you mean 'find'"
    ) as caught:
        check_permission_names(("find", "fnd"), "allow", "desk", ALL)
    assert caught.value.hint == "its actions: find, edit, close, reopen, wipe"
    with pytest.raises(AgentConfirmationError):
        check_permission_names("fnd", "confirm", "desk", ALL)


def test_group_named_like_an_action_is_refused():
    check_groups(ALL, "desk")
    with pytest.raises(ToolDefinitionError, match="'archive' is in the group 'find'") as caught:
        check_groups([FIND, act("archive", "find")], "desk")
    assert "a name that no action has" in caught.value.hint
