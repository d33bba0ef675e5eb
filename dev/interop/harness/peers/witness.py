"""The witness of a cluster (MS-SWN): smbtorture, rpcclient, cifs.ko with `witness`, and Frevo's own client.

The groups run only when named (`--only 'cluster/witness*'`).
"""

import contextlib
import json
import os
import re
import select
import shutil
import subprocess
import time
from pathlib import Path

from ..cluster import ADDRESSES, FLOATING, PASSWORD, SHARE, USER, Cluster, wait_for, within
from ..model import HERE, Failure, Skip, group
from ..prepare import VENV
from .cluster import CALM, killer, mover
from .cluster_torture import SAMBA
from .smbtorture import WORDS, parse

# The name of the cluster, by which clients are to reach it: NetName of MS-SWN.
NAME = "interop"
# Seconds that AsyncNotify_timeouts of smbtorture waits at each interface of another node.
WAITS = (0, 1, 10, 100, 120)
# A share without addresses of its own.
WIDE = "wide"


def watched_cluster(ctx, scale_out=False):
    """A cluster whose nodes have the witness, with calls that are signed or sealed; with a share that has no
    addresses of its own, if wanted: one of a scale-out file server."""
    more = "[rpc]\nenabled = true\n"
    if scale_out:
        folder = ctx.work / WIDE
        folder.mkdir(exist_ok=True)
        more += f'[[share]]\nname = "{WIDE}"\npath = "{folder}"\ncluster = true\ncontinuous = true\nfence = "none"\n'
    return Cluster(ctx.server.program, ctx.work, ctx.log, 'encryption = "offered"', more)


def newer(program, *words):
    return [HERE / "newer-samba", "-x", SAMBA, program, *words]


