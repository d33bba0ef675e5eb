"""tshark reads the captures of Frevo's client and server: no malformed packet, no hole, no secret of a logon, and no
content of files unless it is asked for."""

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import time

from ..model import Failure, Skip, group, require_tool
from .frevo_client import Client, everything
from .smbclient import Smbclient, holding

# Faults that tshark sees in a packet, and holes that it sees in a stream.
FAULTS = '_ws.malformed || _ws.expert.group == "Malformed"'
HOLES = " || ".join(
    f"tcp.analysis.{fault}" for fault in ("lost_segment", "out_of_order", "retransmission", "ack_lost_segment")
)
# The NT hash of Passw0rd.
NT_HASH = bytes.fromhex("a87f3a337d73085c45f9416be5787d86")


class Capturing(Client):
    """The program `frevo`, each of whose commands writes a capture."""

    numbers = itertools.count()

    def status(self, verb, *args, **more):
        file = f"{next(self.numbers)}.pcapng"
        status, output = super().status(verb, "--capture", file, *args, **more)
        # The command says at its end how much is in the file.
        said = [line for line in output.splitlines(keepends=True) if f"{file}: " not in line]
        return status, "".join(said)


def fields(capture, shown, *names):
    """Returns the fields of the packets that a filter of tshark finds."""
    command = ["tshark", "-r", capture, "-Y", shown, "-T", "fields", *(f"-e{name}" for name in names)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise Failure(f"{capture}: {done.stderr[-200:]}")
    return [line.split("\t") for line in done.stdout.splitlines()]


def judge(ctx, capture):
    """Fails for a capture in which tshark finds a fault; returns the messages of SMB2 that it finds."""
    for what, shown in (("malformed", FAULTS), ("a hole in a stream", HOLES)):
        if found := fields(capture, shown, "frame.number", "_ws.col.Info"):
            raise Failure(f"{capture.name}: {what}: {found[:3]}")
    data = capture.read_bytes()
    if NT_HASH in data:
        raise Failure(f"{capture.name} holds the NT hash")
    for at in (m.start() for m in re.finditer(rb"NTLMSSP\0\x03\0\0\0", data)):
        for field in (12, 20, 52):
            length = int.from_bytes(data[at + field : at + field + 2], "little")
            offset = int.from_bytes(data[at + field + 4 : at + field + 8], "little")
            if any(data[at + offset : at + offset + length]):
                raise Failure(f"{capture.name} holds an answer of NTLM")
    shown = sum(len(line[0].split(",")) for line in fields(capture, "smb2", "smb2.cmd"))
    status, output = ctx.command(os.environ["FREVO_CLIENT"], "decode", "--json", capture, timeout=300)
    lines = [json.loads(line) for line in output.splitlines()]
    decoded = [line for line in lines if "command" in line]
    bad = [line for line in decoded if line["command"].startswith("(") or "malformed" in (line["text"] or "")]
    if status or bad:
        raise Failure(f"{capture.name}: frevo decode: {status} {bad[:2]}")
    if len(decoded) != shown:
        raise Failure(f"{capture.name}: tshark finds {shown} messages, frevo decode {len(decoded)}")
    return shown


def judge_data(ctx, capture, data, is_whole):
    """Fails unless a capture has this data of a file, or, if it is not to be whole, the beginnings of it alone."""
    judge(ctx, capture)
    # A part may be in two packets of a capture that is whole. In one that is not, each read and write has 256 bytes.
    content, parts = capture.read_bytes(), [data[at : at + 64] for at in range(0, len(data), 4096)]
    found = sum(part in content for part in parts)
    if found < len(parts) * 9 // 10 if is_whole else found > len(parts) // 8:
        raise Failure(f"{capture.name} has {found} of {len(parts)} parts of the file")
    cut = sum(int(length) - int(kept) for length, kept in fields(capture, "smb2", "frame.len", "frame.cap_len"))
    if cut > 0 if is_whole else cut < len(data) // 2:
        raise Failure(f"{capture.name}: {cut} bytes of packets are cut")
    status, output = ctx.command(os.environ["FREVO_CLIENT"], "decode", capture, timeout=300)
    if status or ("(data cut: " in output) == is_whole:
        raise Failure(f"{capture.name}: frevo decode: {status} {output[-300:]}")


VARIANTS = [
    ("plain", "default", []),
    ("sealed", "default", ["-e"]),
    ("channels", "multichannel", ["--channels", "4", "-e"]),
    ("compressed", "default", ["--compress", "on"]),
]

for _name, _profile, _options in VARIANTS:

    @group(f"capture/client-{_name}", profile=_profile, full_only=True)
    def _client(ctx, options=_options):
        """Every command of Frevo's client with --capture: tshark finds no malformed packet."""
        if not shutil.which("tshark"):
            ctx.add("dissected", "skip", 0.0, "tshark is not installed")
            return
        everything(ctx, options, made=Capturing)
        with ctx.check("dissected"):
            captures = sorted(ctx.work.glob("*.pcapng"))
            messages = sum(judge(ctx, capture) for capture in captures)
            if len(captures) < 30 or messages < 2000:
                raise Failure(f"{messages} messages in {len(captures)} captures")
        data = os.urandom(5_000_000)
        (ctx.work / "long").write_bytes(data)
        client = Client(ctx, options)
        for check, more, is_whole in (("data-left-out", [], False), ("data-whole", ["--capture-data", "all"], True)):
            with ctx.check(check):
                for verb, *names in (("put", "long", client.url("long")), ("get", client.url("long"), f"{check}-back")):
                    capture = ctx.work / f"{check}-{verb}.pcapng"
                    client.run(verb, "--capture", capture, *more, *names)
                    judge_data(ctx, capture, data, is_whole)
                client.run("rm", client.url("long"))


@group("capture/server")
def _server(ctx):
    """`frevo capture --server` while smbclient and Frevo's client copy: tshark finds no malformed packet."""
    server = ctx.server
    if server.kind != "frevo":
        with ctx.check("dissected"):
            raise Skip("it is a command of Frevo")
        return
    program, socket = os.environ["FREVO_CLIENT"], server.directory / "state" / "admin.sock"
    data = os.urandom(3_000_000)
    (ctx.work / "some").write_bytes(data)

    def captured(name, *target):
        """Captures while two clients copy; returns the file."""
        capture = ctx.work / f"{name}.pcapng"
        command = [program, "capture", str(capture), "--server", "--socket", str(socket), "--time", "60", *target]
        with open(ctx.work / f"{name}.log", "wb") as log:
            child = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            until = time.monotonic() + 20
            while not (capture.exists() and capture.stat().st_size):
                if child.poll() is not None or time.monotonic() > until:
                    raise Failure((ctx.work / f"{name}.log").read_text())
                time.sleep(0.05)
            samba = Smbclient(ctx, holding("SMB3_11", "SMB3_11"))
            samba.run("put some samba", "get samba back", "ls", "rm samba")
            client = Client(ctx, ["-e"])
            client.run("put", "some", client.url("own"))
            client.run("get", client.url("own"), "back")
            client.run("rm", client.url("own"))
            if (ctx.work / "back").read_bytes() != data:
                raise Failure("the file is another one")
        finally:
            child.send_signal(signal.SIGINT)
            child.wait(20)
        return capture

    with ctx.check("dissected"):
        require_tool("tshark")
        capture = captured("all", "--all")
        if judge(ctx, capture) < 100:
            raise Failure("few messages")
        judge_data(ctx, capture, data, False)
    with ctx.check("dissected-with-data"):
        judge_data(ctx, captured("whole", "--all", "--capture-data", "all"), data, True)
    with ctx.check("dissected-by-user"):
        capture = captured("user", "--user", server.user)
        if judge(ctx, capture) < 80:
            raise Failure("few messages")
        if fields(capture, "smb2.cmd == 0", "frame.number"):
            raise Failure("a NEGOTIATE is no message of a user")
    with ctx.check("nobody-else"):
        if judge(ctx, captured("nobody", "--user", server.user2)):
            raise Failure("it has messages of another user")
