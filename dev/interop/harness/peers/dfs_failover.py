"""A link with two targets, whose first server is killed or falls silent: clients go on at the next one."""

import contextlib
import os
import signal
import subprocess
import time

from .. import namespace, suites
from ..model import HERE, Failure, Skip, group, selects
from ..namespace import ROOT, ROOT_SHARE, SECOND, THIRD
from ..prepare import VENV
from .mount.fixture import mounted, no_fuse, until

# Seconds within which a client is to go on.
WITHIN = 3.0
# Seconds for which a client works before the strike, and afterwards at most.
BEFORE, AFTER = 1.0, 40.0
FILES = 3000


class World:
    """A namespace with one link to two servers, whose shares differ in the file `who` only."""

    def __init__(self, ctx, stack):
        self.ctx = ctx
        namespace.addresses(SECOND, THIRD)
        targets = [{"path": f"\\\\{SECOND}\\share"}, {"path": f"\\\\{THIRD}\\share", "rank": 1}]
        if ctx.server.kind != "frevo":
            targets = [target["path"] for target in targets]
        self.first = namespace.frevo(SECOND, share=False)
        stack.callback(self.first.stop)
        self.next = namespace.frevo(THIRD, share=False)
        stack.callback(self.next.stop)
        self.root = namespace.root(ctx, {"data": targets})
        stack.callback(self.root.stop)
        for server, who in ((self.first, "first"), (self.next, "next")):
            (server.path / "who").write_text(who)
            (server.path / "many").mkdir()
            for n in range(FILES):
                (server.path / f"many/{n}").write_text(f"{n}")

    def url(self, path=""):
        return f"smb://{self.root.user}@{ROOT}/{ROOT_SHARE}/{path}"

    def environment(self):
        return {"SMB_ADDR": ROOT, "SMB_SHARE": ROOT_SHARE, "FREVO_PASSWORD": self.root.password}

    def kill(self):
        os.kill(namespace.process_of(self.first), signal.SIGKILL)

    def silence(self):
        rules = "".join(
            f"add chain inet gone {hook} {{ type filter hook {hook} priority 0; }}\n"
            f"add rule inet gone {hook} ip {field} {SECOND} drop\n"
            for hook, field in (("input", "daddr"), ("output", "saddr"))
        )
        self.nft("add table inet gone\n" + rules)

    def end(self):
        subprocess.run(["nft", "delete", "table", "inet", "gone"], check=False, stderr=subprocess.DEVNULL)

    @staticmethod
    def nft(script):
        subprocess.run(["nft", "-f", "-"], input=script.encode(), check=True)


def judged(path, struck):
    """Reads `TIME WORD` of each read of the client; returns the seconds for which none succeeded after the strike."""
    reads = [line.split() for line in path.read_text().splitlines() if line.endswith(("first", "next"))]
    times = [float(at) for at, word in reads if word == "first"]
    later = [float(at) for at, word in reads if word == "next"]
    if not times or not later:
        raise Failure(f"{len(times)} reads at the first target, {len(later)} at the next: {path.read_text()[-200:]}")
    if later[0] < struck:
        raise Failure("the client used the second target before the strike")
    return later[0] - max(at for at in times if at < later[0])


def working(ctx, world, strike, start):
    """Runs a client that writes a line for each read, strikes, and fails if it stands still for more than WITHIN."""
    to = ctx.work / "reads"
    to.write_text("")
    program = start(to)
    try:
        until("the client reads", lambda: "first" in to.read_text(), 60)
        time.sleep(BEFORE)
        struck = time.time()
        strike()
        end = time.monotonic() + AFTER
        while "next" not in to.read_text() and time.monotonic() < end and program.poll() is None:
            time.sleep(0.05)
        time.sleep(0.5)
    finally:
        program.terminate()
        output = program.communicate()[0]
        ctx.log.write((output or b"").decode(errors="replace")[-3000:] + "\n")
    gap = judged(to, struck)
    ctx.log.write(f"stood still for {gap:.2f} s\n")
    if gap > WITHIN:
        raise Failure(f"stood still for {gap:.2f} s")


def started(ctx, world, *command):
    env = {**os.environ, **world.root.environment(), **world.environment()}
    words = [str(word) for word in command]
    ctx.log.write("$ " + " ".join(words) + "\n")
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, cwd=ctx.work)


