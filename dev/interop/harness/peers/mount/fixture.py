"""The mount under test: starts it, ends it, waits for conditions."""

import contextlib
import os
import signal
import subprocess
import time

from ...model import Failure

PATIENCE = 30


def until(what, test, seconds=PATIENCE):
    """Waits until `test` holds."""
    end = time.monotonic() + seconds
    while not test():
        if time.monotonic() > end:
            raise Failure(f"{what}: not within {seconds} s")
        time.sleep(0.02)


def equal(found, wanted, what):
    if found != wanted:
        raise Failure(f"{what}: {str(found)[:120]!r}, wanted {str(wanted)[:120]!r}")


def refused(error, act):
    """Fails unless `act` raises OSError with this errno."""
    try:
        act()
    except OSError as found:
        return equal(found.errno, error, "errno")
    raise Failure(f"success, wanted errno {error}")


def no_fuse():
    """Returns why FUSE cannot be used on this machine, or None if it can."""
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as e:
        return f"no FUSE here: {e}"


class Mount:
    """A mounted share and the program that mounts it."""

    def __init__(self, ctx, name="mounted", *options, url=None, password=None):
        server = ctx.server
        self.folder = ctx.work / name
        self.folder.mkdir(exist_ok=True)
        self.said = ctx.work / f"{name}.said"
        url = url or f"smb://{server.user}@{server.address}:{server.port}/{server.share}"
        env = {**os.environ, "FREVO_PASSWORD": password or server.password}
        command = [os.environ["FREVO_CLIENT"], "mount", "--foreground", *options, url, self.folder]
        ctx.log.write("$ " + " ".join(map(str, command)) + "\n")
        with open(self.said, "w") as said:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=env)
        until("mounted", lambda: os.path.ismount(self.folder) or self.process.poll() is not None)
        if not os.path.ismount(self.folder):
            raise Failure(f"not mounted: {self.said.read_text()[-250:]}")

    def end(self, number=signal.SIGTERM):
        """Ends the mount by a signal; the exit must be clean."""
        self.process.send_signal(number)
        try:
            status = self.process.wait(PATIENCE)
        finally:
            self.abandon()
        if status or "is unmounted" not in self.said.read_text():
            raise Failure(f"status {status}: {self.said.read_text()[-250:]}")

    def abandon(self):
        """Kills the program and removes the mount, in any state."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if os.path.ismount(self.folder):
            subprocess.run(["umount", "-l", self.folder], check=False)


@contextlib.contextmanager
def mounted(ctx, *args, **more):
    mount = Mount(ctx, *args, **more)
    try:
        yield mount.folder
        mount.end()
    finally:
        mount.abandon()
