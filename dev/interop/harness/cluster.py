"""A cluster on one machine: namespaces at a bridge for nodes, members of etcd and clients, and a folder that
each node reaches by a bindfs of its own."""

import contextlib
import os
import re
import shutil
import signal
import statistics
import subprocess
import time
from pathlib import Path

from .model import Failure, Skip, require_tool
from .servers import LOG_FAULTS

# A network of RFC 2544, to which guests have a route.
NETWORK = "198.19.77"
# The address of the bridge, by which guests reach the nodes.
BRIDGE = f"{NETWORK}.1"
# The address that moves, and the share that it goes with.
FLOATING, SHARE = f"{NETWORK}.100", "data"
USER, PASSWORD = "ann", "Passw0rd"
NODES, MEMBERS, CLIENTS = ["n1", "n2", "n3"], ["e1", "e2", "e3"], ["c1", "c2"]
ADDRESSES = {
    **{name: f"{NETWORK}.{11 + at}" for at, name in enumerate(NODES)},
    **{name: f"{NETWORK}.{31 + at}" for at, name in enumerate(MEMBERS)},
    **{name: f"{NETWORK}.{51 + at}" for at, name in enumerate(CLIENTS)},
}
CONNECTIONS = Path("/sys/fs/fuse/connections")
# Bytes at the end of the load's log that are looked at first.
TAIL = 16384


def ip(line):
    subprocess.run(["ip", *line.split()], check=True)


def within(name, *command):
    """The command line of a program in a network namespace. `ip netns exec` would hide mounts below /sys."""
    return ["nsenter", f"--net=/run/netns/{name}", *map(str, command)]


