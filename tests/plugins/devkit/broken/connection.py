"""Connections that break one thing each."""

import asyncio
import base64
import contextlib
import datetime as dt
import logging
import os
import socket
import tempfile
import threading
import time
from dataclasses import replace
from typing import Literal

import pytest
from planting import planting
from pydantic import Field

from delf import CallContext, Connection, ToolException, action
from delf.messages import user
from delf.protocols.connection import Allowed, NeedsApproval
from delf.settings import PluginSettings, SecretStr
from delf.testing import Call, ConnectionContract
from delf.tools.action import action_from_function


class DeskSettings(PluginSettings):
    token: SecretStr = Field(default=SecretStr(""), description="A token.")
    url: SecretStr = Field(default=SecretStr(""), description="A URL with a password.")


class Desk(Connection[DeskSettings]):
    """A desk with tickets."""

    open = True

    def __init_subclass__(cls):
        super().__init_subclass__()
        cls.__doc__ = "A desk." if cls.__doc__ is None else cls.__doc__

    @action(effect="read")
    async def find(self, state: Literal["open", "closed"], limit: int = 5) -> list[dict[str, str]]:
        """Tickets in a state."""
        return [{"id": "1", "state": state}][:limit]

    @action("edit", effect="write")
    def close(self, ticket: str) -> bool:
        """Close a ticket."""
        if ticket == "none":
            raise ToolException(f"there is no ticket {ticket!r}")
        return True

    @action(effect="read")
    async def wait(self) -> None:
        """Wait forever."""
        await asyncio.Event().wait()

    async def context(self, task):
        return "Tickets have a state."

    async def aclose(self):
        self.open = False


class Suite(ConnectionContract):
    logs_in = False
    seconds = 3.0
    kind = Desk
    calls = (Call("find", state="open", limit=2), Call("close", ticket="1"))
    failing_calls = (Call("close", ticket="none"),)
    slow_call = Call("wait")
    untested = ("wait",)

    @pytest.fixture
    def connection(self):
        return self.kind(
            name="desk", token="tok-secret", url="https://ann:pass-secret@desk.example.org"
        )


breaks = planting(Suite)


class TestGood(Suite):
    pass


class Errands(Desk):
    """Tickets that others work on."""

    @action(effect="write", resumes=True)
    async def hand_over(self, ticket: str, context: CallContext) -> str:
        """Let a colleague close a ticket."""
        context.say("handed over")
        child = await context.delegate(f"close {ticket}", tools=[self])
        reply = await context.ask([user("Is that so?")])
        agreed = await context.consent("Close it?", {"ticket": ticket})
        if not child.status or agreed is None:
            raise ToolException("nobody closes it")
        return f"{child.text}, {reply.text}, {agreed['ticket']}"


class TestGoodWithContext(Suite):
    passes = (
        "test_results_have_the_declared_type",
        "test_connection_works_in_a_task",
        "test_use_leaves_the_process_unchanged",
    )
    kind = Errands
    answer = "closed"
    calls = (Call("hand_over", ticket="1"), Call("close", ticket="1"))
    untested = ("find", "wait")


class TestGoodDynamic(Suite):
    passes = (
        "test_actions_have_descriptions",
        "test_connection_describes_itself_consistently",
        "test_connection_works_in_a_task",
        "test_class_describes_itself_without_settings",
    )
    slow_call = None
    untested = ()

    class kind(Desk):
        """A desk that makes its actions itself."""

        async def actions(self):
            async def find(state: Literal["open", "closed"], limit: int = 5) -> list[str]:
                """Tickets in a state."""
                return [state]

            def close(ticket: str) -> bool:
                """Close a ticket."""
                return Desk.close(self, ticket)

            return [
                action_from_function(find, effect="read"),
                action_from_function(close, effect="write"),
            ]


@breaks("test_connection_has_a_name")
class TestNoDescription(Desk):
    __doc__ = ""


@breaks("test_actions_have_descriptions")
class TestOrderChanges(Desk):
    turn = False

    async def actions(self):
        self.turn = not self.turn
        found = list(await super().actions())
        return found if self.turn else found[::-1]


@breaks("test_actions_have_descriptions")
class TestNoDocstring(Desk):
    @action(effect="read")
    async def count(self) -> int:
        return 1


