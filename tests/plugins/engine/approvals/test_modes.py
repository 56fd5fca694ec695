"""Approval modes by name, what is approved beforehand, and runs that could ask nobody."""

import re

import pytest

from delf import Agent, Connection, action, load_project, tool
from delf.errors import AgentConfirmationError, ToolDefinitionError
from delf.protocols.rules import ApprovalRule
from delf_engine.toolset import load_toolset
from support.gates import gate_bench
from support.workspace import ROOT


@tool(effect="write")
def pay(n: int) -> str:
    """Pay."""
    return f"paid {n}"


@pytest.fixture
def agent_of(delf_host, scripted_model):
    def make(**options):
        scripted_model.default = "```python\nprint(await pay(1))\n```"
        options = {"approvals": [], "retry_count": 0, **options}
        return Agent(tools=[pay], llm="scripted", host=delf_host, journal="none", **options)

    return make


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"approval_mode": "approve_all"}, "paid 1"),
        ({"approval_mode": "strict"}, None),
        ({"approval_mode": "interactive", "on_confirm": lambda request: True}, "paid 1"),
        ({"approval_mode": "interactive", "on_confirm": lambda request: False}, None),
        ({"approval_mode": "strict", "approval_rules": {"pay": "approve"}}, "paid 1"),
        ({"approval_mode": "read_only", "approval_rules": {"pay": "approve"}}, None),
        ({"approval_rules": {"p*": "approve"}}, "paid 1"),
        ({"approval_rules": {"other": "approve"}}, None),
    ],
)
async def test_approval_mode_decides_the_call(agent_of, options, text):
    async with agent_of(**options) as agent:
        response = await agent.arun("pay")
    assert (response.text if response.status else None) == text


async def test_read_only_mode_denies_changes(delf_host, scripted_model):
    done = []

    @tool(effect="write", confirm=False)
    def note(text: str) -> None:
        """Note."""
        done.append(text)

    @tool(effect="read", confirm=False)
    def look() -> int:
        """Look."""
        done.append("looked")
        return 7

    scripted_model.writes("print(await look())\nawait note('x')")
    options = {"approval_mode": "read_only", "retry_count": 0, "journal": "none"}
    async with Agent(tools=[note, look], llm="scripted", host=delf_host, **options) as agent:
        response = await agent.arun("x")
    assert "this task may only read" in str(response.error)
    assert done == ["looked"]


async def test_interactive_run_without_anybody_to_ask_is_refused(agent_of, scripted_model):
    async with agent_of(approval_mode="interactive") as agent:
        with pytest.raises(AgentConfirmationError, match="nobody can be asked about pay"):
            await agent.arun("pay")
    assert scripted_model.requests == []


@pytest.mark.parametrize(
    "options", [{"wait_approvals": True}, {"approval_rules": {"pay": "approve"}}]
)
async def test_interactive_run_starts_if_nobody_has_to_be_asked(agent_of, scripted_model, options):
    scripted_model.default = None
    scripted_model.writes("print(1)")
    async with agent_of(approval_mode="interactive", **options) as agent:
        assert (await agent.arun("x")).text == "1"


async def test_approval_judges_decide_in_the_documented_order():
    page = (ROOT / "docs/approvals.md").read_text(encoding="utf-8")
    table = page.partition("## The order of decisions")[2].partition("\n## ")[0]
    message = re.findall(r"^\| (\w+) \|", table, re.MULTILINE)[1:]
    judges = (await gate_bench(pay)).approvals.judges
    assert [f"{name.title()}Judge" for name in message] == [
        type(getattr(judge, "__self__", None)).__name__ for judge in judges
    ]


def test_rules_of_a_program_are_added_to_those_of_its_project(delf_host, tmp_path):
    (tmp_path / "delf.toml").write_text(
        '[agent]\nllm = "scripted"\n[agent.approval_rules]\n'
        '"bank.*" = {approvers = ["finance"]}\n"pay" = {four_eyes = true}\n'
    )
    rules = {"pay": "approve", "mail.read.sender -> mail.send.to": "approve"}
    project = load_project(tmp_path, trust=True)
    agent = Agent(project=project, host=delf_host, approval_rules=rules)
    found = agent.config.approval_rules
    assert dict(found) == {"bank.*": ApprovalRule(approvers=("finance",)), **rules}


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ({"a.b -> c.d": {"four_eyes": True}}, "a flow can only be 'approve'"),
        ({"pay": "aprove"}, "pay: 'aprove' is no rule; write 'approve', or a table"),
        ({5: "yes"}, "5: 'yes' is no rule; write 'approve', or a table"),
        ({"pay": 3}, "pay: 3 is no rule; write 'approve', or a table"),
        (
            {"pay": {"approver": ["ann"]}},
            "two_of, not 'approver'; did you mean 'approvers'?",
        ),
        ({"pay": {"four_eyes": "perhaps"}}, "pay: four_eyes: Input should be a valid boolean"),
    ],
)
def test_invalid_rule_is_refused(rules, says):
    with pytest.raises(AgentConfirmationError, match=re.escape(says)):
        Agent(llm="scripted", approval_rules=rules)


