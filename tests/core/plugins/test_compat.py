import pytest

from delf.plugins.compat import check
from delf.plugins.discovery import Candidate


def candidate(*requires, keywords=()):
    return Candidate(name="x", target="x", distribution="x", requires=requires, keywords=keywords)


def verdict(*requires, keywords=(), version="0.5.0", api=1):
    return check(
        candidate(*requires, keywords=keywords),
        version=version,
        api=api,
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


@pytest.mark.parametrize("line", ["no-such-package>=2", "delf", "x; extra == 'fast'"])
def test_other_packages_are_the_installers_business(line):
    assert verdict("delf-core>=0.1,<1", line) is None


def test_an_unreadable_requirement():
    state, reason = verdict("delf-core >>> 1") or ("", "")
    assert state == "failed"
    assert "'delf-core >>> 1'" in reason


def test_a_plugin_given_in_code_asks_for_nothing():
    given = Candidate(name="x", plugin=object())
    assert check(given, version="0.1", api=1) is None
