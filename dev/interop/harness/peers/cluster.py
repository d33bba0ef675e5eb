"""A cluster of three nodes on etcd, by namespaces of one machine: kills, moves, partitions, pauses.

The groups run only when named (`--only 'cluster/*'`): they measure, and take minutes. `CLUSTER_ROUNDS` is the
number of kills, moves, partitions and pauses of each group.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import time

from ..cluster import (
    ADDRESSES,
    CLIENTS,
    FLOATING,
    MEMBERS,
    NODES,
    PASSWORD,
    SHARE,
    USER,
    Cluster,
    Load,
    percentiles,
    stalls,
    wait_for,
    within,
)
from ..cluster_programs import PROGRAMS
from ..model import HERE, Failure, group
from ..prepare import TOOLS, VENV

# Seconds of undisturbed load before and after each disturbance.
CALM = 2.0
# The dialects that impacket speaks.
DIALECTS = ("2.1", "3.0", "3.1.1")


def rounds(usual):
    return int(os.environ.get("CLUSTER_ROUNDS", usual))


def cluster_of(ctx, kind=Cluster):
    return kind(ctx.server.program, ctx.work, ctx.log)


@contextlib.contextmanager
def loaded(ctx, kind=Cluster):
    """A cluster under load. The load ends with the block, and `writes` of the yielded value are judged then."""
    with cluster_of(ctx, kind) as cluster:
        load = Load(cluster, TOOLS / "frevo-cluster-load")
        try:
            yield cluster, load
        finally:
            load.close()


def disturb(ctx, load, count, act):
    """Calls `act` again and again, and returns the stalls that it has caused."""
    moments = []
    for at in range(count):
        time.sleep(CALM)
        load.is_well()
        begin = time.monotonic()
        act(at)
        time.sleep(CALM)
        moments.append((begin, time.monotonic()))
    load.is_well()
    writes = load.end()
    if any(not each for each in writes):
        raise Failure("a writer has written nothing")
    found = stalls(writes, moments)
    middle, most = percentiles(found)
    total = sum(map(len, writes))
    ctx.log.write(f"stalls: {sorted(round(stall, 3) for stall in found)}\n")
    return middle, most, f"{count} times, {total} writes, stalls p50 {middle:.3f} s, p99 {most:.3f} s"


def judged(ctx, name, count, act_of, most_middle, most_99, kind=Cluster):
    """A row: `act_of(cluster)` returns the disturbance; the stalls must be short enough."""
    with ctx.check(name):
        with loaded(ctx, kind) as (cluster, load):
            middle, most, words = disturb(ctx, load, count, act_of(cluster))
        ctx.add(f"{name}-figures", "pass", 0.0, words)
        if middle > most_middle or most > most_99:
            raise Failure(f"{words}; wanted {most_middle} s and {most_99} s")


def killer(cluster):
    """Kills the owner, and starts it again when another node serves."""

    def act(_):
        owner = cluster.owner() or cluster.new_owner(None)
        owner.kill()
        cluster.new_owner(owner)
        owner.start()

    return act


def mover(cluster):
    """Moves the share to the next node."""

    def act(_):
        owner = cluster.owner() or cluster.new_owner(None)
        target = cluster.nodes[(cluster.nodes.index(owner) + 1) % len(cluster.nodes)]
        owner.command("cluster", "move", SHARE, target.name, "--config", owner.directory / "frevo.toml")
        if cluster.new_owner(owner) is not target:
            raise Failure(f"the share did not move to {target.name}")

    return act


@group("cluster/kill", named_only=True)
def kill(ctx):
    """kill -9 of the owner under 8 writers with persistent handles and locks."""

    judged(ctx, "kill", rounds(10), killer, 2.5, 4.0)


@group("cluster/move", named_only=True)
def move(ctx):
    """A planned move under load, to each node in turn."""

    judged(ctx, "move", rounds(20), mover, 0.3, 0.3)


@group("cluster/partition", named_only=True)
def partition(ctx):
    """The owner is cut off from etcd, from clients and nodes, and in one direction alone, for 10 s each."""
    ways = [
        ("etcd", MEMBERS, ("in", "out")),
        ("etcd-one-sided-in", MEMBERS, ("in",)),
        ("etcd-one-sided-out", MEMBERS, ("out",)),
        ("clients", CLIENTS, ("in", "out")),
        ("clients-one-sided", CLIENTS, ("in",)),
    ]
    for name, others, directions in ways:

        def act_of(cluster, others=others, directions=directions):
            def act(_):
                owner = cluster.owner()
                with owner.cut_off(*others, ways=directions):
                    if others is MEMBERS:
                        cluster.new_owner(owner)
                    time.sleep(10)
                if len(cluster.owners()) != 1:
                    raise Failure("several nodes have the address, or none")
                # What was fenced needs a new mount.
                if owner.is_fenced():
                    owner.kill()
                    owner.start()

            return act

        # Clients behind the cut wait for its end.
        most = 4.0 if others is MEMBERS else 20.0
        judged(ctx, name, rounds(2), act_of, most, most)


@group("cluster/pause", named_only=True)
def pause(ctx):
    """SIGSTOP of the owner for 10 s: another node serves, and the paused one writes nothing when it goes on."""

    def act_of(cluster):
        def act(_):
            owner = cluster.owner()
            owner.signal(signal.SIGSTOP)
            try:
                cluster.new_owner(owner)
                time.sleep(10)
                if not owner.is_fenced():
                    raise Failure(f"{owner.name} was not fenced")
            finally:
                owner.signal(signal.SIGCONT)
            time.sleep(2)
            if cluster.owner() is owner:
                raise Failure(f"{owner.name} has taken its address back")
            owner.kill()
            owner.start()

        return act

    judged(ctx, "pause", rounds(2), act_of, 4.0, 4.0)


@group("cluster/majority", named_only=True)
def majority(ctx):
    """etcd loses its majority for 60 s: everybody stops, and goes on afterwards by itself."""

    def act_of(cluster):
        def act(_):
            for name in MEMBERS[1:]:
                cluster.members[name].kill()
                cluster.members[name].wait()
            time.sleep(10)
            if owners := cluster.owners():
                raise Failure(f"{owners[0].name} has the address without etcd")
            time.sleep(50)
            for name in MEMBERS[1:]:
                cluster.start_member(name)
            cluster.new_owner(None)

        return act

    judged(ctx, "majority", 1, act_of, 75.0, 75.0)


@group("cluster/rolling", named_only=True)
def rolling(ctx):
    """Each node is stopped and started in turn, as for an upgrade."""

    def act_of(cluster):
        def act(at):
            node = cluster.nodes[at % len(cluster.nodes)]
            was_owner = node is cluster.owner()
            node.stop()
            if was_owner:
                cluster.new_owner(node)
            node.start()

        return act

    judged(ctx, "rolling", rounds(6), act_of, 4.0, 4.0)


@group("cluster/programs", named_only=True)
def programs(ctx):
    """fsx and SQLite on `frevo mount`, and `frevo put` of a tree, while the owner is killed and the share moved."""
    for name, program in PROGRAMS.items():
        with ctx.check(name), contextlib.ExitStack() as closing:
            cluster = closing.enter_context(cluster_of(ctx))
            working = program(cluster)
            closing.callback(working.close)
            for act in (killer(cluster), mover(cluster)) * rounds(2):
                time.sleep(CALM)
                working.is_well()
                act(None)
            time.sleep(CALM)
            ctx.add(f"{name}-times", "pass", 0.0, f"done {working.end()} times")


@group("cluster/cifs", named_only=True)
def cifs(ctx):
    """cifs.ko with `persistenthandles` and a lock, in a guest, while the owner is killed and the share moved."""
    count, most = rounds(2), 10.0
    seconds = count * 12 + 5
    with cluster_of(ctx) as cluster, ctx.check("writes"):
        command = ["-a", FLOATING, "-n", SHARE, "-u", USER, "-w", PASSWORD, "-t", str(seconds + 90)]
        command += [
            "-o",
            "persistenthandles,hard,echo_interval=1",
            "--",
            "python3",
            HERE / "guest-cluster",
            str(seconds),
        ]
        with subprocess.Popen(
            [HERE / "linux-client", *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as guest:
            try:
                for line in guest.stdout:
                    ctx.log.write(line)
                    if line.strip() == "ready":
                        break
                begin = time.monotonic()
                for act in (killer(cluster), mover(cluster)) * count:
                    time.sleep(CALM)
                    act(None)
                if time.monotonic() > begin + seconds:
                    raise Failure("the guest has ended before the last round")
                said = guest.stdout.read()
                ctx.log.write(said)
            finally:
                guest.terminate()
        found = re.search(r"^ok (\d+) writes, longest ([0-9.]+) s$", said, re.MULTILINE)
        if not found:
            raise Failure(said.strip()[-250:])
        writes, longest = int(found[1]), float(found[2])
        judging = [HERE / "guest-cluster", "--judge", cluster.folder / "guest.bin", str(writes)]
        if subprocess.run(judging, stderr=ctx.log).returncode:
            raise Failure("a write was lost, see the log")
        ctx.add("figures", "pass", 0.0, f"{writes} writes, the longest {longest:.2f} s")
        if longest > most:
            raise Failure(f"a write took {longest:.2f} s, wanted {most} s")


@group("cluster/smbclient", named_only=True)
def smbclient(ctx):
    """Samba's smbclient at the address that moves, before and after a kill of the owner."""
    with cluster_of(ctx) as cluster:

        def say(*commands):
            done = subprocess.run(
                within(
                    "c2", "smbclient", f"//{FLOATING}/{SHARE}", "-U", f"{USER}%{PASSWORD}", "-c", "; ".join(commands)
                ),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                cwd=ctx.work,
                timeout=60,
            )
            ctx.log.write(done.stdout)
            if done.returncode:
                raise Failure(done.stdout.strip()[-200:])
            return done.stdout

        (ctx.work / "there").write_bytes(os.urandom(1 << 20))
        with ctx.check("put"):
            say("put there first")
        with ctx.check("after-kill"):
            owner = cluster.owner()
            owner.kill()
            cluster.new_owner(owner)
            say("get first back", "put there second")
            for copy in (ctx.work / "back", cluster.folder / "second"):
                if copy.read_bytes() != (ctx.work / "there").read_bytes():
                    raise Failure(f"{copy.name} has other bytes")
        with ctx.check("one-owner"):
            if len(cluster.owners()) != 1:
                raise Failure("several nodes have the address, or none")