@breaks("test_actions_have_descriptions")
class TestNoEffect(Desk):
    @action
    async def burn(self) -> int:
        """Burn a ticket."""
        return 1

    @action("edit")
    async def drown(self) -> int:
        """Drown a ticket."""
        return 1


@breaks("test_allow_accepts_an_action_or_a_group", "test_connection_works_in_a_task")
class TestGroupWithTheNameOfAnAction(Desk):
    async def actions(self):
        found = list(await super().actions())
        return [
            replace(item, permission="find") if item.name == "close" else item for item in found
        ]


@breaks("test_class_describes_itself_without_settings", "test_inspect_describes_the_connection")
class TestInspectsItsService(Desk):
    def inspect(self, *, verbose=False):
        assert self.settings.token
        return {"tool": "service", "methods": [], "total": 0}


@breaks("test_connection_refuses_invalid_arguments")
class TestTakesAnything(Desk):
    async def actions(self):
        import dataclasses

        return [dataclasses.replace(a, validate=dict) for a in await super().actions()]


@breaks("test_actions_have_descriptions")
class TestSchemaOfAnother(Desk):
    async def actions(self):
        import dataclasses

        return [dataclasses.replace(a, schema=dict) for a in await super().actions()] + [
            dataclasses.replace(
                (await super().actions())[0],
                name="more",
                schema=lambda: {"properties": {"x": {}}},
            )
        ]


@breaks("test_results_can_be_stored")
class TestGivesObjects(Desk):
    @action(effect="read")
    async def find(self, state: Literal["open", "closed"], limit: int = 5) -> object:
        """Tickets in a state."""
        return object()


@breaks("test_calls_can_overlap")
class TestOneAtATime(Desk):
    busy = False

    @action(effect="read")
    async def find(self, state: Literal["open", "closed"], limit: int = 5) -> list[str]:
        """Tickets in a state."""
        assert not self.busy
        self.busy = True
        await asyncio.sleep(0)
        self.busy = False
        return []


@breaks("test_calls_do_not_block_the_event_loop")
class TestHoldsTheLoop(Desk):
    @action(effect="read")
    async def find(self, state: Literal["open", "closed"], limit: int = 5) -> list[str]:
        """Tickets in a state."""
        time.sleep(0.3)
        return [state]


@breaks("test_connection_works_in_a_task")
class TestRefusesToWork(Desk):
    @action(effect="read")
    async def find(self, state: Literal["open", "closed"], limit: int = 5) -> list[str]:
        """Tickets in a state."""
        raise ToolException("not today")


@breaks("test_secrets_are_never_shown")
class TestLeaksInAResult(Desk):
    @action(effect="read")
    async def find(self, state: Literal["open", "closed"], limit: int = 5) -> list[str]:
        """Tickets in a state."""
        return [f"/tickets?state={state}&token={self.settings.token.get_secret_value()}"]


@breaks("test_secrets_are_never_shown")
class TestLeaksInALog(Desk):
    @action("edit", effect="write")
    def close(self, ticket: str) -> bool:
        """Close a ticket."""
        logging.getLogger("desk").debug("asking %s", self.settings.url.get_secret_value())
        return True


@breaks("test_secrets_are_never_shown")
class TestLeaksItsKeyEncodedInALog(Desk):
    async def context(self, task):
        key = f"ann:{self.settings.token.get_secret_value()}".encode()
        own = logging.getLogger("desk.own")
        own.propagate = False
        own.info("headers %r", {"authorization": f"Basic {base64.b64encode(key).decode()}"})
        return "Tickets have a state."


@breaks("test_secrets_are_never_shown")
class TestLeaksAsItPrints(Desk):
    @action("edit", effect="write")
    def close(self, ticket: str) -> bool:
        """Close a ticket."""
        print("asking with", self.settings.token.get_secret_value())
        return True


@breaks("test_failure_raises_a_delf_error", "test_calls_can_overlap")
class TestLeaksByVendorErrors(Desk):
    @action("edit", effect="write")
    def close(self, ticket: str) -> bool:
        """Close a ticket."""
        token = self.settings.token.get_secret_value()
        logging.getLogger("desk").warning("refused: %s", token)
        raise OSError(f"401 from https://desk.example.org/?token={token}")


