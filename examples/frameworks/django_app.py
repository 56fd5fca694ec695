"""Django in one file: a view for WSGI and a view for ASGI, with one agent for each process."""

from __future__ import annotations

from dataclasses import asdict

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path
from orders import MODEL, Count, open_orders

from delf import Agent

# The agent starts with its first task, after a server has forked its workers.
agent = Agent(MODEL, tools=[open_orders], output=Count)


def orders(request: HttpRequest) -> JsonResponse:
    """Run a task from a thread of the server; the agent works on a thread of its own."""
    response = agent.run("How many orders are open?").raise_for_status()
    return JsonResponse(asdict(response.value))


async def async_orders(request: HttpRequest) -> JsonResponse:
    """Run a task from a view of an ASGI server."""
    response = await agent.arun("How many orders are open?")
    return JsonResponse(asdict(response.raise_for_status().value))


urlpatterns = [path("orders", orders), path("async-orders", async_orders)]
settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="only for this example")
wsgi = get_wsgi_application()
asgi = get_asgi_application()
