"""``delf keys``: a key has a place, and every start finds it there."""

import json
import shlex
import sys
import types

import pytest

from delf.environment import current_environ
from delf.errors import ConfigurationError
from delf.machine.kept_keys import KeptKeys, own_variables
from delf_engine.project.project import load_project
from support.program import delf

KEY = "sk-a-key-to-keep-1234"


@pytest.fixture
def ring(monkeypatch):
    """A working keyring that replaces the system's."""
    kept, module = {}, types.ModuleType("keyring")

    class Ring:
        priority = 5

        def set_password(self, service, name, value):
            if "locked" in kept:
                raise RuntimeError("it is locked")
            kept[service, name] = value

        def get_password(self, service, name):
            return kept.get((service, name))

        def delete_password(self, service, name):
            del kept[service, name]

    module.get_keyring = Ring
    module.__spec__ = types.SimpleNamespace()
    monkeypatch.setitem(sys.modules, "keyring", module)
    return kept


def test_stored_key_is_used_by_commands_and_programs(run, tmp_path):
    done = run("keys", "set", "openai", "--json", input=f"{KEY}\n")
    assert done.exit_code == 0, done.output
    assert KEY not in done.output
    (place,) = json.loads(done.stdout)["kept"].values()
    assert KeptKeys.here().file.stat().st_mode & 0o777 == 0o600
    assert str(KeptKeys.here().file) == place
    assert current_environ()["OPENAI_API_KEY"] == KEY
    assert load_project(tmp_path).environ["OPENAI_API_KEY"] == KEY
    doctor = run("doctor", "--json")
    assert KEY not in doctor.stdout
    assert "keys: OPENAI_API_KEY" in doctor.stdout
    listed = run("keys", "list")
    assert listed.stdout == f"OPENAI_API_KEY  in {place}\n"
    removed = run("keys", "remove", "openai")
    assert removed.stderr == "OPENAI_API_KEY is forgotten\n"
    assert "OPENAI_API_KEY" not in current_environ()


@pytest.mark.parametrize(
    ("given", "kept"), [(f"\ufeff{KEY}\r\n".encode(), KEY), (b"\xff\xfes\0k\0", None)]
)
def test_key_of_an_editor_is_stored_without_its_mark_or_refused(run, given, kept):
    done = run("keys", "set", "openai", input=given)
    assert current_environ().get("OPENAI_API_KEY") == kept
    assert (done.exit_code, "is not UTF-8" in done.stderr) == ((0, False) if kept else (2, True))


def test_shell_keys_override_project_keys_and_stored_keys(tmp_path, monkeypatch):
    for name in ("A_KEY", "B_KEY", "C_KEY"):
        KeptKeys.here().keep(name, "kept")
    (tmp_path / ".env").write_text("B_KEY=project\nC_KEY=project\nD_KEY=${A_KEY}\n")
    monkeypatch.setenv("C_KEY", "shell")
    environ = load_project(tmp_path, trust=True).environ
    found = {name: str(environ[name]) for name in ("A_KEY", "B_KEY", "C_KEY", "D_KEY")}
    assert found == {"A_KEY": "kept", "B_KEY": "project", "C_KEY": "shell", "D_KEY": "kept"}


def test_available_keyring_stores_the_key(ring):
    keys = KeptKeys.here()
    assert keys.keep("X_KEY", KEY) == "the system's keyring"
    assert ring == {("delf", "X_KEY"): KEY}
    assert KEY not in keys.file.read_text()
    assert own_variables()["X_KEY"] == KEY
    assert keys.remove("X_KEY")
    assert (ring, keys.names()) == ({}, {})


def test_locked_keyring_falls_back_to_the_file(ring):
    ring["locked"] = True
    assert KeptKeys.here().keep("X_KEY", KEY) == str(KeptKeys.here().file)
    assert own_variables()["X_KEY"] == KEY


def test_keyring_is_not_opened_for_a_key_in_the_shell(ring, monkeypatch):
    KeptKeys.here().keep("X_KEY", KEY)
    monkeypatch.setenv("X_KEY", "other")
    monkeypatch.setitem(sys.modules, "keyring", None)
    assert own_variables()["X_KEY"] == "other"


@pytest.mark.parametrize("value", ["", " ", "sk-\u2026", "a\nb"])
def test_invalid_key_is_not_stored(value):
    with pytest.raises(ConfigurationError, match="empty or has an invalid character"):
        KeptKeys.here().keep("X_KEY", value)
    with pytest.raises(ConfigurationError, match="not the name of a variable"):
        KeptKeys.here().keep("X KEY", KEY)


def test_key_file_readable_by_others_is_ignored(caplog):
    KeptKeys.here().keep("X_KEY", KEY)
    KeptKeys.here().file.chmod(0o644)
    assert "X_KEY" not in own_variables()
    assert "chmod 600" in caplog.text


def test_base_url_is_stored_with_its_key(tmp_path):
    url = "http://127.0.0.1:9/v1"
    done = delf("keys", "set", "openai", "--base-url", url, cwd=tmp_path, stdin=KEY)
    assert done.returncode == 0, done.stderr
    assert KeptKeys.here().values({}) == {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": url}
    assert delf("keys", "remove", "openai", cwd=tmp_path).returncode == 0
    assert KeptKeys.here().names() == {}


def test_run_without_a_key_names_the_missing_key(tmp_path):
    done = delf("run", "What day is it?", "--llm", "gpt-4o-mini", cwd=tmp_path)
    assert done.returncode == 2
    assert "hint: delf keys set OPENAI_API_KEY" in done.stderr


@pytest.mark.parametrize("command", ["run 'say hello'", "doctor", "serve --port 0"])
def test_missing_key_hint_is_the_keys_set_command(run, here, monkeypatch, command):
    monkeypatch.setattr("delf_serve.project.serve", lambda *_: None)
    monkeypatch.setenv("DELF_LLM", "gpt-4o-mini")
    shown = " ".join(run(*shlex.split(command)).output.split())
    assert "the model 'gpt-4o-mini' needs a key" in shown
    assert "delf keys set OPENAI_API_KEY" in shown
    assert "LLMConfig" not in shown, "Python, to somebody at a terminal"