SHOP_AND_DRIVE = """
[connections.shop]
type = "filesystem"
roots = {x = "."}
allow = ["read_file", "write_file"]
[connections.drive]
type = "filesystem"
roots = {x = "."}
"""


@tool(effect="read")
def look(page: str) -> str:
    """Look."""
    return page


@pytest.fixture
def start(delf_host, scripted_model, tmp_path):
    """A function that starts an agent of a project with a connection ``shop`` and functions."""

    async def start(rules):
        (tmp_path / "delf.toml").write_text(SHOP_AND_DRIVE)
        project = load_project(tmp_path, trust=True)
        options = {"llm": "scripted", "host": delf_host, "approval_rules": rules}
        options |= {"connections": ["shop"], "tools": [pay, look], "journal": "none"}
        async with Agent.from_project(project, **options):
            pass

    return start


ANN = {"approvers": ["ann"]}


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ({"pya": ANN}, "'pya' matches none of this agent's actions; did you mean 'pay'?"),
        ({"shop.wirte_file": ANN}, "did you mean 'shop.write_file'?"),
        ({"shop.zzz": "approve"}, "'shop.zzz' matches none of this agent's actions"),
        ({"shop": ANN}, "'shop' matches none of this agent's actions"),
        ({"look.title -> pya.n": "approve"}, "did you mean 'pay.n'?"),
        ({"lok.title -> pay.n": "approve"}, "did you mean 'look'?"),
        (
            {"look.title -> pay.m": "approve"},
            "'pay.m' matches none of this agent's actions; did you mean",
        ),
        ({"shop.raed_file.text -> pay.n": "approve"}, "did you mean 'shop.read_file'?"),
    ],
)
async def test_rule_with_a_misspelt_name_is_refused(start, rules, says):
    with pytest.raises(AgentConfirmationError, match=re.escape(says)) as raised:
        await start(rules)
    assert raised.value.hint


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("shpo.*", "'shpo.*' matches none of this agent's actions; did you mean 'shop'?"),
        ("shop.zzz*", "'shop.zzz*' matches none of this agent's actions"),
        ("bookings.cancel", "'bookings.cancel' matches none of this agent's actions"),
        ("bookings.list.* -> pay.n", "matches none of this agent's actions"),
        ("look.title -> pay.m*", "matches none of this agent's actions"),
        ("look.title -> shop.zzz*", "matches none of this agent's actions"),
    ],
)
async def test_rule_that_may_be_void_is_a_warning(start, caplog, rule, says):
    await start({rule: "approve"})
    assert says in caplog.text


@pytest.mark.parametrize(
    "rule",
    [
        *("*", "p?y", "pay", "shop.*", "shop.write_file", "*.write_file"),
        "shop.replace",  # exists, but is not allowed
        "drive.anything",  # a connection of the project that this agent does not use
        *("d*.write_file", "drive.*"),
        *("look.title -> pay.n", "look -> pay.n", "look.* -> pay.*", "* -> *", "look.title -> sh*"),
        "look.title -> shop.replace.*",  # exists, but is not allowed: its parameters are unknown
        *("shop.read_file.text -> look.page", "drive.read_file.text -> look.page"),
    ],
)
async def test_rule_that_can_match_is_no_warning(start, caplog, rule):
    await start({rule: "approve"})
    assert "approval_rules" not in caplog.text


async def test_contents_of_an_unknown_action_are_refused():
    class Desk(Connection):
        @action(effect="write")
        async def reply(self, to: str, letter: str) -> None:
            """Reply."""

    says = "contents of 'desk' names 'repyl', which is not one of its actions; did you mean 'reply'"
    with pytest.raises(ToolDefinitionError, match=re.escape(says)):
        await load_toolset([Desk(name="desk", contents={"repyl": ["letter"]})])
    assert await load_toolset([Desk(name="desk", contents={"reply": ["letter"]})])
