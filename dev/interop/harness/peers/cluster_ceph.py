"""A cluster on CephFS, with the fence `ceph`: `dev/interop/cluster-ceph` runs these groups.

A Ceph of one daemon of each kind is made on this machine. Each node has a ceph-fuse of its own.
"""

import datetime
import re
import select
import signal
import subprocess
import sys
import threading
import time

from ..ceph import ETC, FENCER, CephCluster, CephWhole, call
from ..cluster import SHARE, wait_for, within
from ..late import block
from ..model import Failure, group
from .cluster import CALM, cluster_of, judged, killer, loaded, mover, rounds

# Seconds for which a node is paused after the next one serves.
PAUSE = 5.0
# Seconds for one call on the mount of a client that is refused.
PATIENCE = 10.0
# The line of a node that has fenced the former owner.
FENCED = re.compile(r"^(\S+)\s.*storage refuses the former owner (\S+) now", re.MULTILINE)
# Errors of calls on the mount of a client that is refused.
REFUSALS = ("ESHUTDOWN", "EIO", "ENOTCONN")


@group("cluster-ceph/kill", named_only=True)
def kill(ctx):
    """kill -9 of the owner under 8 writers with persistent handles and locks, on CephFS."""
    judged(ctx, "kill", rounds(5), killer, 6.0, 12.0, CephCluster)


@group("cluster-ceph/move", named_only=True)
def move(ctx):
    """A planned move under load, to each node in turn, on CephFS."""
    judged(ctx, "move", rounds(9), mover, 1.0, 2.0, CephCluster)


def evicter(cluster):
    """Has CephFS refuse the client of the owner, as an MDS does that has lost it."""

    def act(_):
        owner = cluster.owner() or cluster.new_owner(None)
        cluster.ceph.say("osd", "blocklist", "add", owner.client, "3600")
        cluster.new_owner(owner)
        owner.stop()
        owner.start()

    return act


@group("cluster-ceph/evict", named_only=True)
def evict(ctx):
    """The owner's client is put on the blocklist by another hand: the owner notices, and another node serves."""
    judged(ctx, "folder", rounds(3), evicter, 6.0, 12.0, CephCluster)
    # ceph-fuse answers otherwise for the root of its mount.
    judged(ctx, "whole", rounds(3), evicter, 6.0, 12.0, CephWhole)


