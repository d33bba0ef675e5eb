"""How soon clients of a cluster learn of its changes, and write again.

The groups run only when named, and measure `CLUSTER_ROUNDS` (50) failovers, moves and drains.
"""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time

from ..cluster import (
    ADDRESSES,
    FLOATING,
    MEMBERS,
    NODES,
    PASSWORD,
    SHARE,
    USER,
    Load,
    percentiles,
    stalls,
    wait_for,
    within,
)
from ..model import HERE, Failure, group
from ..prepare import TOOLS, VENV
from .cluster import rounds
from .witness import NAME, watched_cluster

# Seconds that a node has until the cluster takes it for dead, `ttl` of the nodes.
TTL = 2.0
# Milliseconds that a writer rests after a write: the writers are to leave the processors to what is measured.
REST = 10
# Seconds of undisturbed load, in which sessions get witnesses, and those from one failover to the next: a client heeds
# its witness eight times in a minute.
CALM, SPACE = 1.0, 8.0
# Seconds in which a client is to learn of a dead node, and to be told of what the cluster knows.
MOST_LEARNING, MOST_TELLING = TTL + 0.3, 0.1
# Seconds after which each writer is to have written again, with a witness and without one.
MOST_WITH, MOST_WITHOUT = 2.5, 4.0
# Numbers of MS-SWN: RESOURCE_STATE_AVAILABLE and _UNAVAILABLE; RESOURCE_CHANGE and CLIENT_MOVE.
AVAILABLE, UNAVAILABLE, CHANGE, MOVE = 1, 255, 1, 2


def figures(name, found, wanted):
    """The words for times in seconds, and whether they are good enough."""
    middle, most = percentiles(found)
    load = os.getloadavg()[0]
    words = f"{name}: {len(found)} times, p50 {middle:.3f} s, p99 {most:.3f} s, at most {max(found):.3f} s"
    return f"{words}; wanted {wanted} s at p99; load {load:.1f}", most <= wanted


def judge(ctx, row, *judged):
    """Adds the figures, and fails if one is not good enough."""
    for at, (words, _) in enumerate(judged):
        ctx.add(f"{row}-figures-{at + 1}", "pass", 0.0, words)
    for words, is_good in judged:
        if not is_good:
            raise Failure(words)


class News:
    """What the sessions of the load have heeded, by the file that it writes."""

    def __init__(self, path, writers):
        self.path, self.writers = path, writers

    def lines(self):
        """The writer, the moment in seconds, the count and the address of each line that is whole."""
        text = self.path.read_text() if self.path.exists() else ""
        for line in text[: text.rfind("\n") + 1].splitlines():
            writer, moment, count, address = line.split()
            yield int(writer), int(moment) / 1e9, int(count), address

    def all_watched(self):
        last = {writer: address for writer, _, _, address in self.lines()}
        return len(last) == self.writers and "-" not in last.values()

    def told(self):
        """The moments at which each writer's session has heeded its witness."""
        found, counts = [[] for _ in range(self.writers)], [0] * self.writers
        for writer, moment, count, _ in self.lines():
            if count > counts[writer]:
                counts[writer] = count
                found[writer].append(moment)
        return found


@contextlib.contextmanager
def silent(node):
    """The node falls silent: no packet leaves it or comes in, as if its machine were cut off."""
    with node.cut_off(*(name for name in ADDRESSES if name != node.name)):
        node.signal(signal.SIGSTOP)
        yield
        node.signal(signal.SIGCONT)


def fall_silent(ctx, cluster, with_witness):
    """The machine of the owner falls silent again and again; returns the begins and ends of it, the writes and the
    news."""
    at = [word for node in NODES for word in ("--at", ADDRESSES[node])]
    path = ctx.work / "news"
    words = [*at, "--news", path] if with_witness else [*at, "--no-witness"]
    load = Load(cluster, TOOLS / "frevo-cluster-load", rest=REST, words=words, host=NAME)
    news = News(path, load.writers)
    moments = []
    try:
        for _ in range(rounds(50)):
            time.sleep(CALM)
            load.is_well()
            if with_witness:
                wait_for("a session has no witness", news.all_watched)
            owner = cluster.owner() or cluster.new_owner(None)
            begin = time.monotonic()
            with silent(owner):
                load.wait_for_all(begin + 0.1)
                time.sleep(0.2)
                moments.append((begin, time.monotonic()))
                # The node is not to come back while its lease counts.
                time.sleep(max(0.0, begin + TTL + 0.5 - time.monotonic()))
            owner.kill()
            owner.start()
            if with_witness:
                time.sleep(max(0.0, begin + SPACE - CALM - time.monotonic()))
        return moments, load.end(), news.told()
    finally:
        load.close()


@group("cluster/witness-failover", named_only=True)
def failover(ctx):
    """How soon clients learn of a node that falls silent, and write again, with a witness and without one."""
    with ctx.check("with"), watched_cluster(ctx) as cluster:
        moments, writes, told = fall_silent(ctx, cluster, True)
        learned, alone = [], 0
        for begin, end in moments:
            for each in told:
                first = next((moment for moment in each if begin < moment < end), None)
                learned += [first - begin] if first else []
                alone += first is None
        said = f"told by the witness, {alone} sessions found out by themselves before"
        written = stalls(writes, moments)
        judge(ctx, "with", figures(said, learned, MOST_LEARNING), figures("written again", written, MOST_WITH))
    with ctx.check("without"), watched_cluster(ctx) as cluster:
        moments, writes, _ = fall_silent(ctx, cluster, False)
        judge(ctx, "without", figures("written again", stalls(writes, moments), MOST_WITHOUT))


