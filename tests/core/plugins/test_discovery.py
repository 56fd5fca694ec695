import os
import shutil
import subprocess
import sys
import time
from importlib import metadata

import pytest

from delf.hookspecs import CONNECTIONS_GROUP, ENTRY_POINT_GROUP
from delf.plugins import discovery
from delf.specs import ConnectionSpec
from support.plugin_site import show_only


def test_candidate_carries_distribution_metadata(site):
    site.add(
        "delf-plugin-tickets",
        version="2.5",
        keywords="support,delf-plugin-api-1",
    )
    (found,) = discovery.discover()
    assert found.name == "tickets"
    assert found.target == "made_delf_plugin_tickets"
    assert (found.distribution, found.version) == ("delf-plugin-tickets", "2.5")
    assert found.keywords == ("support", "delf-plugin-api-1")
    assert found.origin == "delf-plugin-tickets 2.5"


def test_discover_imports_no_plugin(site):
    module = site.add("delf-plugin-tickets", "raise SystemExit('imported')")
    discovery.discover()
    assert module not in sys.modules


def test_distributions_without_a_plugin_are_not_candidates(site):
    site.add("other", entry_points="[console_scripts]\nother = made_other:main\n")
    site.add("none", entry_points="")
    assert discovery.discover() == ()


def test_discover_reads_several_entry_points_of_one_distribution(site):
    site.add("two", entry_points="[delf]\nfirst = made_two\nsecond = made_two:other\n")
    assert [item.name for item in discovery.discover()] == ["first", "second"]


def test_malformed_entry_points_of_another_package_hide_nothing(site):
    site.add("aaa-broken", entry_points="[console_scripts]\nthis is not an entry point\n")
    site.add("delf-plugin-tickets")
    assert [item.name for item in discovery.discover()] == ["tickets"]


def test_malformed_entry_points_affect_only_their_plugin(site):
    site.add("broken", entry_points="[delf]\nthis is not an entry point\n")
    site.add("delf-plugin-tickets")
    broken, good = discovery.discover()
    assert broken.problem is not None
    assert "metadata cannot be read" in broken.problem
    assert good.problem is None


@pytest.mark.parametrize(
    ("points", "problem"),
    [
        (b"[delf]\nbroken = \xff\xfe\n", "UnicodeDecodeError"),
        (b"[delf\nbroken = made_broken\n", "there is no line [delf]"),
        (b"delf = made_broken\n", "there is no line [delf]"),
    ],
)
def test_unreadable_entry_points_of_a_plugin_are_named(site, points, problem):
    site.add("delf-plugin-tickets")
    site.add("delf-plugin-broken", keywords="delf-plugin-api-1", entry_points="")
    site.add("other", keywords="delfine", entry_points="")
    for name in ("delf_plugin_broken", "other"):
        (site.path / f"{name}-1.0.dist-info" / "entry_points.txt").write_bytes(points)
    broken, good = discovery.discover()
    assert (broken.name, good.name, good.problem) == ("delf-plugin-broken", "tickets", None)
    assert "its entry_points.txt cannot be read" in (broken.problem or "")
    assert problem in (broken.problem or "")


def test_binary_metadata_affects_only_its_plugin(site):
    site.add("delf-plugin-tickets")
    (info,) = site.path.glob("*.dist-info")
    (info / "METADATA").write_bytes(b"Name: \xff\xfe\n")
    (found,) = discovery.discover()
    assert found.problem is not None


def test_discovery_notices_installed_and_removed_plugins(site):
    _of_an_hour_ago(site)
    assert discovery.installation_stamp() == discovery.installation_stamp()
    assert discovery.discover() == ()
    site.add("delf-plugin-tickets")
    _of_an_hour_ago(site, minutes=1)
    assert [found.name for found in discovery.discover()] == ["tickets"]
    shutil.rmtree(site.path / "delf_plugin_tickets-1.0.dist-info")
    assert discovery.discover() == ()


