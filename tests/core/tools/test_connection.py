import copy
import gc
import weakref

import pytest
from pydantic import Field

from delf.errors import (
    AgentConfirmationError,
    ConnectionConfigurationError,
    ToolDefinitionError,
)
from delf.protocols.connection import (
    ConnectionLike,
    SupportsClose,
    SupportsContext,
    SupportsSecrets,
)
from delf.settings import PluginSettings, SecretStr
from delf.tools.action import Action, action
from delf.tools.connection import Connection


class DeskSettings(PluginSettings):
    url: str = Field(description="Where it is.")
    token: SecretStr = Field(description="The key to it.")


class Desk(Connection[DeskSettings]):
    """The support desk.

    More about it.
    """

    @action(effect="read")
    async def find(self, status: str) -> list[str]:
        """Tickets in a state."""
        return [status, self.settings.url]

    @action("edit", effect="write")
    async def close(self, ticket: int) -> None:
        """Close a ticket."""


class Plain(Connection):
    @action(effect="read")
    def ping(self) -> str:
        return "pong"


def desk(**options):
    return Desk(**{"url": "u", "token": "t", **options})


async def test_actions_are_bound_to_the_instance():
    find, close = await desk().actions()
    assert (find.name, close.permission) == ("find", "edit")
    assert await find.call(status="open") == ["open", "u"]


def test_connection_satisfies_only_the_basic_protocol():
    made = desk()
    assert isinstance(made, ConnectionLike)
    assert not isinstance(made, SupportsContext)
    assert not isinstance(made, SupportsClose)
    assert made.is_function is False


def test_connection_name_can_be_set_and_is_checked():
    assert desk().name == "desk"
    assert desk(name="support").name == "support"
    with pytest.raises(ToolDefinitionError, match="the connection name 'my-desk'"):
        desk(name="my-desk")


def test_summary_is_the_docstrings_first_line():
    assert desk().summary == "The support desk."
    assert Plain().summary == ""


def test_connection_repr_hides_secrets():
    made = desk(token="hunter2")
    assert "hunter2" not in repr(made) + repr(made.settings) + str(made.settings)
    assert repr(made) == "<Desk 'desk'>"


def test_settings_class_is_the_argument_of_connection():
    class Branch(Desk):
        """A branch inherits the settings."""

    assert (Desk.Settings, Branch.Settings, Plain.Settings) == (DeskSettings, DeskSettings, None)


def test_settings_can_be_one_object():
    given = DeskSettings(url="u", token=SecretStr("t"))
    assert Desk(given).settings is given
    for more in ((given, "u"), (given, given)):
        with pytest.raises(
            ConnectionConfigurationError, match="takes one setting by position, url"
        ):
            Desk(*more)
    with pytest.raises(ConnectionConfigurationError, match="takes one setting by position, url"):
        Desk(given, token="t")


@pytest.mark.parametrize("given", [int, "DeskSettings", dict[str, str]])
def test_settings_that_are_no_settings_are_refused(given):
    with pytest.raises(ToolDefinitionError, match=r"Wrong has the settings .*") as caught:

        class Wrong(Connection[given]):
            """A wrong one."""

    assert "a subclass of delf.settings.PluginSettings" in caught.value.hint


def test_settings_attribute_is_refused_with_the_right_form():
    with pytest.raises(ToolDefinitionError, match="Old sets the attribute Settings") as caught:

        class Old(Connection):
            Settings = DeskSettings

    assert caught.value.hint == "name the class of its settings as class Old(Connection[…])"


def test_connection_without_settings_takes_none():
    assert Plain().settings is None
    with pytest.raises(ConnectionConfigurationError, match="connection 'plain' has no setting 'a'"):
        Plain(b=1, a=2)


def test_allow_and_confirm_names_must_be_actions():
    made = desk(allow=["find"], confirm="edit")
    assert (made.allow, made.confirm) == (("find",), ("edit",))
    assert (desk().allow, desk().confirm) == (None, None)
    with pytest.raises(ConnectionConfigurationError, match="allow of 'desk' names 'fnd'"):
        desk(allow="fnd")
    with pytest.raises(AgentConfirmationError, match="confirm of 'desk' names 'read'"):
        desk(confirm=["read"])
    with pytest.raises(AgentConfirmationError, match="confirm of 'desk' is 3"):
        desk(confirm=3)