@breaks("test_secrets_are_never_shown")
class TestLeaksInAnError(Desk):
    @action("edit", effect="write")
    def close(self, ticket: str) -> bool:
        """Close a ticket."""
        if ticket == "none":
            cause = OSError(f"cannot reach {self.settings.url.get_secret_value()}")
            raise ToolException("no ticket") from cause
        return True


@breaks("test_secrets_are_never_shown")
class TestLeaksInItsContext(Desk):
    async def context(self, task):
        return f"Use the token {self.settings.token.get_secret_value()}."


@breaks("test_connection_works_after_a_cancelled_call", says="has not ended", seconds=1.0)
class TestIgnoresItsCancellation(Desk):
    @action(effect="read")
    async def wait(self) -> None:
        """Wait forever."""
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()


@breaks("test_calls_can_overlap", says="mixed up")
class TestKeepsArgumentsInSelf(Desk):
    @action(effect="read")
    async def find(self, state: Literal["open", "closed"], limit: int = 5) -> list[dict[str, str]]:
        """Tickets in a state."""
        self.state = state
        await asyncio.sleep(0)
        return await Desk.find(self, self.state, limit)


@breaks("test_results_keep_within_the_limit", says="2 were asked for")
class TestIgnoresItsLimit(Desk):
    @action(effect="read")
    async def find(self, state: Literal["open", "closed"], limit: int = 5) -> list[dict[str, str]]:
        """Tickets in a state."""
        return [{"id": "1", "state": state}] * 50


async def look(desk, state, seen={}):  # noqa: B006 - that is the fault
    if state not in seen:
        seen[state] = await Desk.find(desk, state)
    return seen[state]


@breaks("test_use_leaves_the_process_unchanged", says="look keeps what")
class TestCachesInADefault(Desk):
    @action(effect="read")
    async def find(self, state: Literal["open", "closed"], limit: int = 5) -> list[dict[str, str]]:
        """Tickets in a state."""
        return await look(self, state)


@breaks("test_connection_works_after_a_cancelled_call")
class TestStaysCancelled(Desk):
    stuck = False

    @action(effect="read")
    async def find(self, state: Literal["open", "closed"], limit: int = 5) -> list[str]:
        """Tickets in a state."""
        assert not self.stuck
        return []

    @action(effect="read")
    async def wait(self) -> None:
        """Wait forever."""
        self.stuck = True
        await asyncio.Event().wait()


@breaks("test_use_after_repeated_close_works")
class TestClosesWhatIsNotThere(Desk):
    async def aclose(self):
        self.session.close()


@breaks("test_use_after_repeated_close_works")
class TestStaysClosed(Desk):
    @action(effect="read")
    async def find(self, state: Literal["open", "closed"], limit: int = 5) -> list[str]:
        """Tickets in a state."""
        assert self.open
        return []


@breaks("test_connection_describes_itself_consistently")
class TestContextIsNoText(Desk):
    async def context(self, task):
        return "  "


@breaks("test_sample_calls_cover_every_action", says="no Call succeeds with burn")
class TestUnattempted(Desk):
    @action(effect="write")
    async def burn(self) -> int:
        """Burn a ticket."""
        raise TypeError("nobody has ever called this")


class TestSaysThatItIsUnattempted(Suite):
    breaks = ("test_sample_calls_cover_every_action",)
    says = "which is tried or is not an action"
    untested = ("find", "wait")


@breaks("test_connection_describes_itself_consistently", says="leave times and counters out")
class TestTellsTheTime(Desk):
    async def context(self, task):
        return f"It is {time.time_ns()}."


@breaks("test_connection_describes_itself_consistently", says="the current time is in the prompt")
class TestTellsTheDay(Desk):
    async def context(self, task):
        return f"Today is {dt.date.today()}."


@breaks("test_connection_describes_itself_consistently", says="another one on another day")
class TestTellsTheYear(Desk):
    async def context(self, task):
        return f"It is the year {time.localtime(None).tm_year}."


async def states(self) -> str:
    return "open"


states.__doc__ = f"States of tickets: {', '.join({'open', 'closed', 'lost', 'found'})}."


