"""Frevo's client while its server is killed and restarted, and while its link is cut.

In every case the program ends with status 0, and both sides hold the same bytes.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from .. import trees
from ..model import OUT, Failure, group

# The address of tap3. Nothing else uses tap3 while these groups run.
MORTAL = "198.18.3.1"
LINE = 32
# Number of files that only the server has, so that a sync removes them.
EXTRA = 6000


class Mortal:
    """A Frevo server that is killed and restarted with its old state."""

    user, password, share, port = "smbuser", "Passw0rd", "share", 445

    def __init__(self, program, addresses=(MORTAL,)):
        self.program, self.address = program, addresses[0]
        listen = ", ".join(f'"{address}:{self.port}"' for address in addresses)
        self.directory = Path(tempfile.mkdtemp(prefix="mortal.", dir=os.environ["TMPDIR"]))
        self.path = self.directory / "share"
        self.path.mkdir()
        (self.directory / "frevo.toml").write_text(
            f'[server]\nname = "FREVO"\nlisten = [{listen}]\nstate_dir = "{self.directory}/state"\n'
            + "".join(
                f'[[share]]\nname = "{name}"\npath = "{self.path}"\ncontinuous = {continuous}\n'
                for name, continuous in (("share", "false"), ("continuous", "true"))
            )
        )
        subprocess.run(
            [program, "user", "--state-dir", self.directory / "state", "add", self.user, "--password-stdin"],
            input=self.password.encode(),
            stdout=subprocess.DEVNULL,
            check=True,
        )
        self.child = None
        self.start()

    def start(self, *more):
        with open(self.directory / "log", "a") as log:
            self.child = subprocess.Popen(
                [self.program, "serve", "--config", self.directory / "frevo.toml", *more],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        for line in self.child.stdout:
            if line.strip() == "ready":
                return
        raise RuntimeError("the server did not start: " + (self.directory / "log").read_text()[-300:])

    def kill(self):
        if self.child.poll() is not None:
            raise Failure(f"the server ended by itself with {self.child.returncode}")
        self.child.send_signal(signal.SIGKILL)
        self.child.wait()
        self.child.stdout.close()

    def sessions(self):
        """Returns the sessions as `frevo status` tells them."""
        command = [self.program, "status", "--json", "--socket", self.directory / "state/admin.sock"]
        return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)["sessions"]["rows"]

    def outage(self):
        """Leaves the port closed for a moment, so that clients are refused."""
        self.kill()
        time.sleep(0.5)
        self.start()

    def end(self):
        self.kill()
        shutil.copyfile(self.directory / "log", OUT / "logs" / "server-mortal.log")
        shutil.rmtree(self.directory)


class Program:
    """A client program that runs while its server fails."""

    def __init__(self, ctx, server, *args, within=()):
        args = [str(a) for a in args]
        ctx.log.write("$ " + " ".join(args) + "\n")
        ctx.log.flush()
        self.name = Path(args[0]).name + " " + args[1]
        self.log = ctx.log
        self.child = subprocess.Popen(
            [*map(str, within), *args],
            stdin=subprocess.DEVNULL,
            stdout=ctx.log,
            stderr=ctx.log,
            cwd=ctx.work,
            env={**os.environ, "FREVO_PASSWORD": server.password},
        )

    def until(self, happened, what):
        """Waits until `happened()` is true, while the program runs."""
        end = time.monotonic() + 60
        while not happened():
            if self.child.poll() is not None:
                raise Failure(f"{self.name} ended with {self.child.returncode} before {what}")
            if time.monotonic() > end:
                raise Failure(f"{self.name}: no {what} within a minute")
            time.sleep(0.002)
        if self.child.poll() is not None:
            raise Failure(f"{self.name} was too fast: it had ended before {what}")

    def good(self, timeout):
        """Waits for the end of the program, whose status must be 0."""
        try:
            status = self.child.wait(timeout)
        except subprocess.TimeoutExpired:
            self.child.kill()
            raise
        if status:
            raise Failure(f"{self.name} ended with {status}: {self.last_line()}")

    def last_line(self):
        """Returns the last line of the log, which is why the program failed."""
        self.log.flush()
        lines = Path(self.log.name).read_text(errors="replace").splitlines()
        return next((line for line in reversed(lines) if line.strip()), "it said nothing")


def parts(folder):
    """Returns the bytes in partial files."""
    total = 0
    for part in folder.glob("*.frevo-part"):
        with contextlib.suppress(FileNotFoundError):
            total += part.stat().st_blocks * 512
    return total


def files(folder):
    return sum(len(names) for _, _, names in os.walk(folder))


def write_random(path, size):
    with open(path, "wb") as f:
        for _ in range(size >> 20):
            f.write(os.urandom(1 << 20))


def same_bytes(a, b):
    if subprocess.run(["cmp", "--", a, b], stdout=subprocess.PIPE, stderr=subprocess.STDOUT).returncode:
        raise Failure(f"{a.name} and {b.name} differ")


def no_leftovers(folder):
    if left := [str(p.relative_to(folder)) for p in folder.rglob("*.frevo-part")]:
        raise Failure(f"files left: {left}")


class Scenes:
    """Runs every command with `strike` in the middle of it; all kinds of outage use this."""

    def __init__(self, ctx, server, strike, *, size, pieces, lines, within=(), timeout=120):
        self.ctx, self.server, self.strike, self.within, self.timeout = ctx, server, strike, within, timeout
        self.size, self.pieces, self.lines = size, pieces, lines

    def start(self, verb, *args):
        return Program(self.ctx, self.server, os.environ["FREVO_CLIENT"], verb, *args, within=self.within)

    def url(self, path, share=None):
        s = self.server
        return f"smb://{s.user}@{s.address}:{s.port}/{share or s.share}/{path}"

    def struck(self, program, progress, marks, what):
        for mark in marks:
            program.until(lambda mark=mark: progress() >= mark, f"{mark} {what}")
            self.strike()
        program.good(self.timeout)

    def put(self):
        here = self.ctx.work / "large"
        write_random(here, self.size)
        with self.ctx.check("put"):
            program = self.start("put", here, self.url("put"))
            there = self.server.path
            self.struck(program, lambda: parts(there), [self.size // 5, self.size // 5 * 3], "bytes there")
            same_bytes(here, there / "put")
            no_leftovers(there)

    def get(self):
        there = self.server.path / "get"
        shutil.copyfile(self.ctx.work / "large", there)
        with self.ctx.check("get"):
            back = self.ctx.work / "back"
            back.mkdir()
            program = self.start("get", self.url("get"), back / "get")
            self.struck(program, lambda: parts(back), [self.size // 5, self.size // 5 * 3], "bytes here")
            same_bytes(back / "get", there)
            no_leftovers(back)

    def sync(self):
        tree = self.ctx.work / "tree"
        for at in range(self.pieces):
            folder = tree / f"d{at % 17}" / f"e{at % 5}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"f{at}").write_bytes(os.urandom(1000 + at * 131 % 150_000))
        marks = [self.pieces // 4, self.pieces // 2]
        with self.ctx.check("sync up"):
            there = self.server.path / "synced"
            program = self.start("sync", tree, self.url("synced"))
            self.struck(program, lambda: files(there), marks, "files there")
            trees.same_tree(tree, there)
        with self.ctx.check("sync down"):
            back = self.ctx.work / "synced"
            program = self.start("sync", self.url("synced"), back)
            self.struck(program, lambda: files(back), marks, "files here")
            trees.same_tree(tree, back)
        with self.ctx.check("sync --delete"):
            shutil.rmtree(tree / "d3")
            shutil.rmtree(tree / "d4")
            # With this many files even a fast client is interrupted while it removes them.
            extra = there / "extra"
            for at in range(EXTRA):
                folder = extra / f"d{at % 20}"
                folder.mkdir(parents=True, exist_ok=True)
                (folder / f"f{at}").touch()
            program = self.start("sync", "--delete", tree, self.url("synced"))
            self.struck(program, lambda: EXTRA - files(extra), [EXTRA // 8], "files removed")
            trees.same_tree(tree, there)

    def locked(self, share, name, may_look=True):
        """Two programs lock a file and append lines to it in turn."""
        with self.ctx.check(name):
            there = self.server.path / "lines"
            there.unlink(missing_ok=True)
            program = OUT / "tools/bin/append_locked"
            s = self.server
            two = [
                Program(
                    self.ctx,
                    s,
                    program,
                    f"{s.address}:{s.port}",
                    share,
                    "lines",
                    s.user,
                    who,
                    self.lines,
                    within=self.within,
                )
                for who in ("a", "b")
            ]
            total = self.lines * 2 * LINE

            def written():
                return there.stat().st_size if there.exists() else 0

            for mark in (total // 4, total // 2):
                two[0].until(lambda mark=mark: written() >= mark, f"{mark} bytes")
                self.strike()
            for one in two:
                one.good(self.timeout)
            content = there.read_bytes()
            found = [line.split() for line in content.decode().splitlines()]
            for who in ("a", "b"):
                numbers = [int(number) for writer, number in found if writer == who]
                if numbers != list(range(self.lines)):
                    odd = next((i for i, n in enumerate(numbers) if n != i), len(numbers))
                    raise Failure(f"writer {who}: {len(numbers)} lines of {self.lines}, wrong from {odd} on")
            if len(content) != total:
                raise Failure(f"{len(content)} bytes instead of {total}")
            if not may_look:
                self.ctx.log.flush()
                said = Path(self.ctx.log.name).read_text().rsplit("append_locked", 1)[1]
                if said.count("opened again 0 times") != 2:
                    raise Failure("handles were lost: " + " ".join(said.split())[-200:])


@group("client/server-killed")
def server_killed(ctx):
    """Frevo's client: kill -9 and restart of the server, twice during each command."""
    if ctx.server.kind != "frevo":
        ctx.add("skip", "skip", 0.0, "only Frevo is killed")
        return
    server = Mortal(os.environ["FREVO_CLIENT"])
    try:
        scenes = Scenes(ctx, server, server.outage, size=96 << 20, pieces=900, lines=250)
        scenes.put()
        scenes.get()
        scenes.sync()
        scenes.locked("share", "append and lock")
        scenes.locked("continuous", "append and lock, persistent handles", may_look=False)
    finally:
        server.end()


