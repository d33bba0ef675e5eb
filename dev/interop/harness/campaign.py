"""A campaign: thousands of disturbances of clusters under load, until their wanted numbers are reached.

A *life* is a cluster of three nodes with eight writers and one program, which is disturbed some twenty times.
Lives go on side by side, each in namespaces of its own. What a life has found is a line of JSON in the file of
results, which further runs append to and count from.
"""

import argparse
import contextlib
import datetime
import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from . import campaign_page, prepare
from .cluster import CLIENTS, MEMBERS, NODES, SHARE, Cluster, Load, stalls, wait_for
from .cluster_programs import PROGRAMS
from .model import HERE, OUT, ROOT, Failure

# Disturbances of one life, in seconds of pauses at most.
ROUNDS, PAUSED = 24, 40
# Seconds of a cut that no node fails from.
SHORT_CUT = 1.5
PAUSE = 10.0
ALL_WAYS = ("in", "out")


class Life:
    """One life of a cluster, and its disturbances."""

    def __init__(self, cluster, load, program, chance):
        self.cluster, self.load, self.program, self.chance = cluster, load, program, chance
        self.counts, self.moments, self.fenced = {}, {}, 0

    def owner(self):
        return wait_for("no node has the address, or several have it", self.cluster.owner)

    def disturb(self, kind, *more):
        """Carries out one disturbance, waits until all writers go on, and counts it."""
        begin = time.monotonic()
        self.cluster.note(f"round {sum(self.counts.values()) + 1}: {kind} {' '.join(more)}")
        getattr(self, kind)(*more)
        end = time.monotonic()
        self.load.wait_for_all(end)
        self.program.is_well()
        self.count(kind, more)
        self.moments.setdefault(kind, []).append((begin, time.monotonic()))
        time.sleep(self.chance.uniform(0.0, 0.5))

    def count(self, kind, more=()):
        for name in (kind, *(f"{kind}-{word}" for word in more)):
            self.counts[name] = self.counts.get(name, 0) + 1

    def kill(self):
        """kill -9 of the owner."""
        owner = self.owner()
        owner.kill()
        self.cluster.new_owner(owner)
        self.load.wait_for_all(time.monotonic())
        owner.must_be_fenced()
        self.fenced += 1
        owner.start()

    def move(self):
        owner = self.owner()
        target = self.chance.choice([node for node in self.cluster.nodes if node is not owner])
        # A node that was started a moment ago may not be registered yet.
        end = time.monotonic() + 10.0
        while True:
            try:
                owner.command("cluster", "move", SHARE, target.name, "--config", owner.directory / "frevo.toml")
                break
            except Failure as fault:
                if "not up" not in str(fault) or time.monotonic() > end:
                    raise
                time.sleep(0.2)
        if self.cluster.new_owner(owner) is not target:
            raise Failure(f"the share did not move to {target.name}")

    def pause(self):
        """SIGSTOP of the owner for 10 s, in which its successors are killed."""
        owner = self.owner()
        owner.signal(signal.SIGSTOP)
        end = time.monotonic() + PAUSE
        try:
            self.cluster.new_owner(owner)
            self.load.wait_for_all(time.monotonic())
            owner.must_be_fenced()
            while time.monotonic() + 4.0 < end:
                self.kill()
                self.count("kill")
                self.count("kill-in-pause")
            time.sleep(max(0.0, end - time.monotonic()))
        finally:
            owner.signal(signal.SIGCONT)
        self.must_stay_away(owner)

    def must_stay_away(self, node):
        """A node that was fenced does not take the share again, and is started anew."""
        time.sleep(0.3)
        if node in self.cluster.owners():
            raise Failure(f"{node.name} has taken its address back")
        node.must_be_fenced()
        self.fenced += 1
        node.kill()
        node.start()

    def partition(self, way):
        getattr(self, "cut_" + way.replace("-", "_"))()

    def cut_from_etcd(self, ways, more=()):
        """Another node takes the share, and fences the one that is cut off before."""
        owner = self.owner()
        with owner.cut_off(*MEMBERS, *more, ways=ways):
            self.cluster.new_owner(owner)
            self.load.wait_for_all(time.monotonic())
            owner.must_be_fenced()
        self.must_stay_away(owner)

    def cut_etcd(self):
        self.cut_from_etcd(ALL_WAYS)

    def cut_etcd_in(self):
        self.cut_from_etcd(("in",))

    def cut_etcd_out(self):
        self.cut_from_etcd(("out",))

    def cut_all(self):
        """The owner is cut off from everybody."""
        owner = self.owner()
        self.cut_from_etcd(ALL_WAYS, [*CLIENTS, *(name for name in NODES if name != owner.name)])

    def cut_storage(self):
        """The storage refuses the owner, which gives the share up."""
        owner = self.owner()
        owner.storage.kill()
        self.cluster.new_owner(owner)
        self.must_stay_away(owner)

    def cut_briefly(self, others, ways=ALL_WAYS):
        with self.owner().cut_off(*others, ways=ways):
            time.sleep(SHORT_CUT)

    def cut_clients(self):
        self.cut_briefly(CLIENTS)

    def cut_clients_in(self):
        self.cut_briefly(CLIENTS, ("in",))

    def cut_clients_out(self):
        self.cut_briefly(CLIENTS, ("out",))

    def cut_member(self):
        """One member of etcd does not hear the owner."""
        self.cut_briefly([self.chance.choice(MEMBERS)])