def _of_an_hour_ago(site, minutes=0):
    then = time.time() - 3600 + 60 * minutes
    os.utime(site.path, (then, then))


def test_unchanged_distribution_is_read_once(site, monkeypatch):
    site.add("delf-plugin-tickets")
    _of_an_hour_ago(site)
    first = discovery.discover()
    monkeypatch.setattr(discovery, "metadata_readers", None)
    assert discovery.discover() is first


def test_plugin_order_is_independent_of_the_file_system(site):
    for name in ("zebra", "apple", "mango"):
        site.add(name)
    assert [item.name for item in discovery.discover()] == ["apple", "mango", "zebra"]


def test_older_copy_later_on_the_path_is_ignored(site, tmp_path, monkeypatch):
    site.add("delf-plugin-tickets", version="2.0")
    other = type(site)(tmp_path / "other")
    other.add("Delf_Plugin.Tickets", version="1.0", name="tickets")
    show_only(monkeypatch, site.path, other.path)
    assert [item.version for item in discovery.discover()] == ["2.0"]


def test_plugins_in_a_zip_file_are_found(site, tmp_path, monkeypatch):
    site.add("delf-plugin-tickets", version="2.5")
    packed = shutil.make_archive(str(tmp_path / "packed"), "zip", site.path)
    show_only(monkeypatch, packed)
    (found,) = discovery.discover()
    assert (found.name, found.version) == ("tickets", "2.5")


def test_discovery_asks_other_importers(site, monkeypatch):
    """PyInstaller, for example, brings an importer of its own."""

    class Finder:
        @staticmethod
        def find_distributions(context):
            return metadata.MetadataPathFinder.find_distributions(
                metadata.DistributionFinder.Context(path=[str(site.path)])
            )

    site.add("delf-plugin-tickets")
    show_only(monkeypatch)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    assert [found.name for found in discovery.discover()] == ["tickets"]


def test_installed_plugins_match_importlib_metadata():
    found = {candidate.distribution: candidate for candidate in discovery.discover()}
    assert len(found) > 20
    for name, candidate in found.items():
        known = metadata.distribution(name)
        points = {
            (point.name, point.value)
            for group in (ENTRY_POINT_GROUP, CONNECTIONS_GROUP)
            for point in known.entry_points.select(group=group)
        }
        exported = {(p.name, p.value) for p in known.entry_points.select(group="delf.exports")}
        assert (candidate.name, candidate.target) in points
        assert set(candidate.exports) == exported
        assert candidate.version == known.version
        words = known.metadata.get("Keywords", "").replace(",", " ").split()
        assert list(candidate.keywords) == words


def test_discovery_does_not_import_metadata():
    code = (
        "import sys, delf.plugins.host\n"
        "delf.plugins.host.PluginHost.discover()\n"
        "print([m for m in ('importlib.metadata', 'packaging', 'pydantic') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


NAMED = """
from delf import Connection, action

class Desk(Connection):
    '''Tickets.'''

    @action(effect="read")
    async def find(self) -> list[str]:
        '''Find tickets.'''
        return ["a"]
"""


def test_entry_point_may_name_the_class_of_a_connection(site):
    points = "[delf.connections]\ndesk = made_delf_plugin_desk:Desk\n"
    module = site.add("delf-plugin-desk", NAMED, entry_points=points)
    (info,) = site.path.glob("*.dist-info")
    text = (info / "METADATA").read_text().replace("Version: 1.0", "Version: 1.0\nSummary: Desk.")
    (info / "METADATA").write_text(text)
    host = site.host()
    (spec,) = host.specs(ConnectionSpec)
    assert (spec.name, spec.summary, spec.factory) == ("desk", "Desk.", f"{module}:Desk")
    assert module not in sys.modules, "nothing is imported at the start"
    assert host.resolve(spec).__name__ == "Desk"
    assert (host.records()[-1].state, host.plugin_of(spec)) == ("loaded", "desk")
