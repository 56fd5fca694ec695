"""Raise its own limits above what they are."""

resource = real_import("resource")
for name in ("CPU", "AS", "FSIZE", "NOFILE", "CORE"):
    which = getattr(resource, f"RLIMIT_{name}")
    soft, hard = resource.getrlimit(which)
    attempt(name, resource.setrlimit, which, (hard + 1, hard + 1))