PARTITIONS = [name.removeprefix("cut_").replace("_", "-") for name in vars(Life) if name.startswith("cut_")]
PARTITIONS = [way for way in PARTITIONS if way not in ("from-etcd", "briefly")]


class Results:
    """The file of results, which several processes append to."""

    def __init__(self, path, wanted):
        self.path, self.wanted = path, wanted

    def rows(self):
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []

    def append(self, row):
        with open(self.path, "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(json.dumps(row) + "\n")

    def missing(self):
        """Returns how many disturbances of each kind are still to be made, and how many were made."""
        done = dict.fromkeys(self.wanted, 0)
        for row in self.rows():
            for kind in done:
                done[kind] += row["counts"].get(kind, 0)
        return {kind: max(0, self.wanted[kind] - done[kind]) for kind in done}, done


def plan(missing, chance):
    """The disturbances of one life, in proportion to what is missing."""
    kinds = chance.choices(list(missing), weights=list(missing.values()), k=ROUNDS) if any(missing.values()) else []
    pauses = 0
    for kind in kinds:
        pauses += kind == "pause"
        if kind == "pause" and pauses * PAUSE > PAUSED:
            continue
        yield (kind, chance.choice(PARTITIONS)) if kind == "partition" else (kind,)


def live(arguments, number, rounds, chance, work, log):
    """Lives one life; returns its line of results. A fault is part of it."""
    name = list(PROGRAMS)[number % len(PROGRAMS)]
    row = {"begin": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), "program": name}
    row |= {"version": arguments.version, "side_by_side": arguments.side_by_side, "fault": None}
    begin, life = time.monotonic(), None
    try:
        with Cluster(arguments.built / "frevo", work, log) as cluster, contextlib.ExitStack() as closing:
            load = Load(cluster, arguments.built / "frevo-cluster-load", rest=arguments.rest)
            closing.callback(load.close)
            program = PROGRAMS[name](cluster)
            closing.callback(program.close)
            life = Life(cluster, load, program, chance)
            for each in rounds:
                life.disturb(*each)
            load.is_well()
            row["done"] = program.end()
            writes = load.end()
            row["load"] = load.counts
            row["stalls"] = {
                kind: [round(stall, 3) for stall in stalls(writes, moments)] for kind, moments in life.moments.items()
            }
    except (Failure, OSError, subprocess.SubprocessError) as fault:
        row["fault"] = f"{type(fault).__name__}: {fault}"[:500]
        traceback.print_exc(file=log)
    row["counts"] = life.counts if life else {}
    row["fenced"] = life.fenced if life else 0
    row["seconds"] = round(time.monotonic() - begin)
    return row


