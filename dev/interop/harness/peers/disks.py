"""The server in a guest kernel with features that the host may lack: quotas, failing disks, several file systems."""

import contextlib
import os
import shutil
import subprocess
import time

from ..model import HERE, Failure, group
from .clients import python

# Debian's User Mode Linux kernel has quotas, XFS, btrfs and the device mapper.
KERNEL = os.environ.get("DISKS_KERNEL", "linux.uml")


class GuestServer:
    """Frevo or smbd in a guest with disks of its own; it runs until closed."""

    address, port = "198.18.0.2", 445
    share, share2, user, user2, password = "share", "share2", "smbuser", "smbuser2", "Passw0rd"

    def __init__(self, ctx, disks, acting, more=(), seconds=600):
        """`acting`: files are used as whoever has logged on; `more` are further arguments of with-frevo."""
        self.kind, self.jobs, self.log = ctx.server.kind, ctx.work / "jobs", ctx.log
        self.jobs.mkdir()
        (self.jobs / "up").touch()
        if self.kind == "frevo":
            serve = [
                "with-frevo",
                "-b",
                os.environ["FREVO_CLIENT"],
                "-x",
                "--encryption",
                "-x",
                "offered",
                "-x",
                "--signing",
                "-x",
                "offered",
                *(["-u", "-A", "smbuser2"] if acting else []),
                *more,
            ]
        else:
            serve = ["with-samba", *([] if acting else ["-s", "force user = root"])]
        self.child = subprocess.Popen(
            [
                HERE / "linux-client",
                "-M",
                "-k",
                KERNEL,
                "-m",
                "1024M",
                "-t",
                str(seconds),
                "--",
                HERE / "guest-disks",
                self.jobs,
                ",".join(disks),
                *serve,
            ],
            stdin=subprocess.DEVNULL,
            stdout=ctx.log,
            stderr=ctx.log,
        )
        end = time.monotonic() + 60
        while not (self.jobs / "ready").exists():
            if self.child.poll() is not None or time.monotonic() > end:
                self.end()
                raise RuntimeError("the guest with the server did not start; see its log")
            time.sleep(0.05)

    def environment(self):
        return {
            "SMB_ADDR": self.address,
            "SMB_PORT": str(self.port),
            "SMB_SHARE": self.share,
            "SMB_USER": self.user,
            "SMB_PASS": self.password,
            "GUEST_JOBS": str(self.jobs),
            "GUEST_SERVER": self.kind,
            "LC_ALL": "C.UTF-8",
        }

    def run(self, script, timeout=60):
        """Runs a script in the guest; returns what it says. Raises Failure if it fails."""
        number = 1 + sum(1 for job in self.jobs.iterdir() if job.suffix == ".rc")
        draft, status = self.jobs / "draft", self.jobs / f"{number}.rc"
        draft.write_text(script)
        draft.rename(self.jobs / str(number))
        end = time.monotonic() + timeout
        while not (status.exists() and status.read_text().endswith("\n")):
            if time.monotonic() > end:
                raise Failure(f"no end in the guest: {script}")
            time.sleep(0.05)
        said = (self.jobs / f"{number}.out").read_text()
        if status.read_text().strip() != "0":
            raise Failure(f"{script}: {said[-200:]}")
        return said

    def end(self):
        (self.jobs / "up").unlink(missing_ok=True)
        try:
            return self.child.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.child.terminate()
            return self.child.wait(timeout=30)


@contextlib.contextmanager
def guest(ctx, disks, acting=False, **more):
    """Runs the group's server in a guest; one row checks that it is alive at the end."""
    before, served = ctx.server, None
    try:
        ctx.server = served = GuestServer(ctx, disks, acting, **more)
        yield
    finally:
        if served:
            with ctx.check("server-alive"):
                if status := served.end():
                    raise Failure(f"status {status}: the server or its guest ended during the checks")
        ctx.server = before


def missing(ctx):
    """Skips the group on machines without such a kernel."""
    if not shutil.which(KERNEL):
        ctx.add("kernel", "skip", 0.0, "user-mode-linux is not installed")
    return not shutil.which(KERNEL)


@group("disks/quotas")
def quotas(ctx):
    """User quotas of the guest's kernel on ext4 and XFS: queried, enforced, set."""
    if not missing(ctx):
        with guest(ctx, ["ext4", "xfs"], acting=True):
            python(ctx, "quotas_peer.py", needed=["ext4-told", "xfs-told", "df-by-mount"])


@group("disks/features")
def features(ctx):
    """Holes, shared extents, large streams, default ACLs and snapshots on ext4, XFS and btrfs."""
    if not missing(ctx):
        with guest(ctx, ["ext4", "xfs", "btrfs"]):
            python(ctx, "features_peer.py", needed=["ext4-copies", "xfs-copies", "btrfs-snapshots"])


@group("disks/faults")
def faults(ctx):
    """Full, read-only and failing disks: the right statuses, and no false success of FLUSH."""
    if not missing(ctx):
        with guest(ctx, ["ext4", "xfs", "few", "sick"]):
            python(ctx, "faults_peer.py", needed=["full", "fails", "flush-never-lies"])


@group("disks/nfs", full_only=True)
def nfs(ctx):
    """A share on NFS whose server stalls: its requests wait, all others are served."""
    if not missing(ctx):
        with guest(ctx, ["ext4", "nfs"]):
            python(ctx, "nfs_peer.py", needed=["everything", "stalls"])
