"""``delf sandbox``: the images of the Docker sandbox."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click

from delf import __version__
from delf_sandbox_docker.backend import DEFAULT_BASE
from delf_sandbox_docker.engine import LABEL, Engine
from delf_sandbox_docker.image import Built, Recipe, build, built_images, is_built, remove_image

_MB = 1_000_000
_engine = click.option(
    "--engine", metavar="URL", help="The engine; by default DOCKER_HOST or the usual socket."
)
_as_json = click.option("--json", "as_json", is_flag=True, help="Write it as JSON.")


@click.group("sandbox")
def sandbox() -> None:
    """Build, show and remove the images of the Docker sandbox."""


@sandbox.command("build")
@_engine
@click.option("--base-image", default=DEFAULT_BASE, show_default=True, help="The base image.")
@click.option(
    "--lib", "libs", multiple=True, metavar="NAME", help="A library to install. May be repeated."
)
@click.option("--network", help="The build's network, for pip: host, none or a name.")
@click.option("--fresh", is_flag=True, help="Pull the base and build every layer again.")
@_as_json
def build_command(
    engine: str | None,
    base_image: str,
    libs: tuple[str, ...],
    network: str | None,
    fresh: bool,
    as_json: bool,
) -> None:
    """Build the image now, instead of at its first use."""
    with _open(engine) as opened:
        recipe = Recipe(base=base_image, libraries=libs, network=network)
        needed = fresh or not is_built(opened, recipe)
        tag = build(opened, recipe, fresh=fresh) if needed else recipe.tag
    if as_json:
        _write({"image": tag, "built": needed})
        return
    click.echo(f"{tag} {'built' if needed else 'is up to date'}")


@sandbox.command("status")
@_engine
@click.option("--base-image", default=DEFAULT_BASE, show_default=True, help="The base image.")
@_as_json
def status_command(engine: str | None, base_image: str, as_json: bool) -> None:
    """Show the engine, the images and the containers that run."""
    with _open(engine) as opened:
        docker = str(opened.client().version()["Version"])
        recipe = Recipe(base=base_image)
        ready = is_built(opened, recipe)
        images = built_images(opened)
        running = opened.client().containers(all=True, filters={"label": [f"{LABEL}=session"]})
        if as_json:
            data = {"engine": opened.url, "docker": docker, "image": recipe.tag, "built": ready}
            count = len(running)
            _write({**data, "images": list(map(_image_data, images)), "containers": count})
            return
        click.echo(f"engine      {opened.url}, Docker {docker}")
        click.echo(f"image       {recipe.tag}, {'built' if ready else 'to be built on first use'}")
        for image in images:
            if image.tag != recipe.tag:
                click.echo(f"            {_line(image)}")
        click.echo(f"containers  {len(running)}")


@sandbox.command("prune", short_help="Remove images and containers that are not needed any more.")
@_engine
@click.option("--all", "everything", is_flag=True, help="Also remove current images.")
@_as_json
def prune_command(engine: str | None, everything: bool, as_json: bool) -> None:
    """Remove images of other versions of delf, and containers whose process died."""
    with _open(engine) as opened:
        swept = opened.sweep()
        current = __version__
        old = [
            image
            for image in built_images(opened)
            if everything or image.version != current or image.tag != _current(image)
        ]
        for image in old:
            remove_image(opened, image.tag)
            if not as_json:
                click.echo(f"removed {_line(image)}")
        if as_json:
            _write({"images": list(map(_image_data, old)), "containers": swept})
            return
        click.echo(f"removed {len(old)} images and {swept} containers")


def _current(image: Built) -> str:
    """The tag that an image of that base and these libraries would have now."""
    libraries = tuple(image.libraries.split("\n")) if image.libraries else ()
    return Recipe(base=image.base, libraries=libraries).tag


def _image_data(image: Built) -> dict[str, Any]:
    libraries = image.libraries.split("\n") if image.libraries else []
    return {**asdict(image), "libraries": libraries}


def _write(data: dict[str, Any]) -> None:
    click.echo(json.dumps(data, ensure_ascii=False, indent=2))


def _line(image: Built) -> str:
    libraries = ", ".join(image.libraries.split("\n"))
    with_libraries = f" with {libraries}" if libraries else ""
    return f"{image.tag} from {image.base}{with_libraries}, {image.size / _MB:,.0f} MB"


@contextmanager
def _open(url: str | None) -> Generator[Engine]:
    engine = Engine(url)
    try:
        engine.client()
        yield engine
    finally:
        engine.close()