def work_on(arguments, worker):
    """Lives one life after the other, in the namespaces of a worker."""
    results = Results(arguments.results, arguments.wanted)
    chance = random.Random(time.time_ns() + worker)
    for number in range(worker, sys.maxsize, arguments.side_by_side):
        missing, _ = results.missing()
        rounds = list(plan(missing, chance))
        if not rounds or time.time() > arguments.end:
            return
        work = Path(tempfile.mkdtemp(prefix="frevo-campaign.", dir=arguments.work))
        log_path = arguments.folder / f"{time.strftime('%H%M%S')}-{worker}.log"
        with open(log_path, "w") as log:
            row = live(arguments, number, rounds, chance, work, log)
        shutil.rmtree(work, ignore_errors=True)
        results.append(row)
        if row["fault"]:
            print(f"FAULT in a life with {row['program']}: {row['fault']}\n  log: {log_path}", flush=True)
        else:
            log_path.unlink()
        missing, done = results.missing()
        said = ", ".join(f"{done[kind]} of {arguments.wanted[kind]} {kind}s" for kind in done)
        print(f"{time.strftime('%H:%M:%S')} {said}; {row['seconds']} s, {row.get('load')}", flush=True)


def parse():
    ap = argparse.ArgumentParser(prog="dev/interop/cluster-campaign", description=__doc__)
    ap.add_argument("--built", metavar="DIR", type=Path, help="the programs frevo and frevo-cluster-load [build them]")
    ap.add_argument("--kills", type=int, default=1000)
    ap.add_argument("--partitions", type=int, default=1000)
    ap.add_argument("--pauses", type=int, default=200)
    ap.add_argument("--moves", type=int, default=200)
    ap.add_argument("--side-by-side", type=int, default=1, metavar="N", help="clusters at the same time (1)")
    ap.add_argument("--rest", type=int, default=20, metavar="MS", help="rest of a writer after a write (20)")
    ap.add_argument("--work", type=Path, default="/dev/shm", help="folder of the clusters (/dev/shm)")
    ap.add_argument("--minutes", type=float, default=1e6, help="begin no life after this time")
    ap.add_argument("--results", type=Path, default=OUT / "campaign/results.jsonl", help="file that is appended to")
    ap.add_argument("--page", metavar="FILE", type=Path, help="write the page of the results, and stop")
    arguments = ap.parse_args()
    arguments.wanted = {
        "kill": arguments.kills,
        "partition": arguments.partitions,
        "pause": arguments.pauses,
        "move": arguments.moves,
    }
    arguments.results, arguments.folder = arguments.results.absolute(), OUT / "campaign"
    return arguments


def set_up(arguments):
    """Takes or builds the programs, and keeps copies: a build during the campaign must not pull them away."""
    built = arguments.built
    if not built:
        built = prepare.cargo_build("release", "frevo", "frevo-durability")
    programs = arguments.folder / "programs"
    programs.mkdir(parents=True, exist_ok=True)
    for name in ("frevo", "frevo-cluster-load"):
        shutil.copy2(built / name, programs / f"{name}.new")
        os.replace(programs / f"{name}.new", programs / name)
    prepare.fsx()
    return programs


def main():
    arguments = parse()
    if arguments.page:
        rows = Results(arguments.results, arguments.wanted).rows()
        arguments.page.write_text(campaign_page.page(rows, arguments.wanted))
        return 0
    inside = os.environ.get("FREVO_CAMPAIGN_INSIDE")
    if inside:
        told = json.loads(inside)
        arguments.built, arguments.end = Path(told["built"]), told["end"]
        arguments.version = told["version"]
        work_on(arguments, told["worker"])
        return 0
    built = set_up(arguments)
    git = ["git", "-C", str(ROOT)]
    version = subprocess.check_output([*git, "rev-parse", "--short", "HEAD"], text=True).strip()
    if subprocess.check_output([*git, "status", "--porcelain", "--", "crates"]):
        version += " with changes"
    told = {"built": str(built), "end": time.time() + arguments.minutes * 60, "version": version}
    workers = [
        subprocess.Popen(
            [
                "setpriv",
                "--pdeathsig",
                "KILL",
                HERE / "with-netns",
                sys.executable,
                "-m",
                "harness.campaign",
                *sys.argv[1:],
            ],
            env={**os.environ, "FREVO_CAMPAIGN_INSIDE": json.dumps({**told, "worker": worker})},
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
        )
        for worker in range(arguments.side_by_side)
    ]
    statuses = [worker.wait() for worker in workers]
    results = Results(arguments.results, arguments.wanted)
    missing, _ = results.missing()
    faults = sum(bool(row["fault"]) for row in results.rows())
    print(f"{'reached' if not any(missing.values()) else f'missing {missing}'}; {faults} lives with a fault")
    return 1 if any(statuses) or faults else 0


if __name__ == "__main__":
    sys.exit(main())