def run(ctx, *command, seconds=120, place="c2"):
    """Runs a program in a client's namespace, if there is one; returns its status and what it printed."""
    done = subprocess.run(
        within(place, *command) if place else command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=seconds,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    ctx.log.write(f"$ {' '.join(map(str, command))}\n{done.stdout}")
    ctx.log.flush()
    return done.returncode, done.stdout


def needs_samba():
    if not shutil.which("debootstrap") and not os.environ.get("INTEROP_SAMBA_ROOTS"):
        raise Skip("no debootstrap, which fetches Samba 4.25")


@group("cluster/witness-torture", named_only=True)
def torture(ctx):
    """smbtorture 4.25: rpc.witness against the node that serves the share, and local.ndr.witness.

    RegisterEx wants a name of no share refused, as MS-SWN 3.1.4.5 has it where a share is of a scale-out file
    server: else names are ignored. Both tests of AsyncNotify connect to the interface clusapi, which Frevo and smbd
    do not have: AsyncNotify has a resource go offline there, and smbtorture ends with a fault of its own;
    AsyncNotify_timeouts goes on without it, and fails by that alone: `AsyncNotify_timeouts-waits` judges its waits.
    """
    needs_samba()
    with watched_cluster(ctx, scale_out=True) as cluster:
        place = f"ncacn_ip_tcp:{ADDRESSES[cluster.owner().name]}[seal]"
        words = [place, f"-U{USER}%{PASSWORD}", f"--option=torture:net_name={NAME}"]
        found = torture_rows(ctx, "rpc.witness", words)
        with ctx.check("rpc.witness/AsyncNotify_timeouts-waits"):
            result, seconds, reason = found["witness.AsyncNotify_timeouts"]
            # At both interfaces of other nodes.
            wanted = 2 * sum(WAITS)
            if result != "success" and "clusapi" not in reason or not wanted <= seconds <= wanted + 30:
                raise Failure(f"{reason or result} after {seconds:.1f} s, wanted {wanted} s")
        torture_rows(ctx, "local.ndr.witness", ["ncalrpc:"])


def torture_rows(ctx, suite, words, place="c2"):
    """Adds a row for each test of a suite, of which each is run alone where one ends smbtorture; returns them."""
    _, output = run(ctx, *newer("smbtorture", "--format=subunit", *words, suite), place=place)
    found = parse(output, False, 1)
    if suite == "rpc.witness" and not any(name.endswith("AsyncNotify_timeouts") for name in found):
        test = f"{suite}.witness.AsyncNotify_timeouts"
        _, output = run(ctx, *newer("smbtorture", "--format=subunit", *words, test), seconds=600, place=place)
        found.update(parse(output, False, 1))
    if not found:
        ctx.add(f"{suite}/starts", "fail", 0.0, output[-200:])
    for name, (result, seconds, reason) in found.items():
        ctx.add(f"{suite}/{name.removeprefix('witness.')}", WORDS.get(result, "fail"), seconds, reason)
    return found


class RpcClient:
    """An rpcclient at a node, which keeps one connection for all commands: a registration belongs to it."""

    def __init__(self, ctx, address, level, account=f"{USER}%{PASSWORD}", place="c2"):
        self.ctx = ctx
        words = newer("rpcclient", f"-U{account}", f"ncacn_ip_tcp:{address}[{level}]")
        # On a terminal it prints each line at once.
        self.said, terminal = os.openpty()
        self.process = subprocess.Popen(
            within(place, *words) if place else words,
            stdin=subprocess.PIPE,
            stdout=terminal,
            stderr=terminal,
        )
        os.close(terminal)
        self.process.stdin.write(b"end-of-answer\n")
        self.process.stdin.flush()
        self.answer()

    def begin(self, command):
        self.ctx.log.write(f"rpcclient> {command}\n")
        # An unknown command has an answer of its own, behind that of the command before. It comes later, since
        # rpcclient waits for further input after the first of two lines that come together.
        for line in (command, "end-of-answer"):
            self.process.stdin.write(f"{line}\n".encode())
            self.process.stdin.flush()
            time.sleep(0.3)

    def answer(self, seconds=30.0):
        """The answer to the command that was begun."""
        said, end = "", time.monotonic() + seconds
        while "end-of-answer" not in said:
            if not select.select([self.said], [], [], max(0.0, end - time.monotonic()))[0]:
                raise Failure(f"no answer: {said[-200:]}")
            try:
                piece = os.read(self.said, 4096)
            except OSError as error:
                # The other end of the terminal is closed.
                raise Failure(f"rpcclient has ended: {said[-200:]}") from error
            said += piece.decode(errors="replace").replace("\r", "")
        self.ctx.log.write(said)
        return said

    def call(self, command, *words):
        """Makes a call whose answer must have these words."""
        self.begin(command)
        said = self.answer()
        if any(word not in said for word in words) or "result was" in said or "failed" in said:
            raise Failure(said[-250:])
        return said

    def register(self, command):
        found = re.search(r"^(?:rpcclient \$> )*([0-9a-f]+:[0-9a-f-]{36})$", self.call(command), re.MULTILINE)
        if not found:
            raise Failure("no handle, see the log")
        return found[1]

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.said)


def calls(ctx, client, level, place, share):
    """Rows for the calls that need no event. `place` has the name and the address to register for."""
    for command in (f"Register {place}", f"RegisterEx {place} -s {share} -f 1 -t 60"):
        with ctx.check(f"{command.split()[0]}-{level}"):
            client.call(f"UnRegister {client.register(command)}")
    with ctx.check(f"AsyncNotify-timeout-{level}"):
        handle = client.register(f"RegisterEx {place} -f 1 -t 5")
        client.begin(f"AsyncNotify {handle}")
        if "WERR_TIMEOUT" not in (said := client.answer()):
            raise Failure(said[-250:])
        client.call(f"UnRegister {handle}")
    for command in (f"Register {place} -2", f"RegisterEx {place} -1"):
        with ctx.check(f"{command.split()[0]}-wrong-version-{level}"):
            client.begin(command)
            if "REVISION_MISMATCH" not in (said := client.answer()):
                raise Failure(said[-250:])


