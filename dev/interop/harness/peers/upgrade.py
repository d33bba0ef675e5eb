"""Clients while the server is upgraded: a new process takes the sockets over, with `--replace`.

No connection is refused, no program fails, and both sides hold the same bytes.
"""

import os
import subprocess
import threading
import time

from ..model import Failure, group
from .cifs import guest
from .outage import Mortal, Scenes


class Upgraded(Mortal):
    """A Frevo server whose process is replaced by another one."""

    upgrades, is_upgrading = 0, False

    def upgrade(self):
        self.is_upgrading = True
        old, out = self.child, self.child.stdout
        self.start("--replace", str(old.pid))
        status = old.wait(timeout=30)
        out.close()
        if status:
            raise Failure(f"the old server ended with {status}")
        self.upgrades += 1
        self.is_upgrading = False


class Visitors:
    """smbclient again and again, each time with a connection of its own: a load, and a probe for refusals."""

    def __init__(self, ctx, server):
        self.ctx, self.server, self.faults, self.visits = ctx, server, [], 0
        self.over = threading.Event()
        self.here = ctx.work / "visit"
        self.here.write_bytes(os.urandom(300_000))
        self.threads = [threading.Thread(target=self.visit, args=(at,)) for at in range(2)]

    def visit(self, at):
        s = self.server
        name = f"visit{at}"
        script = f"put {self.here} {name}; get {name} {self.here}{at}; rm {name}; ls"
        command = ["smbclient", f"//{s.address}/{s.share}", "-p", str(s.port), "-U", f"{s.user}%{s.password}"]
        while not self.over.is_set():
            before = s.upgrades, s.is_upgrading
            done = subprocess.run(
                [*command, "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            output = done.stdout.decode(errors="replace")
            # smbclient does not connect again. A client that is connected while the server is
            # exchanged may fail, but the server must refuse no connection.
            went_on = before == (s.upgrades, s.is_upgrading) and not s.is_upgrading
            if "CONNECTION_REFUSED" in output or done.returncode and went_on:
                self.faults.append(output.strip()[-200:])
            elif not done.returncode:
                self.visits += 1

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()


@group("client/server-upgraded")
def server_upgraded(ctx):
    """Frevo's client, while a new process takes over, twice during each command, and smbclient comes and goes."""
    if ctx.server.kind != "frevo":
        ctx.add("skip", "skip", 0.0, "only Frevo is upgraded")
        return
    server = Upgraded(os.environ["FREVO_CLIENT"])
    try:
        with Visitors(ctx, server) as visitors:
            scenes = Scenes(ctx, server, server.upgrade, size=96 << 20, pieces=900, lines=250)
            scenes.put()
            scenes.get()
            scenes.sync()
            scenes.locked("share", "append and lock")
            scenes.locked("continuous", "append and lock, persistent handles", may_look=False)
        with ctx.check("smbclient"):
            if visitors.faults or not visitors.visits:
                raise Failure(f"{visitors.visits} good visits; {visitors.faults[:2]}")
    finally:
        server.end()


# Copies files to the share and back in chunks, and holds a locked file open all the time.
GUEST = """
import fcntl, hashlib, os, sys, time
sizes, rounds = 1 << 20, int(sys.argv[1])
held = open("held", "w+b", buffering=0)
fcntl.lockf(held, fcntl.LOCK_EX)
data, digest = os.urandom(sizes), hashlib.sha256()
with open("large", "wb", buffering=0) as there:
    for at in range(rounds):
        piece = hashlib.sha256(b"%d" % at).digest() + data[32:]
        there.write(piece)
        os.fsync(there.fileno())
        digest.update(piece)
        held.write(b"%7d\\n" % at)
        print("round", at, flush=True)
with open("large", "rb") as there:
    assert hashlib.file_digest(there, "sha256").hexdigest() == digest.hexdigest()
held.seek(0)
assert held.read() == b"".join(b"%7d\\n" % at for at in range(rounds))
held.close()
print("done", digest.hexdigest(), flush=True)
"""


def upgrade_under(ctx, options, rounds=60):
    """Upgrades the server twice while a guest writes."""
    server = Upgraded(os.environ["FREVO_CLIENT"])
    program = ctx.work / "load.py"
    program.write_text(GUEST)
    try:
        with ctx.check("writes-go-on"):
            told, over = [], threading.Event()

            def strike():
                large = server.path / "large"
                for mark in (rounds // 5, rounds // 2):
                    while not (large.exists() and large.stat().st_size >= mark << 20):
                        if over.is_set():
                            return
                        time.sleep(0.02)
                    try:
                        server.upgrade()
                    except (Failure, OSError, RuntimeError, subprocess.SubprocessError) as e:
                        told.append(str(e))
                        return

            striker = threading.Thread(target=strike)
            striker.start()
            try:
                env = {"SMB_ADDR": server.address, "SMB_SHARE": server.share}
                env |= {"SMB_USER": server.user, "SMB_PASS": server.password}
                status, output = guest(ctx, options, "python3", program, rounds, limit=300, env=env)
            finally:
                over.set()
                striker.join()
            if status or "done" not in output or told or server.upgrades != 2:
                raise Failure(f"status {status}, {server.upgrades} upgrades, {told}: {output.strip()[-250:]}")
            lines = (server.path / "held").read_bytes().split()
            if lines != [b"%d" % at for at in range(rounds)]:
                raise Failure(f"{len(lines)} lines of {rounds} in the file that was held open")
    finally:
        server.end()


@group("cifs/server-upgraded", full_only=True)
def cifs_upgraded(ctx):
    """cifs.ko: a guest writes, syncs and holds a locked file while a new process takes over, twice."""
    if ctx.server.kind != "frevo":
        ctx.add("skip", "skip", 0.0, "only Frevo is upgraded")
        return
    upgrade_under(ctx, "")
