"""Open a file neither for reading nor for writing, for which Landlock asks for no right."""

for what, flags in (
    ("access mode 3", 3),
    ("access mode 3, cut", 3 | 0o1000),
    ("access mode 3, made", 3 | 0o100),
    ("O_PATH", 0o10000000),
    ("O_PATH of the folder", 0o10200000),
):
    name = FOLDER if "folder" in what else SECRET
    raw(f"open with {what}", 2, name.encode(), flags, 0o600)
    raw(f"openat with {what}", 257, AT_FDCWD, name.encode(), flags, 0o600)
