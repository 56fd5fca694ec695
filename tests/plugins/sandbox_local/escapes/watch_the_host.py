"""Learn what the host does with its files."""

fd = raw("inotify_init1", 294, 0)
if fd is not None:
    raw("inotify_add_watch", 254, fd, FOLDER.encode(), 0xFFF)
raw("inotify_init", 253)
raw("fanotify_init", 300, 0x200, 0)
raw("fanotify_mark", 301, 3, 1, 1, AT_FDCWD, FOLDER.encode())