def test_action_cannot_take_a_reserved_method_name():
    class Bank(Connection):
        """A bank."""

        @action
        async def check(self, number: str) -> str:
            """Look at a cheque."""
            return number

    with pytest.raises(ToolDefinitionError, match="an action cannot be named 'check'"):
        Bank()


def test_connection_class_without_actions_is_refused():
    class Forgotten(Connection):
        async def find(self) -> None:
            """Without a mark."""

    with pytest.raises(ToolDefinitionError, match="'forgotten': Forgotten has no action") as caught:
        Forgotten()
    assert "@action" in caught.value.hint


class Kept:
    """Implements :class:`delf.protocols.connection.SecretsKeeper`."""

    def __init__(self):
        self.message = []

    def learn(self, source, secrets):
        self.message.append((source, secrets))


def test_secrets_of_a_connection_reach_each_listener():
    made, early, late = desk(name="support"), Kept(), Kept()
    assert isinstance(made, SupportsSecrets)
    made.tell_secrets(early)
    made.keep_secret("token-1")
    made.tell_secrets(late)
    made.keep_secret("token-2")
    made.keep_secret("token-1")
    last = ("support", ("token-2", "token-1"))
    assert late.message == [("support", ("token-1",)), ("support", ("token-1", "token-2")), last]
    assert early.message[-1] == last


def test_only_the_latest_renewed_tokens_are_redacted():
    made, kept = desk(), Kept()
    made.tell_secrets(kept)
    for number in range(100):
        made.keep_secret(f"token-{number}")
    assert kept.message[-1] == ("desk", tuple(f"token-{number}" for number in range(68, 100)))


def test_deleted_listener_for_secrets_is_dropped():
    made, kept = desk(), Kept()
    made.tell_secrets(kept)
    gone = weakref.ref(kept)
    del kept
    gc.collect()
    assert gone() is None
    made.keep_secret("token-1")


def test_inspect_needs_no_credentials():
    assert Desk.inspect() == {
        "tool": "desk",
        "description": "The support desk.",
        "methods": ["find", "close"],
        "total": 2,
    }
    assert desk(name="support").inspect()["tool"] == "support"
    assert desk(allow=False).inspect()["methods"] == []
    (first, *_) = Desk.inspect()["methods"]
    assert desk(allow=[first]).inspect() | {"description": ""} == {
        "tool": "desk",
        "description": "",
        "methods": [first],
        "total": 1,
    }
    verbose = Desk.inspect(verbose=True)["methods"]
    assert verbose[0]["signature"] == "find(status: str) -> list[str]"


async def test_dynamic_connection_builds_its_actions():
    class Dynamic(Connection):
        async def actions(self):
            return [
                Action(
                    name="made",
                    permission="made",
                    effect="read",
                    summary="",
                    parameters=(),
                    returns="None",
                    validate=dict,
                    call=lambda: None,
                )
            ]

    # Its names are not known before they are asked for, so they cannot be checked here.
    made = Dynamic(allow=["made"], confirm="anything")
    assert [item.name for item in await made.actions()] == ["made"]


class Vault(Connection):
    """A connection with attributes named like the base class's private ones."""

    def __init__(self, **options):
        super().__init__(**options)
        self._secrets = self._redactors = self._lock = None

    @action(effect="read")
    async def open(self) -> None:
        """Open it."""


def test_connection_state_avoids_subclass_names_and_can_be_copied():
    learned = []

    class Keeper:
        def learn(self, source, secrets):
            learned.append((source, tuple(secrets)))

    keeper, made = Keeper(), Vault(name="v")
    made.tell_secrets(keeper)
    made.keep_secret("token-1")
    copied = copy.deepcopy(made)
    copied.keep_secret("token-2")
    assert learned == [("v", ()), ("v", ("token-1",))]
    copied.tell_secrets(keeper)
    assert learned[-1] == ("v", ("token-1", "token-2"))


def test_group_cannot_have_the_name_of_an_action():
    class Box(Connection):
        """A mailbox."""

        @action("send", effect="irreversible")
        async def send(self) -> None:
            """Send a mail."""

        @action("send", effect="write")
        async def archive(self) -> None:
            """Archive a mail."""

    with pytest.raises(ToolDefinitionError, match="'archive' is in the group 'send'"):
        Box(allow=["send"])
