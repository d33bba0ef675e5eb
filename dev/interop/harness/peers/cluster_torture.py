"""smbtorture's tests of persistent handles, with failovers between their connections.

smbtorture does not connect again by itself. Its tests give up a connection and take the handle up on a new one;
the relay between them and the cluster has the failover happen there (`peers/torture_relay.py`).
"""

import contextlib
import os
import shutil
import subprocess
import threading
import time

from ..cluster import FLOATING, PASSWORD, SHARE, USER, wait_for, within
from ..model import HERE, Failure, Skip, group, selects
from .cluster import cluster_of
from .smbtorture import WORDS, parse

PORT = 4450
SAMBA = "4.25"
SUITES = "smb2.persistent-open", "smb2.persistent-open-reconnect-contended", "smb2.durable-v2-open"
# The tests that Frevo passes on one node; smbd, which has no persistent handles, passes the last two of them.
TESTS = {
    SUITES[0]: (
        "replay-reconnect",
        "replay-multi",
        "deleteonclose-reconnect",
        "deleteonclose-expire",
        "deleteonclose-twice",
        "timeout_5",
        "rename-dir-open-files",
    ),
    SUITES[1]: ("reconnect-contended-replay",),
    SUITES[2]: ("persistent-open-oplock", "persistent-open-lease"),
}
# Tests that do not connect again, or use two connections at once: the failover is before them.
BEFORE = (
    "timeout_5",
    "rename-dir-open-files",
    "reconnect-contended-replay",
    "persistent-open-oplock",
    "persistent-open-lease",
)


# Tests in which a client wants the file of another one that is away. In the grace of a new owner it waits for that one:
# the handle's time does not begin, and its lease is not broken.
AFTER_GRACE = ("timeout_5", "reconnect-contended-replay")
GRACE_SECONDS = 20


class Relay:
    """Relays the connections of a test, and lets `act` happen between two of them."""

    def __init__(self, cluster, act):
        self.cluster, self.act = cluster, act
        self.times, self.fault = 0, None
        self.process = subprocess.Popen(
            within("c2", HERE / "peers/torture_relay.py", PORT, FLOATING),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=cluster.log,
            text=True,
        )
        if self.process.stdout.readline() != "ready\n":
            raise Failure("the relay did not start")
        self.thread = threading.Thread(target=self.answer)
        self.thread.start()

    def answer(self):
        for _ in self.process.stdout:
            try:
                self.act(self.cluster)
                self.times += 1
            except (Failure, OSError, subprocess.SubprocessError) as fault:
                self.fault = self.fault or fault
            with contextlib.suppress(OSError):
                self.process.stdin.write("\n")
                self.process.stdin.flush()

    def end(self):
        self.process.kill()
        self.process.wait()
        self.thread.join()
        if self.fault:
            raise Failure(str(self.fault))


def kill(cluster):
    """The owner dies, another node takes the share over, and the dead one comes back as a node like the others."""
    owner = cluster.owner() or cluster.new_owner(None)
    owner.kill()
    cluster.new_owner(owner)
    owner.start()


def move(cluster):
    """The share is moved to the next node."""
    owner = cluster.owner()
    target = cluster.nodes[(cluster.nodes.index(owner) + 1) % len(cluster.nodes)]

    def moved():
        # A node that was started just now takes shares when it has registered itself.
        with contextlib.suppress(Failure):
            return owner.command("cluster", "move", SHARE, target.name, "--config", owner.directory / "frevo.toml")

    wait_for(f"{target.name} does not take the share", moved, step=0.2)
    cluster.new_owner(owner)


def torture(ctx, test, address, port):
    """Runs one test against an address; returns its result and reason."""
    scratch = ctx.work / "torture"
    scratch.mkdir(exist_ok=True)
    words = [HERE / "newer-samba", "-x", SAMBA, "smbtorture", f"--basedir={scratch}", f"//{address}/{SHARE}"]
    words += ["-p", port, f"-U{USER}%{PASSWORD}", "--format=subunit", "--target=samba3"]
    words += ["--option=torture:progress=no", test]
    try:
        done = subprocess.run(
            within("c2", *words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=90,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    ctx.log.write(f"$ smbtorture ... {test}\n{done.stdout}")
    ctx.log.flush()
    found = parse(done.stdout, False, done.returncode)
    silent = ("error", 0.0, f"smbtorture ended with {done.returncode}")
    result, _, reason = found.get(test.rsplit(".", 1)[-1]) or next(iter(found.values()), silent)
    return WORDS.get(result, "fail"), reason


def judged(ctx, cluster, suite, short, name, act):
    """A row: the test passes with `act` before it, and whenever it connects again."""
    times = 0
    with ctx.check(f"{short}-{name}"):
        act(cluster)
        if short in AFTER_GRACE:
            time.sleep(GRACE_SECONDS + 1)
        test = f"{suite}.{short}"
        if short in BEFORE:
            result, reason = torture(ctx, test, FLOATING, 445)
        else:
            relay = Relay(cluster, act)
            try:
                result, reason = torture(ctx, test, "127.0.0.1", PORT)
            finally:
                relay.end()
            times = relay.times
            if not times:
                raise Failure("the test did not connect again")
        ctx.log.write(f"{short}-{name}: {result}, with {times} failovers in the test\n")
        if result == "skip":
            raise Skip(reason)
        if result != "pass":
            raise Failure(f"{times} failovers: {reason}")


@group("cluster/torture", named_only=True)
def persistent(ctx):
    """smbtorture 4.25's tests of persistent handles: the owner is killed, or the share moved, before each test and
    whenever a test connects again."""
    if not shutil.which("debootstrap") and not os.environ.get("INTEROP_SAMBA_ROOTS"):
        raise Skip("no debootstrap, which fetches Samba 4.25")
    with cluster_of(ctx) as cluster:
        for suite, tests in TESTS.items():
            for short in tests:
                for name, act in (("kill", kill), ("move", move)):
                    if selects(ctx.patterns, f"{ctx.group.name}/{short}-{name}"):
                        judged(ctx, cluster, suite, short, name, act)
