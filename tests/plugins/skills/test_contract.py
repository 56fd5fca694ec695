"""The contract of connections, and of packages."""

from pathlib import Path
from typing import Any

import pytest

from delf.testing import Call, ConnectionContract, PluginContract
from delf_skills.connection import Skills


class TestSkills(ConnectionContract):
    check_refuses = False
    calls = (
        Call("read", skill="report"),
        Call("read", skill="report", file="template.md"),
        Call("data", skill="report", file="table.csv"),
    )
    failing_calls = (
        Call("read", skill="nothing"),
        Call("read", skill="report", file="../../secret.md"),
        Call("data", skill="report", file="/etc/passwd"),
    )

    @pytest.fixture
    def connection(self, tmp_path: Path) -> Skills:
        skill = tmp_path / "report"
        skill.mkdir()
        (skill / "SKILL.md").write_text("---\nname: report\ndescription: Reports.\n---\nWrite.\n")
        (skill / "template.md").write_text("# Report\n")
        (skill / "table.csv").write_text("a,b\n")
        return Skills(name="skills", folders=[str(tmp_path)])


class TestPackage(PluginContract):
    name = "skills"
    offers: Any = {"connection": ["skills"]}
    vendors = ("yaml",)