def reader(how, *more):
    """Returns a client of dfs_failover_peer.py."""

    def start(ctx, world, to):
        return started(ctx, world, VENV / "bin/python", HERE / "peers/dfs_failover_peer.py", how, to, *more)

    return start


def mount(ctx, world, strike):
    if reason := no_fuse():
        raise Skip(reason)
    with mounted(ctx, "failing-over", url=world.url()) as here:
        working(ctx, world, strike, lambda to: reader("mounted", here / "data/who")(ctx, world, to))


def smbprotocol(ctx, world, strike):
    working(ctx, world, strike, lambda to: reader("smbprotocol")(ctx, world, to))


def get(ctx, world, strike):
    """`frevo get -r` of many files: the longest time for which none arrived."""
    to = ctx.work / f"fetched {time.monotonic()}"
    program = started(ctx, world, os.environ["FREVO_CLIENT"], "get", "-r", world.url("data/many"), to)
    last, longest, count, is_struck = time.monotonic(), 0.0, 0, False
    while program.poll() is None:
        time.sleep(0.01)
        now = len(os.listdir(to)) if to.exists() else 0
        if now != count:
            longest = max(longest, time.monotonic() - last if is_struck else 0.0)
            last, count = time.monotonic(), now
        if count > FILES // 5 and not is_struck:
            is_struck = True
            strike()
    output = program.communicate()[0].decode()
    ctx.log.write(f"{output}no file arrived for {longest:.2f} s\n")
    found = {name: (to / name).read_text() for name in os.listdir(to)}
    if program.returncode or found != {f"{n}": f"{n}" for n in range(FILES)}:
        raise Failure(f"status {program.returncode}, {len(found)} files: {output[-200:]}")
    if not is_struck or longest > WITHIN:
        raise Failure(f"struck: {is_struck}, no file arrived for {longest:.2f} s")


def cifs(ctx, world, strike):
    """The guest's clock may differ from this machine's: its own times are compared."""
    text = f"exec python3 {HERE}/peers/dfs_failover_peer.py mounted {ctx.work}/reads /mnt/smb/data/who"

    def start(to):
        to.write_text("")
        return started(
            ctx,
            world,
            *[HERE / "linux-client", "-o", "echo_interval=1,cache=none", "-t", 120, "--", "bash", "-c", text],
        )

    working(ctx, world, strike, start)


def starting(*command):
    """Returns a client that starts after the strike, and has to show what the second target has."""

    def run(ctx, world, strike):
        strike()
        began = time.monotonic()
        words = [word.format(url=world.url("data/who")) if isinstance(word, str) else word for word in command]
        status, output = ctx.command(*words, timeout=60, env=world.environment())
        took = time.monotonic() - began
        if status or "next" not in output:
            raise Failure(f"status {status} after {took:.1f} s: {output.strip()[-200:]}")
        if took > WITHIN:
            raise Failure(f"it took {took:.2f} s")

    return run


def frevo_starts(ctx, world, strike):
    starting(os.environ["FREVO_CLIENT"], "cat", "{url}")(ctx, world, strike)


def smbclient(ctx, world, strike):
    starting(*world.root.smbclient("cd data", "get who -", share=ROOT_SHARE))(ctx, world, strike)


CLIENTS = {
    "frevo-mount": mount,
    "frevo-get": get,
    "cifs": cifs,
    "smbprotocol": smbprotocol,
    "frevo-starts": frevo_starts,
    "smbclient-starts": smbclient,
    "smbprotocol-starts": starting(VENV / "bin/python", HERE / "peers/dfs_failover_peer.py", "once"),
    "smbj-starts": starting(
        "java", "-cp", f"{suites.JAVA}/classes:{suites.JAVA}/jars/*", "SmbjWalk", "data/who", "-", "cat"
    ),
}


@group("dfs/failover", seconds=120, full_only=True)
def failover(ctx):
    """The first target's server is killed, or falls silent: each client that can goes on at the second within 3 s."""
    for name, client in CLIENTS.items():
        for strike in ("kill", "silence"):
            row = f"{name}-{strike}"
            if not selects(ctx.patterns, f"{ctx.group.name}/{row}"):
                continue
            with contextlib.ExitStack() as stack:
                world = World(ctx, stack)
                stack.callback(world.end)
                with ctx.check(row):
                    client(ctx, world, getattr(world, strike))
