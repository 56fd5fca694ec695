import sys
import textwrap
from pathlib import Path

import pytest

from delf.plugins import discovery
from delf.plugins.host import PluginHost

ALL_DISTRIBUTIONS = discovery.metadata_readers
ONE_CONNECTION = """
    from delf.hookspecs import hookimpl
    from delf.specs import ConnectionSpec

    @hookimpl
    def delf_connections():
        yield ConnectionSpec(name="{name}", summary="Made up.", factory="{module}_vendor:Thing")
"""


class Site:
    """A directory on ``sys.path`` into which a test installs distributions."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()

    def add(
        self,
        distribution,
        source=ONE_CONNECTION,
        *,
        name=None,
        version="1.0",
        requires=("delf-core>=0.1,<1",),
        keywords=None,
        module=None,
        offers=None,
        entry_points=None,
    ):
        name = name or distribution.removeprefix("delf-plugin-")
        module = module or f"made_{distribution.replace('-', '_').replace('.', '_')}"
        text = textwrap.dedent(source).replace("{name}", offers or name).replace("{module}", module)
        (self.path / f"{module}.py").write_text(text)
        info = self.path / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        headers = ["Metadata-Version: 2.1", f"Name: {distribution}", f"Version: {version}"]
        headers += [f"Requires-Dist: {line}" for line in requires]
        headers += [f"Keywords: {keywords}"] if keywords else []
        body = "\n\nRequires-Dist: delf-core>=99\nThat line is the README's.\n"
        (info / "METADATA").write_text("\n".join(headers) + body)
        points = entry_points if entry_points is not None else f"[delf]\n{name} = {module}\n"
        (info / "entry_points.txt").write_text(points)
        return module

    def module(self, name, source):
        (self.path / f"{name}.py").write_text(textwrap.dedent(source))

    def host(self, **options):
        options.setdefault("environ", {})
        return PluginHost.discover(**options)


def show_only(monkeypatch, *folders):
    """Hide what is installed elsewhere from the discovery of plugins."""
    path = [str(folder) for folder in folders]
    monkeypatch.setattr(discovery, "metadata_readers", lambda: ALL_DISTRIBUTIONS(path))


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Only what a test installs is there, whatever this environment holds."""
    made = Site(tmp_path / "site")
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(made.path))
    show_only(monkeypatch, made.path)
    yield made
    for name in set(sys.modules) - before:
        if name.startswith("made_"):
            del sys.modules[name]


@pytest.fixture
def record():
    def find(host, name, distribution=None):
        found = [
            item
            for item in host.records()
            if item.name == name and distribution in (None, item.distribution)
        ]
        assert len(found) == 1, host.report()
        return found[0]

    return find
