"""The choice `auto` where Docker runs and its image is not available."""

import json

import httpx
import pytest

from delf import Agent
from support.cli_fixtures import *  # noqa: F403 - here, run
from support.program import write_recording

pytestmark = [pytest.mark.services, pytest.mark.timeout(120)]


@pytest.fixture
def project(here, docker_engine, registry, monkeypatch):
    """A project whose image of the Docker sandbox is in no registry."""
    monkeypatch.setenv("DOCKER_HOST", docker_engine.url)
    monkeypatch.setenv("XDG_CACHE_HOME", str(here / "cache"))
    model = write_recording(here / "r.jsonl", "print(1)")
    base = f"127.0.0.1:{registry.server_port}/nobody/{here.name}:1"
    here.joinpath("delf.toml").write_text(
        f'[agent]\nllm = "{model}"\n[plugins.sandbox-docker]\nbase_image = "{base}"\n'
    )
    return here


def test_skipped_docker_choice_is_reported_once(project, run, registry, caplog):
    first = run("run", "a task")
    assert (first.exit_code, first.stdout.strip()) == (0, "1"), first.output
    assert first.stderr.count("cannot be built from") == 1
    assert "isolated by process only (docker: " in " ".join(first.stderr.split())
    asked = len(registry.asked)
    assert asked > 0
    second = run("run", "a task")
    assert (second.exit_code, second.stdout.strip()) == (0, "1"), second.output
    message = [line for line in caplog.messages if "cannot be built from" in line]
    assert len(message) == 1, "the notice appears once on a machine"
    assert len(registry.asked) == asked


def test_doctor_names_the_chosen_sandbox(project, run):
    found = run("doctor", "--json")
    assert found.exit_code == 0, found.output
    findings = json.loads(found.stdout)["findings"]
    (task,) = (item["text"] for item in findings if item["area"] == "task")
    assert "in the sandbox 'local', isolation process" in task
    (docker,) = (item for item in findings if item["text"].startswith("docker, isolation"))
    assert docker["status"] == "note"
    assert "cannot be built from" in docker["text"]
    assert "base_image" in str(docker["hint"])


@pytest.mark.parametrize("chosen", ["DELF_SANDBOX=docker", "DELF_MIN_ISOLATION=container"])
def test_explicitly_chosen_sandbox_is_not_replaced(project, run, chosen):
    name, _, value = chosen.partition("=")
    environ = {name: value}
    ran = run("run", "a task", env=environ)
    assert ran.exit_code != 0
    assert "cannot be built from" in " ".join(ran.stderr.split())
    assert not ran.stdout.strip()
    found = run("doctor", "--json", env=environ)
    assert found.exit_code == 1
    message = [f["text"] for f in json.loads(found.stdout)["findings"] if f["status"] == "problem"]
    assert any("cannot be built from" in text for text in message)
    weaker = run("run", "a task", env={"DELF_SANDBOX": "local"})
    assert (weaker.exit_code, weaker.stdout.strip()) == (0, "1"), weaker.output
    assert "cannot be built" not in weaker.stderr


async def test_server_is_ready_with_the_fallback_sandbox(project):
    agent = Agent.from_project(project)
    app = agent.asgi_app()
    async with agent:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            assert (await client.get("/ready")).json() == {"ok": True}
        assert agent.status()["sandbox"] == {"name": "local", "isolation": "process"}