@group("cluster/witness-rpcclient", named_only=True)
def rpcclient(ctx):
    """rpcclient's five commands of the witness service, signed and sealed, and a node that dies meanwhile."""
    needs_samba()
    with watched_cluster(ctx) as cluster:
        for level in ("sign", "seal"):
            owner = cluster.owner() or cluster.new_owner(None)
            # A client of the owner registers with another node.
            witness = next(node for node in cluster.nodes if node is not owner)
            address, place = ADDRESSES[owner.name], f"-n {NAME} -i {ADDRESSES[owner.name]} -c box"
            with contextlib.closing(RpcClient(ctx, ADDRESSES[witness.name], level)) as client:
                with ctx.check(f"GetInterfaceList-{level}"):
                    said = client.call("GetInterfaceList", *(node.name for node in cluster.nodes))
                    # The witness is none for its own clients.
                    if f"*+ {witness.name}" in said or f"*+ {owner.name} {address}" not in said:
                        raise Failure(said[-250:])
                calls(ctx, client, level, place, SHARE)
                with ctx.check(f"AsyncNotify-{level}"):
                    handle = client.register(f"RegisterEx {place} -f 1 -t 60")
                    client.begin(f"AsyncNotify {handle}")
                    time.sleep(0.5)
                    owner.kill()
                    begin = time.monotonic()
                    said = client.answer()
                    ctx.add(
                        f"AsyncNotify-{level}-time", "pass", 0.0, f"{time.monotonic() - begin:.2f} s after the kill"
                    )
                    if "Resource change with" not in said or "Unavailable" not in said:
                        raise Failure(said[-250:])
                    client.call(f"UnRegister {handle}")
            if owner.process.poll() is not None:
                cluster.new_owner(owner)
                owner.start()
        with ctx.check("plain"), contextlib.closing(RpcClient(ctx, ADDRESSES[witness.name], "connect")) as client:
            client.begin("GetInterfaceList")
            if f" {witness.name} " in client.answer():
                raise Failure("answered without protection")


