"""Shadow copies of a share on btrfs, by Samba's rpcclient and smbtorture's rpc.fsrvp: MS-FSRVP."""

import contextlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import threading
import time

from ..model import Failure, Skip, group
from ..servers import Server
from .disks import guest, missing
from .mount.fixture import mounted, no_fuse, until
from .mount.workloads import FSX
from .rpc import run_suite

ADMINISTRATOR = "root"
PORT = 4450
# The name that rpc.fsrvp has for the share.
SHARE = "fsrvp_share"
DENIED = "0x80070005"


class Btrfs:
    """A btrfs that is the folder of the share."""

    def __init__(self):
        self.folder = None

    def attach(self, directory):
        image, self.folder = directory / "btrfs.img", directory / SHARE
        self.folder.mkdir()
        with open(image, "wb") as file:
            file.truncate(256 << 20)
        for command in (["mkfs.btrfs", "-q", image], ["mount", "-o", "loop", image, self.folder]):
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.folder.chmod(0o777)
        # smbd makes snapshots in a folder that is there already; Frevo's server has one of its own.
        (self.folder / ".snapshots").mkdir(mode=0o700)

    def detach(self):
        if self.folder and os.path.ismount(self.folder):
            subprocess.run(["umount", "--lazy", self.folder], check=False)

    def snapshots(self, _ctx=None):
        folder = self.folder / ".frevo-snapshots"
        return sorted(os.listdir(folder)) if folder.exists() else []

    def fetch(self, ctx, copy):
        """Returns the folder of the snapshot that a client has made as `copy`."""
        (name,) = self.snapshots()
        return self.folder / ".frevo-snapshots" / name

    def subvolumes(self):
        """Returns the number of snapshots, wherever they are."""
        command = ["btrfs", "subvolume", "list", "-s", self.folder]
        return len(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.splitlines())


@contextlib.contextmanager
def serving(ctx, kind="frevo"):
    """Runs a further server, whose share has snapshots."""
    if ctx.server.kind != "frevo":
        raise Skip("the run against Frevo has these")
    if not shutil.which("mkfs.btrfs", path="/usr/sbin:/sbin:" + os.environ["PATH"]):
        raise Skip("btrfs-progs is not installed")
    before, disk, server = ctx.server, Btrfs(), None
    try:
        try:
            server = Server(kind, "shadow-copies", before.program, port=PORT, disk=disk, samba=before.samba)
        except subprocess.CalledProcessError as error:
            raise Skip(f"no btrfs can be mounted: {error}") from error
        ctx.server = server
        yield disk
        if panics := server.panics():
            raise Failure(panics[0])
    finally:
        ctx.server = before
        if server:
            server.stop()
        else:
            disk.detach()


def rpcclient(ctx, command, user=ADMINISTRATOR, protection="[sign]"):
    server = ctx.server
    account, binding = f"{user}%{server.password}", f"ncacn_np:{server.address}{protection}"
    return ctx.command("rpcclient", "-p", server.port, "-U", account, binding, "-c", command, timeout=60)[1]


def answered(ctx, command, *has):
    output = rpcclient(ctx, command)
    if missing := [text for text in has if text not in output]:
        raise Failure(f"{command}: {missing} {output}")
    return output


