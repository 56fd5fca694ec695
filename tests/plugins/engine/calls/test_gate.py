import asyncio
import sys
import threading
from http import HTTPStatus

import pytest
from pydantic import BaseModel, Field, SecretStr

from delf import Connection, action
from delf.errors import (
    ConnectionUnavailableError,
    TaskLimitError,
    ToolException,
    ToolRefusedError,
    UnrecordedEventError,
)
from delf.events import (
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallStarted,
)
from delf.protocols.approval import Approved, Edited, Expired, Rejected
from delf.protocols.sandbox import CallRequest, Raised, Returned
from delf.tools.function import tool
from delf_engine.approvals.channels import NamedChannel
from delf_engine.journal.in_process import InProcessJournal
from support.gates import NoContexts, gate_bench
from support.until import until


class Shop(Connection):
    """A shop."""

    def __init__(self, **options):
        super().__init__(**options)
        self.made = []

    @action(effect="read")
    async def find(self, status: str, limit: int = 10) -> list:
        """Find orders."""
        self.made.append(("find", status, limit))
        return [status, limit]

    @action(effect="write")
    async def close(self, number: int) -> str:
        """Close an order."""
        self.made.append(("close", number))
        return f"closed {number}"

    @action(effect="read")
    async def described(self, desc: str) -> str:
        """Has its own desc."""
        return desc

    @action("refunds", effect="irreversible")
    def refund(self, number: int) -> str:
        """Pay back, in a thread."""
        self.made.append(("refund", number))
        return threading.current_thread().name


class Unreadable(Exception):
    """An error of which nothing can be read."""

    def __str__(self):
        raise RuntimeError("no message")

    @property
    def response(self):
        raise RuntimeError("no response")


def read_tool(function):
    return tool(confirm=False)(function)


# -- known, allowed, arguments --------------------------------------------------------------


async def test_call_is_made_and_recorded():
    bench = await gate_bench(Shop())
    assert await bench.call("shop.find", "open", limit="3") == Returned(["open", 3], b'["open",3]')
    assert bench.kinds == ["CallStarted", "CallFinished"]
    started, finished = bench.events
    assert started.arguments == {"status": "open", "limit": 3}
    assert (started.action, started.effect, started.call_id) == ("shop.find", "read", 1)
    assert (finished.status, finished.result) == ("ok", ["open", 3])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("shop.fnd", "did you mean 'shop.find'?"),
        ("shop.settings", "there is no tool 'shop.settings'"),
        ("shop.__init__", "there is no tool"),
        ("shop", "there is no tool 'shop'"),
        ("shap.find", "there is no tool 'shap.find'"),
        ("", "there is no tool"),
        ("shop.find.call", "there is no tool"),
        ("x" * 100_000, "there is no tool"),
    ],
)
async def test_unknown_tool_is_refused(name, text):
    shop = Shop()
    bench = await gate_bench(shop)
    answer = await bench.call(name)
    assert isinstance(answer, Raised)
    assert answer.kind == "ToolNotAllowed"
    assert text in answer.message
    assert len(answer.message) < 1_000
    assert [status for _, status in bench.calls] == ["refused"]
    assert shop.made == []


async def test_disallowed_tool_is_refused():
    shop = Shop(allow=["find"])
    bench = await gate_bench(shop)
    answer = await bench.call("shop.close", 1)
    hint = "the setting allow of shop names the allowed actions"
    assert answer == Raised("ToolNotAllowed", f"shop.close is not allowed here ({hint})")
    assert bench.calls == [("shop.close", "refused")]
    assert shop.made == []
    assert bench.tools.names_for_sandbox()[0].methods == ("find",)


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((), {}, "missing argument 'status'"),
        (("open", "many"), {}, "argument 'limit'"),
        (("open", 1, 2), {}, "takes at most 2 arguments, 3 were given"),
        (("open",), {"status": "closed"}, "got 'status' twice"),
        (("open",), {"colour": "red"}, "unknown argument 'colour'"),
        ((["open"],), {}, "argument 'status'"),
        (("open",), {"x" * 100_000: 1}, "unknown argument"),
    ],
)
async def test_arguments_that_do_not_fit_are_refused(args, kwargs, text):
    shop = Shop()
    bench = await gate_bench(shop)
    answer = await bench.call("shop.find", *args, **kwargs)
    assert answer.kind == "ToolArgumentError"
    assert text in answer.message
    assert len(answer.message) <= 4_000
    assert bench.calls == [("shop.find", "refused")]
    assert shop.made == []