def wait_for(what, test, seconds=30.0, step=0.02):
    """Waits until `test` returns something that is true, and returns it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := test():
            return found
        time.sleep(step)
    raise Failure(f"after {seconds:.0f} s: {what}")


def network():
    """Namespaces at a bridge, each with an interface eth0. A second call of a worker finds them there."""
    if Path(f"/run/netns/{CLIENTS[-1]}").exists():
        return
    # The names of namespaces are files, which only this worker is to see.
    os.makedirs("/run/netns", exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "netns", "/run/netns"], check=True)
    ip("link add br0 type bridge")
    ip("link set br0 up")
    ip(f"address add {BRIDGE}/24 dev br0")
    for name, address in ADDRESSES.items():
        ip(f"netns add {name}")
        ip(f"link add v-{name} type veth peer name eth0 netns {name}")
        ip(f"link set v-{name} master br0 up")
        ip(f"-n {name} link set lo up")
        ip(f"-n {name} link set eth0 up")
        ip(f"-n {name} address add {address}/24 dev eth0")
        ip(f"-n {name} route add default via {BRIDGE}")


class Node:
    """A server with a mount, a state and a namespace of its own. Its mount is a bindfs of the cluster's folder."""

    fence = "fuse"

    def __init__(self, cluster, name):
        self.cluster, self.name = cluster, name
        self.directory = cluster.directory / name
        self.mount = self.directory / "mount"
        self.log, self.config = self.directory / "log", self.directory / "frevo.toml"
        self.process = None
        # Its program, and variables of the environment that the program has further.
        self.program, self.environment = cluster.program, {}
        # The program of the mount.
        self.storage = None
        for folder in (self.mount, self.directory / "state"):
            folder.mkdir(parents=True)
        endpoints = ", ".join(f'"http://{ADDRESSES[member]}:2379"' for member in MEMBERS)
        self.config.write_text(
            f"""[server]
name = "CLUSTER"
listen = ["0.0.0.0:445"]
state_dir = "{self.directory}/state"
discovery = "off"
{cluster.keys}
[cluster]
name = "interop"
node = "{name}"
endpoints = [{endpoints}]
ttl = 2

[[share]]
name = "{SHARE}"
path = "{self.shared()}"
cluster = true
continuous = true
fence = "{self.fence}"
addresses = ["{FLOATING}/24"]
{cluster.more.replace("NODE", name)}"""
        )
        self.command("user", "--state-dir", self.directory / "state", "add", USER, "--password-stdin", text=PASSWORD)

    def say(self, *words, text=None):
        """Runs `frevo` in the namespace; returns its status and what it prints."""
        done = subprocess.run(
            within(self.name, self.program, *words),
            input=text and f"{text}\n",
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=90,
        )
        self.cluster.note(f"{self.name}$ frevo {' '.join(map(str, words))}\n{done.stdout}".rstrip())
        return done.returncode, done.stdout

    def command(self, *words, text=None):
        """Runs `frevo` in the namespace, which must succeed; returns what it prints."""
        status, said = self.say(*words, text=text)
        if status:
            raise Failure(f"{self.name}: frevo {words[0]} {words[1]}: {said.strip()[-200:]}")
        return said

    def shared(self):
        """The folder of the share, in the mount."""
        return self.mount

    def mounting(self):
        """The command line of the program of the mount."""
        return ["bindfs", "-f", self.cluster.folder, self.mount]

    def remount(self):
        """Mounts the folder anew: a mount that was fenced stays so."""
        self.unmount()
        self.storage = subprocess.Popen(self.mounting())
        wait_for(f"{self.name} has no mount", lambda: os.path.ismount(self.mount))

    def unmount(self):
        while os.path.ismount(self.mount) or self.is_fenced():
            subprocess.run(["umount", "-l", self.mount], check=True)
        if self.storage:
            self.storage.kill()
            self.storage.wait()
            self.storage = None

    def must_be_fenced(self):
        """Raises Failure unless nothing of this node can reach the folder: the kernel refuses its mount, and the
        program of the mount, by which all its writes go, has ended."""
        wait_for(f"{self.name} is not fenced", self.is_fenced, 2.0)
        wait_for(f"the mount of {self.name} lives after its fence", lambda: self.storage.poll() is not None, 2.0)

    def is_fenced(self):
        """True if the kernel refuses each call on the mount."""
        try:
            os.statvfs(self.mount)
        except OSError as error:
            return error.errno in (103, 107)
        return False

    def start(self):
        """Starts the server on a new mount, and waits until it is ready."""
        self.remount()
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                within(self.name, self.program, "serve", "--config", self.config),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **self.environment},
            )
        for line in self.process.stdout:
            if line.strip() == b"ready":
                return
        raise Failure(f"{self.name} did not start: {self.log.read_text(errors='replace')[-300:]}")

    def signal(self, number):
        os.kill(self.process.pid, number)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        """Stops the server as a service manager does; it gives its shares away."""
        self.signal(signal.SIGTERM)
        if status := self.process.wait(timeout=40):
            raise Failure(f"{self.name} ended with status {status}: {self.log.read_text(errors='replace')[-300:]}")

    def faults(self):
        """Returns the lines of the log about a panic, or about a task that held a core."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return [line for line in lines if any(words in line for words in LOG_FAULTS)]

    def has_address(self):
        shown = subprocess.run(
            ["ip", "-n", self.name, "address", "show", "dev", "eth0"], stdout=subprocess.PIPE, text=True, check=True
        )
        return f" {FLOATING}/" in shown.stdout

    @contextlib.contextmanager
    def cut_off(self, *others, ways=("in", "out")):
        """Drops packets from (`in`) and to (`out`) the others."""
        rules = "table inet cut {"
        for way, hook, end in (("in", "input", "saddr"), ("out", "output", "daddr")):
            if way in ways:
                addresses = ", ".join(ADDRESSES[other] for other in others)
                rules += f"chain {way} {{ type filter hook {hook} priority 0; ip {end} {{ {addresses} }} drop; }}\n"
        subprocess.run(within(self.name, "nft", "-f", "-"), input=rules + "}", text=True, check=True)
        try:
            yield
        finally:
            subprocess.run(within(self.name, "nft", "delete", "table", "inet", "cut"), check=True)


class Cluster:
    """Three nodes and three members of etcd. `program` is frevo; a folder for all is made in `work`. `keys` are
    further ones of [server], and `more` is the end of each configuration, in which NODE is the node's name."""

    node_of = Node

    def __init__(self, program, work, log, keys="", more=""):
        self.program, self.log, self.begun = program, log, time.monotonic()
        self.keys, self.more = keys, more
        self.directory = work / "cluster"
        self.directory.mkdir(parents=True)
        self.folder = self.directory / "folder"
        self.etcd = require_tool("etcd")
        self.members = {}
        self.nodes = []

    def __enter__(self):
        require_tool("nft")
        if not Path("/dev/fuse").exists():
            raise Skip("this kernel has no FUSE")
        network()
        try:
            self.begin_storage()
            for name in MEMBERS:
                self.start_member(name)
            wait_for("etcd has no leader", self.has_leader)
            self.nodes = [self.node_of(self, name) for name in NODES]
            for node in self.nodes:
                node.start()
            wait_for("no node serves the share", self.owner)
        except BaseException as fault:
            self.__exit__(type(fault))
            raise
        return self

    def begin_storage(self):
        """Prepares the file system that all nodes mount."""
        require_tool("bindfs")
        self.folder.mkdir()
        if not any(CONNECTIONS.iterdir()) and not os.path.ismount(CONNECTIONS):
            # A mount below shows whether the file system is there: it has a folder for each.
            subprocess.run(["mount", "-t", "fusectl", "none", CONNECTIONS], check=True)

    def end_storage(self):
        """Ends what `begin_storage` has begun, after all mounts of nodes have gone."""

    def note(self, line):
        """Writes a line to the log of the run, with its moment."""
        self.log.write(f"{time.monotonic() - self.begun:8.3f} {line}\n")

    def __exit__(self, kind=None, *_):
        faults = [f"{node.name}: {line}" for node in self.nodes for line in node.faults()]
        for line in faults:
            self.note(f"fault of {line}")
        self.clear_up()
        if faults and kind is None:
            raise Failure(faults[0][:300])

    def clear_up(self):
        for node in self.nodes:
            if node.process and node.process.poll() is None:
                node.kill()
            node.unmount()
            if node.log.exists():
                self.log.write(f"--- log of {node.name}\n{node.log.read_text(errors='replace')[-20_000:]}\n")
        for member in self.members.values():
            if member.poll() is None:
                member.kill()
            member.wait()
        self.end_storage()
        shutil.rmtree(self.directory, ignore_errors=True)

    def start_member(self, name):
        address, data = ADDRESSES[name], self.directory / name
        peers = ",".join(f"{member}=http://{ADDRESSES[member]}:2380" for member in MEMBERS)
        words = f"""--name {name} --data-dir {data} --listen-client-urls http://{address}:2379
            --advertise-client-urls http://{address}:2379 --listen-peer-urls http://{address}:2380
            --initial-advertise-peer-urls http://{address}:2380 --initial-cluster {peers}
            --heartbeat-interval 50 --election-timeout 500"""
        state = "existing" if data.exists() else "new"
        with open(self.directory / f"{name}.log", "ab") as log:
            self.members[name] = subprocess.Popen(
                within(name, self.etcd, *words.split(), "--initial-cluster-state", state), stdout=log, stderr=log
            )

    def has_leader(self):
        endpoints = ",".join(f"http://{ADDRESSES[member]}:2379" for member in MEMBERS)
        done = subprocess.run(
            within("c1", "etcdctl", "--endpoints", endpoints, "get", "x"),
            env={**os.environ, "ETCDCTL_API": "3"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return done.returncode == 0

    def owners(self):
        """The nodes that have the address."""
        return [node for node in self.nodes if node.has_address()]

    def owner(self):
        """The node that has the address, if there is one."""
        owners = self.owners()
        return owners[0] if len(owners) == 1 else None

    def new_owner(self, old):
        """Waits until another node has the address."""
        begin = time.monotonic()
        new = wait_for("no other node has the address", lambda: (o := self.owner()) and o is not old and o)
        self.note(f"{new.name} has the address after {time.monotonic() - begin:.2f} s")
        return new


class Load:
    """Writers with persistent handles and locks (`frevo-cluster-load`), from the first client."""

    def __init__(self, cluster, program, writers=8, rest=0, host=FLOATING, words=()):
        self.cluster, self.log = cluster, cluster.directory / "load.log"
        self.output, self.writers = cluster.directory / "load.out", writers
        self.log.unlink(missing_ok=True)
        # The numbers at the end of the load, by their names.
        self.counts = {}
        command = [program, host, *words, SHARE, cluster.folder, "--writers", writers, "--log", self.log]
        command += ["--rest", rest] if rest else []
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen(
                within("c1", *command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env={**os.environ, "FREVO_PASSWORD": PASSWORD},
            )
        if self.process.stdout.readline() != b"ready\n":
            raise Failure(f"the load did not start: {self.said()}")

    def said(self):
        return self.output.read_text(errors="replace").strip()[-300:]

    def is_well(self):
        """Raises Failure at the first finding, so that a run does not go on in vain."""
        if self.process.poll() is not None or "finding" in self.said():
            raise Failure(self.said() or "the load has ended")

    def wait_for_all(self, since, seconds=60.0):
        """Waits until each writer has a write acknowledged that began after `since`."""
        missing = set(range(self.writers))
        with open(self.log, "rb") as lines:
            lines.seek(max(0, lines.seek(0, os.SEEK_END) - TAIL))
            rest = b""

            def have_written():
                nonlocal rest
                self.is_well()
                *whole, rest = (rest + lines.read()).split(b"\n")
                for line in whole:
                    # The first line after a jump may be the end of one.
                    if len(words := line.split()) == 3 and int(words[1]) / 1e9 > since:
                        missing.discard(int(words[0]))
                return not missing

            wait_for(f"writers {sorted(missing)} have written nothing", have_written, seconds)

    def end(self):
        """Ends the load, and returns the acknowledged writes: begin and end in seconds, by writers."""
        self.process.stdin.close()
        said = self.process.stdout.read().decode()
        status = self.process.wait(timeout=180)
        self.cluster.note(said + self.said())
        if status:
            raise Failure(self.said() or f"the load ended with status {status}")
        self.counts = {name: int(number) for number, name in re.findall(r"(\d+) (\w+)", said)}
        writes = [[] for _ in range(self.writers)]
        for line in self.log.read_text().splitlines():
            writer, begin, end = map(int, line.split())
            writes[writer].append((begin / 1e9, end / 1e9))
        return writes

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def stalls(writes, moments):
    """The longest time without an acknowledged write in each period, for each writer, from its beginning on."""
    found = []
    for begin, end in moments:
        for each in writes:
            ends = sorted(acknowledged for _, acknowledged in each)
            gaps = [
                later - max(earlier, begin)
                for earlier, later in zip([0.0, *ends], [*ends, end], strict=True)
                if later > begin and earlier < end
            ]
            found.append(max(gaps, default=end - begin))
    return found


def percentiles(values):
    """The median and the 99th percentile."""
    if len(values) == 1:
        return values[0], values[0]
    parts = statistics.quantiles(values, n=100, method="inclusive")
    return parts[49], parts[98]
