"""The backend ``docker``: a fresh container for each session, some started ahead."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from delf.errors import ConfigurationError, SandboxUnavailableError
from delf.protocols.sandbox import Availability, Available, Limits, SessionSpec, Unavailable
from delf.types import Isolation
from delf_sandbox.folders import remove_folder
from delf_sandbox.inputs import WORKSPACE, copy_inputs, visible_path
from delf_sandbox.pool import SessionPool
from delf_sandbox_docker.container import (
    SCRATCH,
    Confinement,
    ContainerProcess,
    ContainerSession,
    create,
    make_container_folder,
    program_arguments,
)
from delf_sandbox_docker.engine import Engine, is_owner_alive, owner
from delf_sandbox_docker.failures import FailedBuilds
from delf_sandbox_docker.image import Recipe, build, build_inputs, is_built, unmounted_volumes

DEFAULT_BASE = "python:3.12-slim"
_PYTHON_IMAGE: Final = re.compile(r"python:(3\.\d+)")

_START_SECONDS = 30.0
_LOOK_SECONDS = 10.0
_FOLDER = "delf-docker-"
_OWNED = re.compile(rf"{_FOLDER}(\d+-\d+)-[a-z0-9_]+")
Kind = tuple[Limits, tuple[str, ...]]
"""The limits and libraries of a session.

