"""Workers: this program again, each in namespaces of its own, where it runs one group after the other.

A worker reads the name of a group from its input, runs it on a server with the group's profile, and
answers with the rows as one line of JSON. Groups cannot disturb each other: addresses, devices, ports
and processes are those of the worker.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

from .model import GROUPS, HERE, OUT, ROOT, Context, Row
from .servers import PROFILES, Server

# At most this many workers run groups that compute. The other workers run groups that mostly wait.
COMPUTING = 2
# The size of the file system that holds the shares of one worker's server.
DISK = "4g"


def run_group(group, server, args):
    """Runs one group; an exception of the harness itself is a failed row."""
    work = Path(tempfile.mkdtemp(dir=os.environ["FREVO_INTEROP_WORK"]))
    print(f"{group.name} ({group.profile})\n", end="", flush=True)
    log_name = group.name.replace("/", "-") + ".log"
    with open(OUT / "logs" / log_name, "w") as log:
        ctx = Context(group, server, args.full, args.only, work, log)
        try:
            group.run(ctx)
        except Exception as e:  # a broken check must not hide the other groups
            log.write(traceback.format_exc())
            ctx.add("harness", "fail", 0.0, f"{type(e).__name__}: {e}")
    shutil.rmtree(work, ignore_errors=True)
    return ctx


class Worker:
    """Runs groups one after the other, each on a server with the profile that it names."""

    def __init__(self, args, program):
        self.args, self.program, self.server = args, program, None

    def run(self, group):
        """Returns the rows of one group."""
        if self.server and self.server.profile != group.profile:
            self.stop()
        try:
            self.server = self.server or Server(self.args.server, group.profile, self.program, samba=self.args.samba)
        except RuntimeError as e:
            context = Context(group, None, self.args.full, [], OUT, None)
            context.add("server-start", "fail", 0.0, e)
            return context.rows
        ctx = run_group(group, self.server, self.args)
        panics = self.server.panics()
        if panics or not self.server.is_alive():
            ctx.patterns = []
            ctx.add("server-alive", "fail", 0.0, panics[0] if panics else "the server accepts no connections")
            self.stop()
        else:
            self.server.clear()
        return ctx.rows

    def stop(self):
        if self.server:
            self.server.stop()
            self.server = None


def work(args, program):
    """The whole life of a worker: runs the groups that its input names, to the end of the input."""
    served = os.environ["TMPDIR"]
    if served.startswith("/dev/shm/"):
        # A check that fills the server's disk must not fill the machine's memory. Only this worker
        # sees the mount.
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=755,size={DISK}", "served", served], check=True)
    by_name = {group.name: group for group in GROUPS}
    worker = Worker(args, program)
    # Replace standard input: a program that a group runs must not read the names of the groups from
    # it.
    with open(os.dup(0)) as names, open(int(os.environ["FREVO_INTEROP_RESULTS"]), "w") as results:
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
        for line in names:
            rows = worker.run(by_name[line.strip()])
            answer = [[row.name, row.result, row.seconds, row.detail] for row in rows]
            results.write(json.dumps(answer) + "\n")
            results.flush()
    worker.stop()


class Queue:
    """The groups that no worker has taken yet."""

    def __init__(self, groups):
        order = list(PROFILES)
        self.lock = threading.Lock()
        # Groups that take longest start first, so that the last group does not prolong the run.
        self.waiting = sorted((g for g in groups if g.beside is not None), key=lambda g: -g.beside)
        rest = [g for g in groups if g.beside is None]
        self.computing = sorted(
            (g for g in rest if not g.named_only), key=lambda g: (-g.seconds, order.index(g.profile))
        )
        self.measuring = [g for g in rest if g.named_only]

    def take(self, number, profile):
        """Returns a group for this worker, if possible one with the profile of its server, or None."""
        with self.lock:
            found = self.computing if number < COMPUTING and self.computing else self.waiting
            if not found:
                return None
            if found is self.computing and not found[0].seconds:
                chosen = next((g for g in found if g.profile == profile), found[0])
            else:
                chosen = found[0]
            found.remove(chosen)
            return chosen

    def take_measuring(self, _number, _profile):
        """Returns a group that must have the machine to itself, or None."""
        return self.measuring.pop(0) if self.measuring else None


class Running:
    """A started worker: its process, and the pipe by which rows arrive."""

    def __init__(self, number, program, folders):
        read, write = os.pipe()
        self.number, self.profile, self.results = number, None, os.fdopen(read)
        inside = {
            "FREVO_INTEROP_INSIDE": program or "",
            "FREVO_INTEROP_RESULTS": str(write),
            "FREVO_INTEROP_WORKER": str(number),
        }
        self.child = subprocess.Popen(
            [HERE / "with-netns", sys.executable, "-m", "harness", *sys.argv[1:]],
            env={**os.environ, **folders, **inside},
            stdin=subprocess.PIPE,
            pass_fds=[write],
            cwd=ROOT,
            text=True,
        )
        os.close(write)

    def run_all(self, take, found, seconds):
        """Runs the groups that `take` gives, and puts their rows and times into `found` and `seconds`."""
        while group := take(self.number, self.profile):
            began = time.monotonic()
            try:
                self.child.stdin.write(group.name + "\n")
                self.child.stdin.flush()
            except BrokenPipeError:
                pass
            line = self.results.readline()
            rows = json.loads(line) if line else [[f"{group.name}/harness", "fail", 0.0, "the worker ended"]]
            self.profile = group.profile
            found[group.name] = [Row(*row) for row in rows]
            seconds[group.name] = time.monotonic() - began

    def stop(self):
        self.child.stdin.close()
        self.child.wait()
        self.results.close()


def run_groups(groups, args, program):
    """Returns the rows of all groups, and the seconds that each group took."""
    queue, found, seconds = Queue(groups), {}, {}
    count = max(1, min(args.workers, len(groups)))
    if len(queue.measuring) == len(groups):
        count = 1
    # The servers' directories are in memory: smbtorture expects that file system's allocation
    # sizes. The peers' directories are on disk, where a guest can see them.
    with (
        tempfile.TemporaryDirectory(prefix="frevo-interop.", dir=os.environ.get("TMPDIR", "/dev/shm")) as served,
        tempfile.TemporaryDirectory(prefix="work.", dir=OUT) as scratch,
    ):
        os.chmod(served, 0o755)
        folders = {"FREVO_INTEROP_WORK": scratch, "TMPDIR": served}
        workers = [Running(number, program, folders) for number in range(count)]
        threads = [threading.Thread(target=worker.run_all, args=(queue.take, found, seconds)) for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        workers[0].run_all(queue.take_measuring, found, seconds)
        for worker in workers:
            worker.stop()
    return [row for group in groups for row in found[group.name]], seconds
