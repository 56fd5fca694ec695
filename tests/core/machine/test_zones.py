"""The zone of the user, as sandboxes are told it."""

from delf.machine import zones
from delf.machine.zones import local_zone


def test_a_zone_by_name(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Madrid")
    assert local_zone() == zones.Zone("CET-1CEST,M3.5.0,M10.5.0/3", "Europe/Madrid")


def test_a_rule(monkeypatch):
    monkeypatch.setenv("TZ", "EST5EDT,M3.2.0,M11.1.0")
    assert local_zone() == zones.Zone("EST5EDT,M3.2.0,M11.1.0")


def test_that_of_the_machine(monkeypatch, tmp_path):
    monkeypatch.delenv("TZ", raising=False)
    monkeypatch.setattr(zones, "_LOCAL", tmp_path / "nothing")
    zones._zone.cache_clear()
    assert local_zone() == zones.Zone("UTC0")
    zones._zone.cache_clear()


def test_an_offset_of_hours_and_minutes():
    assert zones._fixed(19800) == "<+0530>-5:30"
    assert zones._fixed(-12600) == "<-0330>+3:30"
