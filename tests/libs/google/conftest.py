from support.google.fixtures import connect, credentials, google

__all__ = ["connect", "credentials", "google"]