async def test_desc_keyword_becomes_the_description_unless_declared():
    bench = await gate_bench(Shop())
    await bench.call("shop.find", "open", desc="because")
    await bench.call("shop.described", desc="its own")
    await bench.call("shop.find", desc="wrong")
    found = [e for e in bench.events if isinstance(e, CallFinished)]
    assert [e.description for e in found] == ["because", None, "wrong"]
    assert found[1].result == "its own"


async def test_functions_are_called_by_their_bare_name():
    @read_tool
    def add(a: int, b: int = 1) -> int:
        """Add."""
        return a + b

    bench = await gate_bench(add)
    assert (await bench.call("add", 2)).value == 3
    assert (await bench.call("add.add", 2)).kind == "ToolNotAllowed"
    assert bench.calls == [("add", "ok"), ("add.add", "refused")]


# -- approval -------------------------------------------------------------------------------


async def test_approved_call_is_made():
    shop = Shop()
    bench = await gate_bench(shop, decide=lambda request: True)
    answer = await bench.call("shop.close", number="7", desc="why")
    assert answer.value == "closed 7"
    assert bench.kinds == ["ApprovalRequested", "ApprovalDecided", "CallStarted", "CallFinished"]
    (request,) = bench.asked
    assert (request.action, request.arguments, request.description) == (
        "shop.close",
        {"number": 7},
        "why",
    )
    assert (request.permission, request.effect, request.task) == ("close", "write", "a task")
    requested, decided, started, _ = bench.events
    assert requested.request_id == decided.request_id == request.request_id
    assert requested.digest == started.digest == request.digest


@pytest.mark.parametrize(
    ("decision", "text"),
    [
        (False, "no reason was given"),
        (Rejected(reason="too dear"), "shop.close was rejected: too dear"),
        (None, "nobody could be asked"),
        ("yes", "failed: str is not a decision; the function must return True"),
        (1, "failed: int is not a decision"),
        (Expired(after_seconds=1), "nobody answered within 1 s"),
        (Edited(arguments={"number": "x"}), "the edited arguments do not fit"),
    ],
)
async def test_rejected_call_is_not_made(decision, text):
    shop = Shop()
    bench = await gate_bench(shop, decide=lambda request: decision)
    answer = await bench.call("shop.close", 7)
    assert answer.kind == "ApprovalRejected"
    assert text in answer.message
    assert shop.made == []
    assert bench.calls == [("shop.close", "rejected")]
    assert bench.kinds == ["ApprovalRequested", "ApprovalDecided", "CallFinished"]


async def test_edited_arguments_are_checked_and_used():
    shop = Shop()
    bench = await gate_bench(shop, decide=lambda request: Edited(arguments={"number": "8"}))
    assert (await bench.call("shop.close", 7)).value == "closed 8"
    assert shop.made == [("close", 8)]
    requested, decided, started, _ = bench.events
    assert (requested.arguments, decided.decision, decided.arguments) == (
        {"number": 7},
        "edited",
        {"number": "8"},
    )
    assert started.arguments == {"number": 8}
    assert started.digest != requested.digest


async def test_unanswered_request_expires():
    async def never(request):
        await asyncio.Event().wait()

    shop = Shop()
    bench = await gate_bench(shop, decide=never, timeout=0.01)
    answer = await bench.call("shop.close", 7)
    assert answer == Raised(
        "ApprovalRejected", "shop.close was rejected: nobody answered within 0.01 s"
    )
    assert [e.decision for e in bench.events if isinstance(e, ApprovalDecided)] == ["expired"]
    assert shop.made == []


async def test_remembered_decision_is_not_asked_again():
    shop = Shop()
    bench = await gate_bench(shop, decide=lambda request: Approved(remember="task"))
    await bench.call("shop.close", 7)
    await bench.call("shop.close", number=7, desc="again")
    await bench.call("shop.close", 8)
    await bench.call("shop.refund", 7)
    assert [(r.action, r.arguments) for r in bench.asked] == [
        ("shop.close", {"number": 7}),
        ("shop.close", {"number": 8}),
        ("shop.refund", {"number": 7}),
    ]


class Reticent(BaseModel):
    """A model whose dump omits one of its fields."""

    user: str
    password: str = Field(exclude=True)


