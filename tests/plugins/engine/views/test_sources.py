"""Origins of argument values in calls without approval, computed from the events."""

from delf import Agent, tool
from delf_engine.views.sources import sources_of


@tool(effect="read", confirm=False)
def mails() -> list[dict]:
    """Mails."""
    return [{"sender": "ada@firm.example", "body": "Call me at +49 170 1234567"}]


@tool(effect="write", confirm=False)
def note(title: str, who: str, phone: str, kind: str, length: int) -> str:
    """Keep a note."""
    return "kept"


def test_origins_of_values_are_found_for_calls_without_approval(delf_host, scripted_model):
    scripted_model.writes(
        "m = mails()[0]\nnote('Party', m['sender'], m['body'][-15:], 'x-kind', len(m['body']) + 70)"
    )
    with Agent(tools=[mails, note], llm="scripted", host=delf_host) as agent:
        response = agent.run("Note who comes to the Party")
    assert not response.trace.approvals
    sources = sources_of(response.events)
    assert {path: item["text"] for path, item in sources[2].items()} == {
        "title": "in the task",
        "who": "from mails (call 1, [0].sender)",
        "phone": "in part from mails (call 1, [0].body)",
    }
    assert sources[1] == {}
    assert "trust" not in str(sources)
