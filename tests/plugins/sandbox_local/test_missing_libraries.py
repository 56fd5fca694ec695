"""Packages of ``allowed_libs`` that are not installed beside delf."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import pytest

from delf import Agent
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import ScriptedModel
from delf_sandbox_local.libraries import missing_libraries

PYDANTIC = metadata.version("pydantic")


@pytest.mark.parametrize(
    "library",
    [
        *("pydantic", "Pydantic", "pydantic>=1", "pydantic[email]", f"pydantic=={PYDANTIC}"),
        "pydantic_core",
        "posix",  # a module
    ],
)
def test_installed_package_is_not_missing(library: str):
    assert missing_libraries([library]) == {}


@pytest.mark.parametrize(
    ("library", "reason"),
    [
        ("nosuchlib", "it is not installed; install it with pip install nosuchlib"),
        ("nosuchlib>=2", "install it with pip install 'nosuchlib>=2'"),
        ("pydantic>=99", f"pydantic {PYDANTIC} is installed; install the other version with"),
        ("pydantic>=99", "pip install 'pydantic>=99'"),
        ("posix>=1", "it is not installed"),
        ("no such lib", "not a package's name"),
    ],
)
def test_missing_package_is_explained(library: str, reason: str):
    assert reason in missing_libraries([library])[library]


def test_models_and_people_learn_which_packages_scripts_can_import(
    delf_host: TestHost, scripted_model: ScriptedModel
):
    scripted_model.writes("import nosuchlib\nprint(nosuchlib.x)", "import pydantic_core\nprint(1)")
    given: dict[str, Any] = {"llm": "scripted", "host": delf_host, "sandbox": "local"}
    libraries = ["nosuchlib", "pydantic>=99", "pydantic-core"]
    with Agent(allowed_libs=libraries, **given) as agent:
        response = agent.run("x")
    prompt = scripted_model.requests[0].messages[0].text
    assert "harmless standard modules and pydantic-core can be imported" in " ".join(prompt.split())
    assert [warning.partition(":")[0] for warning in response.trace.warnings] == [
        "scripts cannot import nosuchlib",
        "scripts cannot import pydantic>=99",
    ]
    assert response.text == "1"
    assert "there is no 'nosuchlib' in this sandbox" in scripted_model.requests[1].messages[-1].text
