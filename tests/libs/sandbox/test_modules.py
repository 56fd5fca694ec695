import sys

import pytest

from delf_sandbox.modules import DEFAULT_MODULES, allowed_modules, distribution_name, import_names


def test_default_modules_are_sorted_standard_library_modules():
    assert {name.partition(".")[0] for name in DEFAULT_MODULES} <= sys.stdlib_module_names
    assert list(DEFAULT_MODULES) == sorted(set(DEFAULT_MODULES))


@pytest.mark.parametrize(
    "name",
    [
        "os",
        "sys",
        "subprocess",
        "socket",
        "ctypes",
        "importlib",
        "inspect",
        "pickle",
        "shutil",
        "threading",
        "builtins",
        "gc",
        "signal",
        "multiprocessing",
    ],
)
def test_network_modules_are_not_allowed(name):
    assert name not in allowed_modules()


@pytest.mark.parametrize(
    ("requirement", "name"),
    [
        ("pandas", "pandas"),
        ("pandas[excel]>=2", "pandas"),
        (" scikit-learn ==1.2", "scikit-learn"),
        ("a~=1", "a"),
        ("a;python_version>'3'", "a"),
        ("a @ https://x", "a"),
        ("a(>1)", "a"),
    ],
)
def test_distribution_name_is_read_from_a_requirement(requirement, name):
    assert distribution_name(requirement) == name


def test_libraries_are_allowed_under_their_import_names():
    assert "hypothesis" in allowed_modules(["Hypothesis>=6"])
    assert "yaml" not in allowed_modules()
    assert import_names("not-installed-here") == ["not_installed_here"]
    assert allowed_modules(["json"])[: len(DEFAULT_MODULES)] == DEFAULT_MODULES
