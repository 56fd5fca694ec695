"""Numbers and arguments whose upper halves differ from what the filter compares."""

for what, number, arguments in (
    ("kill", 62, (HOST, 0)),
    ("fork", 57, ()),
    ("socket", 41, (1, 2, 0)),
):
    raw(what, number | 1 << 32, *arguments) if number != 57 else None
raw("tgkill", 234, HOST | 1 << 32, HOST, 0)
raw("prlimit", 302, HOST | 1 << 32, 7, None, (ctypes.c_ulong * 2)())
pair = (ctypes.c_int * 2)()
raw("socketpair", 53, 1 | 1 << 32, 2 | 1 << 32, 0, pair)
raw("socketpair with flags", 53, 1, 2 | 0o2000000 | 0o4000, 0, pair)
raw("fcntl", 72, 1, 8 | 1 << 32, HOST)
raw("ioctl", 16, 1, 0x8901 | 1 << 32, (ctypes.c_int * 1)(HOST))