@group("cluster/error-contexts", named_only=True)
def error_contexts(ctx):
    """impacket: the fields of the error contexts by which nodes tell the largest dialect and the owner."""
    more = ""
    for name, folder, keys in (("plain", "plain", 'cluster = true\nfence = "none"'), ("own", "NODE", "")):
        more += f'\n[[share]]\nname = "{name}"\npath = "{ctx.work / folder}"\n{keys}\n'
    for folder in ("plain", *NODES):
        (ctx.work / folder).mkdir()
    keys = 'min_dialect = "2.1"\nencryption = "offered"\nsigning = "offered"\n'
    peer = [VENV / "bin/python", HERE / "peers/error_contexts_peer.py"]
    env = {"SMB_USER": USER, "SMB_PASS": PASSWORD}
    with Cluster(ctx.server.program, ctx.work, ctx.log, keys, more) as cluster:
        config = cluster.nodes[0].directory / "frevo.toml"

        def owner_of(share):
            view = json.loads(cluster.nodes[0].command("cluster", "status", "--json", "--config", config))
            return next((unit["owner"] for unit in view["units"] if unit["name"] == share), None)

        owner = wait_for("nobody has the share", lambda: owner_of("plain"))
        other = next(node.name for node in cluster.nodes if node.name != owner)
        _, said = ctx.command(*peer, "redirect", ADDRESSES[other], ADDRESSES[owner], env=env)
        ctx.report(said, needed=[f"redirect-{dialect}" for dialect in DIALECTS])
        for most in ("3.0", "3.0.2", "3.1.1"):
            cluster.nodes[0].command("cluster", "raise", "--to", most, "--config", config)
            # The other nodes hear of it within moments.
            time.sleep(1)
            _, said = ctx.command(*peer, "fence", FLOATING, most, env=env)
            rows = said.replace("ok fence-", f"ok {most}-fence-").replace("FAIL fence-", f"FAIL {most}-fence-")
            ctx.report(rows, needed=[f"{most}-fence-{dialect}" for dialect in DIALECTS])
