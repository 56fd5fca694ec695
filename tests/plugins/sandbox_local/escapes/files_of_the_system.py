"""Read what every user may read, and no script has to: accounts, names, settings, logs."""

for name in (
    "/etc/passwd", "/etc/group", "/etc/shadow", "/etc/hostname", "/etc/hosts", "/etc/fstab",
    "/etc/resolv.conf", "/etc/machine-id", "/etc/ssl/openssl.cnf",
    "/etc/environment", "/etc/pip.conf", "/etc/gitconfig", "/etc/docker/daemon.json",
    "/var/run/docker.sock", "/var/log/dpkg.log", "/var/lib/dpkg/status", "/boot/config",
    "/usr/bin/env", "/bin/sh", "/usr/share/dict/words", "/root/.bashrc", "/root/.netrc",
):  # fmt: skip
    attempt(name, posix.open, name, posix.O_RDONLY)
for name in ("/", "/etc", "/home", "/root", "/tmp", "/var", "/run", "/opt", "/srv", "/mnt", "/dev"):
    attempt(f"listing of {name}", posix.listdir, name)
