"""A cluster of three nodes is upgraded node by node, as docs/cluster.md says, while programs work on it.

The next version is a build with the feature test-hooks that stands for it (`FREVO_TEST_NEXT_VERSION`): it writes
records of open files in a form that this version does not read, as soon as all nodes read it.
"""

import base64
import collections
import contextlib
import json
import os
import re
import subprocess
import time

from ..cluster import ADDRESSES, MEMBERS, SHARE, Cluster, Load, wait_for, within
from ..cluster_programs import Fsx, Put, Sqlite
from ..model import Failure, Skip, group
from ..prepare import TOOLS

# Seconds of work before and after each step.
CALM = 3.0
# The dialect of a cluster that has not been raised, and the one that it is raised to.
BEFORE, AFTER = "3.0.2", "3.1.1"
# The first bytes of a record: its form.
FORM = re.compile(rb"FPF([1-9])")


def etcdctl(*words):
    """Runs etcdctl, and returns what it prints."""
    endpoints = ",".join(f"http://{ADDRESSES[member]}:2379" for member in MEMBERS)
    return subprocess.run(
        within("c1", "etcdctl", "--endpoints", endpoints, *words),
        env={**os.environ, "ETCDCTL_API": "3"},
        stdout=subprocess.PIPE,
        check=True,
        timeout=30,
    ).stdout


def forms():
    """The count of records of open files in each form."""
    found = json.loads(etcdctl("get", "--prefix", "frevo/interop/record/", "-w", "json"))
    values = [base64.b64decode(entry["value"]) for entry in found.get("kvs", [])]
    return collections.Counter(int(form[1]) for value in values if (form := FORM.search(value)))


class Upgrade:
    """The steps of an upgrade, each under load."""

    def __init__(self, ctx, cluster, load, programs):
        self.ctx, self.cluster, self.load, self.programs = ctx, cluster, load, programs
        self.seen = collections.Counter()

    def command(self, *words):
        """Runs `frevo cluster` at the node that has the share."""
        node = wait_for("no node has the address", self.cluster.owner)
        return node.command("cluster", *words, "--config", node.directory / "frevo.toml")

    def is_well(self):
        """Waits until all programs have worked on."""
        begin = time.monotonic()
        done = {program: program.done for program in self.programs}
        self.load.wait_for_all(begin)
        for program, before in done.items():
            # SQLite counts in a process of its own.
            if program.name != "sqlite":
                wait_for(f"{program.name} does not go on", lambda p=program, b=before: p.fault or p.done > b, 120.0)
            program.is_well()
        time.sleep(CALM)

    def see_forms(self, wanted):
        """Notes the forms of the records that are there. None may be one that is not wanted."""
        found = forms()
        self.cluster.note(f"records by form: {dict(found)}")
        self.seen.update(found.keys())
        if strange := set(found) - wanted:
            raise Failure(f"records in form {sorted(strange)}, which not every node reads")
        if not found:
            raise Failure("there is no record of an open file")

    def move_to(self, node):
        if self.cluster.owner() is not node:
            self.command("move", SHARE, node.name)
            wait_for(f"{node.name} has not got the share", lambda: self.cluster.owner() is node)

    def upgrade(self, node, program):
        """Drains a node, exchanges its program, and lets it have shares again."""
        was_owner = self.cluster.owner() is node
        self.command("drain", node.name)
        if was_owner:
            self.cluster.new_owner(node)
        node.stop()
        node.program, node.environment = program, {"FREVO_TEST_NEXT_VERSION": "1"}
        node.start()
        self.command("undrain", node.name)
        self.is_well()


def refusals(folder):
    """Counts the refusals by dialect in the audit logs of the nodes. A client ends with an error when it is told a
    fourth dialect for one connect, so that a run without an error has no longer loop."""
    events = [json.loads(line) for path in folder.glob("audit-*.log") for line in path.read_text().splitlines()]
    connects = [event for event in events if event["event"] == "connect" and event.get("share") == SHARE]
    for_dialect = sum("BAD_CLUSTER_DIALECT" in event.get("status", "") for event in connects)
    done = sum(event["outcome"] == "success" for event in connects)
    if not done or for_dialect > done:
        raise Failure(f"{for_dialect} connects were refused for their dialect, and {done} were not")
    return f"{for_dialect} of {len(connects)} connects were refused for their dialect, {done} succeeded"


def knows_raise(program):
    """True for a program that has the command."""
    done = subprocess.run([program, "cluster", "raise", "--help"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return done.returncode == 0


def limit_dialect(upgrade, program, to):
    if knows_raise(program):
        upgrade.command("raise", "--to", to)
    else:
        upgrade.cluster.note(f"this program has no `cluster raise`: the cluster is not set to {to}")


@group("cluster/upgrade", named_only=True)
def upgrade_of_nodes(ctx):
    """Three nodes are upgraded one by one to a next version with other records, then the dialect is raised."""
    program = TOOLS / "frevo-next"
    if not program.exists():
        raise Skip("there is no build of the next version")
    with contextlib.ExitStack() as closing:
        audit = f'[audit]\nfile = "{ctx.work}/audit-NODE.log"\n'
        cluster = closing.enter_context(Cluster(ctx.server.program, ctx.work, ctx.log, more=audit))
        first, second, third = cluster.nodes
        upgrade = Upgrade(ctx, cluster, None, [])
        with ctx.check("before"):
            limit_dialect(upgrade, first.program, BEFORE)
            upgrade.load = Load(cluster, TOOLS / "frevo-cluster-load")
            closing.callback(upgrade.load.close)
            for make in (Fsx, Sqlite, Put):
                upgrade.programs.append(make(cluster))
                closing.callback(upgrade.programs[-1].close)
            upgrade.is_well()
            upgrade.see_forms({1, 2, 3, 4, 5})
        with ctx.check("first-node"):
            upgrade.upgrade(first, program)
        with ctx.check("both-directions"):
            # The next version reads what this one has written, and this one what the next has written.
            for node in (first, second, first, third):
                upgrade.move_to(node)
                upgrade.is_well()
                upgrade.see_forms({1, 2, 3, 4, 5})
        for name, node in (("second-node", second), ("third-node", third)):
            with ctx.check(name):
                upgrade.upgrade(node, program)
        with ctx.check("records"):
            # Records are written anew as locks and files change.
            wait_for("no record has the form of the next version", lambda: 6 in forms(), 60.0)
            for node in cluster.nodes:
                upgrade.move_to(node)
                upgrade.is_well()
            upgrade.see_forms({1, 2, 3, 4, 5, 6})
        with ctx.check("raised"):
            limit_dialect(upgrade, first.program, AFTER)
            upgrade.is_well()
        with ctx.check("programs"):
            done = {each.name: each.end() for each in upgrade.programs}
            writes = upgrade.load.end()
            if any(not each for each in writes):
                raise Failure("a writer has written nothing")
            ctx.add("dialects", "pass", 0.0, refusals(ctx.work))
            words = ", ".join(f"{name} {count} times" for name, count in done.items())
            ctx.add("figures", "pass", 0.0, f"{words}, {sum(map(len, writes))} writes; forms {sorted(upgrade.seen)}")
