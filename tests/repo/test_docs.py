"""The documentation: links lead somewhere, Python examples compile."""

import ast
import re
from pathlib import Path

import pytest

from support.workspace import ROOT

pytestmark = pytest.mark.docs

PAGES = sorted(
    path
    for pattern in ("*.md", "core/*.md", "plugins/*/*.md", "docs/**/*.md", "examples/**/*.md")
    for path in ROOT.glob(pattern)
)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
PYTHON = re.compile(r"^```python[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    targets = [link for link in LINK.findall(page.read_text()) if "://" not in link]
    missing = [link for link in targets if not (page.parent / link).exists()]
    assert not missing


@every_page
def test_python_examples_compile(page: Path) -> None:
    for example in PYTHON.findall(page.read_text()):
        compile(example, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
