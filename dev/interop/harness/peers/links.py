"""Frevo's client with several channels over two links, of which one or both fail.

A channel whose link is dead is left within a second or so, its work goes on over the other, and it comes back when the
link does. The program ends with status 0, and both sides hold the same bytes.
"""

import os
import shutil
import subprocess
import time

from .. import trees
from ..model import Failure, group
from .outage import Link, Mortal, Program, files, no_leftovers, parts, same_bytes, write_random

SERVER, CLIENT = ("198.19.17.1", "198.19.18.1"), ("198.19.17.2", "198.19.18.2")
NOBODY = "02:00:00:00:99:99"
# Bytes a second: a copy takes as long on every machine.
RATE = 10 << 20
# Seconds in which a dead channel is left. It takes one; the machine may be busy.
LEFT_WITHIN = 3
BACK_WITHIN = 15


class TwoLinks:
    """A network namespace for clients with two links to this one, whose packets can be made to vanish."""

    def __init__(self):
        self.keeper = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.keeper.stdout.readline()
        self.within = ["nsenter", "-t", self.keeper.pid, "-n"]
        Link.ip("link set lo up", self.within)
        for at, (here, there) in enumerate(zip(SERVER, CLIENT, strict=True)):
            Link.ip(f"link add two{at} type veth peer name end{at} netns {self.keeper.pid}")
            Link.ip(f"addr add {here}/24 dev two{at}")
            Link.ip(f"link set two{at} up")
            Link.ip(f"addr add {there}/24 dev end{at}", self.within)
            Link.ip(f"link set end{at} up", self.within)

    def ends(self, at):
        return ((f"{CLIENT[at]} dev two{at}", ()), (f"{SERVER[at]} dev end{at}", self.within))

    def cut(self, at):
        for end, within in self.ends(at):
            Link.ip(f"neigh replace {end} lladdr {NOBODY} nud permanent", within)

    def mend(self, at):
        for end, within in self.ends(at):
            Link.ip(f"neigh del {end}", within)

    def channels(self, at):
        """Returns the count of the client's connections over a link."""
        listed = subprocess.run(
            [*map(str, self.within), "ss", "-Htn", "state", "established", "dst", SERVER[at]],
            capture_output=True,
            text=True,
            check=True,
        )
        return len(listed.stdout.splitlines())

    def end(self):
        for at in range(len(SERVER)):
            Link.ip(f"link del two{at}")
        self.keeper.stdin.close()
        self.keeper.wait()


class Scene:
    """A copy during which each link fails once."""

    def __init__(self, ctx, server, links):
        self.ctx, self.server, self.links = ctx, server, links

    def start(self, verb, *args):
        options = ("--channels", "4", "--bwlimit", str(RATE))
        return Program(
            self.ctx, self.server, os.environ["FREVO_CLIENT"], verb, *options, *args, within=self.links.within
        )

    def url(self, path):
        return f"smb://{self.server.user}@{self.server.address}/{self.server.share}/{path}"

    def soon(self, program, seconds, what, happened):
        """Waits until `happened()` is true; notes how long it took."""
        began = time.monotonic()
        program.until(happened, what)
        took = time.monotonic() - began
        self.ctx.log.write(f"{what}: {took:.2f} s\n")
        if took > seconds:
            raise Failure(f"{what} took {took:.1f} s, more than {seconds} s")

    def fail_in_turn(self, program, progress, mark):
        """Cuts the second link, then the first, each until its channels are gone; both come back."""
        links = self.links
        program.until(lambda: progress() >= mark and min(map(links.channels, (0, 1))) > 0, "channels over both links")
        for at in (1, 0):
            links.cut(at)
            before = progress()
            try:
                self.soon(program, LEFT_WITHIN, f"link {at} is left", lambda at=at: not links.channels(at))
                program.until(lambda before=before: progress() > before, "progress over the other link")
            finally:
                links.mend(at)
            self.soon(program, BACK_WITHIN, f"link {at} is used again", lambda at=at: links.channels(at) > 0)

    def fail_at_once(self, program):
        """Cuts both links for two seconds: the last channel is given more time than that."""
        for at in (0, 1):
            self.links.cut(at)
        time.sleep(2)
        for at in (0, 1):
            self.links.mend(at)
        program.good(120)

    def put(self, size):
        here, there = self.ctx.work / "large", self.server.path
        write_random(here, size)
        with self.ctx.check("put"):
            program = self.start("put", here, self.url("put"))
            self.fail_in_turn(program, lambda: parts(there), size // 20)
            self.fail_at_once(program)
            same_bytes(here, there / "put")
            no_leftovers(there)

    def get(self, size):
        there, back = self.server.path / "get", self.ctx.work / "back"
        shutil.copyfile(self.ctx.work / "large", there)
        back.mkdir()
        with self.ctx.check("get"):
            program = self.start("get", self.url("get"), back / "get")
            self.fail_in_turn(program, lambda: parts(back), size // 20)
            self.fail_at_once(program)
            same_bytes(back / "get", there)
            no_leftovers(back)

    def sync(self, size, piece=32 << 10):
        tree, there = self.ctx.work / "tree", self.server.path / "synced"
        count = size // piece
        for at in range(count):
            folder = tree / f"d{at % 31}" / f"e{at % 7}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"f{at}").write_bytes(os.urandom(piece))
        with self.ctx.check("sync"):
            program = self.start("sync", tree, self.url("synced"))
            self.fail_in_turn(program, lambda: files(there), count // 20)
            self.fail_at_once(program)
            trees.same_tree(tree, there)


# It waits most of the time.
@group("client/two-links", beside=60)
def two_links(ctx):
    """Frevo's client with 4 channels over two links: each link fails in turn, then both."""
    if ctx.server.kind != "frevo":
        ctx.add("skip", "skip", 0.0, "the server must listen on both links")
        return
    links = TwoLinks()
    server = None
    try:
        server = Mortal(os.environ["FREVO_CLIENT"], SERVER)
        scene = Scene(ctx, server, links)
        size = (800 if ctx.full else 160) << 20
        scene.put(size)
        scene.get(size)
        scene.sync(size)
    finally:
        if server:
            server.end()
        links.end()
