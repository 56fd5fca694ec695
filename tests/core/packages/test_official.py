"""Tests of what is known about delf's packages when none of them is installed."""

import sys

import pytest

from delf.packages.official import (
    all_packages,
    how_to_install,
    package_of,
    recommended_client,
    recommended_plugin,
)


def test_missing_package_is_installed_with_the_available_installer(monkeypatch):
    assert how_to_install("delf-plugin-sql") == "delf plugins install sql"
    assert how_to_install("pandas") == "pip install pandas"
    monkeypatch.setitem(sys.modules, "delf_console", None)  # as where it is not installed
    assert how_to_install("delf-plugin-sql") == "pip install --find-links dist delf-plugin-sql"
    assert (
        how_to_install("delf-core[standard]")
        == "pip install --find-links dist 'delf-core[standard]'"
    )


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("gpt-4o", "http"),
        ("my-own", "http"),
        ("anthropic/claude-x", "http"),
        ("groq/llama-3.3-70b", "litellm"),
        ("recorded:demo.jsonl", "recorded"),
        ("google-gla/gemini-x", "http"),
    ],
)
def test_model_name_determines_the_recommended_package(model, name):
    assert recommended_client(model) == name


def test_kind_of_plugin_determines_the_recommended_package():
    assert (
        recommended_plugin("journal"),
        recommended_plugin("sandbox"),
        recommended_plugin("embedder"),
    ) == ("sql", "local", "static")
    assert package_of("exports", "http_server") == "delf-plugin-serve"
    assert package_of("connection", "sq") is None
    assert "delf" not in all_packages()


def test_plugin_library_is_installed_by_the_plugins_command():
    assert how_to_install("delf-google") == "delf plugins install delf-google"
    assert how_to_install("jsonschema-rs") == "pip install jsonschema-rs"
