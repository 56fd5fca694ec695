"""``delf sandbox``: the images of the Docker sandbox."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from importlib.metadata import version

import click

from delf_sandbox_docker.backend import DEFAULT_BASE
from delf_sandbox_docker.engine import LABEL, Engine
from delf_sandbox_docker.image import Built, Recipe, build, built_images, is_built, remove_image

_MB = 1_000_000
_engine = click.option(
    "--engine", metavar="URL", help="The engine; by default DOCKER_HOST or the usual socket."
)


@click.group("sandbox")
def sandbox() -> None:
    """Build, show and remove the images of the Docker sandbox."""


@sandbox.command("build")
@_engine
@click.option("--base-image", default=DEFAULT_BASE, show_default=True, help="What to build from.")
@click.option("--lib", "libs", multiple=True, metavar="NAME", help="A library; may be repeated.")
@click.option("--network", help="The build's network, for pip: host, none or a name.")
@click.option("--fresh", is_flag=True, help="Pull the base again and build every layer anew.")
def build_command(
    engine: str | None, base_image: str, libs: tuple[str, ...], network: str | None, fresh: bool
) -> None:
    """Build the image now rather than on first use."""
    with _open(engine) as opened:
        recipe = Recipe(base=base_image, libraries=libs, network=network)
        if not fresh and is_built(opened, recipe):
            click.echo(f"{recipe.tag} is up to date")
            return
        click.echo(f"{build(opened, recipe, fresh=fresh)} built")


@sandbox.command("status")
@_engine
@click.option("--base-image", default=DEFAULT_BASE, show_default=True, help="What to build from.")
def status_command(engine: str | None, base_image: str) -> None:
    """Show the engine, the images and the containers that run."""
    with _open(engine) as opened:
        click.echo(f"engine      {opened.url}, Docker {opened.client().version()['Version']}")
        recipe = Recipe(base=base_image)
        state = "built" if is_built(opened, recipe) else "to be built on first use"
        click.echo(f"image       {recipe.tag}, {state}")
        for image in built_images(opened):
            if image.tag != recipe.tag:
                click.echo(f"            {_line(image)}")
        running = opened.client().containers(all=True, filters={"label": [f"{LABEL}=session"]})
        click.echo(f"containers  {len(running)}")


@sandbox.command("prune")
@_engine
@click.option("--all", "everything", is_flag=True, help="Remove current images, too.")
def prune_command(engine: str | None, everything: bool) -> None:
    """Remove images of other versions of delf, and containers of hosts that are gone."""
    with _open(engine) as opened:
        swept = opened.sweep()
        current = version("delf")
        old = [
            image
            for image in built_images(opened)
            if everything or image.version != current or image.tag != _current(image)
        ]
        for image in old:
            remove_image(opened, image.tag)
            click.echo(f"removed {_line(image)}")
        click.echo(f"removed {len(old)} images and {swept} containers")


def _current(image: Built) -> str:
    """The tag that an image of that base and these libraries would have now."""
    libraries = tuple(image.libraries.split("\n")) if image.libraries else ()
    return Recipe(base=image.base, libraries=libraries).tag


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