@group("shadow-copies/rpcclient", seconds=10)
def calls(ctx):
    """rpcclient's fss_* commands as an administrator and as somebody else; the share of the copy."""
    with ctx.check("server-alive"), serving(ctx) as disk:
        server, file = ctx.server, disk.folder / "file"
        file.write_text("old\n")
        with ctx.check("version"):
            answered(ctx, "fss_get_sup_version", "from 1 to 1")
        with ctx.check("refused"):
            for user, protection in ((server.user, "[sign]"), (ADMINISTRATOR, "")):
                output = rpcclient(ctx, f"fss_is_path_sup {SHARE}", user, protection)
                if DENIED not in output:
                    raise Failure(f"{user} {protection}: {output}")
        with ctx.check("supported"):
            answered(ctx, f"fss_is_path_sup {SHARE}", "supports shadow copy requests")
            if "0x8004230c" not in rpcclient(ctx, f"fss_is_path_sup {server.share}").lower():
                raise Failure("a share without snapshots is supported")
        found = None
        with ctx.check("create"):
            output = answered(ctx, f"fss_create_expose backup ro {SHARE}", "exposed as a snapshot of")
            found = re.search(r"^([0-9a-f-]{36})\(([0-9a-f-]{36})\): share (\S+) exposed", output, re.MULTILINE)
            if not found or len(disk.snapshots()) != 1:
                raise Failure(f"{disk.snapshots()} {output}")
            answered(ctx, f"fss_has_shadow_copy {SHARE}", "has an associated shadow-copy")
        if not found:
            return
        copies, copy, name = found.groups()
        file.write_text("new\n")
        with ctx.check("read"):
            _, output = ctx.command(*server.smbclient("get file -", share=name))
            if "old" not in output:
                raise Failure(output)
            _, output = ctx.command(*server.smbclient("rm file", share=name))
            if not (disk.folder / ".frevo-snapshots" / disk.snapshots()[0] / "file").exists():
                raise Failure(output)
        with ctx.check("recovered"):
            rpcclient(ctx, f"fss_recovery_complete {copies}")
            answered(ctx, f"fss_get_mapping {SHARE} {copies} {copy}", name)
        with ctx.check("delete"):
            rpcclient(ctx, f"fss_delete {SHARE} {copies} {copy}")
            _, output = ctx.command(*server.smbclient("ls", share=name))
            if disk.snapshots() or "BAD_NETWORK_NAME" not in output:
                raise Failure(f"{disk.snapshots()} {output}")


@group("shadow-copies/torture", seconds=30)
def torture(ctx):
    """smbtorture's rpc.fsrvp as an administrator, but for its test that is silent for more than an hour."""
    tests = ("enum_created", "share_sd", "sc_share_io", "bad_id", "sc_set_abort", "create_simple", "set_ctx")
    with ctx.check("server-alive"), serving(ctx):
        for test in (*tests, "get_version", "is_path_supported"):
            binding = f"ncacn_np:{ctx.server.address}[smb2,sign]"
            run_suite(ctx, f"rpc.fsrvp.fsrvp.{test}", binding, user=ADMINISTRATOR, options=("-p", PORT))


@group("shadow-copies/frevo-client", seconds=30)
def frevo_client(ctx):
    """`frevo snapshots create` and `delete` over MS-FSRVP: Frevo's server, and smbd with its rpcd_fsrvp."""
    for kind in ("frevo", "smbd"):
        with ctx.check(f"{kind}/server-alive"), serving(ctx, kind) as disk:
            made_and_deleted(ctx, kind, disk)


def made_and_deleted(ctx, kind, disk):
    program = os.environ["FREVO_CLIENT"]
    server, file = ctx.server, disk.folder / "file"

    def frevo(verb, *more, user=ADMINISTRATOR, share=SHARE):
        url = f"smb://{user}@{server.address}:{server.port}/{share}"
        command = [program, "snapshots", verb, url, *more, "--json"]
        return ctx.command(*command, env={"FREVO_PASSWORD": server.password}, timeout=60)

    file.write_text("old\n")
    found = None
    with ctx.check(f"{kind}/refused"):
        status, output = frevo("create", user=server.user)
        if not status or "Backup Operators" not in output or disk.subvolumes():
            raise Failure(f"{status} {output}")
        status, output = frevo("create", share=server.share)
        if not status or "makes no snapshots of this share" not in output:
            raise Failure(f"{status} {output}")
    with ctx.check(f"{kind}/create"):
        status, output = frevo("create")
        if status or disk.subvolumes() != 1:
            raise Failure(f"{status} {disk.subvolumes()} {output}")
        found = json.loads(output)
    if not found:
        return
    file.write_text("new\n")
    copy = found["share"]
    with ctx.check(f"{kind}/read"):
        _, output = ctx.command(*server.smbclient("get file -", share=copy, user=ADMINISTRATOR))
        if "old" not in output:
            raise Failure(output)
    with ctx.check(f"{kind}/delete"):
        status, output = frevo("delete", found["set"], share=copy)
        if status or disk.subvolumes():
            raise Failure(f"{status} {disk.subvolumes()} {output}")
    with ctx.check(f"{kind}/deleted"):
        status, output = frevo("delete", found["set"], share=copy)
        if not status or "no such" not in output:
            raise Failure(f"{status} {output}")


