"""A loopback server that speaks five Google services as their discovery documents describe them."""

from support.google.server import GoogleServer, google_server

__all__ = ["GoogleServer", "google_server"]
