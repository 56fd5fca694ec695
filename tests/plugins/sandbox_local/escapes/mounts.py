"""Change what is mounted where."""

raw("mount tmpfs", 165, b"none", b".", b"tmpfs", 0, None)
raw("bind the root", 165, b"/", b".", None, 4096, None)
raw("remount", 165, None, b"/", None, 32, None)
raw("umount2", 166, b"/", 2)
raw("pivot_root", 155, b".", b".")
raw("chroot", 161, b".")
raw("fsopen", 430, b"tmpfs", 0)
raw("open_tree", 428, AT_FDCWD, b"/", 1)
raw("move_mount", 429, AT_FDCWD, b".", AT_FDCWD, b"/", 0)
raw("fspick", 433, AT_FDCWD, b"/", 0)
raw("mount_setattr", 442, AT_FDCWD, b"/", 0, None, 0)
raw("statmount", 457, None, None, 0, 0)
