"""The system calls that a confined process may make, by name; all others are refused.

Each name is followed by its numbers on x86_64 and aarch64, or ``-`` if that processor has none. The
allowed calls cannot reach or create processes, change files that are not open, or open sockets.
Calls that could, depending on an argument, are in :mod:`seccomp`.

Deliberately omitted: calls that change a file by path (chmod, chown, utime, truncate, setxattr,
link, symlink), which Landlock does not restrict; memory outside of limits (memfd_create, shmget);
sendmsg, which passes descriptors; flock, which blocks other processes; mincore and membarrier,
which observe or disturb other processes; setrlimit, which lets a guest fake being killed; wait4 and
waitid, because a guest has no children.
"""

from __future__ import annotations

from typing import Final

_TABLE: Final = """
    read:0:63 write:1:64 readv:19:65 writev:20:66 pread64:17:67 pwrite64:18:68 preadv:295:69
    pwritev:296:70 preadv2:327:286 pwritev2:328:287 creat:85:- close:3:57 close_range:436:436
    lseek:8:62 stat:4:- fstat:5:80 lstat:6:- newfstatat:262:79 statx:332:291 access:21:-
    faccessat:269:48 faccessat2:439:439 readlink:89:- readlinkat:267:78 getcwd:79:17
    chdir:80:49 fchdir:81:50 getdents:78:- getdents64:217:61 mkdir:83:- mkdirat:258:34
    rmdir:84:- unlink:87:- unlinkat:263:35 rename:82:- renameat:264:38 ftruncate:77:46
    fsync:74:82 fdatasync:75:83 fadvise64:221:223 umask:95:166 dup:32:23 dup2:33:- dup3:292:24
    pipe:22:- select:23:- pselect6:270:72 poll:7:- ppoll:271:73 epoll_create:213:-
    epoll_create1:291:20 epoll_ctl:233:21 epoll_wait:232:- epoll_pwait:281:22
    epoll_pwait2:441:441 eventfd:284:- eventfd2:290:19 getsockname:51:204 getpeername:52:205
    shutdown:48:210 munmap:11:215 mprotect:10:226 mremap:25:216 brk:12:214 rt_sigaction:13:134
    rt_sigprocmask:14:135 rt_sigreturn:15:139 rt_sigpending:127:136 rt_sigtimedwait:128:137
    rt_sigsuspend:130:133 sigaltstack:131:132 restart_syscall:219:128 pause:34:- alarm:37:-
    setitimer:38:103 getitimer:36:102 nanosleep:35:101 gettimeofday:96:169 time:201:-
    times:100:153 timerfd_create:283:85 timerfd_settime:286:86 timerfd_gettime:287:87
    getpid:39:172 getppid:110:173 gettid:186:178 getpgrp:111:- getuid:102:174 geteuid:107:175
    getgid:104:176 getegid:108:177 getresuid:118:148 getresgid:120:150 getgroups:115:158
    getrlimit:97:163 getrusage:98:165 sched_yield:24:124 getcpu:309:168
    sysinfo:99:179 uname:63:160 getrandom:318:278 set_robust_list:273:99 set_tid_address:218:96
    rseq:334:293 exit:60:93 exit_group:231:94 copy_file_range:326:285 sendfile:40:71
"""

HIGHEST_NUMBER: Final = 462
"""The highest number of a system call in this table.

Calls with higher numbers are newer, and fail as if the kernel did not know them.
"""

_WRITING_CALLS: Final = frozenset(
    ["creat", "mkdir", "mkdirat", "rmdir", "unlink", "unlinkat", "rename", "renameat", "ftruncate"]
)


def numbers(machine: str, *, writes: bool = True) -> list[int]:
    """Return the sorted numbers of the system calls that are allowed with any arguments.

    Args:
        machine: ``x86_64`` or ``aarch64``.
        writes: Whether to include the calls that create, move, truncate and remove files.
    """
    allowed: list[int] = []
    for entry in _TABLE.split():
        name, x86_64_number, aarch64_number = entry.split(":")
        if name in _WRITING_CALLS and not writes:
            continue
        number = x86_64_number if machine == "x86_64" else aarch64_number
        if number != "-":  # the machine has the call
            allowed.append(int(number))
    return sorted(allowed)
