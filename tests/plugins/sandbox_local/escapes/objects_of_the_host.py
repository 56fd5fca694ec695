"""Look through every object and frame for what belongs to the host."""

gc = real_import("gc")
mark = "@SECRET@"
needle = mark[:10] + mark[10:]
frame = sys._getframe()  # noqa: SLF001 - the attack
while frame is not None:
    for name, value in list(frame.f_locals.items()):
        if needle in repr(value)[:100000] and name not in ("mark", "needle", "source", "self"):
            print("seen", name) if "frame" in name or "code" in name else None
    frame = frame.f_back
modules = [
    name for name in sys.modules if name.split(".")[0] in ("pydantic", "pluggy", "httpx", "pytest")
]
if modules:
    print("ESCAPED modules of the host", modules)
texts = [o for o in gc.get_objects() if type(o) is dict and "DELF_SECRET" in o]
if texts:
    print("ESCAPED the environment of the host")
environ = dict(posix.environ)
if any(b"DELF" in key for key in environ):
    print("ESCAPED environment", environ)