class Link:
    """A network namespace for clients, whose packets to the servers can be made to vanish.

    Both ends get a wrong link address for each other: nothing is refused, and no carrier is lost.
    """

    HERE, THERE, NOBODY = "198.19.7.1", "198.19.7.2", "02:00:00:00:99:99"

    def __init__(self):
        self.keeper = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.keeper.stdout.readline()
        self.within = ["nsenter", "-t", self.keeper.pid, "-n"]
        for line in (
            f"link add cut0 type veth peer name cut1 netns {self.keeper.pid}",
            f"addr add {self.HERE}/30 dev cut0",
            "link set cut0 up",
        ):
            self.ip(line)
        for line in (
            f"addr add {self.THERE}/30 dev cut1",
            "link set lo up",
            "link set cut1 up",
            f"route add default via {self.HERE}",
        ):
            self.ip(line, self.within)

    @staticmethod
    def ip(line, within=()):
        subprocess.run([*map(str, within), "ip", *line.split()], check=True)

    def cut(self, seconds):
        ends = ((f"{self.THERE} dev cut0", ()), (f"{self.HERE} dev cut1", self.within))
        for end, within in ends:
            self.ip(f"neigh replace {end} lladdr {self.NOBODY} nud permanent", within)
        time.sleep(seconds)
        for end, within in ends:
            self.ip(f"neigh del {end}", within)

    def end(self):
        # Remove the link at once: the end of the namespace would remove it only later.
        self.ip("link del cut0")
        self.keeper.stdin.close()
        self.keeper.wait()


