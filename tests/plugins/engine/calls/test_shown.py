"""Tests that a call is made as shown: if anything changed since, a person is asked again."""

import pytest

from delf import Agent, CallContext, Connection, Edited, NeedsApproval, Refused, action
from delf.events import ApprovalDecided, ApprovalRequested, CallFinished, CallStarted
from delf.protocols.approval import Approved, Rejected
from delf.protocols.sandbox import Returned
from delf.specs import JournalSpec
from support.cut_journal import CutJournal
from support.gates import gate_bench


class Drafts(Connection):
    """Drafts by number, each with a text, which others may change."""

    def __init__(self, texts, tells=str, **options):
        super().__init__(**options)
        self.texts = texts
        self.sent = []
        self.seen = []
        self._tells = tells

    async def check(self, call):
        number = call.arguments["number"]
        if number not in self.texts:
            return Refused(message="it is gone")
        text = self.texts[number]
        return NeedsApproval(reason="all ask", preview=self._tells(text), basis=text)

    @action(effect="write")
    async def send(
        self, number: int, to: str = "ann", *, context: CallContext | None = None
    ) -> str:
        """Send a draft."""
        self.seen.append(context and context.basis)
        self.sent.append((self.texts[number], to))
        return "sent"


def answers(drafts, *decisions):
    """Return a callback with these decisions; functions among them run before an approval."""
    left = list(decisions)

    def decide(request):
        words = left.pop(0)
        if callable(words):
            words()
            return True
        return words

    return decide


async def test_approved_call_is_asked_again_if_its_preview_changed():
    drafts = Drafts({1: "dear Ann"})
    change = lambda: drafts.texts.update({1: "dear Eve"})  # noqa: E731 - it happens meanwhile
    bench = await gate_bench(drafts, decide=answers(drafts, change, True))
    assert isinstance(await bench.call("drafts.send", 1), Returned)
    first, second = bench.asked
    assert (first.preview, second.preview) == ("dear Ann", "dear Eve")
    assert (first.changed, second.changed) == (False, True)
    assert first.request_id != second.request_id
    assert first.digest == second.digest
    assert first.shown_digest != second.shown_digest
    assert drafts.sent == [("dear Eve", "ann")]
    kinds = [type(event) for event in bench.events]
    asked = [ApprovalRequested, ApprovalDecided]
    assert kinds == [*asked, *asked, CallStarted, CallFinished]


async def test_approved_call_is_asked_again_if_its_basis_changed():
    drafts = Drafts({1: "dear Ann"}, tells=lambda text: f"{len(text)} characters")
    change = lambda: drafts.texts.update({1: "dear Eve"})  # noqa: E731
    bench = await gate_bench(drafts, decide=answers(drafts, change, Rejected(reason="not to Eve")))
    assert "not to Eve" in (await bench.call("drafts.send", 1)).message
    assert [request.preview for request in bench.asked] == ["8 characters"] * 2
    assert drafts.sent == []


async def test_approved_call_is_refused_if_its_subject_is_gone():
    drafts = Drafts({1: "dear Ann"})
    bench = await gate_bench(drafts, decide=answers(drafts, drafts.texts.clear))
    assert "it is gone" in (await bench.call("drafts.send", 1)).message
    assert drafts.sent == []


@pytest.mark.parametrize(
    ("arguments", "asked"), [({"number": 1, "to": "bob"}, 1), ({"number": 2}, 2)]
)
async def test_edited_call_is_asked_again_if_its_preview_differs(arguments, asked):
    drafts = Drafts({1: "dear Ann", 2: "dear Eve"})
    bench = await gate_bench(drafts, decide=answers(drafts, Edited(arguments=arguments), True))
    await bench.call("drafts.send", 1)
    assert len(bench.asked) == asked
    assert bench.asked[-1].preview == ("dear Ann" if asked == 1 else "dear Eve")
    assert drafts.sent == [("dear Ann", "bob") if asked == 1 else ("dear Eve", "ann")]


async def test_action_gets_the_basis_that_was_approved():
    drafts = Drafts({1: "dear Ann"})
    remembered = Approved(remember="task")
    bench = await gate_bench(drafts, decide=lambda request: remembered, contexts=Contexts())
    await bench.call("drafts.send", 1)
    drafts.texts[1] = "dear Eve"
    await bench.call("drafts.send", 1)
    assert drafts.seen == ["dear Ann", None], "a remembered call shows nobody anything"


