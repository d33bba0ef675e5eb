"""Frevo's client with several channels over two links, of which one or both fail.

A channel whose link is dead is left within a second or so, its work goes on over the other, and it comes back when the
link does. The program ends with status 0, and both sides hold the same bytes.
"""

import os
import random
import shutil
import subprocess
import time

from .. import trees
from ..model import OUT, Failure, group
from .outage import Link, Mortal, Program, files, no_leftovers, parts, same_bytes, write_random

NOBODY = "02:00:00:00:99:99"
# Bytes per second: with this limit a copy takes as long on every machine.
RATE = 10 << 20
# Seconds within which the client stops using a dead channel. It needs one second; the machine may
# be busy.
LEFT_WITHIN = 3
BACK_WITHIN = 15


class TwoLinks:
    """A network namespace for clients with two links to this one, whose packets can be made to vanish."""

    def __init__(self, name, nets):
        self.name = name
        self.servers = tuple(f"198.19.{net}.1" for net in nets)
        self.clients = tuple(f"198.19.{net}.2" for net in nets)
        self.keeper = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.keeper.stdout.readline()
        self.within = ["nsenter", "-t", self.keeper.pid, "-n"]
        Link.ip("link set lo up", self.within)
        for at, (here, there) in enumerate(zip(self.servers, self.clients, strict=True)):
            Link.ip(f"link add {self.name}{at} type veth peer name end{at} netns {self.keeper.pid}")
            Link.ip(f"addr add {here}/24 dev {self.name}{at}")
            Link.ip(f"link set {self.name}{at} up")
            Link.ip(f"addr add {there}/24 dev end{at}", self.within)
            Link.ip(f"link set end{at} up", self.within)

    def ends(self, at):
        return ((f"{self.clients[at]} dev {self.name}{at}", ()), (f"{self.servers[at]} dev end{at}", self.within))

    def cut(self, at):
        for end, within in self.ends(at):
            Link.ip(f"neigh replace {end} lladdr {NOBODY} nud permanent", within)

    def mend(self, at):
        for end, within in self.ends(at):
            Link.ip(f"neigh del {end}", within)

    def reset(self, at, seconds):
        """Answers each packet over a link with a reset for a while, at the client's end."""
        rules = "".join(
            f"add chain inet strike {hook} {{ type filter hook {hook} priority 0; }}\n"
            f"add rule inet strike {hook} ip {field} {self.servers[at]} meta l4proto tcp reject with tcp reset\n"
            for hook, field in (("input", "saddr"), ("output", "daddr"))
        )
        self.nft("add table inet strike\n" + rules)
        try:
            time.sleep(seconds)
        finally:
            self.nft("delete table inet strike\n")

    def nft(self, script):
        subprocess.run([*map(str, self.within), "nft", "-f", "-"], input=script.encode(), check=True)

    def ends_of_connections(self, at):
        """Returns the client's ports of established connections over a link, all of whose packets are acknowledged."""
        listed = subprocess.run(
            [*map(str, self.within), "ss", "-HtniO", "state", "established", "dst", self.servers[at]],
            capture_output=True,
            text=True,
            check=True,
        )
        lines = (line.split() for line in listed.stdout.splitlines() if " backoff:" not in line)
        return {line[2].rpartition(":")[2] for line in lines}

    def channels(self, at):
        """Returns the count of the client's connections over a link."""
        listed = subprocess.run(
            [*map(str, self.within), "ss", "-Htn", "state", "established", "dst", self.servers[at]],
            capture_output=True,
            text=True,
            check=True,
        )
        return len(listed.stdout.splitlines())

    def end(self):
        for at in range(len(self.servers)):
            Link.ip(f"link del {self.name}{at}")
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


# The group mostly waits, so it runs in parallel with others.
@group("client/two-links", beside=60)
def two_links(ctx):
    """Frevo's client with 4 channels over two links: each link fails in turn, then both."""
    if ctx.server.kind != "frevo":
        ctx.add("skip", "skip", 0.0, "the server must listen on both links")
        return
    links = TwoLinks("two", (17, 18))
    server = None
    try:
        server = Mortal(os.environ["FREVO_CLIENT"], links.servers)
        scene = Scene(ctx, server, links)
        size = (800 if ctx.full else 160) << 20
        scene.put(size)
        scene.get(size)
        scene.sync(size)
    finally:
        if server:
            server.end()
        links.end()


class Strikes:
    """One link after the other fails: its packets vanish for a while, or are answered with resets.

    A link fails only while the session has channels over the other that work, so one channel lives all the time.
    """

    def __init__(self, ctx, server, links):
        """Begin before the program does: its first connection would not survive the trial of a reset."""
        self.ctx, self.server, self.links, self.program = ctx, server, links, None
        seed = int(os.environ.get("SEED", random.randrange(1 << 32)))
        ctx.log.write(f"SEED={seed}\n")
        self.dice = random.Random(seed)
        self.cuts = self.resets = 0
        try:
            links.reset(0, 0)
            self.can_reset = True
        except (OSError, subprocess.CalledProcessError) as e:
            ctx.log.write(f"no resets: {e}\n")
            self.can_reset = False

    def is_running(self):
        return self.program.child.poll() is None

    def works(self, at):
        """Returns true if the session has a channel over a link: to the server, and to the client's kernel."""
        ends = self.links.ends_of_connections(at)
        return any(
            channel["server_address"].rpartition(":")[0] == self.links.servers[at]
            and channel["address"].rpartition(":")[2] in ends
            for session in self.server.sessions()
            for channel in session["channels"]
        )

    def wait_for_both(self):
        """Waits until both links work, and for a while. Returns false if the program has ended."""
        end = time.monotonic() + 60
        while self.is_running():
            if self.works(0) and self.works(1):
                time.sleep(self.dice.uniform(0.05, 0.5))
                if self.works(0) and self.works(1):
                    return self.is_running()
            if time.monotonic() > end:
                raise Failure("no channels over both links within a minute")
            time.sleep(0.02)
        return False

    def strike(self):
        at = self.dice.randrange(2)
        # Alternate resets and cuts, so that even a short run has both.
        if self.can_reset and self.resets <= self.cuts:
            self.links.reset(at, self.dice.uniform(0.05, 0.3))
            self.resets += 1
            return
        self.links.cut(at)
        try:
            time.sleep(self.dice.uniform(0.05, 1.5))
        finally:
            self.links.mend(at)
        self.cuts += 1

    def go_on(self, program, seconds):
        """Strikes every 50 to 500 ms until the program ends, which it must do well."""
        self.program = program
        end = time.monotonic() + seconds
        while self.wait_for_both():
            if time.monotonic() > end:
                raise Failure(f"{self.program.name} has not ended within {seconds} s")
            self.strike()
        self.program.good(1)
        self.ctx.log.write(f"{self.cuts} cuts, {self.resets} resets\n")
        if not self.cuts or (self.can_reset and not self.resets):
            raise Failure(f"only {self.cuts} cuts and {self.resets} resets; set OPERATIONS to a larger number")