def cuts(ctx, seconds, size, pieces, lines):
    link = Link()
    try:
        reached, _ = ctx.command(
            *link.within, "timeout", "5", "bash", "-c", f"exec 3<>/dev/tcp/{ctx.server.address}/{ctx.server.port}"
        )
        if reached:
            ctx.add("link", "fail", 0.0, "the server is not reachable over the link for this check")
            return
        scenes = Scenes(
            ctx,
            ctx.server,
            lambda: link.cut(seconds),
            size=size,
            pieces=pieces,
            lines=lines,
            within=link.within,
            timeout=180,
        )
        scenes.put()
        scenes.get()
        scenes.sync()
        scenes.locked(ctx.server.share, "append and lock")
        if ctx.server.kind == "frevo":
            scenes.locked("continuous", "append and lock, persistent handles", may_look=False)
    finally:
        link.end()


@group("client/link-cut", full_only=True)
def link_cut(ctx):
    """Frevo's client: all packets are lost for 30 s, twice during each command."""
    cuts(ctx, 30, 200 << 20, 1500, 400)


@group("client/link-cut-short")
def link_cut_short(ctx):
    """Frevo's client: all packets are lost for 2 s, which costs time and nothing else."""
    cuts(ctx, 2, 96 << 20, 900, 250)
