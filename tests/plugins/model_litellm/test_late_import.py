"""litellm is imported by the first call, asks nobody anything, and leaves no trace."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from support.openai_server import OpenAIServer, Reply

pytestmark = pytest.mark.timeout(240)
TESTS = Path(__file__).parents[2]
PRELUDE = """
import asyncio, os, socket, sys
sys.path.insert(0, TESTS)
looked_up = []
real = socket.getaddrinfo
def getaddrinfo(host, *rest, **more):
    looked_up.append(str(host))
    return real(host, *rest, **more)
socket.getaddrinfo = getaddrinfo
real_connect = socket.socket.connect
def connect(self, address):
    looked_up.append(str(address[0]))
    return real_connect(self, address)
socket.socket.connect = connect
from delf.llm import LLMConfig
from delf.messages import ModelRequest, user
from delf.protocols.context import PluginContext
import delf_model_litellm, delf_model_litellm.plugin
from delf_model_litellm.model import LiteLLMModel
request = ModelRequest(messages=(user("hi"),))
"""


def python(tmp_path: Path, code: Any, *arguments: Any):
    script = PRELUDE.replace("TESTS", repr(str(TESTS))) + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_plugin_and_factory_do_not_import_litellm(tmp_path: Path):
    code = """
    specs = list(delf_model_litellm.plugin.delf_models())
    model = LiteLLMModel(PluginContext(), LLMConfig("m", base_url="http://127.0.0.1:9/v1"))
    vendors = {"litellm", "openai", "httpx", "aiohttp"} & set(sys.modules)
    print(vendors, looked_up, specs[0].name)
    """
    assert python(tmp_path, code).stdout == "set() [] litellm\n"


def test_plugin_module_imports_no_vendor_library(tmp_path: Path):
    code = "import sys, delf_model_litellm.plugin; print('asyncio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_missing_key_is_reported_without_import_or_request(tmp_path: Path):
    code = """
    from delf.errors import EnvironmentKeyError
    async def main():
        for name in ("gpt-5.5", "gemini-3.5-flash", "claude-opus-5", "groq/x"):
            model = LiteLLMModel(PluginContext(), LLMConfig(name))
            await model.warm_up()
            try:
                await model.complete(request)
            except EnvironmentKeyError as error:
                print(error.variable)
            try:
                async for _ in model.stream(request): pass
            except EnvironmentKeyError as error:
                print(error.variable)
    asyncio.run(main())
    print("litellm" in sys.modules, looked_up)
    """
    names = ["OPENAI", "GOOGLE", "ANTHROPIC", "GROQ"]
    expected = [f"{name}_API_KEY" for name in names for _ in range(2)]
    assert python(tmp_path, code).stdout.splitlines() == [*expected, "False []"]


def test_first_calls_are_silent_and_change_no_environment(tmp_path: Path):
    """All checks share one process, because importing litellm takes seconds."""
    (tmp_path / ".env").write_text("LEAKED=yes\n")
    code = """
    import gc, json, threading
    environment = dict(os.environ)
    async def main():
        failures = []
        for provider, path, name in (
            ("openai", "/v1", "gpt-4o-mini"),
            ("anthropic", "", "claude-sonnet-4-5"),
            ("google", "/v1beta", "gemini-2.5-flash"),
        ):
            config = LLMConfig(name, base_url=root + path, api_key="key", provider=provider)
            model = LiteLLMModel(PluginContext(), config)
            await model.warm_up()
            assert (await model.complete(request)).text == "ok"
            assert [piece async for piece in model.stream(request)][-1].text == "ok"
            for ask in (model.complete, lambda request: anext(model.stream(request))):
                try:
                    await ask(ModelRequest(messages=(user("fail"),)))
                except Exception as error:
                    failures.append(type(error).__name__)
            await model.aclose()
        return failures
    async def many():
        model = LiteLLMModel(PluginContext(), LLMConfig("m", base_url=root + "/v1"))
        for _ in range(5):
            await asyncio.gather(*(model.complete(request) for _ in range(5)))
        await model.aclose()
    root = sys.argv[1]
    failures = asyncio.run(main())
    threads = [threading.Thread(target=lambda: asyncio.run(many())) for _ in range(3)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    gc.collect()
    asyncio.run(many())
    gc.collect()
    changed = {k for k in os.environ.keys() | environment.keys()
               if os.environ.get(k) != environment.get(k)}
    print(json.dumps([sorted(set(looked_up)), sorted(changed), failures]))
    """

    def answer(request: Any) -> Any:
        return Reply(status=400) if b"fail" in request.body else "ok"

    with OpenAIServer(answer) as server:
        done = python(tmp_path, code, server.root_url)
    hosts, changed, failures = json.loads(done.stdout)
    assert [host for host in hosts if host != "127.0.0.1"] == []
    assert [name for name in changed if name != "TIKTOKEN_CACHE_DIR"] == []
    assert failures == ["LLMExecutionError"] * 6
    assert done.stderr == ""


@pytest.mark.parametrize("name", ["model-litellm", "model-recorded"])
def test_entry_point_factories_are_in_their_own_package(name: Any):
    from importlib.metadata import entry_points

    [entry] = entry_points(group="delf", name=name)
    [spec] = entry.load().delf_models()
    assert spec.factory.startswith(entry.module.split(".")[0])
