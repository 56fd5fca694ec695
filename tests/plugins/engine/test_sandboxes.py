"""Tests of the choice of a sandbox: by name, or the strongest available, never silently weaker."""

from dataclasses import replace

import pytest

from delf.errors import (
    ConfigurationError,
    PluginError,
    SandboxUnavailableError,
)
from delf.protocols.sandbox import Available, Unavailable
from delf.specs import SandboxSpec
from delf_devkit.testing.hosts import TestHost
from delf_engine.config import AgentConfig
from delf_engine.sandboxes.isolation import Measured
from delf_engine.sandboxes.starting import choose_sandbox, make_limits

MB = 1024 * 1024


class Whole:
    """The members of a backend that the choice of a sandbox does not use."""

    isolation = "vm"

    async def open(self, spec): ...

    def visible_path(self, path): ...

    async def aclose(self): ...


class Backend(Whole):
    def __init__(self, state=None, name="", **options):
        self.state, self.options, self.closed = state or Available(), options, 0
        self.name = name

    async def available(self):
        return self.state

    async def aclose(self):
        self.closed += 1


class Strict(Whole):
    def __init__(self, *, colour="red"):
        self.colour = colour

    async def available(self):
        return Available()


@pytest.fixture
def host():
    return TestHost([])


def offer(host, name, isolation, state=None, factory=None, subset=False):
    backend = Backend(state, name)
    spec = SandboxSpec(name=name, summary=name, factory="x:y", isolation=isolation, subset=subset)
    host.provide(spec, factory or (lambda **options: backend))
    return backend


async def test_auto_chooses_the_strongest_working_sandbox(host):
    offer(host, "weak", "process")
    offer(host, "strong", "container")
    broken = offer(host, "best", "vm", Unavailable("no KVM", "buy one"))
    chosen = await choose_sandbox(host, AgentConfig(), {})
    assert chosen.spec.name == "strong"
    assert chosen.warning is None
    assert broken.closed == 1


async def test_weak_sandbox_choice_lists_the_skipped_backends(host):
    offer(host, "weak", "process")
    offer(host, "strong", "container", Unavailable("no daemon"))
    chosen = await choose_sandbox(host, AgentConfig(), {})
    assert chosen.warning == (
        "scripts run in the sandbox 'weak', isolated by process only (strong: no daemon); "
        'set sandbox = "weak" to accept this isolation; delf doctor lists other sandboxes'
    )
    assert chosen.passed_over


class Engine(Backend):
    """A backend that builds an image before its first session."""

    problem = "the image cannot be pulled:\n  no route to the registry"
    libraries: tuple[str, ...] | None = None

    async def prepare(self, libraries):
        self.libraries = libraries
        if self.problem:
            raise SandboxUnavailableError(self.problem, hint="docker pull it")


async def test_unready_sandbox_is_skipped_before_a_task(host):
    offer(host, "weak", "process")
    engine = Engine()
    offer(host, "strong", "container", factory=lambda **options: engine)
    chosen = await choose_sandbox(host, AgentConfig(), {})
    assert chosen.spec.name == "weak"
    assert chosen.passed_over
    assert "(strong: the image cannot be pulled: no route to the registry)" in chosen.warning
    assert engine.closed == 1
    for asked in (AgentConfig(min_isolation="container"), AgentConfig(sandbox="strong")):
        with pytest.raises(SandboxUnavailableError, match="no route to the registry") as message:
            await choose_sandbox(host, asked, {})
        assert message.value.hint == "docker pull it"
    engine.problem = ""
    chosen = await choose_sandbox(host, AgentConfig(allowed_libs=("pandas",)), {})
    assert (chosen.spec.name, engine.libraries) == ("strong", ("pandas",))


async def test_isolation_is_never_lowered_silently(host):
    offer(host, "weak", "process")
    offer(host, "strong", "container", Unavailable("no daemon"))
    with pytest.raises(SandboxUnavailableError, match="no daemon; weak: isolates by process only"):
        await choose_sandbox(host, AgentConfig(min_isolation="container"), {})
    with pytest.raises(SandboxUnavailableError, match="min_isolation is 'container'"):
        await choose_sandbox(host, AgentConfig(sandbox="weak", min_isolation="container"), {})
    with pytest.raises(SandboxUnavailableError, match="'strong' does not work here: no daemon"):
        await choose_sandbox(host, AgentConfig(sandbox="strong"), {})


async def test_auto_prefers_full_python_and_lists_skipped_backends(host):
    offer(host, "weak", "process")
    offer(host, "part", "interpreter", subset=True)
    chosen = await choose_sandbox(host, AgentConfig(), {})
    assert chosen.spec.name == "weak"
    assert "part isolates by interpreter, but runs a subset of Python" in chosen.warning


