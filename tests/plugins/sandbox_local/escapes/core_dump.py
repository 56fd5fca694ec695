"""Leave the memory in a file of the host."""

resource = real_import("resource")
try:
    resource.setrlimit(resource.RLIMIT_CORE, (-1, -1))
    print("ESCAPED the limit of core files")
except (OSError, ValueError) as error:
    print("refused", error)
libc.abort()
