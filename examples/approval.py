"""Asking before calls that matter: yes, no with a reason, yes with other arguments."""

from delf import Agent, ApprovalRequest, Approved, Edited, Rejected, tool
from delf.testing import ScriptedModel, TestHost


@tool(effect="irreversible")
def pay(to: str, euros: float) -> str:
    """Pay somebody."""
    return f"{to} got {euros:.2f}"


def decide(request: ApprovalRequest) -> Approved | Edited | Rejected:
    """Asked on the host, with the real arguments, whatever the script says about itself."""
    print(f"asked: {request.message} because {request.description!r}")
    if request.arguments["to"] not in ("Ann", "Bob"):
        return Rejected(reason="we do not know them")
    if request.arguments["euros"] > 100:
        return Edited(arguments={**request.arguments, "euros": 100.0})
    return Approved()


ANSWER = """
for name, euros in [("Ann", 20), ("Bob", 5000), ("Mallory", 1)]:
    try:
        print(await pay(name, euros, desc="an open bill"))
    except ApprovalRejected as error:
        print(error)
"""


def main() -> None:
    host = TestHost.discover()
    model = ScriptedModel().writes(ANSWER)
    host.provide(model.spec, model.factory)
    with Agent(tools=[pay], llm="scripted", host=host, on_confirm=decide) as agent:
        response = agent.run("Pay the open bills.")
    print(response.raise_for_status().text)
    print([call.status for call in response.trace.tool_calls])


if __name__ == "__main__":
    main()