class Database(threading.Thread):
    """SQLite in a mount of the share, which adds a row in each transaction."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.committed, self.is_over, self.fault = path, 0, threading.Event(), None

    def run(self):
        try:
            with contextlib.closing(sqlite3.connect(self.path, isolation_level=None)) as database:
                database.execute("CREATE TABLE rows (number INTEGER PRIMARY KEY, text TEXT)")
                while not self.is_over.is_set():
                    number = self.committed + 1
                    database.execute("INSERT INTO rows VALUES (?, ?)", (number, f"row {number} " * 40))
                    self.committed = number
        except sqlite3.Error as error:
            self.fault = error


class Fsx(threading.Thread):
    """fsx in a mount of the share, again and again: it fails if the file differs from what it has written."""

    def __init__(self, ctx, folder):
        super().__init__(daemon=True)
        self.ctx, self.folder, self.runs, self.is_over, self.fault = ctx, folder, 0, threading.Event(), None

    def run(self):
        while not self.is_over.is_set() and not self.fault:
            seed = 7 + self.runs
            arguments = ["-q", "-N", "1000", "-S", str(seed), "-P", self.ctx.work, "fsx.bin"]
            try:
                done = subprocess.run([FSX, *arguments], cwd=self.folder, capture_output=True, timeout=600)
            except (OSError, subprocess.TimeoutExpired) as error:
                self.fault = error
                return
            if done.returncode:
                self.fault = f"seed {seed}: {done.stdout[-200:]} {done.stderr[-200:]}"
            self.runs += 1


def rows_of(snapshot, place):
    """Returns the number of rows of the database in a snapshot, which its journal mends as after a power cut."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    for name in os.listdir(snapshot):
        if name.startswith("database"):
            shutil.copyfile(snapshot / name, place / name)
    with contextlib.closing(sqlite3.connect(place / "database")) as database:
        if (found := database.execute("PRAGMA integrity_check").fetchall()) != [("ok",)]:
            raise Failure(f"{snapshot.name}: {found[:3]}")
        rows = database.execute("SELECT number, text FROM rows ORDER BY number").fetchall()
    for at, (number, text) in enumerate(rows, 1):
        if number != at or text != f"row {at} " * 40:
            raise Failure(f"{snapshot.name}: row {number} in place of {at}")
    return len(rows)


@group("shadow-copies/under-load", seconds=60)
def under_load(ctx):
    """Snapshots while SQLite and fsx work in a mount: each has exactly the transactions that were answered.

    With --full 100 rounds, or SNAPSHOT_ROUNDS.
    """
    if reason := no_fuse():
        return ctx.add("mounted", "skip", 0.0, reason)
    rounds = int(os.environ.get("SNAPSHOT_ROUNDS", "100" if ctx.full else "5"))
    program = os.environ["FREVO_CLIENT"]
    with ctx.check("server-alive"), serving(ctx) as disk, ctx.check("rounds"):
        beside_programs(ctx, program, SHARE, disk, rounds)


