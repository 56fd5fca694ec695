"""The agent: configuration, lifecycle, tasks from every kind of caller."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest

from delf import (
    Agent,
    AgentConfirmationError,
    AgentStateError,
    ConfigurationError,
    LLMConfig,
    ModelConfigurationError,
    PluginError,
    ToolDefinitionError,
    ToolException,
    tool,
)
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import ScriptedModel
from support.until import until

MakeAgent = Callable[..., Agent]


@tool(confirm=False)
async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


class TestConfiguration:
    def test_agent_without_a_model_is_refused(self) -> None:
        with pytest.raises(ModelConfigurationError, match="no language model"):
            Agent()

    def test_light_model_without_a_heavy_model_is_refused(self) -> None:
        with pytest.raises(ModelConfigurationError, match="heavy_llm is not set"):
            Agent(light_llm="a")

    def test_unknown_option_gets_a_suggestion(self) -> None:
        with pytest.raises(ConfigurationError, match="did you mean 'retry_count'"):
            Agent(llm="m", retry_counts=3)  # type: ignore[call-arg]

    def test_value_out_of_range_error_names_the_option(self) -> None:
        with pytest.raises(ConfigurationError, match="retry_count"):
            Agent(llm="m", retry_count=-1)

    def test_class_given_as_tool_is_refused(self) -> None:
        with pytest.raises(ToolDefinitionError, match="a class"):
            Agent(llm="m", tools=[dict])

    def test_on_confirm_must_be_callable(self) -> None:
        with pytest.raises(AgentConfirmationError):
            Agent(llm="m", on_confirm="yes")  # type: ignore[arg-type]

    def test_plain_function_tool_needs_approval(self) -> None:
        def stock(product: str) -> int:
            """Pieces in stock."""
            return len(product)

        agent = Agent(llm="m", tools=[stock])
        assert agent.tools[0].name == "stock"
        assert agent.tools[0].confirm is True

    def test_unserved_model_is_refused(self, delf_host: TestHost) -> None:
        agent = Agent(llm="scripted", host=TestHost.discover(no_plugins=True), sandbox="local")
        with pytest.raises(PluginError, match="no sandbox"):
            agent.start()
        agent.stop()

    def test_inspect_lists_the_tools(self, make_agent: MakeAgent) -> None:
        described = make_agent(add).inspect(verbose=True)
        assert described["total"] == 1
        assert described["tools"][0]["methods"][0]["signature"] == "add(a: int, b: int = 1) -> int"


class TestRun:
    def test_printed_text_is_the_answer(
        self, make_agent: MakeAgent, scripted_model: ScriptedModel
    ) -> None:
        scripted_model.writes("print(await add(1, b=2))")
        response = make_agent(add).run("add")
        assert (response.text, response.status, response.error) == ("3", True, None)
        assert response.trace.tool_calls[0].arguments == {"a": 1, "b": 2}
        assert response.trace.tool_calls[0].result == 3
        assert response.cost_usd == 0.0
        assert response.duration_ms >= 0

    @pytest.mark.parametrize(
        ("code", "answer"),
        [("1 + 1", "2"), ("return 'x'", "x"), ("{'a': 1}", '{\n  "a": 1\n}'), ("x = 1", "1")],
    )
    def test_value_is_the_answer_when_nothing_is_printed(
        self, make_agent: MakeAgent, scripted_model: ScriptedModel, code: str, answer: str
    ) -> None:
        scripted_model.writes(code)
        assert make_agent().run("x").text == answer

    def test_failed_script_is_returned_to_the_model_with_line_and_variables(
        self, make_agent: MakeAgent, scripted_model: ScriptedModel
    ) -> None:
        scripted_model.writes("rows = [1, 2]\nprint(rows[5])", "print(sum(rows))")
        response = make_agent().run("x")
        assert response.text == "3"
        assert response.trace.retries == ["IndexError: list index out of range"]
        asked = scripted_model.requests[1].messages[-1].text
        assert "Line 2: print(rows[5])" in asked
        assert "rows: list of 2 int" in asked

    def test_retry_prompt_lists_changes_and_reads_separately(
        self, make_agent: MakeAgent, scripted_model: ScriptedModel
    ) -> None:
        @tool(confirm=False, effect="write")
        async def put(n: int) -> int:
            """Put."""
            if n > 1:
                raise ValueError(n)
            return n

        @tool(confirm=False, effect="read")
        async def get() -> int:
            """Get."""
            return 0

        scripted_model.writes("await get()\nfor n in range(3): await put(n)", "print('done')")
        assert make_agent(put, get).run("x").text == "done"
        asked = scripted_model.requests[1].messages[-1].text
        assert (
            "The script has already made these changes; do not repeat them:\n- put(n=0)\n- put(n=1)\nWrite"
            in asked
        )

    def test_retry_prompt_lists_abandoned_calls_that_may_be_done(
        self, make_agent: MakeAgent, scripted_model: ScriptedModel
    ) -> None:
        @tool(confirm=False, effect="write")
        async def put(n: int) -> None:
            """Put, without an end."""
            await asyncio.Event().wait()

        scripted_model.writes("await asyncio.wait_for(put(1), 0.05)", "print('done')")
        assert make_agent(put).run("x").text == "done"
        asked = scripted_model.requests[1].messages[-1].text
        assert "- put(n=1) (begun; may be done or not)\n" in asked

    def test_retries_are_counted(
        self, make_agent: MakeAgent, scripted_model: ScriptedModel
    ) -> None:
        scripted_model.writes("1 / 0", "1 / 0", "print('half')\n1 / 0")
        response = make_agent(retry_count=2).run("x")
        assert not response.status
        assert response.text == "half\n"
        assert response.error is not None
        assert "ZeroDivisionError" in response.error
        assert len(scripted_model.requests) == 3
        assert len(response.trace.retries) == 2

    def test_rerun_keeps_the_namespace_and_is_recorded(
        self, make_agent: MakeAgent, scripted_model: ScriptedModel
    ) -> None:
        scripted_model.writes(
            "print('first')\nrows = [1]\nrerun('columns are a, b', 'print the rows')",
            "print(rows)",
        )
        response = make_agent().run("x")
        assert response.text == "first\n[1]"
        assert [r.learned_context for r in response.trace.reruns] == ["columns are a, b"]
        assert "print the rows" in scripted_model.requests[1].messages[-1].text

    @pytest.mark.parametrize(
        ("count", "script", "passes"),
        [
            (1, "await keep()\nrerun('a', 'b')", 1),
            (1, "rerun('a', 'b')", 8),
            (0, "rerun('a', 'b')", 0),
        ],
    )
    def test_rerun_limit_is_higher_for_scripts_without_changes(
        self, make_agent, scripted_model, count, script, passes
    ):
        @tool(effect="write", confirm=False)
        def keep() -> None:
            """Keep it."""

        scripted_model.writes(*[script] * (passes + 1))
        response = make_agent(keep, rerun_count=count).run("x")
        assert f"another pass after {passes} of them; left to do: b" in response.error
        assert len(scripted_model.prompts) == passes + 1
        warned = ["No rerun is left" in prompt for prompt in scripted_model.prompts]
        assert warned == [False] * passes + [passes > 0]
        assert [("end with rerun" in prompt) for prompt in scripted_model.prompts] == [
            count > 0
        ] * (passes + 1)

    def test_retries_and_reruns_are_counted_separately(
        self, make_agent: MakeAgent, scripted_model: ScriptedModel
    ) -> None:
        scripted_model.writes("1 / 0", "x = 1\nrerun('a', 'b')", "1 / 0", "print(x)")
        assert make_agent(retry_count=1, rerun_count=1).run("x").text == "1"

    def test_prompt_prefix_never_changes(
        self, make_agent: MakeAgent, scripted_model: ScriptedModel
    ) -> None:
        scripted_model.writes("1 / 0", "rerun('a', 'b')", "print(1)", "print(2)")
        agent = make_agent(add)
        agent.run("one task")
        agent.run("another")
        assert len({request.messages[0].text for request in scripted_model.requests}) == 1

    def test_system_prompt_is_in_every_call(
        self, make_agent: MakeAgent, scripted_model: ScriptedModel
    ) -> None:
        scripted_model.writes("1 / 0", "print(1)")
        make_agent(system_prompt="Speak like a pirate.").run("x")
        assert all("pirate" in prompt for prompt in scripted_model.prompts)

    def test_tool_exception_is_raised_in_the_script_and_traced(
        self, make_agent: MakeAgent, scripted_model: ScriptedModel
    ) -> None:
        @tool(confirm=False)
        def find(order: str) -> dict[str, str]:
            """Find an order."""
            raise ToolException("orders start with ORD-")

        scripted_model.writes("print(await find('7'))", "print('There is no order 7.')")
        response = make_agent(find).run("x")
        assert "ToolException: orders start with ORD-" in scripted_model.prompts[-1]
        assert response.text == "There is no order 7."
        assert [(c.status, c.success) for c in response.trace.tool_calls] == [("error", False)]

    def test_output_files_are_returned_in_the_response(
        self, make_agent: MakeAgent, scripted_model: ScriptedModel, tmp_path: Any
    ) -> None:
        scripted_model.writes("add_to_output_files('a.csv', [{'x': 1}, {'x': 2}])\nprint('ok')")
        response = make_agent(output_dir=str(tmp_path)).run("x")
        assert (tmp_path / "a.csv").read_text() == "x\n1\n2\n"
        assert response.files == {"a.csv": str(tmp_path / "a.csv")}

    def test_unexpected_model_error_ends_the_task_cleanly(
        self, make_agent: MakeAgent, scripted_model: ScriptedModel
    ) -> None:
        scripted_model.says(RuntimeError("a bug in a plugin"))
        response = make_agent().run("x")
        assert not response.status
        assert "RuntimeError" in (response.error or "")


def warmed(agent: Agent, scripted_model: ScriptedModel) -> Agent:
    """Return the agent after its first task, so that a short timeout does not include its start."""
    scripted_model.writes("print('warm')")
    assert agent.run("warm up").text == "warm"
    return agent


class TestTimeout:
    def test_tool_called_after_the_timeout_is_not_run(
        self, make_agent: MakeAgent, scripted_model: ScriptedModel
    ) -> None:
        sent: list[str] = []

        @tool(confirm=False)
        async def send(text: str) -> None:
            """Send a mail."""
            sent.append(text)

        agent = warmed(make_agent(send), scripted_model)
        scripted_model.writes("print('half')\nawait asyncio.sleep(1.2)\nawait send('late')")
        response = agent.run("x", timeout=1)
        assert not response.status
        assert (response.error or "").startswith("Timeout")
        assert response.text == "half\n"
        with pytest.raises(Exception, match="Timeout"):
            response.raise_for_status()
        scripted_model.writes("await asyncio.sleep(0.5)\nprint('next')")
        assert agent.run("the next task is fine", timeout=20).text == "next"
        assert sent == []

    def test_tool_in_flight_is_cancelled_at_the_timeout(
        self, make_agent: MakeAgent, scripted_model: ScriptedModel
    ) -> None:
        outcome: list[str] = []

        @tool(confirm=False)
        async def wait() -> None:
            """Wait."""
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                outcome.append("cancelled")
                raise

        agent = warmed(make_agent(wait), scripted_model)
        scripted_model.writes("await wait()")
        response = agent.run("x", timeout=1)
        assert outcome == ["cancelled"]
        assert response.trace.tool_calls[0].status == "cancelled"

    def test_tool_ignoring_cancellation_does_not_block_the_task(
        self, make_agent: MakeAgent, scripted_model: ScriptedModel
    ) -> None:
        release = asyncio.Event()

        @tool(confirm=False)
        async def stubborn() -> None:
            """Never give in."""
            while not release.is_set():
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    continue

        agent = warmed(make_agent(stubborn), scripted_model)
        scripted_model.writes("await stubborn()")
        response = agent.run("x", timeout=0.5)
        assert (response.error or "").startswith("Timeout")
        release.set()


class TestApproval:
    def test_script_can_catch_a_rejection_with_its_reason(
        self, make_agent: MakeAgent, scripted_model: ScriptedModel
    ) -> None:
        scripted_model.writes(
            "try:\n    await pay(5)\nexcept ApprovalRejected as error:\n    print('no:', error)"
        )
        response = make_agent(tool(_pay), on_confirm=lambda _: False).run("x")
        assert response.status
        assert response.text.startswith("no: pay was rejected")

    def test_waiting_callback_does_not_block_other_tasks(
        self, make_agent: MakeAgent, scripted_model: ScriptedModel
    ) -> None:
        release = threading.Event()

        def on_confirm(_: Any) -> bool:
            return release.wait(50)

        async def work(agent: Agent) -> list[str]:
            scripted_model.writes("print(await pay(1))")
            waiting = asyncio.create_task(agent.arun("waits"))
            await until(lambda: scripted_model.requests)
            scripted_model.writes("print(await add(1))")
            quick = await agent.arun("quick")
            release.set()
            answers = [quick.text, (await waiting).text]
            await agent.astop()
            return answers

        agent = make_agent(tool(_pay), add, on_confirm=on_confirm)
        assert asyncio.run(work(agent)) == ["2", "paid 1"]


async def _once(agent: Agent, **options: Any) -> str:
    async with agent:
        return (await agent.arun("x", **options)).text


def _pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


_pay.__name__ = "pay"


class TestLifecycle:
    @pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
    def test_pickled_or_copied_agent_is_refused_with_a_hint(
        self, make_agent: MakeAgent, duplicate: Callable[[Any], Any]
    ) -> None:
        with pytest.raises(AgentStateError, match="cannot be pickled or copied") as caught:
            duplicate(make_agent())
        assert "in a module" in (caught.value.hint or "")

    def test_stop_is_idempotent_and_the_agent_can_restart(
        self, make_agent: MakeAgent, scripted_model: ScriptedModel
    ) -> None:
        scripted_model.writes("print(1)", "print(2)")
        agent = make_agent()
        assert agent.run("x").text == "1"
        agent.stop()
        agent.stop()
        assert agent.run("x").text == "2"

    def test_agent_works_as_context_manager(
        self, make_agent: MakeAgent, scripted_model: ScriptedModel
    ) -> None:
        scripted_model.writes("print(1)", "print(2)")
        with make_agent() as agent:
            assert agent.run("x").text == "1"

        async def work() -> str:
            async with make_agent() as agent:
                return (await agent.arun("x")).text

        assert asyncio.run(work()) == "2"

    @pytest.mark.filterwarnings("ignore::ResourceWarning")
    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    def test_agent_can_be_used_from_several_event_loops(
        self, make_agent: MakeAgent, scripted_model: ScriptedModel
    ) -> None:
        scripted_model.writes("print(1)", "print(2)", "print(3)")
        agent = make_agent(add)
        assert asyncio.run(agent.arun("x")).text == "1"
        assert asyncio.run(agent.arun("x")).text == "2"
        assert agent.run("x").text == "3"
        gc.collect()  # the transports of the loops that were closed under the agent

    def test_run_works_inside_a_running_loop(
        self, make_agent: MakeAgent, scripted_model: ScriptedModel
    ) -> None:
        scripted_model.writes("print(1)")

        async def notebook() -> str:
            with make_agent() as agent:
                return agent.run("x").text

        assert asyncio.run(notebook()) == "1"

    def test_run_on_the_agents_own_loop_is_refused(
        self, make_agent: MakeAgent, scripted_model: ScriptedModel
    ) -> None:
        scripted_model.writes("print(1)")

        async def work() -> None:
            agent = make_agent()
            await agent.arun("x")
            with pytest.raises(AgentStateError, match="inside the event loop"):
                agent.run("y")
            await agent.astop()

        asyncio.run(work())

    def test_agent_runs_tasks_from_many_threads(
        self, make_agent: MakeAgent, scripted_model: ScriptedModel
    ) -> None:
        scripted_model.default = "```python\nprint(await add(41))\n```"
        agent = make_agent(add).start()
        answers: list[str] = []
        threads = [
            threading.Thread(target=lambda: answers.append(agent.run("x", timeout=20).text))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers == ["42"] * 8

    def test_cancelling_arun_stops_the_task(
        self, make_agent: MakeAgent, scripted_model: ScriptedModel
    ) -> None:
        started = asyncio.Event()

        @tool(confirm=False)
        async def begin() -> None:
            """Begin."""
            started.set()

        async def work() -> None:
            agent = make_agent(begin)
            task = asyncio.create_task(agent.arun("x"))
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await agent.astop()

        scripted_model.writes("await begin()\nwhile True: pass")
        asyncio.run(work())

    def test_stop_ends_running_tasks(
        self, make_agent: MakeAgent, scripted_model: ScriptedModel
    ) -> None:
        started = threading.Event()

        @tool(confirm=False)
        def begin() -> None:
            """Begin."""
            started.set()

        scripted_model.writes("await begin()\nawait asyncio.sleep(60)")
        agent = make_agent(begin).start()
        errors: list[BaseException] = []

        def run() -> None:
            try:
                agent.run("x")
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        assert started.wait(50)
        agent.stop()
        thread.join(50)
        assert [type(error) for error in errors] == [AgentStateError]


def test_program_for_the_reference_implementation_runs(
    openai_server: Any,
) -> None:
    @tool(confirm=False)
    def f(x: int) -> int:
        """Double a number."""
        return 2 * x

    server = openai_server(["```python\nprint(await f(21))\n```"])
    agent = Agent(
        tools=[f],
        llm=LLMConfig(model="m", base_url=server.base_url, api_key="k"),
        sandbox="local",
    )
    response = agent.run("double 21")
    agent.stop()
    assert response.text == "42"
    assert server.requests[0].headers["authorization"] == "Bearer k"


def test_model_is_accepted_as_first_argument(
    delf_host: TestHost, scripted_model: ScriptedModel
) -> None:
    scripted_model.default = "```python\nprint(await add(41))\n```"
    with Agent("scripted", tools=[add], host=delf_host) as agent:
        assert agent.config.main_llm.model == "scripted"
        assert agent.run("x").text == "42"
    with pytest.raises(ConfigurationError, match="two models are given: 'scripted' and llm='b'"):
        Agent("scripted", llm="b", host=delf_host)
