"""Calls that change the whole machine; each with arguments that would do no harm."""

buffer = ctypes.create_string_buffer(4096)
for what, number, arguments in (
    ("reboot", 169, (0, 0, 0, None)),
    ("swapon", 167, (b"/nowhere", 0)),
    ("swapoff", 168, (b"/nowhere",)),
    ("settimeofday", 164, (None, None)),
    ("clock_settime", 227, (99, None)),
    ("adjtimex", 159, (buffer,)),
    ("clock_adjtime", 305, (0, buffer)),
    ("setdomainname", 171, (b"x", 1)),
    ("quotactl", 179, (0, None, 0, None)),
    ("quotactl_fd", 443, (0, 0, 0, None)),
    ("vhangup", 153, ()),
    ("delete_module", 176, (b"nothing", 0)),
    ("kexec_file_load", 320, (-1, -1, 0, b"", 0)),
    ("sync", 162, ()),
    ("syncfs", 306, (1,)),
    ("sync_file_range", 277, (1, 0, 0, 0)),
    ("readahead", 187, (1, 0, 1 << 20)),
    ("lookup_dcookie", 212, (0, buffer, 4096)),
    ("open_tree_attr", 467, (AT_FDCWD, b"/", 0, buffer, 32)),
):
    raw(what, number, *arguments)