def beside_programs(ctx, program, share, disk, rounds):
    """Makes snapshots of a share beside SQLite and fsx in a mount of it."""
    server = ctx.server
    url = f"smb://{ADMINISTRATOR}@{server.address}:{server.port}/{share}"
    mount = f"smb://{server.user}@{server.address}:{server.port}/{share}"
    with mounted(ctx, f"mounted-{share}", url=mount) as folder:
        database, fsx = Database(folder / "database"), Fsx(ctx, folder)
        database.start()
        fsx.start()
        try:
            until("a transaction", lambda: database.committed or database.fault)
            one_by_one(ctx, program, url, disk, database, fsx, rounds)
        finally:
            for worker in (database, fsx):
                worker.is_over.set()
                worker.join(timeout=120)
        if fault := database.fault or fsx.fault:
            raise Failure(str(fault))


def one_by_one(ctx, program, url, disk, database, fsx, rounds):
    env, share = {"FREVO_PASSWORD": ctx.server.password}, url.rsplit("/", 1)[1]
    for at in range(rounds):
        before = database.committed
        status, output = ctx.command(program, "snapshots", "create", url, "--json", env=env)
        after = database.committed
        if status:
            raise Failure(f"round {at}: {output}")
        made = json.loads(output)
        copy = url.removesuffix(share) + made["share"]
        snapshot = disk.fetch(ctx, copy)
        count = rows_of(snapshot, ctx.work / "database")
        # One transaction may be under way.
        if not before <= count <= after + 1:
            raise Failure(f"round {at}: {count} rows, of {before} before and {after} after")
        if fault := database.fault or fsx.fault:
            raise Failure(f"round {at}: {fault}")
        ctx.log.write(f"round {at}: {before} <= {count} <= {after} + 1; fsx run {fsx.runs}\n")
        status, output = ctx.command(program, "snapshots", "delete", copy, made["set"], env=env)
        left = disk.snapshots(ctx)
        if status or left:
            raise Failure(f"round {at}: {output} {left}")


class ThinVolume:
    """A thin volume of LVM in a guest, whose snapshots are read by their clients."""

    # The server keeps a snapshot open for a second after its last use, and LVM removes none that is open.
    CLOSED_AFTER = 2

    def __init__(self, name):
        self.name = name

    def snapshots(self, ctx):
        said = ctx.server.run(f"lvs --noheadings -o lv_name {self.name}")
        return [name for name in said.split() if "-frevo-" in name]

    def fetch(self, ctx, copy):
        place = ctx.work / "fetched"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        env = {"FREVO_PASSWORD": ctx.server.password}
        status, output = ctx.command(os.environ["FREVO_CLIENT"], "get", f"{copy}/database*", place, env=env)
        if status:
            raise Failure(output)
        time.sleep(self.CLOSED_AFTER)
        return place


@group("shadow-copies/lvm", full_only=True, seconds=900)
def lvm(ctx):
    """The same on thin volumes of LVM, with ext4 and with XFS, of a server in a guest."""
    if ctx.server.kind != "frevo":
        return ctx.add("server", "skip", 0.0, "the run against Frevo has these")
    if reason := no_fuse():
        return ctx.add("mounted", "skip", 0.0, reason)
    if missing(ctx):
        return None
    rounds = int(os.environ.get("SNAPSHOT_ROUNDS", "100"))
    disks = ["thin-ext4", "thin-xfs"]
    with guest(ctx, disks, more=["-r"], seconds=120 + 30 * rounds * len(disks)):
        told = ctx.server.jobs / "missing"
        for disk in disks:
            with ctx.check(disk):
                # A kernel without a device mapper, or a host without LVM's programs.
                lacking = told.read_text().splitlines() if told.exists() else []
                if reason := next((line for line in lacking if line.startswith(disk)), None):
                    raise Skip(reason)
                beside_programs(ctx, os.environ["FREVO_CLIENT"], disk, ThinVolume(disk), rounds)
    return None
