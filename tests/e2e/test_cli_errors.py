"""Errors of `delf run`: each gives one clear line with a hint, and the right status."""

from pathlib import Path

import pytest

from support.openai_server import OpenAIServer, Reply
from support.program import delf, failure_lines, write_recording
from support.server import free_port

pytestmark = pytest.mark.timeout(90)  # some import a provider's library, on a busy machine
KEY = {"OPENAI_API_KEY": "sk-sesame-0123456789"}


def assert_error(result, status: int, *words: str) -> None:
    """One error, one hint, no traceback, nothing on stdout, no secret."""
    assert result.returncode == status, result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert "sesame" not in result.stderr
    error, hint = failure_lines(result.stderr)
    assert error.startswith("error: ")
    assert hint.startswith("hint: ")
    for word in words:
        assert word in f"{error}\n{hint}"


def test_missing_variable_of_delf_toml_is_named_with_its_table(tmp_path):
    (tmp_path / "delf.toml").write_text('[agent.llm]\nmodel = "m"\napi_key = "${TEAM_KEY}"\n')
    assert_error(delf("run", "x", cwd=tmp_path), 2, "TEAM_KEY", "delf.toml [agent]")


def test_refused_connection_error_names_the_port(tmp_path):
    port = free_port()
    flags = ["--llm", "m", "--base-url", f"http://127.0.0.1:{port}/v1"]
    result = delf("run", "x", *flags, cwd=tmp_path, env=KEY)
    assert_error(result, 1, "connection refused", str(port))


@pytest.mark.parametrize(("status", "word"), [(500, "500"), (401, "key")])
def test_provider_rejection_is_reported(tmp_path, status, word):
    with OpenAIServer(lambda _: Reply(status=status)) as server:
        flags = ["--llm", "m", "--base-url", server.base_url]
        result = delf("run", "x", *flags, cwd=tmp_path, env=KEY)
    assert_error(result, 1, word)


@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
def test_unreachable_database_is_reported_with_its_port(tmp_path, kind):
    port = free_port()
    llm = write_recording(tmp_path / "r.jsonl", "print(1)")
    env = {"DELF_SQL_URL": f"{kind}://u:sesame@127.0.0.1:{port}/shop"}
    result = delf("run", "x", "--llm", llm, "-c", "sql", cwd=tmp_path, env=env)
    assert_error(result, 1, str(port))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[agent\n", ["delf.toml, line 1", "TOML"]),
        ("[agent]\ntimout = 5\n", ["timout", "did you mean 'timeout'?"]),
        ('[agent]\nllm = "m"\ntimeout = "soon"\n', ["delf.toml [agent] timeout"]),
        ('[connections.shop]\ntype = "sqk"\n[agent]\nllm = "m"\n', ["did you mean 'sql'?"]),
        (b"\xff\xfe", ["UTF-8"]),
    ],
)
def test_malformed_delf_toml_is_reported(tmp_path: Path, content, words):
    data = content if isinstance(content, bytes) else content.encode()
    (tmp_path / "delf.toml").write_bytes(data)
    result = delf("run", "x", cwd=tmp_path)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr
    assert failure_lines(result.stderr)[0].startswith("error: ")


def test_deleted_working_directory_is_reported_without_traceback(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    import subprocess

    from support.program import DELF, environment

    script = f"rmdir '{gone}' && exec '{DELF}' run x --llm m"
    result = subprocess.run(
        ["/bin/sh", "-c", script], cwd=gone, env=environment(), capture_output=True, text=True
    )
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


REMOVER = '''
import shutil
from delf import tool

@tool(effect="write")
def remove_folder(name: str) -> None:
    """Removes a folder."""
    shutil.rmtree(name)
'''


def test_changes_before_a_configuration_error_are_shown(tmp_path):
    (tmp_path / "records").mkdir()
    (tmp_path / "tools.py").write_text(REMOVER)
    script = "await remove_folder('records')\nraise ValueError('again')"
    replies = iter([script, "print(1)"])
    with OpenAIServer(lambda _: f"```python\n{next(replies)}\n```") as server:
        flags = ["--llm", "m", "--base-url", server.base_url, "--record", "records/new.jsonl"]
        result = delf(
            "run", "x", *flags, "--tools", "tools.py", "--approve", "all", cwd=tmp_path, env=KEY
        )
    assert result.returncode == 2, result.stderr
    assert "records/new.jsonl cannot be written" in result.stderr
    assert "changed before it failed:\n  remove_folder(name='records')\nfailed · " in result.stderr
    assert "hint: delf runs show " in result.stderr
