"""Tests of the user's time zone, as it is passed to sandboxes."""

import time
from types import SimpleNamespace

import pytest

from delf.machine.zones import Zone, local_zone


def test_zone_is_found_by_name(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Madrid")
    assert local_zone() == Zone("CET-1CEST,M3.5.0,M10.5.0/3", "Europe/Madrid")


def test_local_zone_keeps_a_posix_rule(monkeypatch):
    monkeypatch.setenv("TZ", "EST5EDT,M3.2.0,M11.1.0")
    assert local_zone() == Zone("EST5EDT,M3.2.0,M11.1.0")


@pytest.mark.parametrize(
    ("seconds", "rule"), [(0, "UTC0"), (19800, "<+0530>-5:30"), (-12600, "<-0330>+3:30")]
)
def test_zone_file_without_rule_falls_back_to_current_offset(seconds, rule, monkeypatch, tmp_path):
    (tmp_path / "zone").write_bytes(b"TZif1")
    monkeypatch.setenv("TZ", str(tmp_path / "zone"))
    monkeypatch.setattr(time, "localtime", lambda *_: SimpleNamespace(tm_gmtoff=seconds))
    assert local_zone() == Zone(rule)