A started container can serve any session of its kind.
"""


class DockerBackend:
    """A sandbox backend that runs each session in a new Docker container.

    Implements :class:`delf.protocols.sandbox.SandboxBackend`.

    Args:
        base_image: The image from which the sandbox's image is built, with ``python3`` 3.11 or
            newer on its path.
        engine: The URL of the Docker engine; by default ``DOCKER_HOST`` or the usual socket.
        pool_size: The number of idle containers to keep started; each is used once.
        cpu_limit: The number of processors that a container may use: ``0.5`` or ``"50%"``.
        pids_limit: The maximum number of processes and threads in a container.
        runtime: The container runtime, such as ``runsc`` for gVisor; by default the engine's.
        build_network: The network with which pip installs ``allowed_libs`` while the image is
            built: ``host``, ``none`` or a network's name; by default the engine's.
    """

    isolation: Isolation = "container"

    def __init__(
        self,
        *,
        base_image: str = DEFAULT_BASE,
        engine: str | None = None,
        pool_size: int = 2,
        cpu_limit: float | str = 1.0,
        pids_limit: int = 64,
        runtime: str | None = None,
        build_network: str | None = None,
    ) -> None:
        if type(pids_limit) is not int or pids_limit <= 0:
            raise ConfigurationError("sandbox_config.pids_limit must be a number above 0")
        self.engine = Engine(engine)
        self._base_image = base_image
        self._build_network = build_network
        self.confinement = Confinement(
            cpu_limit=_parse_processors(cpu_limit), pids_limit=pids_limit, runtime=runtime
        )
        self._failed = FailedBuilds()  # images that are not built again for some time
        self._folder: str | None = None  # the parent of the folders that containers share
        self._preparing = asyncio.Lock()  # held while an image is built
        # The paths of the volumes of each image that is ready, by the image's tag.
        self._prepared: dict[str, tuple[str, ...]] = {}
        self.pool: SessionPool[ContainerSession, Kind] = SessionPool(
            pool_size, self._start, usable=lambda session: session.alive, abandon=self._abandon
        )

    # -- SandboxBackend -----------------------------------------------------------------

    @property
    def language(self) -> str:
        """The Python version of scripts, as stated in the name of the base image."""
        match = _PYTHON_IMAGE.search(self._base_image)
        return f"Python {match[1]}" if match else "Python 3.11 or newer"

    async def available(self) -> Availability:
        """Return whether a Docker engine responds, with its version or the problem."""
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                version = await self.engine.run(self._engine_version)
        except TimeoutError:
            error = self.engine.not_responding_error()
            return Unavailable(error.message, error.hint or "")
        except SandboxUnavailableError as error:
            return Unavailable(error.message, error.hint or "")
        return Available(f"Docker {version}")

    def _engine_version(self) -> str:
        version: Mapping[str, Any] = self.engine.client().version()
        return str(version["Version"])

    async def prepare(self, libraries: tuple[str, ...]) -> None:
        """Build the sandbox's image, unless the engine has it.

        For two minutes after a failed build, further calls fail with the same error.

        Args:
            libraries: The requirements of the packages to install in the image.

        Raises:
            SandboxUnavailableError: If the build fails, for example without a base image.
        """
        self.pool.abandon_sessions_of_other_loop()
        await self.image_for(libraries)

    async def open(self, spec: SessionSpec) -> ContainerSession:
        """Return a session in a container that no other task has used."""
        kind = (spec.limits, spec.libraries)
        session = await self.pool.take(kind)
        try:
            await session.ready(_START_SECONDS)
            await self._copy_inputs(session, spec)
            links = {name: visible_path(path) for name, path in spec.path_by_name.items()}
            session.initialise(spec, SCRATCH, [WORKSPACE], links)
        except BaseException:
            # In the background, because a caller that was cancelled must not wait for the engine.
            self.pool.run_in_background(session.aclose())
            raise
        self.pool.fill(kind)
        return session

    async def warm_up(self, spec: SessionSpec) -> None:
        """Start containers for coming sessions in the background, after building the image."""
        self.pool.fill((spec.limits, spec.libraries))

    def visible_path(self, path: str) -> str:
        """Return the path in ``/workspace`` under which scripts see a file.

        Files of different folders on the host are in different subfolders of ``/workspace``.

        Args:
            path: The absolute path on the host.
        """
        return visible_path(path)

    async def aclose(self) -> None:
        """End all containers, and wait until they are removed. Idempotent."""
        await self.pool.aclose(self.engine.wait_while_responding)
        self.engine.close()
        if self._folder is not None:
            remove_folder(self._folder)
            self._folder = None

    def abandon(self) -> None:
        """Release all sessions without awaiting, because their event loop is closed."""
        self.pool.abandon()

    def _abandon(self, sessions: Collection[ContainerSession]) -> None:
        """End the containers of a closed event loop without awaiting."""
        for session in sessions:
            session.container.abandon()
        # A lock belongs to the event loop that has waited for it.
        self._preparing = asyncio.Lock()
        self._prepared.clear()

    # -- containers ---------------------------------------------------------------------

    def _recipe(self, libraries: tuple[str, ...]) -> Recipe:
        return Recipe(base=self._base_image, libraries=libraries, network=self._build_network)

    async def _start(self, kind: Kind) -> ContainerSession:
        """Start a session in a new container; if that fails, remove what was created."""
        limits, libraries = kind
        image, volume_paths = await self.image_for(libraries)
        folder = self._make_folder()
        try:
            command = program_arguments(limits, self.confinement.cpu_limit)
            container = await self.engine.run(
                self.create_container, image, volume_paths, limits, folder, command
            )
            process = await self._attach(container, folder, limits)
        except BaseException:
            if folder is not None:
                remove_folder(str(folder))
            raise
        try:
            return await self._connect(process, limits)
        except BaseException:
            self.pool.run_in_background(process.aclose())  # removes the folder, too
            raise

    async def _attach(
        self, container: str, folder: Path | None, limits: Limits
    ) -> ContainerProcess:
        """Connect to the streams of a container; if that fails, remove the container."""
        try:
            stream = await self.engine.run(self.engine.attach, container)
            return ContainerProcess(self.engine, container, stream, folder, limits)
        except BaseException:
            self.pool.run_in_background(self.engine.run(self.engine.remove, container))
            raise

    def create_container(
        self,
        image: str,
        volume_paths: tuple[str, ...],
        limits: Limits,
        folder: Path | None,
        command: list[str],
    ) -> str:
        """Create a container of an image, and return its id.

        Raises:
            ImageNotFound: If the image was removed meanwhile.
        """
        from docker.errors import ImageNotFound

        client = self.engine.client()
        config = self.confinement.host_config(client, limits, folder, volume_paths)
        try:
            return create(self.engine, image, config, command)
        except ImageNotFound:  # removed by hand: the next session rebuilds it
            self._prepared.pop(image, None)
            raise

    async def _connect(self, process: ContainerProcess, limits: Limits) -> ContainerSession:
        """Connect a session to a container, and start the container.

        The session is connected first, so that it reads the output from the beginning.
        """
        forget_session = self.pool.in_use.discard  # called when the session is closed
        _, session = await asyncio.get_running_loop().create_connection(
            lambda: ContainerSession(process, limits.frame_bytes, forget_session),
            sock=process.stream,
        )
        await self.engine.run(self._start_container, process.container_id)
        return session

    def _start_container(self, container: str) -> None:
        self.engine.client().start(container)

    async def image_for(self, libraries: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
        """Build the image with some libraries, once. Return its name and the paths of its volumes.

        The first call also removes containers and folders that dead processes left behind.
        """
        recipe = self._recipe(libraries)
        tag = recipe.tag
        async with self._preparing:
            if not self._prepared:
                await self.engine.run(self._remove_leftovers)
            if tag not in self._prepared:
                self._prepared[tag] = await self.engine.run(self._ensure_image, recipe)
            return tag, self._prepared[tag]

    def _remove_leftovers(self) -> None:
        """Remove containers and temporary folders of host processes that have died."""
        self.engine.remove_orphans()
        for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*"):
            match = _OWNED.fullmatch(folder.name)
            if match is None:
                continue
            with suppress(OSError):
                # Leave folders of other users, who can create a folder of any name here.
                is_own = not folder.is_symlink() and folder.stat().st_uid == os.getuid()
                if is_own and not is_owner_alive(match[1]):
                    remove_folder(str(folder))

    def _ensure_image(self, recipe: Recipe) -> tuple[str, ...]:
        """Build the image unless the engine has it. Return the paths of its volumes."""
        if not is_built(self.engine, recipe):
            build_identity = (self.engine.identity(), *build_inputs(self.engine, recipe))
            self._failed.check(build_identity)
            try:
                build(self.engine, recipe)
            except SandboxUnavailableError as error:
                self._failed.record(build_identity, error)
                raise
        return unmounted_volumes(self.engine, recipe.tag, (SCRATCH, WORKSPACE))

    # -- files --------------------------------------------------------------------------

    def _make_folder(self) -> Path | None:
        """Create a folder to share with a container; None if the engine is on another machine."""
        if not self.engine.local:
            return None
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix=f"{_FOLDER}{owner()}-")
        return make_container_folder(self._folder)

    async def _copy_inputs(self, session: ContainerSession, spec: SessionSpec) -> None:
        """Copy the input files to the folder that the container sees as its workspace."""
        folder = session.container.folder
        if not spec.files:
            return
        if folder is None:
            raise SandboxUnavailableError(
                f"input files need a Docker engine on this machine, not {self.engine.url}"
            )
        await asyncio.to_thread(copy_inputs, spec.files, folder / "workspace")


def _parse_processors(limit: float | str) -> float:
    """Parse a number of processors, such as ``0.5`` or ``"50%"``.

    Raises:
        ConfigurationError: If the value is not a possible number of processors.
    """
    text = str(limit).strip()
    try:
        processors = float(text.removesuffix("%"))
        if text.endswith("%"):
            processors /= 100
    except ValueError:
        processors = 0.0
    if isinstance(limit, bool) or not 0.01 <= processors <= 1024:
        raise ConfigurationError(
            f"sandbox_config.cpu_limit is {limit!r}", hint="write processors: 0.5, 2 or '50%'"
        )
    return processors
