"""Input files of one task: ``agent.run(…, files=[…])``."""

import asyncio
import os

import pytest

from delf.errors import ConfigurationError
from delf.events import TaskStarted

READ = "print(await files.read('a.csv'), open('a.csv').read())"


@pytest.fixture
def paper(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x\n1\n")
    return path


@pytest.mark.parametrize("kind", [str, lambda path: path])
def test_task_can_have_its_own_files(make_agent, scripted_model, paper, kind):
    scripted_model.writes(READ, "print([name for name in ('files',) if name in globals()])")
    agent = make_agent()
    response = agent.run("read it", files=[kind(paper)])
    assert response.text == "[{'x': '1'}] x\n1"
    assert "a.csv" in scripted_model.prompts[0]
    assert agent.run("and now?").text == "[]"
    assert "a.csv" not in scripted_model.prompts[1]


def test_task_files_replace_agent_files(make_agent, scripted_model, paper, tmp_path):
    other = tmp_path / "b.txt"
    other.write_text("b")
    scripted_model.writes("print([f['name'] for f in await files.list()])", READ)
    agent = make_agent(files=[str(other)])
    assert agent.run("x", files=[paper]).text == "['a.csv']"
    assert not agent.run("x").status


async def test_task_files_work_with_every_strategy(make_agent, scripted_model, paper):
    scripted_model.default = scripted_model.writes(READ).replies[0]
    agent = make_agent()
    assert (await agent.arun("x", files=[paper])).text.startswith("[{'x'")
    task_id = await agent.asubmit("x", files=[str(paper)])
    assert (await asyncio.to_thread(agent.wait, task_id, 20)).status
    events = [event async for event in agent.stream("x", files=[paper])]
    assert events[-1].status
    (started,) = [event for event in events if isinstance(event, TaskStarted)]
    assert started.setup["input_files"] == [str(paper)]
    await agent.astop()


def test_missing_task_file_is_reported_before_any_model_call(make_agent, scripted_model):
    with pytest.raises(ConfigurationError, match="does not exist"):
        make_agent().run("x", files=["nowhere.csv"])
    assert scripted_model.requests == []


@pytest.mark.parametrize("what", ["a pipe", "a device", "a folder", "a link", "gone"])
def test_task_file_replaced_after_submit_is_refused(make_agent, scripted_model, paper, what):
    """The input files of the agent are checked again for each task."""
    scripted_model.writes(READ, READ)
    agent = make_agent(files=[str(paper)])
    assert agent.run("read it").status
    paper.unlink()
    match what:
        case "a pipe":
            os.mkfifo(paper)
        case "a device":
            paper.symlink_to("/dev/zero")
        case "a folder":
            paper.mkdir()
        case "a link":
            paper.symlink_to("/etc/hostname")
        case _:
            pass
    with pytest.raises(ConfigurationError, match=r"input file '.*a\.csv'"):
        agent.run("read it")
