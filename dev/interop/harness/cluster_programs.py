"""Programs at a cluster, beside its load: fsx and SQLite on `frevo mount`, and `frevo put` of a tree. None of them
may see an error, whatever happens to nodes meanwhile."""

import multiprocessing
import os
import random
import shutil
import sqlite3
import subprocess
import threading
import time

from . import trees
from .cluster import FLOATING, PASSWORD, SHARE, USER, wait_for, within
from .model import OUT, Failure

URL = f"smb://{USER}@{FLOATING}/{SHARE}"
FSX = OUT / "tools/bin/fsx"
# Seconds for which a client looks for a lost server.
PATIENCE = "120"
# Words of a copy that has met no server at its begin.
NOT_BEGUN = ["connect to smb://"]
# Files of the tree, and the most bytes of one.
FILES, MOST = 40, 512 * 1024


def at_client(cluster, *command, cwd=None, seconds=300):
    """Runs a program at the second client. It must succeed."""
    done = subprocess.run(
        within("c2", *command),
        env={**os.environ, "FREVO_PASSWORD": PASSWORD},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=seconds,
        cwd=cwd,
    )
    if done.returncode:
        raise Failure(f"status {done.returncode}: {done.stdout.strip()[-400:]}")
    return done.stdout


class Program:
    """Work that is repeated by a thread until `end`."""

    def __init__(self, cluster):
        self.cluster, self.fault, self.done = cluster, None, 0
        self.is_over = threading.Event()
        self.begin()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        try:
            while not self.is_over.is_set():
                self.once()
                self.done += 1
            self.judge()
        except (Failure, OSError, sqlite3.Error, subprocess.SubprocessError) as fault:
            self.fault = f"{self.name}, after {self.done}: {type(fault).__name__}: {fault}"
            self.cluster.note(self.fault)

    def is_well(self):
        if self.fault:
            raise Failure(self.fault)

    def end(self):
        """Ends the program; returns how often its work was done."""
        self.is_over.set()
        self.thread.join()
        self.is_well()
        return self.done

    def close(self):
        """Ends everything, after a failure too."""
        self.is_over.set()
        self.clear_up()
        self.thread.join()

    def begin(self):
        """Makes what the work needs."""

    def judge(self):
        """Looks at what the work has left."""

    def clear_up(self):
        """Removes what `begin` has made."""


class OnMount(Program):
    """A program that works in a mounted share."""

    options = ()

    def begin(self):
        self.folder = self.cluster.directory / f"mounted-{self.name}"
        self.folder.mkdir(exist_ok=True)
        self.said = self.cluster.directory / f"mount-{self.name}.said"
        with open(self.said, "w") as said:
            self.mount = subprocess.Popen(
                within(
                    "c2", self.cluster.program, "mount", "-f", "--patience", PATIENCE, *self.options, URL, self.folder
                ),
                env={**os.environ, "FREVO_PASSWORD": PASSWORD},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )
        wait_for("the share is not mounted", lambda: os.path.ismount(self.folder) or self.mount.poll() is not None)
        if self.mount.poll() is not None:
            raise Failure(f"not mounted: {self.said.read_text()[-250:]}")

    def clear_up(self):
        self.cluster.note(f"the mount said: {self.said.read_text(errors='replace')[-2000:]}")
        if self.mount.poll() is None:
            self.mount.kill()
            self.mount.wait()
        subprocess.run(["umount", "-l", self.folder], stderr=subprocess.DEVNULL)


class Fsx(OnMount):
    """fsx: reads, writes, mappings and sizes of a file, compared with a copy in memory."""

    name = "fsx"

    def once(self):
        words = [FSX, "-q", "-N", 400, "-S", self.done + 1, "-P", self.cluster.directory, "fsx.bin"]
        said = at_client(self.cluster, *words, cwd=self.folder)
        if "All operations completed A-OK" not in said:
            raise Failure(said.strip()[-400:])


class Sqlite(OnMount):
    """SQLite: each row that was committed is there, in a database that is in order.

    It works in a process of its own: each start of a program closes copies of the files that a process has open,
    and such a close waits for the cluster."""

    name = "sqlite"

    def begin(self):
        super().begin()
        self.random = random.Random(self.name)
        self.rows = {}
        forking = multiprocessing.get_context("fork")
        self.is_over = forking.Event()
        self.told, tells = forking.Pipe(duplex=False)
        self.apart = forking.Process(target=self.work_apart, args=(tells,))
        self.apart.start()
        tells.close()

    def work_apart(self, tells):
        """Works, and tells how often and the fault."""
        super().run()
        tells.send((self.done, self.fault))

    def run(self):
        try:
            self.done, self.fault = self.told.recv()
        except EOFError:
            self.fault = "sqlite ended without a word"

    def clear_up(self):
        self.apart.kill()
        self.apart.join()
        super().clear_up()

    def once(self):
        # A connection now and then, and many transactions with it.
        with_new = self.done % 20 == 0
        if with_new:
            self.disconnect()
            self.base = sqlite3.connect(self.folder / "base.sqlite", timeout=120, isolation_level=None)
            self.base.execute("CREATE TABLE IF NOT EXISTS rows (number INTEGER PRIMARY KEY, bytes BLOB)")
        number, content = self.done, self.random.randbytes(self.random.randrange(1, 9000))
        self.base.execute("BEGIN IMMEDIATE")
        self.base.execute("INSERT INTO rows VALUES (?, ?)", (number, content))
        self.base.execute("COMMIT")
        self.rows[number] = content
        one = self.random.randrange(number + 1)
        self.compare(self.base, one)
        self.is_over.wait(0.05)

    def compare(self, base, number):
        found = base.execute("SELECT bytes FROM rows WHERE number = ?", (number,)).fetchone()
        if found != (self.rows[number],):
            raise Failure(f"row {number} has other bytes, or is not there")

    def disconnect(self):
        if base := getattr(self, "base", None):
            base.close()

    def judge(self):
        self.disconnect()
        # From the folder itself, past all clients and servers.
        with sqlite3.connect(self.cluster.folder / "base.sqlite") as base:
            if (found := base.execute("PRAGMA integrity_check").fetchone()) != ("ok",):
                raise Failure(f"the database: {found}")
            for number in self.rows:
                self.compare(base, number)


class Put(Program):
    """`frevo put` of a tree: all files arrive with their bytes. A copy that meets no server at its begin says so
    at once, and is begun again."""

    name = "put"

    def begin(self):
        self.tree = self.cluster.directory / "tree"
        sizes = random.Random(self.name)
        for number in range(FILES):
            path = self.tree / f"folder {number % 7}" / f"file {number}"
            path.parent.mkdir(parents=True, exist_ok=True)
            trees.fill(path, sizes.randrange(MOST), number)

    def once(self):
        name = f"put-{self.done}"
        words = ["put", "--recursive", "--patience", PATIENCE, self.tree, f"{URL}/{name}"]
        end = time.monotonic() + 60.0
        while True:
            try:
                at_client(self.cluster, self.cluster.program, *words)
                break
            except Failure as fault:
                if not any(why in str(fault) for why in NOT_BEGUN) or time.monotonic() > end:
                    raise
                self.cluster.note(f"a put was not begun: {fault}")
                time.sleep(0.2)
        copy = self.cluster.folder / name
        trees.same_tree(self.tree, copy)
        shutil.rmtree(copy)


PROGRAMS = {program.name: program for program in (Fsx, Sqlite, Put)}