@group("client/links-once", beside=60)
def links_once(ctx):
    """Frevo's client with 4 channels over two links that fail in turn: every operation exactly once."""
    if ctx.server.kind != "frevo":
        ctx.add("skip", "skip", 0.0, "the server must listen on both links")
        return
    operations = int(os.environ.get("OPERATIONS", "16000"))
    links = TwoLinks("once", (27, 28))
    server = None
    try:
        server = Mortal(os.environ["FREVO_CLIENT"], links.servers)
        for share in ("share", "continuous"):
            with ctx.check(share):
                path, name = OUT / "tools/bin/exactly_once", f"once-{share}"
                args = (path, server.address, share, name, server.user, 4, operations)
                strikes = Strikes(ctx, server, links)
                program = Program(ctx, server, *args, within=links.within)
                try:
                    strikes.go_on(program, 120 + operations // 20)
                finally:
                    program.child.kill()
    finally:
        if server:
            server.end()
        links.end()


# A break that takes less than this went over the working channel.
DETOUR_MS = 200


class Trials:
    """Breaks of a lease whose client has a channel over each of two links, one of which is dead."""

    def __init__(self, ctx, server, links):
        self.ctx, self.server, self.links = ctx, server, links
        self.holder, self.opener = self.start("hold", links.within, 2), self.start("open", (), 1)
        self.dice = random.Random(int(os.environ.get("SEED", "1")))

    def start(self, mode, within, channels):
        s = self.server
        args = (*within, OUT / "tools/bin/break_trial", mode, s.address, s.share, "leased", s.user, channels)
        return subprocess.Popen(
            [str(a) for a in args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.ctx.log,
            env={**os.environ, "FREVO_PASSWORD": s.password},
            text=True,
        )

    @staticmethod
    def tell(program):
        program.stdin.write("\n")
        program.stdin.flush()

    @staticmethod
    def answer(program, word):
        """Returns the time that the program prints after `word`, in milliseconds."""
        line = program.stdout.readline().split()
        if not line or line[0] != word:
            raise Failure(f"no '{word}' but '{' '.join(line)}'")
        return int(line[1]) / 1000 if len(line) > 1 else 0

    def trial(self):
        """Returns how long a break takes to reach its client, in milliseconds."""
        end = time.monotonic() + 30
        while not all(map(self.links.channels, (0, 1))):
            if time.monotonic() > end:
                raise Failure("no channels over both links within 30 s")
            time.sleep(0.02)
        self.tell(self.holder)
        self.answer(self.holder, "held")
        at = self.dice.randrange(2)
        self.links.cut(at)
        try:
            self.tell(self.opener)
            asked = self.answer(self.opener, "asked")
            took = self.answer(self.holder, "broken") - asked
            self.answer(self.opener, "closed")
            return took
        finally:
            self.links.mend(at)

    def run(self, count):
        """Returns the durations of `count` breaks whose channel was dead, and the number of all trials."""
        found, trials = [], 0
        while len(found) < count:
            took = self.trial()
            trials += 1
            if took >= DETOUR_MS:
                found.append(took)
            if trials > 20 * count:
                raise Failure(f"only {len(found)} breaks of {trials} went over the dead link")
        return found, trials

    def end(self):
        for program in (self.holder, self.opener):
            program.kill()
            program.wait()


@group("client/break-over-dead-link", full_only=True)
def break_over_dead_link(ctx):
    """A break over a channel whose packets vanish reaches its client over the other within a second."""
    if ctx.server.kind != "frevo":
        ctx.add("skip", "skip", 0.0, "the server must listen on both links")
        return
    count = int(os.environ.get("TRIALS", "100"))
    links = TwoLinks("brk", (37, 38))
    server = trials = None
    try:
        server = Mortal(os.environ["FREVO_CLIENT"], links.servers)
        with ctx.check("within-a-second"):
            trials = Trials(ctx, server, links)
            found, all_trials = trials.run(count)
            found.sort()
            percentile = found[-(-len(found) * 99 // 100) - 1]
            ctx.log.write(
                f"{len(found)} of {all_trials} breaks had a dead channel: {found[0]:.0f} to {found[-1]:.0f} ms, "
                f"median {found[len(found) // 2]:.0f} ms, 99th percentile {percentile:.0f} ms\n"
            )
            if percentile >= 1000:
                raise Failure(f"the 99th percentile of {len(found)} breaks is {percentile:.0f} ms")
    finally:
        if trials:
            trials.end()
        if server:
            server.end()
        links.end()