class Vault(Connection):
    """A vault."""

    @action(effect="write")
    async def hide(self, secret: SecretStr) -> None:
        """Take a secret."""

    @action(effect="write")
    async def enter(self, who: Reticent) -> None:
        """Take a model that dumps without one of its fields."""


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("vault.hide", "first", "second"),
        ("vault.enter", {"user": "bob", "password": "a"}, {"user": "bob", "password": "b"}),
    ],
)
async def test_remembered_call_does_not_cover_a_similar_call(name, first, second):
    bench = await gate_bench(Vault(), decide=lambda request: Approved(remember="until_revoked"))
    for value in (first, second, first, second):
        assert isinstance(await bench.call(name, value), Returned)
    assert len(bench.asked) == 2


@pytest.mark.parametrize("mode", ["approve_all", "strict"])
async def test_approval_mode_decides_without_asking(mode):
    bench = await gate_bench(Shop(), mode=mode, decide=lambda request: pytest.fail("asked"))
    answer = await bench.call("shop.close", 7)
    assert bench.calls == [("shop.close", "ok" if mode == "approve_all" else "rejected")]
    assert isinstance(answer, Returned) == (mode == "approve_all")
    assert [e.by for e in bench.events if isinstance(e, ApprovalDecided)] == [f"mode {mode}"]


async def test_channels_are_asked_in_order_and_a_failing_one_is_skipped(caplog):
    asked = []

    class Channel:
        def __init__(self, name, answer):
            self.name, self.answer = name, answer

        async def decide(self, request):
            asked.append(self.name)
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

    answers = {
        "broken": ValueError("no"),
        "slow": TimeoutError(),
        "silent": None,
        "says": Approved(),
        "last": Rejected(reason="r"),
    }
    channels = [NamedChannel(name, Channel(name, answer)) for name, answer in answers.items()]
    bench = await gate_bench(Shop(), channels=channels)
    assert isinstance(await bench.call("shop.close", 7), Returned)
    assert asked == ["broken", "slow", "silent", "says"]
    assert [e.by for e in bench.events if isinstance(e, ApprovalDecided)] == ["says"]


async def test_gate_asks_only_where_approval_is_needed():
    bench = await gate_bench(
        Shop(name="a", confirm=False), Shop(name="b", confirm=True), Shop(name="c", confirm=["refunds"]),
        decide=lambda request: True,
    )  # fmt: skip
    for name in ("a", "b", "c"):
        await bench.call(f"{name}.find", "open")
        await bench.call(f"{name}.close", 1)
        await bench.call(f"{name}.refund", 1)
    assert [r.action for r in bench.asked] == ["b.find", "b.close", "b.refund", "c.refund"]


async def test_concurrent_calls_require_approval_separately():
    bench = await gate_bench(Shop(), decide=lambda request: request.arguments["number"] % 2 == 0)
    answers = await asyncio.gather(*(bench.call("shop.close", n) for n in range(20)))
    assert [isinstance(answer, Returned) for answer in answers] == [n % 2 == 0 for n in range(20)]
    assert len({r.request_id for r in bench.asked}) == 20


# -- the call -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["async", "thread"])
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("bad"), "ValueError: bad"),
        (ValueError(), "ValueError"),
        (KeyError("x"), "KeyError: 'x'"),
        (SystemExit(2), "SystemExit: 2"),
        (ConnectionUnavailableError("it is down", hint="start it"), "it is down (start it)"),
        (ToolRefusedError("not so"), "not so"),
        (TimeoutError(), "TimeoutError"),
        (RecursionError("deep"), "RecursionError: deep"),
        (Unreadable(), "Unreadable"),
        (asyncio.CancelledError(), "fail cancelled itself"),
    ],
)
async def test_tool_that_raises_is_an_error_in_the_script(error, text, kind):
    def plain() -> str:
        raise error

    async def coroutine() -> str:
        raise error

    function = plain if kind == "thread" else coroutine
    bench = await gate_bench(tool(name="fail", confirm=False)(function))
    assert await bench.call("fail") == Raised("ToolError", text)
    assert [status for _, status in bench.calls] in (["error"], ["cancelled"])


async def test_error_handler_that_exits_fails_the_call():
    @tool(confirm=False, handle_error=lambda _: sys.exit(3))
    def fail() -> str:
        """Fail."""
        raise ToolException("no")

    bench = await gate_bench(fail)
    assert await bench.call("fail") == Raised("ToolError", "no (handle_error failed: 3)")
    assert bench.calls == [("fail", "error")]


