"""Become another program; one with the set-user-ID bit best of all."""

arguments = (ctypes.c_char_p * 2)(b"id", None)
for program in (
    b"/bin/sh",
    b"/usr/bin/su",
    b"/usr/bin/passwd",
    b"/usr/bin/mount",
    b"/usr/bin/bwrap",
):
    raw(f"execve {program}", 59, program, arguments, None)
    raw(f"execveat {program}", 322, AT_FDCWD, program, arguments, None, 0)
for loader in (b"/lib64/ld-linux-x86-64.so.2", b"/proc/self/exe"):
    raw(f"execve {loader}", 59, loader, arguments, None)