class LateFile:
    """A file in the mount of a node, which a program writes past the server, as a server that was stopped in the
    middle of a write would when it goes on."""

    def __init__(self, node, name):
        self.name = f"{name}-{node.name}"
        self.program = subprocess.Popen(
            [sys.executable, "-m", "harness.late", node.shared() / self.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        # The moments at which calls that succeeded have begun, and the error that ended the writing.
        self.begun, self.error = [], None
        self.thread = None

    def call(self, *words):
        """Makes a call, and waits for its end."""
        print(*words, file=self.program.stdin)
        return self.program.stdout.readline().strip()

    def begin(self, *words):
        """Makes a call, and does not wait for its end."""
        print(*words, file=self.program.stdin)

    def ended(self):
        """Waits for the end of a call, to which a client that is refused may never come."""
        ready, _, _ = select.select([self.program.stdout], [], [], PATIENCE)
        return self.program.stdout.readline().strip() if ready else "no answer"

    def write_on(self):
        """Writes and syncs one block after the other, until that fails."""

        def run():
            while self.error is None:
                begin = time.time()
                said = self.call("both", len(self.begun))
                if said == "ok":
                    self.begun.append(begin)
                else:
                    self.error = said

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()

    def end(self):
        if self.thread:
            self.thread.join(PATIENCE)
        self.program.kill()
        self.program.wait()


def fenced_at(node, former):
    """The moment at which a node has last told that it fenced `former`, as its log says."""
    said = node.log.read_text(errors="replace")
    moments = [moment for moment, name in FENCED.findall(said) if name == former.name]
    if not moments:
        raise Failure(f"{node.name} does not say that it fenced {former.name}")
    return datetime.datetime.fromisoformat(moments[-1].replace("Z", "+00:00")).timestamp()


def clients_of(node):
    """The connections of clients that a node serves."""
    shown = subprocess.run(
        within(node.name, "ss", "-Htn", "state", "established", "sport", "=", ":445"),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return len(shown.stdout.splitlines())


def pause(cluster, load, with_machine):
    """Stops the owner in the middle of writes, and lets it go on when another node serves. With `with_machine`
    its ceph-fuse is stopped too, before a write that it takes afterwards. Returns words for the table."""
    owner = wait_for("no node has the address", cluster.owner)
    late, dirty = LateFile(owner, "late"), LateFile(owner, "dirty")
    dirty.call("both", 0)
    late.write_on()
    time.sleep(0.5)
    owner.signal(signal.SIGSTOP)
    begin = time.monotonic()
    if with_machine:
        owner.storage.send_signal(signal.SIGSTOP)
        dirty.begin("both", 1)
    try:
        new = cluster.new_owner(owner)
        load.wait_for_all(time.monotonic())
        again = time.monotonic() - begin
        owner.must_be_fenced()
        time.sleep(PAUSE)
    finally:
        owner.storage.send_signal(signal.SIGCONT)
        owner.signal(signal.SIGCONT)
    went_on = time.monotonic()
    if not with_machine:
        dirty.begin("both", 1)
    refused = dirty.ended()
    wait_for(f"clients are connected with {owner.name}", lambda: not clients_of(owner), 10.0)
    ended = time.monotonic() - went_on
    time.sleep(2.0)
    for file in (late, dirty):
        file.end()
    if cluster.owner() is not new:
        raise Failure("the address did not stay at the new owner")
    judge(cluster, owner, late, dirty, fenced_at(new, owner))
    return (
        f"all writers go on after {again:.2f} s; {len(late.begun)} writes past the server before the fence, then "
        f"{late.error}; a later write: {refused}; no connection {ended:.2f} s after SIGCONT"
    )


def judge(cluster, owner, late, dirty, fenced):
    """The file system must have nothing of a client that is refused."""
    after = [begin for begin in late.begun if begin > fenced]
    if after:
        raise Failure(f"{len(after)} late writes of {owner.name} succeeded, the last {after[-1] - fenced:.3f} s late")
    if late.error not in REFUSALS:
        raise Failure(f"the late writes of {owner.name} ended with {late.error}")
    # The write that failed may have been carried out before the fence.
    found = (cluster.folder / late.name).read_bytes()
    if found not in (block(len(late.begun) - 1), block(len(late.begun))):
        raise Failure(f"{late.name} has write {int.from_bytes(found[:8], 'little')}, not {len(late.begun) - 1}")
    if (cluster.folder / dirty.name).read_bytes() != block(0):
        raise Failure(f"{dirty.name} has data of a client that is refused")


@group("cluster-ceph/pause", named_only=True)
def pauses(ctx):
    """SIGSTOP of the owner in the middle of writes: its client is refused, and nothing of it is written later."""
    with loaded(ctx, CephCluster) as (cluster, load):
        for at in range(rounds(2)):
            for name, with_machine in (("server", False), ("machine", True)):
                with ctx.check(f"{name}-{at + 1}"):
                    former = wait_for("no node has the address", cluster.owner)
                    words = pause(cluster, load, with_machine)
                    ctx.add(f"{name}-{at + 1}-figures", "pass", 0.0, words)
                    told(former)
                    come_back(cluster, load, former)
        with ctx.check("load"):
            load.is_well()
            writes = load.end()
            ctx.add("load-figures", "pass", 0.0, f"{sum(map(len, writes))} writes, {load.counts}")


def must_say(node, wanted, *commands):
    """Raises Failure unless each of these commands of frevo prints the words."""
    for words in commands:
        _, said = node.say(*words)
        if wanted not in said:
            raise Failure(f"frevo {words[0]} {words[1]} of {node.name} does not say {wanted!r}: {said.strip()[-300:]}")


def checks(config):
    """The commands that look at a node's storage."""
    return ("cluster", "check", config), ("check", "--config", config)


def told(node):
    """A node whose client is refused says so, and how it comes back."""
    status = "cluster", "status", "--config", node.config
    must_say(node, "CephFS refuses the client", *checks(node.config), status)


def come_back(cluster, load, node):
    """The documented way: stop frevo, unmount, mount, start frevo. Then the node can be owner again."""
    node.stop()
    node.start()
    begin = time.monotonic()
    wait_for(f"{node.name} is not able to take the share", lambda: able(node), 30.0, 0.5)
    owner = wait_for("no node has the address", cluster.owner)
    owner.command("cluster", "move", SHARE, node.name, "--config", owner.config)
    if cluster.new_owner(owner) is not node:
        raise Failure(f"the share did not move to {node.name}")
    load.wait_for_all(time.monotonic())
    cluster.note(f"{node.name} serves again {time.monotonic() - begin:.2f} s after its start")
    time.sleep(CALM)


def able(node):
    _, said = node.say("cluster", "check", node.config)
    unable = [line for line in said.splitlines() if "cannot use the storage" in line]
    return not any("this node" in line or node.name in line for line in unable)


@group("cluster-ceph/sentences", named_only=True)
def sentences(ctx):
    """Sentences of `frevo check` and `frevo cluster check` about a mount that is no CephFS, and about keyrings."""
    with cluster_of(ctx, CephCluster) as cluster:
        node = cluster.nodes[0]
        with ctx.check("good"):
            for each in cluster.nodes:
                wait_for(f"{each.name} is not able to take the share", lambda each=each: able(each), 30.0, 0.5)
        with ctx.check("no-cephfs"):
            plain, other = node.directory / "plain", node.directory / "other.toml"
            plain.mkdir()
            other.write_text(node.config.read_text().replace(str(node.shared()), str(plain)))
            must_say(node, f"{plain} is no CephFS; use another `fence`", *checks(other))
        conf = ETC / "ceph.conf"
        with ctx.check("caches"):
            known = conf.read_text()
            for line in ("client_oc = false", "fuse_disable_pagecache = true"):
                conf.write_text(known.replace(line, ""))
                node.stop()
                node.start()
                must_say(node, "set `client_oc = false`", *checks(node.config))
            conf.write_text(known)
        keyring = ETC / f"ceph.client.{FENCER}.keyring"
        right = keyring.read_text()
        with ctx.check("no-keyring"):
            keyring.unlink()
            must_say(node, f"there is neither {keyring} nor", *checks(node.config))
        with ctx.check("wrong-keyring"):
            key = call("ceph-authtool", "--gen-print-key").strip()
            keyring.write_text(re.sub(r"key = \S+", f"key = {key}", right))
            must_say(node, "ceph --name client.frevo", *checks(node.config))
        keyring.write_text(right)