@group("cluster/witness-told", named_only=True)
def told(ctx):
    """How soon clients are told of a move and of a drain that the cluster knows."""
    with watched_cluster(ctx) as cluster, Watching(ctx) as watching:
        for name, act in (("move", move), ("drain", drain)):
            with ctx.check(name):
                address, moved = measure(cluster, watching, act)
                judge(
                    ctx,
                    name,
                    figures("change of the address told", address, MOST_TELLING),
                    figures("move of clients told", moved, MOST_TELLING),
                )


def move(cluster, owner, to):
    owner.command("cluster", "move", SHARE, to.name, "--config", owner.directory / "frevo.toml")


def drain(cluster, owner, to):
    to.command("cluster", "drain", owner.name, "--config", to.directory / "frevo.toml")


class Watching:
    """An etcdctl that watches the keys of the cluster, and clients at all nodes that listen to their witnesses. All
    that comes has its moment."""

    def __init__(self, ctx):
        self.ctx, self.keys, self.news = ctx, [], []

    def __enter__(self):
        endpoints = ",".join(f"http://{ADDRESSES[member]}:2379" for member in MEMBERS)
        prefix = f"frevo/{NAME}/control/owner/"
        self.etcd = subprocess.Popen(
            within("c1", "etcdctl", "--endpoints", endpoints, "watch", "--prefix", prefix),
            env={**os.environ, "ETCDCTL_API": "3"},
            stdout=subprocess.PIPE,
            text=True,
        )
        nodes = [ADDRESSES[node] for node in NODES]
        places = [f"{at}:{address}" for at in nodes for address in (FLOATING, *nodes) if at != address]
        peer = [VENV / "bin/python", HERE / "peers/told_peer.py", NAME, USER, PASSWORD, *places]
        self.peer = subprocess.Popen(
            within("c2", *peer), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.ctx.log, text=True
        )
        if self.peer.stdout.readline() != "ready\n":
            raise Failure("the clients have no witnesses, see the log")
        for read in (self.read_keys, self.read_news):
            threading.Thread(target=read, daemon=True).start()
        # etcdctl does not say when its watch begins.
        time.sleep(1.0)
        return self

    def read_keys(self):
        kind = ""
        for line in self.etcd.stdout:
            if line.strip() in ("PUT", "DELETE"):
                kind = line.strip()
            elif line.startswith("frevo/"):
                self.keys.append((time.monotonic(), kind))

    def read_news(self):
        for line in self.peer.stdout:
            self.ctx.log.write(line)
            moment, at, address, kind, messages = line.split(" ", 4)
            self.news.append((int(moment) / 1e9, at, address, int(kind), json.loads(messages)))

    def known(self, kind, since):
        return next((moment for moment, what in self.keys if what == kind and moment > since), None)

    def told(self, address, since, is_it):
        """The first moment for each witness."""
        found = {}
        for moment, at, of, kind, messages in self.news:
            if of == address and moment > since and any(is_it(kind, *message) for message in messages):
                found.setdefault(at, moment)
        return found

    def __exit__(self, *_):
        self.peer.stdin.close()
        self.etcd.kill()
        self.etcd.wait()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.peer.wait(timeout=5)
        self.peer.kill()


def measure(cluster, watching, act):
    """Times from the cluster's knowing until clients are told: that the address is away and back, and that they are
    to move."""
    address, moved = [], []
    for _ in range(rounds(50)):
        time.sleep(0.4)
        owner = cluster.owner() or cluster.new_owner(None)
        to = cluster.nodes[(cluster.nodes.index(owner) + 1) % len(cluster.nodes)]
        begin = time.monotonic()
        act(cluster, owner, to)
        cluster.new_owner(owner)
        own = ADDRESSES[owner.name]
        wants = (
            ("DELETE", FLOATING, lambda kind, state, _: (kind, state) == (CHANGE, UNAVAILABLE), len(NODES), address),
            ("PUT", FLOATING, lambda kind, state, _: (kind, state) == (CHANGE, AVAILABLE), len(NODES), address),
            ("PUT", own, lambda kind, *_: kind == MOVE, len(NODES) - 1, moved),
        )
        for key, of, is_it, count, times in wants:
            known = wait_for(f"no {key} of an owner", lambda key=key, begin=begin: watching.known(key, begin), 5.0)
            wait_for(
                f"not all witnesses tell of {of} after {key}",
                lambda of=of, is_it=is_it, begin=begin, count=count: len(watching.told(of, begin, is_it)) == count,
                5.0,
            )
            # The watch of etcdctl may be later than that of the nodes.
            times += [max(0.0, moment - known) for moment in watching.told(of, begin, is_it).values()]
        if act is drain:
            to.command("cluster", "undrain", owner.name, "--config", to.directory / "frevo.toml")
    return address, moved
