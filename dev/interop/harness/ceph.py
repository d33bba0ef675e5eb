"""A small Ceph on this machine: a monitor, a manager, an OSD in memory and an MDS, with authentication, and a
cluster of Frevo whose nodes mount its file system by ceph-fuse."""

import json
import os
import shutil
import signal
import subprocess
import uuid
from pathlib import Path

from .cluster import BRIDGE, Cluster, Node, wait_for, within
from .model import Failure, require_tool

# The places where programs of Ceph look for their configuration, and where they make their sockets.
ETC, RUN = Path("/etc/ceph"), Path("/run/ceph")
# The file system, and the users of its mounts and of the fence.
FS, MOUNTER, FENCER = "nas", "node", "frevo"
MONITOR = f"[v2:{BRIDGE}:3300,v1:{BRIDGE}:6789]"
# The rights of the fence, as docs/cluster.md gives them.
FENCE_RIGHTS = ["mon", "profile simple-rados-client-with-blocklist"]
# Seconds for umount, and for the end of ceph-fuse after it.
LEAVING = 10.0
DAEMONS = ["ceph-mon", "ceph-mgr", "ceph-osd", "ceph-mds", "ceph-fuse"]


class Ceph:
    """The daemons, at the bridge; `directory` has their files."""

    def __init__(self, directory):
        self.directory = directory
        self.admin = directory / "admin.keyring"
        self.daemons = {}

    def begin(self):
        """Makes a Ceph with a file system, and waits until it can be mounted."""
        for folder in (ETC, RUN):
            # Only this worker sees them.
            folder.mkdir(exist_ok=True)
            subprocess.run(["mount", "-t", "tmpfs", "ceph", folder], check=True)
        self.directory.mkdir()
        number = str(uuid.uuid4())
        self.configure(number)
        self.make_monitor(number)
        self.start("mon", "a")
        self.join("mgr", "x", mon="allow profile mgr", osd="allow *", mds="allow *")
        self.make_osd()
        self.join("mds", "a", mon="profile mds", mgr="profile mds", mds="allow *", osd="allow *")
        for pool in ("metadata", "data"):
            self.say("osd", "pool", "create", pool, "1", "1")
        self.say("fs", "new", FS, "metadata", "data")
        wait_for("the MDS is not active", self.is_active, 60.0, 0.2)
        self.make_user(MOUNTER, self.say("fs", "authorize", FS, f"client.{MOUNTER}", "/", "rw"))
        self.make_user(FENCER, self.say("auth", "get-or-create", f"client.{FENCER}", *FENCE_RIGHTS))

    def configure(self, number):
        # One of everything; other values are Ceph's own.
        (ETC / "ceph.conf").write_text(
            f"""[global]
fsid = {number}
mon_host = {MONITOR}
auth_cluster_required = cephx
auth_service_required = cephx
auth_client_required = cephx
auth_allow_insecure_global_id_reclaim = false
mon_allow_pool_size_one = true
mon_data_avail_crit = 1
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
osd_objectstore = memstore
memstore_device_bytes = 2147483648
mds_cache_memory_limit = 134217728
mgr_initial_modules =
mon_data = {self.directory}/mon.$id
mgr_data = {self.directory}/mgr.$id
osd_data = {self.directory}/osd.$id
mds_data = {self.directory}/mds.$id
log_file = {self.directory}/$name.log
log_to_stderr = false
err_to_stderr = true
mon_cluster_log_file = {self.directory}/cluster.log
run_dir = {RUN}
[mgr]
public_addr = {BRIDGE}
[osd]
public_addr = {BRIDGE}
[mds]
public_addr = {BRIDGE}
[client]
log_file =
client_oc = false
fuse_disable_pagecache = true
"""
        )

    def make_monitor(self, number):
        keys, monitors = self.directory / "mon.keyring", self.directory / "monmap"
        every = [word for of in ("mon", "osd", "mds", "mgr") for word in ("--cap", of, "allow *")]
        call("ceph-authtool", "--create-keyring", keys, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
        call("ceph-authtool", "--create-keyring", self.admin, "--gen-key", "-n", "client.admin", *every)
        call("ceph-authtool", keys, "--import-keyring", self.admin)
        call("monmaptool", "--create", "--addv", "a", MONITOR, "--fsid", number, monitors)
        (self.directory / "mon.a").mkdir()
        call("ceph-mon", "--mkfs", "-i", "a", "--monmap", monitors, "--keyring", keys)

    def make_osd(self):
        number = str(uuid.uuid4())
        self.say("osd", "new", number, "0")
        self.make_keys("osd", "0", mon="allow profile osd", mgr="allow profile osd", osd="allow *")
        call("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", number)
        self.start("osd", "0")
        wait_for("the OSD is not up", lambda: self.ask("osd", "stat")["num_up_osds"] == 1, 60.0, 0.2)

    def join(self, kind, name, **rights):
        self.make_keys(kind, name, **rights)
        self.start(kind, name)

    def make_keys(self, kind, name, **rights):
        """Makes the folder of a daemon, with its keyring."""
        folder = self.directory / f"{kind}.{name}"
        folder.mkdir()
        words = [word for right in rights.items() for word in right]
        (folder / "keyring").write_text(self.say("auth", "get-or-create", f"{kind}.{name}", *words))

    def make_user(self, name, keyring):
        path = ETC / f"ceph.client.{name}.keyring"
        path.write_text(keyring)
        path.chmod(0o600)

    def start(self, kind, name):
        with open(self.directory / f"{kind}.{name}.said", "ab") as said:
            self.daemons[kind] = subprocess.Popen([f"ceph-{kind}", "-f", "-i", name], stdout=said, stderr=said)

    def say(self, *words):
        """Runs `ceph` as its administrator, and returns what it prints."""
        return call("ceph", "-k", self.admin, "--connect-timeout", "30", *words)

    def ask(self, *words):
        return json.loads(self.say(*words, "--format", "json"))

    def is_active(self):
        return "up:active" in self.say("mds", "stat")

    def blocklist(self):
        """The addresses of the clients that are refused."""
        return list(self.ask("osd", "dump")["blocklist"])

    def end(self):
        for daemon in self.daemons.values():
            daemon.kill()
            daemon.wait()
        for folder in (ETC, RUN):
            subprocess.run(["umount", "-l", folder], check=False, stderr=subprocess.DEVNULL)


def call(*command):
    """Runs a program of Ceph to its end, which must be a good one; returns what it prints."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=90)
    if done.returncode:
        raise Failure(f"{command[0]} {command[1]}: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout


class CephNode(Node):
    """A node that mounts CephFS by a ceph-fuse of its own, in its namespace."""

    fence = "ceph"

    def __init__(self, cluster, name):
        super().__init__(cluster, name)
        # The address of its client.
        self.client = None

    def shared(self):
        return self.mount / self.cluster.below

    def mounting(self):
        return within(self.name, "ceph-fuse", "-f", "--id", MOUNTER, self.mount)

    def remount(self):
        super().remount()
        self.client = self.status()["addr_str"]

    def status(self):
        """The status of its client, by the client's own socket."""
        for socket in RUN.glob(f"*.{self.storage.pid}.*.asok"):
            return json.loads(call("ceph", "--admin-daemon", socket, "status"))
        raise Failure(f"{self.name}: ceph-fuse has no socket")

    def unmount(self):
        """Ends the mount as an administrator does after a fence; ceph-fuse is ended by hand if it does not go."""
        if self.storage is None:
            return
        self.storage.send_signal(signal.SIGCONT)
        self.cluster.note(f"{self.name}: umount: {self.leave()}")
        self.storage.kill()
        self.storage.wait()
        if os.path.ismount(self.mount) or self.is_dead():
            subprocess.run(["umount", "-l", self.mount], check=True)
        self.storage = None

    def leave(self):
        """Unmounts, and returns how that went."""
        try:
            done = subprocess.run(["umount", self.mount], capture_output=True, text=True, timeout=LEAVING)
            if done.returncode:
                return done.stderr.strip()
            return f"ceph-fuse ended with {self.storage.wait(LEAVING)}"
        except subprocess.TimeoutExpired as late:
            return str(late)

    def is_dead(self):
        """True for a mount whose program has ended."""
        try:
            os.statvfs(self.mount)
        except OSError as error:
            return error.errno in (103, 107)
        return False

    def is_fenced(self):
        return self.client in self.cluster.ceph.blocklist()

    def must_be_fenced(self):
        wait_for(f"{self.name} is not on the blocklist", self.is_fenced, 10.0)


class CephCluster(Cluster):
    """A cluster on CephFS. Its folder is one more mount, by which the load is judged past all nodes."""

    node_of = CephNode
    # The folder of the share in the file system.
    below = "shared"

    def __init__(self, program, work, log):
        super().__init__(program, work, log)
        self.top = self.directory / "judge"
        self.folder = self.top / self.below
        self.ceph = Ceph(self.directory / "ceph")
        self.judge = None

    def begin_storage(self):
        for tool in DAEMONS:
            require_tool(tool)
        self.top.mkdir()
        self.ceph.begin()
        self.judge = subprocess.Popen(within("c2", "ceph-fuse", "-f", "--id", MOUNTER, self.top))
        wait_for("the folder is not mounted", lambda: os.path.ismount(self.top))
        self.folder.mkdir(exist_ok=True)

    def end_storage(self):
        if self.judge:
            subprocess.run(["umount", "-l", self.top], check=False, stderr=subprocess.DEVNULL)
            self.judge.kill()
            self.judge.wait()
        self.ceph.end()
        for said in sorted(self.ceph.directory.glob("*.said")):
            self.log.write(f"--- {said.name}\n{said.read_text(errors='replace')[-4_000:]}\n")
        shutil.rmtree(self.ceph.directory, ignore_errors=True)


class CephWhole(CephCluster):
    """A cluster whose share is the whole file system."""

    below = "."
