"""Stands ahead of every attempt: what a script finds in its interpreter whatever it may import."""

import re

sys = re.enum.sys
posix = sys.modules["posix"]
real_import = sys.modules["builtins"].__import__
ctypes = real_import("ctypes")
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
HOST, TEMPLATE, PORT = "@HOST@", "@TEMPLATE@", "@PORT@"
FOLDER, NAME = "@FOLDER@", "@NAME@"
HOST, TEMPLATE, PORT = int(HOST), int(TEMPLATE), int(PORT)
SECRET = f"{FOLDER}/secret.txt"
INPUT = f"{FOLDER}/input.csv"
AT_FDCWD = -100


def syscall(number, *arguments):
    """Return the result of a system call; a refusal is the negative errno."""
    values = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = libc.syscall(ctypes.c_long(number), *values)
    return result if result >= 0 else -ctypes.get_errno()


def attempt(what, function, *arguments):
    """Call something that must fail; report an escape if it succeeds."""
    try:
        result = function(*arguments)
    except (OSError, AttributeError, ValueError) as error:
        print("refused", what, error)
        return None
    if isinstance(result, int) and not isinstance(result, bool) and result < 0:
        print("refused", what, result)
        return None
    print("ESCAPED", what, repr(result)[:80])
    return result


def raw(what, number, *arguments):
    """Make a system call that must be refused."""
    return attempt(what, syscall, number, *arguments)