async def test_http_status_may_be_an_enum():
    @read_tool
    def fail() -> str:
        """Fail."""
        error = ValueError("no")
        error.status_code = HTTPStatus.NOT_FOUND
        raise error

    bench = await gate_bench(fail)
    answer = await bench.call("fail")
    assert answer.http_status == 404
    assert type(answer.http_status) is int


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x" * 120_000, "too large: 120,002 bytes"),
    ],
    ids=["large"],
)
async def test_result_that_cannot_be_encoded_raises_in_the_script(value, text):
    @read_tool
    def get():
        """Get."""
        return value

    bench = await gate_bench(get)
    answer = await bench.call("get")
    assert answer.kind == "ToolError"
    assert text in answer.message
    assert bench.calls == [("get", "error")]


async def test_coroutine_returned_by_a_plain_function_is_awaited():
    async def later():
        return 5

    @read_tool
    def start():
        """Start."""
        return later()

    assert (await (await gate_bench(start)).call("start")).value == 5


async def test_context_variables_reach_threads():
    import contextvars

    variable = contextvars.ContextVar("variable")
    variable.set("seen")

    @read_tool
    def look() -> str:
        """Look."""
        return variable.get()

    assert (await (await gate_bench(look)).call("look")).value == "seen"


async def test_cancelled_call_is_recorded_as_cancelled():
    begun = asyncio.Event()

    @read_tool
    async def wait() -> None:
        """Wait."""
        begun.set()
        await asyncio.Event().wait()

    bench = await gate_bench(wait)
    calling = asyncio.create_task(bench.call("wait"))
    await begun.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert bench.calls == [("wait", "cancelled")]


async def test_call_cancelled_while_its_result_is_converted_is_recorded_with_its_result():
    begun, goes_on = threading.Event(), threading.Event()

    class Slow:
        def __str__(self):
            begun.set()
            assert goes_on.wait(50)
            return "converted"

    @read_tool
    async def get() -> object:
        """Get."""
        return Slow()

    bench = await gate_bench(get)
    calling = asyncio.create_task(bench.call("get"))
    await asyncio.to_thread(begun.wait, 20)
    calling.cancel()
    await asyncio.sleep(0)
    goes_on.set()
    await asyncio.wait({calling})
    (end,) = [event for event in bench.events if isinstance(event, CallFinished)]
    assert (end.status, end.result) == ("ok", "converted")


class DeskContexts(NoContexts):
    """The contexts of a task with room for child tasks."""

    @property
    def children(self):
        return self

    async def reserve(self, call):
        return None

    def release(self, call):
        pass


class Desk(Connection):
    """Colleagues who do their work in child tasks."""

    @action(effect="write", resumes=True)
    async def hand(self) -> None:
        """Give work to a colleague."""


async def test_call_with_a_child_task_cancelled_before_its_approval_is_not_started():
    asked = asyncio.Event()

    async def decide(_request):
        asked.set()
        await asyncio.Event().wait()

    bench = await gate_bench(Desk(confirm=True), decide=decide, contexts=DeskContexts())
    calling = asyncio.create_task(bench.call("desk.hand"))
    await asked.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert "CallStarted" not in bench.kinds
    assert bench.kinds.count("CallFinished") == 1
    assert bench.gate.under_way == []


async def test_call_cancelled_while_its_data_flow_is_checked_is_recorded(monkeypatch):
    begun = asyncio.Event()

    async def check_flow(_call):
        begun.set()
        await asyncio.Event().wait()

    shop = Shop(confirm=False)
    bench = await gate_bench(shop)
    monkeypatch.setattr(bench.approvals, "requires_review", check_flow)
    calling = asyncio.create_task(bench.call("shop.close", 1))
    await begun.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert [e.cancellation for e in bench.events if isinstance(e, CallFinished)] == ["not_started"]
    assert shop.made == []


