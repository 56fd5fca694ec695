"""A provider that only somebody else's plugin knows: the core and the commands learn it from there."""

import json
import sys

import pytest

PLUGIN = """
from delf.hookspecs import hookimpl
from delf.messages import ModelReply
from delf.specs import ModelSpec, Provider


class Model:
    def __init__(self, context, config):
        self.config, self.context = config, context

    async def complete(self, request):
        key = self.context.environ["ACME_LOGIN"]
        text = f"```python\\nprint('{self.config.model} {self.config.provider} ' + {key!r})\\n```"
        return ModelReply(text=text, model=self.config.model)

    async def stream(self, request):
        yield await self.complete(request)

    async def aclose(self):
        pass


@hookimpl
def delf_models():
    acme = Provider(name="acme", aliases=("acme-ai",), keys=("ACME_LOGIN",), suggested="acme/one")
    yield ModelSpec(
        name="acme", summary="Acme's models.", factory="acme_models:Model", providers=(acme,)
    )
"""


@pytest.fixture(autouse=True)
def acme(here, monkeypatch):
    (here / "acme_models.py").write_text(PLUGIN)
    monkeypatch.setenv("ACME_LOGIN", "sesame-of-acme")
    yield
    sys.modules.pop("acme_models", None)


@pytest.mark.parametrize(
    ("model", "understood"),
    [("acme/command-r", "acme/command-r auto"), ("acme-ai:command-r", "acme/command-r auto")],
)
def test_third_party_provider_runs_a_task(run, model, understood):
    done = run("--plugin", "acme_models.py", "run", "Say it.", "--llm", model)
    assert done.exit_code == 0, done.output
    assert understood in done.stdout
    assert "sesame" not in done.output, "its key is a secret, whatever its variable is called"


@pytest.mark.slow
def test_doctor_names_the_key_of_a_third_party_provider(run):
    found = json.loads(run("--plugin", "acme_models.py", "doctor", "--json").stdout)
    message = [item["text"] for item in found["findings"] if item["area"] == "model"]
    assert any("ACME_LOGIN" in text for text in message), message
    assert "sesame" not in json.dumps(found)


def test_config_names_a_third_party_provider(run, here):
    text = '[agent]\nllm = { model = "command-r", provider = "acme" }\n'
    (here / "delf.toml").write_text(text)
    done = run("--trust", str(here), "--plugin", "acme_models.py", "run", "Say it.")
    assert "command-r acme" in done.stdout, done.output