class Contexts:
    """Tells an action about its call, without a task."""

    def of(self, call, is_repeated=False):
        return type("Context", (), {"basis": call.basis})

    async def freeze(self, call):
        """There are no files."""

    async def wait_for_output_files(self):
        """Return at once, because no files are written."""

    async def end_call(self, call, is_cut_off):
        """It has no child task."""


async def test_approve_mode_does_not_check_the_preview_again():
    drafts = Drafts({1: "dear Ann"})
    bench = await gate_bench(drafts, mode="approve_all", contexts=Contexts())
    assert isinstance(await bench.call("drafts.send", 1), Returned)
    assert drafts.seen == [None]


@pytest.fixture
def journal(delf_host):
    journal = CutJournal()
    delf_host.provide(JournalSpec(name="shared", summary="s", factory="d:j"), lambda: journal)
    return journal


@pytest.fixture
def agent(delf_host, scripted_model, journal):
    def make(drafts, decide):
        options = {"llm": "scripted", "host": delf_host, "journal": "shared"}
        return Agent(tools=[drafts], on_confirm=decide, **options)

    scripted_model.writes("print(await drafts.send(1))")
    return make


@pytest.mark.parametrize("kind", [ApprovalRequested, ApprovalDecided])
@pytest.mark.parametrize("changed", [True, False])
async def test_resumed_task_asks_again_about_a_changed_preview(agent, journal, kind, changed):
    drafts, asked = Drafts({1: "dear Ann"}), []

    def decide(request):
        asked.append(request)
        return True

    async with agent(drafts, decide) as first:
        done = (await first.arun("x")).raise_for_status()
    await journal.ended_with(done.trace.task_id, kind)
    if changed:
        drafts.texts[1] = "dear Eve"
    async with agent(drafts, decide) as second:
        (await second.aresume(done.trace.task_id)).raise_for_status()
    again = kind is ApprovalRequested or changed
    assert [r.preview for r in asked[1:]] == [drafts.texts[1]] * again
    assert drafts.sent[1:] == [(drafts.texts[1], "ann")]
    events = await journal.read(done.trace.task_id)
    decided = {e.request_id: e for e in events if isinstance(e, ApprovalDecided)}
    requests = [e for e in events if isinstance(e, ApprovalRequested)]
    assert {e.request_id for e in requests} == set(decided), "none is left waiting"
    if changed and kind is ApprovalRequested:
        assert decided[requests[0].request_id].source == "changed"


async def test_resumed_task_shows_the_preview_of_the_edited_call(agent, journal):
    drafts, asked = Drafts({1: "dear Ann", 2: "dear Eve"}), []

    def decide(request):
        asked.append(request)
        return Edited(arguments={"number": 2}) if request.arguments["number"] == 1 else True

    async with agent(drafts, decide) as first:
        done = (await first.arun("x")).raise_for_status()
    events = await journal.read(done.trace.task_id)
    ends = [n for n, event in enumerate(events, 1) if isinstance(event, ApprovalRequested)]
    assert len(ends) == 2
    await journal.ended_after(events[: ends[1]])
    asked.clear()
    async with agent(drafts, decide) as second:
        (await second.aresume(done.trace.task_id)).raise_for_status()
    (request,) = asked
    assert (request.arguments["number"], request.preview) == (2, "dear Eve")
    assert request.request_id == events[ends[1] - 1].request_id, "the open request is continued"
    assert drafts.sent == [("dear Eve", "ann")] * 2


async def test_resumed_call_that_its_check_refuses_leaves_no_request_open(agent, journal):
    drafts = Drafts({1: "dear Ann"})
    async with agent(drafts, lambda _: True) as first:
        done = (await first.arun("x")).raise_for_status()
    await journal.ended_with(done.trace.task_id, ApprovalRequested)
    del drafts.texts[1]
    async with agent(drafts, lambda _: True) as second:
        await second.aresume(done.trace.task_id)
    events = await journal.read(done.trace.task_id)
    (request,) = [e for e in events if isinstance(e, ApprovalRequested)]
    (decided,) = [e for e in events if isinstance(e, ApprovalDecided)]
    assert (decided.request_id, decided.source) == (request.request_id, "changed")