class InNoOrder(Desk):
    """A desk."""

    states = action(effect="read")(states)


class TestDescribesASet(Suite):
    breaks = ("test_connection_describes_itself_consistently",)
    says = "sort what comes from a set"
    kind = InNoOrder


@breaks("test_calls_can_be_cancelled_at_any_point", says="has not ended", seconds=0.5)
class TestKeepsItsLockWhenCancelled(Desk):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.turn = asyncio.Lock()

    @action(effect="read")
    async def find(self, state: str, limit: int = 5) -> str:
        """Tickets in a state."""
        await self.turn.acquire()
        await asyncio.sleep(0)
        self.turn.release()
        return state


@breaks("test_calls_do_not_block_the_event_loop", says="it waits on the event loop")
class TestAsksAFastServer(Desk):
    @action(effect="read")
    async def find(self, state: str, limit: int = 5) -> str:
        """Tickets in a state."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname()).close()
        return state


class TestGoodChecked(Suite):
    passes = ("test_check_refuses_calls_to_refuse", "test_check_returns_a_verdict")
    calls_to_refuse = (Call("close", ticket="7"),)

    class kind(Desk):
        def check(self, call):
            mine = call.action != "close" or call.arguments["ticket"] in ("1", "none")
            return Allowed() if mine else NeedsApproval(reason="a colleague's")


class TestChecksNothingWhenItsRulesAreGone(TestGoodChecked):
    breaks = ("test_check_refuses_calls_to_refuse",)
    says = "its check says Allowed"

    class kind(Desk):
        def check(self, call):
            try:
                raise OSError("the server with the rules is down")
            except OSError:
                return Allowed()


@breaks("test_connection_with_a_check_tests_refusals", says="name calls in `calls_to_refuse`")
class TestChecksUnreported(Desk):
    def check(self, call):
        return Allowed()


@breaks("test_check_returns_a_verdict", says="returns True, which is no verdict")
class TestChecksWithoutAVerdict(Desk):
    def check(self, call):
        return True


@breaks(
    "test_connection_describes_itself_consistently",
    says="aclose has not ended after 0.5 s",
    seconds=0.5,
)
class TestNeverEndsClosing(Desk):
    async def aclose(self):
        await asyncio.Event().wait()


@breaks("test_results_have_the_declared_type", says="gave a set")
class TestGivesAnotherTypeThanItSays(Desk):
    @action(effect="read")
    async def find(self, state: str, limit: int = 5) -> list[str]:
        """Tickets in a state."""
        return {state}


@breaks("test_calls_keep_default_arguments", says="changes a mutable default argument")
class TestChangesItsDefault(Desk):
    @action(effect="read")
    async def find(self, state: str, limit: int = 5, seen: list[str] = []) -> list[str]:  # noqa: B006
        """Tickets in a state."""
        seen.append(state)
        return [state]


class PlainSettings(DeskSettings):
    api_key: str = ""


class TestSecretIsPlainText(Suite):
    breaks = ("test_secret_settings_are_declared_as_secrets",)
    says = "declare it as delf.settings.SecretStr"

    class kind(Desk, Connection[PlainSettings]):
        """A desk."""


class TestRefusedLoginLooksEmpty(Suite):
    breaks = ("test_refused_login_raises",)
    says = "for an empty result"
    calls_with_refused_login = (Call("find", state="open"),)

    @pytest.fixture
    def refused_connection(self):
        class Refused(Desk):
            """A desk whose service answers 401."""

            @action(effect="read")
            async def find(self, state: str, limit: int = 5) -> list[dict[str, str]]:
                """Tickets in a state."""
                return []

        return Refused()


@breaks("test_use_leaves_the_process_unchanged", says="keep state in `self`")
class TestCountsInItsClass(Desk):
    made = 0

    @action(effect="write")
    def close(self, ticket: str) -> bool:
        """Close a ticket."""
        type(self).made += 1
        return super().close(ticket)


SEEN = []


@breaks("test_use_leaves_the_process_unchanged", says="SEEN keeps what one user's call was about")
class TestKeepsResultsInItsModule(Desk):
    @action(effect="read")
    async def find(self, state: Literal["open", "closed"], limit: int = 5) -> list[dict[str, str]]:
        """Tickets in a state."""
        SEEN.append(await super().find(state, limit))
        return SEEN[-1]


@breaks("test_use_leaves_the_process_unchanged", says="a long-lived agent fills the disk")
class TestLeavesATemporaryFile(Desk):
    @action(effect="write")
    def close(self, ticket: str) -> bool:
        """Close a ticket."""
        tempfile.mkdtemp()
        return super().close(ticket)


@breaks(
    "test_use_leaves_the_process_unchanged", says="the default timeout of sockets is left changed"
)
class TestSetsTheTimeoutOfAll(Desk):
    @action(effect="write")
    def close(self, ticket: str) -> bool:
        """Close a ticket."""
        socket.setdefaulttimeout(7.0)
        return super().close(ticket)


@breaks("test_use_leaves_the_process_unchanged", says="the standard output of the command")
class TestPrints(Desk):
    @action(effect="write")
    def close(self, ticket: str) -> bool:
        """Close a ticket."""
        print("closing", ticket)
        return super().close(ticket)


class TestOnlyFails(Suite):
    breaks = ("test_sample_calls_cover_every_action",)
    says = "an action that only fails was never seen to work"
    calls = (Call("find", state="open", limit=2),)


class TestTellsTheWeekday(TestGoodDynamic):
    breaks = ("test_connection_describes_itself_consistently",)
    says = "the prompt is another one on another day"

    class kind(TestGoodDynamic.kind):
        """A desk that says when it is open."""

        async def actions(self):
            found = await super().actions()
            today = f"{dt.datetime.now():%A}"
            return [replace(action, summary=f"{action.summary} On {today}.") for action in found]


class TestSaysNothingOfARefusedLogin(Suite):
    breaks = ("test_connection_with_a_secret_tests_a_refused_login",)
    says = "or set logs_in = False"
    logs_in = True


class TestShowsTheRefusedLogin(TestRefusedLoginLooksEmpty):
    breaks = ("test_refused_login_raises",)
    says = "[redacted]"

    @pytest.fixture
    def refused_connection(self):
        class Refused(Desk):
            """A desk whose service answers 401."""

            @action(effect="read")
            async def find(self, state: str, limit: int = 5) -> list[dict[str, str]]:
                """Tickets in a state."""
                raise ToolException(f"401 for {self.settings.token.get_secret_value()}")

        return Refused(token="wrong-secret")


@breaks("test_use_leaves_the_process_unchanged", says="variable DESK_TOKEN")
class TestSetsAVariable(Desk):
    @action(effect="write")
    def close(self, ticket: str) -> bool:
        """Close a ticket."""
        os.environ["DESK_TOKEN"] = f"{os.environ.get('DESK_TOKEN', '')}x"
        return super().close(ticket)


@breaks("test_use_leaves_the_process_unchanged", says="still runs after aclose")
class TestLeavesATask(Desk):
    @action(effect="write")
    async def close(self, ticket: str) -> bool:
        """Close a ticket."""
        if ticket == "none":
            raise ToolException("there is no ticket 'none'")
        self.poll = asyncio.ensure_future(asyncio.Event().wait())
        return True


@breaks("test_use_leaves_the_process_unchanged", says="the thread 'desk-poll'")
class TestLeavesAThread(Desk):
    @action(effect="write")
    def close(self, ticket: str) -> bool:
        """Close a ticket."""
        threading.Thread(target=threading.Event().wait, name="desk-poll", daemon=True).start()
        return super().close(ticket)


@breaks("test_results_have_the_declared_type", says="gave a NoneType")
class TestGivesNoneInPlaceOfAList(Desk):
    @action(effect="read")
    async def find(self, state: Literal["open", "closed"], limit: int = 5) -> list[dict[str, str]]:
        """Tickets in a state."""
        return None


class TestIsBoundToOneLoop(Suite):
    breaks = ("test_use_leaves_the_process_unchanged",)
    says = "Bound.lock belongs to the first event loop"

    @pytest.fixture
    def connection(self):
        class Bound(Desk):  # in a function, because the suite looks into all classes of a module
            lock = asyncio.Lock()

        return Bound(name="desk")
