import pytest

from delf.plugins.compat import check
from delf.plugins.discovery import Candidate, installed


def candidate(*requires, keywords=()):
    return Candidate(name="x", target="x", distribution="x", requires=requires, keywords=keywords)


def verdict(*requires, keywords=(), version="0.5.0", api=1):
    return check(
        candidate(*requires, keywords=keywords),
        version=version,
        api=api,
        installed=installed(),
    )


@pytest.mark.parametrize(
    "line",
    [
        "delf-core",
        "delf-core>=0.1,<1",
        "delf_core ~= 0.5",
        "delf-core==0.*",
        "Delf.Core>=0.1",
        "delf-core[testing]>=0.2",
        "delf-core!=0.4",
    ],
)
def test_a_fitting_requirement(line):
    assert verdict(line) is None


@pytest.mark.parametrize(
    "line",
    [
        "delf-core>=0.6",
        "delf-core==1.*",
        "delf-core~=2.0",
        "delf-core>0.5.0,<2",
        "delf-core<0.5",
        "delf-core==0.1.0",
    ],
)
def test_another_delf_is_needed(line):
    state, reason = verdict(line) or ("", "")
    assert state == "skipped"
    assert reason.startswith("needs delf")
    assert reason.endswith("this is 0.5.0")


def test_prereleases_of_delf_count():
    assert verdict("delf-core>=0.4", version="0.5.0rc1") is None
    assert verdict("delf-core>=0.5.0a1", version="0.5.0rc1") is None


def test_plugin_api():
    assert verdict(keywords=("delf-plugin-api-1",)) is None
    assert verdict(keywords=("delf-plugin-api-1", "delf-plugin-api-2")) is None
    assert verdict(keywords=("delf-plugin-api-2",)) == (
        "skipped",
        "needs delf with plugin API 2, this has 1",
    )
    assert verdict(keywords=("delf-plugin-api-1",), api=3) == (
        "skipped",
        "needs delf with plugin API 1, this has 3",
    )


def test_without_the_keyword_the_requirement_decides():
    assert verdict("delf-core>=0.1", keywords=("delf", "plugin-api"), api=7) is None


def test_missing_packages_are_named():
    state, reason = verdict("delf-core", "pluggy", "no-such-package>=2", "Also.Missing") or ("", "")
    assert state == "failed"
    assert "no-such-package, Also.Missing" in reason
    assert "pluggy" not in reason


@pytest.mark.parametrize("line", ["delf", "delf>=0.1,<1", "delf[testing]"])
def test_another_projects_package_is_not_taken_for_delf(line):
    state, reason = verdict(line) or ("", "")
    assert state == "failed"
    assert reason == "needs 'delf', another project's package: delf's own is delf-core"


def test_extras_and_other_platforms_ask_for_nothing():
    assert verdict("no-such-package; extra == 'fast'") is None
    assert verdict("no-such-package; sys_platform == 'amiga'") is None
    assert verdict("no-such-package; python_version >= '3'") is not None


def test_a_wrong_delf_comes_before_a_missing_package():
    state, _ = verdict("delf-core>=9", "no-such-package") or ("", "")
    assert state == "skipped"


def test_an_unreadable_requirement():
    state, reason = verdict("delf-core >>> 1") or ("", "")
    assert state == "failed"
    assert "'delf-core >>> 1'" in reason


def test_a_plugin_given_in_code_asks_for_nothing():
    given = Candidate(name="x", plugin=object())
    assert check(given, version="0.1", api=1, installed=installed()) is None
