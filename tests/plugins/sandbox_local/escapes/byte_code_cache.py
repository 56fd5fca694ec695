"""Have the interpreter itself write the byte code of modules that others will load."""

sys.dont_write_bytecode = False
external = sys.modules["_frozen_importlib_external"]
for prefix in (None, FOLDER, "/tmp", "/var/tmp"):
    sys.pycache_prefix = prefix
    for name in ("colorsys", "this", "antigravity", "sched"):
        path = f"{sys.modules['json'].__file__.rpartition('/json/')[0]}/{name}.py"
        loader = external.SourceFileLoader(name, path)
        target = external.cache_from_source(path)
        attempt(f"_write_atomic {prefix}", external._write_atomic, target + "x", b"pwned", 0o644)  # noqa: SLF001 - the attack
        loader.set_data(target + "y", b"pwned")
        try:
            posix.lstat(target + "y")
            print("ESCAPED", target)
        except OSError:
            pass