async def test_call_at_a_limit_does_not_wait_for_a_call_that_could_not_begin():
    store = asyncio.Event()
    stores = asyncio.Event()

    class Full(InProcessJournal):
        async def append(self, event):
            if isinstance(event, CallStarted) and event.action == "look":
                stores.set()
                await store.wait()
                raise OSError("the disk is full")
            await super().append(event)

    @read_tool
    async def fail() -> None:
        """Fail at a limit, while another call begins."""
        await stores.wait()
        raise TaskLimitError("no more")

    @read_tool
    async def look() -> None:
        """Look."""

    bench = await gate_bench(fail, look, journal=Full())
    failing = asyncio.create_task(bench.call("fail"))
    await until(lambda: bench.kinds == ["CallStarted"])
    looking = asyncio.create_task(bench.call("look"))
    await stores.wait()
    await asyncio.sleep(0)  # the call ``fail`` now waits for the call ``look``
    store.set()
    with pytest.raises(UnrecordedEventError, match="full"):
        await looking
    assert (await failing).message == "no more"


async def test_no_call_is_made_after_the_task_ended():
    shop = Shop()
    bench = await gate_bench(shop, decide=lambda request: True)
    bench.gate.close()
    assert await bench.call("shop.find", "open") == Raised(
        "ToolError", "the task is over; no call is made any more"
    )
    assert shop.made == []
    assert bench.events == []


async def test_call_approved_after_the_task_ended_is_not_made():
    shop = Shop()
    bench = await gate_bench(shop, decide=lambda request: bench.gate.close() or True)
    answer = await bench.call("shop.close", 1)
    assert answer.kind == "ToolError"
    assert shop.made == []


async def test_unrecordable_call_is_not_made():
    shop = Shop()
    bench = await gate_bench(shop)

    async def full(event):
        raise OSError("the disk is full")

    bench.journal.append = full
    with pytest.raises(UnrecordedEventError, match="full"):
        await bench.call("shop.find", "open")
    assert shop.made == []


async def test_thousand_calls_are_all_recorded_with_their_outcome():
    @read_tool
    async def odd(n: int) -> int:
        """Refuse even numbers."""
        if n % 2 == 0:
            raise ValueError(n)
        return n

    bench = await gate_bench(odd)
    await asyncio.gather(*(bench.call("odd", n) for n in range(1_000)))
    assert sorted(status for _, status in bench.calls) == ["error"] * 500 + ["ok"] * 500
    started = [e for e in bench.events if isinstance(e, CallStarted)]
    assert {e.call_id for e in started} == set(range(1, 1_001))
    assert [e.seq for e in bench.events] == list(range(1, 2_001))
    assert not any(isinstance(e, ApprovalRequested) for e in bench.events)


# -- large arguments ------------------------------------------------------------------------

SECRET = "sk-a-secret-of-the-host-4f1c"
ROWS = [{"id": i, "name": f"row {i}"} for i in range(10_000)]


@read_tool
def take(rows: list, note: object = None) -> int:
    """Take many rows."""
    return len(rows)


async def test_secrets_in_large_arguments_are_not_journalled():
    bench = await gate_bench(take, secrets=[SECRET])
    note = "y" * 479_990 + SECRET + "y" * 1_000_000
    await bench.call("take", [*ROWS, {"id": 1, "name": SECRET}], note)
    assert SECRET not in str(bench.events)
    assert bench.events[0].arguments["rows"][-1] == {"id": 1, "name": "[redacted]"}


@pytest.mark.parametrize(
    ("method", "args", "status"),
    [("find", (), "refused"), ("nothing", (), "refused"), ("find", ("x",), "rejected")],
)
async def test_end_event_of_an_unmade_call_has_its_line(method, args, status):
    class Shop(Connection):
        @action(effect="write")
        async def find(self, name: str) -> str:
            """Find."""
            return name

    bench = await gate_bench(Shop(name="shop"), decide=lambda _: False)
    request = CallRequest(
        call_id=1, connection="shop", method=method, args=list(args), kwargs={}, line=4
    )
    await bench.gate.call(request)
    (end,) = [event for event in bench.events if isinstance(event, CallFinished)]
    assert (end.status, end.line) == (status, 4)


async def test_end_event_of_a_made_call_has_no_line():
    class Shop(Connection):
        @action(effect="read")
        async def find(self, name: str) -> str:
            """Find."""
            return name

    bench = await gate_bench(Shop(name="shop"))
    request = CallRequest(
        call_id=1, connection="shop", method="find", args=["x"], kwargs={}, line=4
    )
    await bench.gate.call(request)
    (end,) = [event for event in bench.events if isinstance(event, CallFinished)]
    assert (end.status, end.line) == ("ok", None)