@group("cluster/witness-smbd", named_only=True)
def smbd(ctx):
    """The reference for these calls: smbd's rpcd_witness on two nodes of CTDB (`with-ctdb`), and smbtorture there."""
    needs_samba()
    account = "root%Passw0rd"
    nodes, public = ("198.19.78.11", "198.19.78.12"), ("198.19.78.111", "198.19.78.112")
    reference = subprocess.Popen(
        [HERE / "with-ctdb", "--", "sh", "-c", "echo ready; cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=ctx.log,
        text=True,
    )
    try:
        if reference.stdout.readline() != "ready\n":
            raise Skip("CTDB does not start, see the log")
        for level in ("sign", "seal"):
            with contextlib.closing(RpcClient(ctx, nodes[0], level, account, None)) as client:
                with ctx.check(f"GetInterfaceList-{level}"):
                    if "*+ cluster " not in (said := client.call("GetInterfaceList", *public)):
                        raise Failure(said[-250:])
                calls(ctx, client, level, f"-n CLUSTER -i {public[0]} -c box", "share")
        words = [f"ncacn_ip_tcp:{nodes[0]}[seal]", f"-U{account}", "--option=torture:net_name=CLUSTER"]
        torture_rows(ctx, "rpc.witness", words, None)
    finally:
        # The end of its input ends the command, and with it the nodes.
        reference.stdin.close()
        reference.wait(timeout=60)


class Agent:
    """cifs.ko in a guest with a mounted share, `witness_agent.py` beside it, and a program that writes."""

    def __init__(self, ctx, seconds, share=SHARE, address=FLOATING, words=""):
        self.ctx = ctx
        site = next((VENV / "lib").glob("python3*/site-packages"))
        agent = f"PYTHONPATH={site} python3 {HERE}/peers/witness_agent.py --seconds {seconds + 60} {words}"
        heard = "/run/witness-agent"
        share = f"mount.cifs //{NAME}/{share} /mnt/smb -o ip={address},vers=3.1.1,username={USER}"
        options = "persistenthandles,hard,echo_interval=30,witness"
        script = f"""{agent} --ready {heard} & until [ -e {heard} ]; do sleep 0.1; done; mkdir -p /mnt/smb
            PASSWD={PASSWORD} {share},{options} || exit 126
            cd /mnt/smb; python3 {HERE}/guest-cluster {seconds}; code=$?; cd /; umount /mnt/smb; kill %1; exit $code"""
        command = ["-M", "-a", FLOATING, "-n", SHARE, "-u", USER, "-w", PASSWORD, "-t", str(seconds + 90)]
        self.guest = subprocess.Popen(
            [HERE / "linux-client", *command, "--", "bash", "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.said = []

    def until(self, *words, seconds=60.0):
        """Waits for lines that begin with these words, in any order, and returns the last of them."""
        end, missing = time.monotonic() + seconds, set(words)
        for line in self.guest.stdout:
            self.ctx.log.write(f"{time.monotonic():.3f} {line}")
            self.said.append(line)
            missing -= {word for word in missing if line.startswith(word)}
            if not missing:
                return line
            if time.monotonic() > end:
                break
        raise Failure(f"no line with {' or '.join(missing)}: {''.join(self.said)[-250:]}")

    def end(self, seconds, file):
        """Waits for the end of the writes, and compares them with the file; returns what there is to say."""
        found = re.search(r"ok (\d+) writes, longest ([0-9.]+) s", self.until("ok ", seconds=seconds + 60))
        judging = [HERE / "guest-cluster", "--judge", file, found[1]]
        if subprocess.run(judging, stderr=self.ctx.log).returncode:
            raise Failure("a write was lost, see the log")
        return f"{found[1]} writes, the longest {found[2]} s"


@group("cluster/witness-cifs", named_only=True)
def cifs(ctx):
    """cifs.ko 7.2 with `witness` and an agent: it goes on when its node dies, and when the share moves."""
    kernel = os.environ.get("UML_KERNEL", "")
    with ctx.check("kernel"):
        if not kernel or b"cifs_mcgrp_swn" not in Path(kernel).read_bytes():
            raise Skip("UML_KERNEL names no kernel with CONFIG_CIFS_SWN_UPCALL")
    if ctx.rows[-1].result != "pass":
        return
    seconds = 30
    with watched_cluster(ctx) as cluster, ctx.check("moves"):
        agent = Agent(ctx, seconds)
        try:
            agent.until("witness: registered", "ready")
            for act in (killer(cluster), mover(cluster)):
                time.sleep(CALM)
                act(None)
                # With another node, where the first witness has the address now.
                agent.until("witness: registered")
            said = agent.end(seconds, cluster.folder / "guest.bin")
        finally:
            agent.guest.terminate()
        ctx.add("figures", "pass", 0.0, said)
    for name, words, word in (("share-move", "", "share-move"), ("client-move", "--no-share", "client-move")):
        with ctx.check(name):
            ctx.add(f"{name}-figures", "pass", 0.0, scale_out(ctx, seconds, words, word))


def scale_out(ctx, seconds, words, word):
    """A share without addresses of its own, mounted by the address of its owner: it moves, its owner is drained, and,
    for a client that has named the share, its owner dies."""
    with watched_cluster(ctx, scale_out=True) as cluster:
        config = cluster.nodes[0].directory / "frevo.toml"

        def owner():
            view = json.loads(cluster.nodes[0].command("cluster", "status", "--json", "--config", config))
            name = next((unit["owner"] for unit in view["units"] if unit["name"] == WIDE), None)
            return next((node for node in cluster.nodes if node.name == name), None)

        first = wait_for("nobody has the share", owner)
        agent = Agent(ctx, seconds, WIDE, ADDRESSES[first.name], words)
        try:
            agent.until("witness: registered", "ready")
            time.sleep(CALM)
            # All units leave the node, so that clients of any of its shares are told to move.
            cluster.nodes[0].command("cluster", "drain", first.name, "--config", config)
            agent.until(f"witness: {word}", "witness: registered")
            cluster.nodes[0].command("cluster", "undrain", first.name, "--config", config)
            if not words:
                time.sleep(CALM)
                owner().kill()
                agent.until("witness: change", f"witness: {word}")
            return agent.end(seconds, ctx.work / WIDE / "guest.bin")
        finally:
            agent.guest.terminate()
