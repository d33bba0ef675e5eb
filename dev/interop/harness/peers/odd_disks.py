"""Shares on file systems that are programs (FUSE), and on NFS: sshfs, mergerfs, exfat-fuse, ntfs-3g, bindfs."""

import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path

from ..model import Failure, Skip, group
from ..servers import Server
from .clients import python
from .disks import guest, missing
from .mount import crowd, mounted, no_fuse

NEEDED = ["own-names", "host-names", "replaced", "one-time", "long-names", "private-names", "three-clients"]
SFTP_SERVER = "/usr/lib/openssh/sftp-server"
PORT = 4450


def run(*args):
    """Runs a program; raises Failure with its words."""
    done = subprocess.run([str(a) for a in args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        raise Failure(f"{args[0]}: {done.stdout.decode(errors='replace').strip()[-200:]}")
    return done.stdout.decode().strip()


def on_device(aside, size, make, mount):
    """Mounts a new file system on a device of its own; `make` and `mount` are commands without their last words."""
    image = aside / "image"
    with open(image, "wb") as file:
        file.truncate(size)
    device = run("losetup", "--find", "--show", image)
    try:
        run(*make, device)
        run(*mount[0], device, *mount[1:])
    finally:
        # Detaching takes effect when the last user of the loop device ends.
        run("losetup", "--detach", device)


def exfat(aside, folder):
    on_device(aside, 64 << 20, ["mkfs.exfat"], [["mount.exfat-fuse"], folder])


def ntfs(aside, folder):
    on_device(aside, 64 << 20, ["mkntfs", "-F", "-Q"], [["ntfs-3g"], folder])


def bindfs(aside, folder):
    (aside / "source").mkdir()
    run("bindfs", aside / "source", folder)
    return aside / "source"


def mergerfs(aside, folder):
    branches = [aside / "one", aside / "two"]
    for branch in branches:
        branch.mkdir()
    run("mergerfs", "-o", "category.create=rand,minfreespace=1M", ":".join(map(str, branches)), folder)
    return branches[1]


def sshfs(aside, folder):
    (aside / "source").mkdir()
    # sshfs starts the SFTP server directly in place of ssh, which needs no network, keys or
    # account.
    ssh = aside / "ssh"
    ssh.write_text(f"#!/bin/sh\nexec {SFTP_SERVER}\n")
    ssh.chmod(0o755)
    # sshfs has its own cache of listings, which would show old names for longer than the kernel's.
    run("sshfs", "-o", f"ssh_command={ssh},dir_cache=no", f"here:{aside / 'source'}", folder)
    return aside / "source"


# Each kind of file system with the programs that it needs.
KINDS = {
    exfat: ["mkfs.exfat", "mount.exfat-fuse"],
    ntfs: ["mkntfs", "ntfs-3g"],
    bindfs: ["bindfs"],
    mergerfs: ["mergerfs"],
    sshfs: ["sshfs", SFTP_SERVER],
}


class Disk:
    """A file system that is mounted before a server starts, as its share `disk` or as the folder `below` in it."""

    def __init__(self, kind, below=""):
        self.kind, self.below, self.folder, self.place, self.behind = kind, below, None, None, None

    def attach(self, directory):
        aside, self.folder = directory / "aside", directory / "disk"
        aside.mkdir()
        self.place = self.folder / self.below
        self.place.mkdir(parents=True)
        self.behind = self.kind(aside, self.place)
        end = time.monotonic() + 10
        while not os.path.ismount(self.place):
            if time.monotonic() > end:
                raise Failure("not mounted within 10 s")
            time.sleep(0.05)

    def detach(self):
        if self.place and os.path.ismount(self.place):
            subprocess.run(["umount", self.place], check=False, stderr=subprocess.DEVNULL)
        if self.place and os.path.ismount(self.place):
            subprocess.run(["umount", "--lazy", self.place], check=False)


@contextlib.contextmanager
def serving(ctx, kind, below=""):
    """Runs a further server whose share is a new file system of this kind."""
    if why := no_fuse():
        raise Skip(why)
    for program in KINDS[kind]:
        if not shutil.which(program):
            raise Skip(f"{program} is not installed")
    before, disk, server = ctx.server, Disk(kind, below), None
    try:
        server = Server(before.kind, "odd-disk", before.program, port=PORT, disk=disk)
        server.share, server.path = "disk", disk.folder
        ctx.server = server
        yield disk
        if panics := server.panics():
            raise Failure(panics[0])
        if not server.is_alive():
            raise Failure("the server accepts no connections")
    finally:
        ctx.server = before
        if server:
            server.stop()
        else:
            disk.detach()


def crowded(ctx, there=None):
    """Three mounts of Frevo's client on the share, with six programs on the same four files."""
    server = ctx.server
    url = f"smb://{server.user}@{server.address}:{server.port}/{server.share}"
    with contextlib.ExitStack() as stack:
        here = [stack.enter_context(mounted(ctx, f"mount{at}", url=url)) for at in range(3)]
        there = there or stack.enter_context(mounted(ctx, "looking", "--no-cache", url=url))
        crowd(ctx, here, there, 15 if ctx.full else 4)


def is_left_out(ctx):
    """smbd keeps no folders' names, so that these checks would say nothing."""
    if ctx.server.kind != "frevo":
        ctx.add("server", "skip", 0.0, "the checks are of Frevo's caches")
    return ctx.server.kind != "frevo"


def check_kind(ctx, kind):
    if is_left_out(ctx):
        return
    with ctx.check("server-alive"), serving(ctx, kind) as disk:
        seconds = {"CROWD_SECONDS": "15"} if ctx.full else {}
        folders = [folder for folder in (disk.folder, disk.behind) if folder]
        python(ctx, "odd_disks_peer.py", kind.__name__, *folders, needed=NEEDED, env=seconds)
        with ctx.check("crowd-three-mounts"):
            crowded(ctx, Path(disk.folder))


def register(kind, name, *, full_only):
    def run_kind(ctx):
        check_kind(ctx, kind)

    words = "names in any case, times, long and private names, three clients at once"
    group(f"disks/fuse-{kind.__name__}", full_only=full_only, doc=f"A share on {name}: {words}.")(run_kind)


# The quick run has two sorts: one that ignores case (exfat, in disks/fuse-below), and one that passes everything on.
register(exfat, "exfat-fuse", full_only=True)
register(ntfs, "ntfs-3g", full_only=True)
register(bindfs, "bindfs", full_only=False)
register(mergerfs, "mergerfs", full_only=True)
register(sshfs, "sshfs", full_only=True)


@group("disks/fuse-below")
def fuse_below(ctx):
    """A folder of a share on exfat-fuse, which ignores case: long and private names, in any spelling."""
    if is_left_out(ctx):
        return
    with ctx.check("server-alive"), serving(ctx, exfat, "Below") as disk:
        for spelling in ("Below", "BELOW"):
            env = {"SMB_BELOW": spelling, "CROWD_SECONDS": "4"}
            python(ctx, "odd_disks_peer.py", "exfat", disk.place, needed=NEEDED, env=env)


@group("disks/nfs-names", full_only=True)
def nfs(ctx):
    """The same on NFS 4.2 in a guest."""
    if is_left_out(ctx) or missing(ctx):
        return
    with guest(ctx, ["nfs"]):
        ctx.server.share = "nfs"
        python(ctx, "odd_disks_peer.py", "nfs", "/mnt/srv/nfs", "/mnt/exp", needed=NEEDED)
        with ctx.check("crowd-three-mounts"):
            crowded(ctx)