async def test_sandbox_with_a_python_subset_is_chosen_if_no_other_is_strong_enough(host, measured):
    """A script that the subset cannot run then fails; it never runs with weaker isolation."""
    offer(host, "weak", "process")
    offer(host, "part", "interpreter", subset=True)
    measured["part"] = replace(CONFINED, can_make_system_calls=False)
    chosen = await choose_sandbox(host, AgentConfig(min_isolation="interpreter"), {})
    assert (chosen.spec.name, chosen.isolation) == ("part", "interpreter")
    offer(host, "whole", "container")
    measured["whole"] = CONFINED
    chosen = await choose_sandbox(host, AgentConfig(min_isolation="interpreter"), {})
    assert (chosen.spec.name, chosen.warning) == ("whole", None)


CONFINED = Measured(
    can_make_system_calls=True,
    protects_files=True,
    blocks_network=True,
    protects_processes=True,
    blocks_new_processes=True,
    has_own_kernel=False,
)


@pytest.fixture
def measured(monkeypatch):
    """Set the isolation that is measured for backends, by name."""
    found = {}

    async def measure(backend, *, thorough=False):
        return found[backend.name]

    monkeypatch.setattr("delf_engine.sandboxes.backends.measure", measure)
    return found


async def test_unproved_isolation_claim_is_not_enough(host, measured):
    offer(host, "boast", "vm")
    measured["boast"] = replace(CONFINED, protects_files=False, reached=("a file of the host",))
    for least in ("vm", "container", "interpreter"):
        for sandbox in ("auto", "boast"):
            with pytest.raises(SandboxUnavailableError, match="reached a file of the host"):
                await choose_sandbox(host, AgentConfig(sandbox=sandbox, min_isolation=least), {})


@pytest.mark.parametrize(
    ("claimed", "measured", "believed"),
    [
        ("process", CONFINED, "process"),
        ("container", CONFINED, "container"),
        ("vm", CONFINED, "container"),
        ("vm", replace(CONFINED, has_own_kernel=True), "vm"),
        ("container", replace(CONFINED, has_own_kernel=True), "container"),
        ("interpreter", CONFINED, "process"),
        ("interpreter", replace(CONFINED, can_make_system_calls=False), "interpreter"),
        ("container", replace(CONFINED, can_make_system_calls=False), "interpreter"),
        ("vm", replace(CONFINED, protects_files=False), "process"),
        ("container", replace(CONFINED, blocks_network=False), "process"),
        (
            "interpreter",
            replace(CONFINED, can_make_system_calls=False, protects_processes=False),
            "process",
        ),
    ],
)
def test_measured_isolation_caps_declared_isolation(claimed, measured, believed):
    assert measured.trusted_isolation(claimed) == believed


async def test_missing_sandbox_raises(host):
    with pytest.raises(SandboxUnavailableError, match="no sandbox is installed"):
        await choose_sandbox(host, AgentConfig(), {})
    with pytest.raises(PluginError):
        await choose_sandbox(host, AgentConfig(sandbox="docker"), {})


async def test_sandbox_options_reach_the_backend_without_limits(host):
    offer(host, "s", "process", factory=Strict)
    config = AgentConfig(sandbox="s", sandbox_config={"memory_limit": "1g", "colour": "blue"})
    assert (await choose_sandbox(host, config, {})).backend.colour == "blue"
    for wrong, meant in (("colur", "colour"), ("memry_mb", "memory_mb")):
        config = AgentConfig(sandbox="s", sandbox_config={wrong: 1})
        with pytest.raises(ConfigurationError, match=f"{wrong!r}; did you mean {meant!r}"):
            await choose_sandbox(host, config, {})


@pytest.mark.parametrize(
    ("config", "field", "value"),
    [
        ({"memory_limit": "512m"}, "memory_bytes", 512 * MB),
        ({"memory_limit": "1.5G"}, "memory_bytes", 1536 * MB),
        ({"memory_limit": "2 GiB"}, "memory_bytes", 2048 * MB),
        ({"memory_limit": 1000}, "memory_bytes", 1000),
        ({"memory_mb": 64}, "memory_bytes", 64 * MB),
        ({"memory_bytes": "1k"}, "memory_bytes", 1024),
        ({"timeout": 2.5}, "cpu_seconds", 2.5),
        ({"open_files": 9.0}, "open_files", 9),
        ({"cpu_limit": "50%"}, "cpu_seconds", 60.0),
        ({"image": "python"}, "processes", 0),
    ],
)
def test_make_limits_reads_the_configuration(config, field, value):
    assert getattr(make_limits(config), field) == value


@pytest.mark.parametrize(
    "config",
    [
        {"memory_limit": "lots"},
        {"memory_limit": "-1m"},
        {"memory_limit": "infm"},
        {"memory_limit": "nan"},
        {"memory_limit": ""},
        {"memory_limit": None},
        {"memory_limit": True},
        {"cpu_seconds": "60"},
        {"cpu_seconds": float("inf")},
        {"cpu_seconds": float("nan")},
        {"cpu_seconds": -1},
        {"cpu_seconds": 10**400},
        {"memory_limit": 10**400},
        {"memory_mb": 1e305},
        {"memory_mb": "512m"},
        {"output_bytes": [1]},
    ],
)
def test_invalid_limits_are_refused(config):
    with pytest.raises(ConfigurationError, match=next(iter(config))):
        make_limits(config)
