"""Generated examples on a machine that is busy: time says nothing about a test."""

from hypothesis import HealthCheck, settings

on_busy_machines = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
