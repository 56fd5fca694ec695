"""Tests of the interpreter for child processes: this version's Python, never the program itself."""

import sys
from pathlib import Path

import pytest

from delf.errors import ConfigurationError
from delf.machine import interpreter
from delf.machine.interpreter import own_python
from support.workspace import modules


@pytest.fixture(autouse=True)
def unnamed(monkeypatch):
    monkeypatch.delenv("DELF_PYTHON", raising=False)


@pytest.fixture
def program(tmp_path):
    """Return a program that must not be started; it records each start."""

    def make(name):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\necho x >> {tmp_path}/started\n")
        path.chmod(0o755)
        return str(path)

    return make


def starts(folder):
    started = Path(folder, "started")
    return started.read_text().count("x") if started.exists() else 0


def test_own_python_is_sys_executable_without_a_subprocess(monkeypatch):
    monkeypatch.setattr(interpreter.subprocess, "run", None)  # nothing is run to know it
    assert own_python() == sys.executable


@pytest.mark.parametrize("name", ["shop", "python3", "python", "python-shop", "uwsgi"])
def test_own_python_is_not_a_frozen_program(tmp_path, monkeypatch, program, name):
    monkeypatch.setattr(sys, "executable", program(name))
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:{Path(sys.base_exec_prefix, 'bin')}")
    found = own_python()
    assert Path(found).name.startswith("python")
    assert Path(found).parent == Path(sys.base_exec_prefix, "bin")
    assert starts(tmp_path) == 0


@pytest.mark.parametrize("executable", ["", None, "uwsgi", "python-shop", "mod_wsgi"])
def test_own_python_of_an_embedding_program_is_found(monkeypatch, program, executable):
    monkeypatch.setattr(sys, "executable", executable and program(executable))
    assert Path(own_python()).parent == Path(sys.exec_prefix, "bin")


def test_non_python_program_is_rejected(tmp_path, monkeypatch, program):
    monkeypatch.setattr(sys, "executable", program("shop"))
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    program("python3")
    monkeypatch.setenv("PATH", f"{tmp_path}:.:")
    with pytest.raises(
        ConfigurationError, match=r"shop is a frozen program, and no Python"
    ) as info:
        own_python()
    assert "DELF_PYTHON=" in info.value.hint
    assert starts(tmp_path) == 1  # each candidate is run once, and the program itself never


def test_named_interpreter_must_be_python(monkeypatch, program):
    monkeypatch.setenv("DELF_PYTHON", sys.executable)
    monkeypatch.setattr(sys, "executable", "/nowhere")
    assert own_python() != "/nowhere"
    monkeypatch.setenv("DELF_PYTHON", program("shop"))
    with pytest.raises(
        ConfigurationError, match=r"DELF_PYTHON is '.*shop', which is not a Python 3"
    ):
        own_python()


def test_modules_start_python_through_the_interpreter_module():
    users = {path.name for path in modules() if "sys.executable" in path.read_text("utf-8")}
    assert users == {"interpreter.py", "doctor.py", "installer.py"}  # these only name it to people
