"""The image of the sandbox: built on first use, and rebuilt after changes."""

from __future__ import annotations

import hashlib
import io
import json
import posixpath
import re
import tarfile
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from delf import __version__
from delf.errors import ConfigurationError, SandboxUnavailableError
from delf.records import dataclass
from delf_sandbox.zipapp import guest_digest, guest_zipapp
from delf_sandbox_docker.engine import LABEL, Engine

REPOSITORY = "delf-sandbox"

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_VERSION = r"\s*(?:===|~=|==|!=|<=|>=|<|>)\s*[A-Za-z0-9.*+!_-]+\s*"
# Matches a library's name with versions.
#
# Options of pip, paths and addresses do not match, because they could run other code.
_REQUIREMENT = re.compile(
    rf"{_NAME}\s*(?:\[\s*{_NAME}(?:\s*,\s*{_NAME})*\s*\])?(?:{_VERSION}(?:,{_VERSION})*)?"
)
_BASE = re.compile(r"[A-Za-z0-9\[][\w./:@\[\]-]*", re.ASCII)
_BOOT = Path(__file__).with_name("boot.py")
PROGRAM = ("python3", "-P", "-s", "-S", "-X", "utf8", "/opt/delf/boot.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The inputs from which an image is built.

    Args:
        base: The name of the base image, which needs ``python3`` 3.11 or newer on its path.
        libraries: The requirements that pip installs, in any order.
        network: The network of the build, such as ``none`` or ``host``; the engine's default
            when None.
    """

    base: str
    libraries: tuple[str, ...] = ()
    network: str | None = None

    def __post_init__(self) -> None:
        if not _BASE.fullmatch(self.base):
            raise ConfigurationError(
                f"sandbox_config.base_image is {self.base!r}",
                hint="write the name of an image, such as python:3.12-slim",
            )
        for library in self.libraries:
            if not _REQUIREMENT.fullmatch(library.strip()):
                raise ConfigurationError(
                    f"allowed_libs has {library!r}, which is not a library's name",
                    hint="write names with versions, such as 'pandas>=2'; for packages from other "
                    "sources, build an image and name it in sandbox_config.base_image",
                )

    @property
    def tag(self) -> str:
        """The name of the image, with delf's version and a digest of all inputs."""
        parts = [
            guest_digest(),
            _BOOT.read_text("utf-8"),  # starts the guest
            self.dockerfile(),
            *self._sorted_libraries,
        ]
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        return f"{REPOSITORY}:{__version__}-{digest[:16]}"

    @property
    def _sorted_libraries(self) -> list[str]:
        return sorted({library.strip() for library in self.libraries})

    def dockerfile(self) -> str:
        """Return the text of the Dockerfile.

        The libraries are installed first, so that the engine can cache their layer. Settings that a
        container can get at its start are left out, because each instruction adds a layer.
        """
        lines = [f"FROM {self.base}", "USER 0:0"]
        if self.libraries:
            install = ["python3", "-P", "-m", "pip", "install", "--no-cache-dir", "--no-input"]
            install += ["--disable-pip-version-check", "--root-user-action=ignore"]
            install += ["--target", "/opt/delf/libraries", "--", *self._sorted_libraries]
            lines.append(f"RUN {json.dumps(install)}")
        lines += [
            "COPY delf /opt/delf",
            f"RUN {json.dumps([*PROGRAM, '--compile'])}",
        ]
        return "\n".join(lines) + "\n"

    def context(self) -> bytes:
        """Return the files of the build as a tar archive that is the same for the same inputs."""
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as archive:
            for name, data in self._files():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                info.mode = 0o644
                archive.addfile(info, io.BytesIO(data))
        return out.getvalue()

    def _files(self) -> Iterator[tuple[str, bytes]]:
        """Yield the name and the content of each file that the image's build needs."""
        yield "Dockerfile", self.dockerfile().encode()
        yield "delf/boot.py", _BOOT.read_bytes()
        with zipfile.ZipFile(io.BytesIO(guest_zipapp())) as guest:
            for name in guest.namelist():
                if name.endswith(".py"):
                    yield f"delf/guest/{name}", guest.read(name)


def is_built(engine: Engine, recipe: Recipe) -> bool:
    """Return True if the engine has the image of a recipe."""
    from docker.errors import NotFound

    try:
        engine.client().inspect_image(recipe.tag)
    except NotFound:
        return False
    return True


def build_inputs(engine: Engine, recipe: Recipe) -> tuple[str, ...]:
    """Return texts that identify a build: the image's name, the network and the base image's id.

    A new base image or another network changes the result. Blocks.
    """
    from docker.errors import NotFound

    try:
        base = str(engine.client().inspect_image(recipe.base)["Id"])
    except NotFound:
        base = ""
    return recipe.tag, recipe.network or "", base


def unmounted_volumes(engine: Engine, tag: str, mounted: Collection[str] = ()) -> tuple[str, ...]:
    """Return the paths that an image declares as volumes and that have no mount. Blocks.

    Args:
        engine: The engine.
        tag: The name of the image.
        mounted: The paths at which a container has mounts.

    Raises:
        ConfigurationError: If a volume would hide the guest's program.
    """
    description: Mapping[str, Any] = engine.client().inspect_image(tag)
    volumes: Iterable[str] = description.get("Config", {}).get("Volumes") or ()
    volume_paths = [posixpath.normpath(name) for name in volumes]
    for name in volume_paths:
        if name == "/" or PurePosixPath("/opt/delf").is_relative_to(name):
            raise ConfigurationError(
                f"the image {tag} makes {name} a volume, which hides the sandbox's program",
                hint="sandbox_config base_image: choose one without that volume",
            )
    return tuple(name for name in volume_paths if name not in mounted)


def build(engine: Engine, recipe: Recipe) -> None:
    """Build the image of a recipe. Blocks.

    Args:
        engine: The engine.
        recipe: The inputs of the image.

    Raises:
        SandboxUnavailableError: If the build fails; the message has the reason.
    """
    steps: Iterator[Mapping[str, Any]] = engine.client().build(
        fileobj=io.BytesIO(recipe.context()),
        custom_context=True,
        tag=recipe.tag,
        labels={LABEL: "image"},
        network_mode=recipe.network,
        rm=True,
        forcerm=True,
        decode=True,
        timeout=None,
    )
    output: list[str] = []
    problem: str | None = None
    for step in steps:  # read to the end, to free the connection
        if "error" in step:
            problem = str(step["error"])
        lines = str(step.get("stream", "")).splitlines()
        output += [line for line in lines if line.strip()]
    if problem is not None:
        raise _build_error(engine, recipe, problem, output)


def _build_error(
    engine: Engine, recipe: Recipe, problem: str, output: Sequence[str]
) -> SandboxUnavailableError:
    """Return the error for a failed build, with a hint that the output of the build suggests."""
    lowered = f"{problem} {' '.join(output[-5:])}".lower()
    if "no space left on device" in lowered:
        return engine.explain(OSError("no space left on device"))
    detail = problem.strip()
    lines_with_error = [line for line in output if "error" in line.lower()]
    if lines_with_error:
        detail += f"; {lines_with_error[-1].strip()}"
    if "pip" in problem:
        hint = "check allowed_libs; installing needs a network while the image is built"
    elif any(word in lowered for word in ("manifest", "pull", "registry", "dial", "not found")):
        hint = (
            f"docker pull {recipe.base}, or set sandbox_config.base_image to an image with Python"
        )
    else:
        hint = "the base image needs python3, 3.11 or newer, on its path"
    return SandboxUnavailableError(
        f"the sandbox's image cannot be built from {recipe.base!r}: {detail}", hint=hint
    )
