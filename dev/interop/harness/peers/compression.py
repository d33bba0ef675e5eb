"""Compression on the wire: cifs.ko's `compress`, and Frevo's client with ksmbd and with Frevo's server.

The bytes on the link tell whether data went compressed; the files have to be the same at both ends.
"""

import random
import shutil
import subprocess
import time
from pathlib import Path

from ..model import Failure, Skip, group
from .cifs import guest
from .frevo_client import Client
from .ksmbd import Ksmbd, built

TAP = Path("/sys/class/net/tap0/statistics")
FILES = {
    "words": b"".join(b"%d times %d, " % (at % 97, at // 7) for at in range(250_000)),
    "zeros": bytes(5_000_000),
    "noise": random.Random(7).randbytes(2_000_000),
}
WHOLE = sum(map(len, FILES.values()))


def make(ctx):
    """Writes the files to the scratch folder."""
    room = ctx.work / "sources"
    room.mkdir(exist_ok=True)
    for name, data in FILES.items():
        (room / name).write_bytes(data)
    return room


def carried(direction):
    """Returns the bytes that this machine has received from the guest (rx), or sent to it (tx)."""
    return int((TAP / f"{direction}_bytes").read_text())


def expect(bytes_, is_less, what):
    """Raises Failure unless few bytes went over the link, or all."""
    if (bytes_ < WHOLE * 2 // 3) != is_less:
        raise Failure(f"{what}: {bytes_} of {WHOLE} bytes on the link")


def from_kernel(ctx, options, is_less):
    """Copies files to the share with cifs.ko and `compress`, and compares them on both sides."""
    room = make(ctx)
    before = carried("rx")
    text = f"cp {room}/* . && sync && for f in *; do cmp {room}/$f $f || exit 9; done; cat /proc/fs/cifs/DebugData"
    with ctx.check("put"):
        status, output = guest(ctx, options, "bash", "-c", text, env={"SMB_SHARE": "squeezed"})
        if "COMPRESSION" not in output and status not in (9, 124, 125, 126):
            ctx.add("kernel", "skip", 0.0, "UML_KERNEL names no kernel whose cifs.ko compresses")
            return
        if status:
            raise Failure(f"status {status}: {output.strip()[-250:]}")
        if "Compression: enabled" not in output:
            raise Failure("the kernel does not compress")
        expect(carried("rx") - before, is_less, "WRITEs")
        for name, data in FILES.items():
            if (ctx.server.directory / "squeezed" / name).read_bytes() != data:
                raise Failure(f"{name} differs on the server's disk")


# cifs.ko 7.2 compresses nothing that it seals.
for name, options, is_less in [
    ("plain", "compress", True),
    ("sign", "compress,sign", True),
    ("seal", "compress,seal", False),
]:

    def run(ctx, options=options, is_less=is_less):
        from_kernel(ctx, options, is_less)

    run.__doc__ = f'cifs.ko with -o {options}: WRITEs of a share with compress = "all"'
    group(f"cifs/compress-{name}", profile="compression")(run)


def both_ways(ctx, options, sends, receives):
    """Copies files with Frevo's client to ksmbd and back."""
    kernel, tools, missing = built()
    if missing:
        ctx.add("kernel", "skip", 0.0, missing)
        return
    room, back = make(ctx), ctx.work / "back"
    back.mkdir(exist_ok=True)
    before, ctx.server = ctx.server, Ksmbd(kernel, tools)
    try:
        client = Client(ctx, [*options, "--compress", "on"])
        with ctx.check("put"):
            start = carried("tx")
            for name in FILES:
                client.run("put", room / name, client.url(name))
            expect(carried("tx") - start, sends, "WRITEs")
        with ctx.check("get"):
            start = carried("rx")
            for name, data in FILES.items():
                client.run("get", client.url(name), back / name)
                if (back / name).read_bytes() != data:
                    raise Failure(f"{name} differs")
            expect(carried("rx") - start, receives, "answers")
    finally:
        ctx.server.end()
        ctx.server = before


for name, options, receives in [
    ("plain", ["--sign-when-asked"], True),
    ("signed", [], True),
    ("sealed", ["-e"], False),
]:

    def run(ctx, options=options, receives=receives):
        both_ways(ctx, options, True, receives)

    run.__doc__ = f"Frevo's client with --compress on against ksmbd: {name}"
    group(f"client-ksmbd/compress-{name}")(run)


@group("client/compress", profile="compression")
def own(ctx):
    """Frevo's client with --compress on and Frevo's server, plain, signed and sealed."""
    room, back = make(ctx), ctx.work / "back"
    back.mkdir(exist_ok=True)
    ctx.server.share = "squeezed"
    for name, options in [("plain", ["--sign-when-asked"]), ("signed", []), ("sealed", ["-e"])]:
        client = Client(ctx, [*options, "--compress", "on"])
        with ctx.check(name):
            for file, data in FILES.items():
                client.run("put", "-f", room / file, client.url(file))
                if (ctx.server.directory / "squeezed" / file).read_bytes() != data:
                    raise Failure(f"{file} differs on the server's disk")
                (back / file).unlink(missing_ok=True)
                client.run("get", client.url(file), back / file)
                if (back / file).read_bytes() != data:
                    raise Failure(f"{file} differs")


# Rate of the link, and how many times as fast a log has to be with compression.
LINK, FASTER = "100mbit", 3


def log_lines():
    """Makes 25 MB of a web server's log."""
    dice = random.Random(11)
    agents = [
        "Mozilla/5.0 (X11; Linux x86_64; rv:133.0) Gecko/20100101 Firefox/133.0",
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0",
        "curl/8.11.0",
    ]
    pages = [f"/{folder}/{number}" for folder in ("papers", "photos", "news") for number in range(200)]
    lines, length, second = [], 0, 0
    while length < 25_000_000:
        second += dice.randrange(3)
        address = f"198.51.100.{dice.randrange(256)}"
        at = f"30/Nov/2026:{second // 3600 % 24:02}:{second // 60 % 60:02}:{second % 60:02} +0000"
        size, agent = dice.randrange(200, 90_000), dice.choice(agents)
        lines.append(f'{address} - - [{at}] "GET {dice.choice(pages)} HTTP/1.1" 200 {size} "-" "{agent}"\n')
        length += len(lines[-1])
    return "".join(lines).encode()


def seconds(work):
    """Returns the shortest time of three."""
    times = []
    for _ in range(3):
        began = time.monotonic()
        work()
        times.append(time.monotonic() - began)
    return min(times)


@group("client/compress-link", profile="compression", seconds=40)
def link(ctx):
    """Frevo's client over a link of 100 Mbit/s: --compress on copies a log 3 times as fast as off."""
    source, back, log = ctx.work / "log", ctx.work / "back", log_lines()
    source.write_bytes(log)
    ctx.server.share = "squeezed"
    there = ctx.server.directory / "squeezed" / "log"
    off, on = (Client(ctx, ["--compress", word]) for word in ("off", "on"))
    if not shutil.which("tc"):
        with ctx.check("link"):
            raise Skip("there is no tc")
        return
    # Client and server are in one network namespace, which only this group uses now.
    shape = ["tc", "qdisc", "replace", "dev", "lo", "root", "tbf", "rate", LINK, "burst", "256kb", "limit", "1mb"]
    subprocess.run(shape, check=True)
    try:
        for verb, words, copy in [("put", [source, off.url("log")], there), ("get", [off.url("log"), back], back)]:

            def once(client, verb=verb, words=words, copy=copy):
                copy.unlink(missing_ok=True)
                client.run(verb, *words)

            with ctx.check(verb):
                slow, fast = (seconds(lambda client=client: once(client)) for client in (off, on))
                if copy.read_bytes() != log:
                    raise Failure("the copy differs")
                ctx.log.write(f"{verb}: {slow:.2f} s without compression, {fast:.2f} s with it\n")
                if slow < FASTER * fast:
                    raise Failure(f"{slow:.2f} s without compression, {fast:.2f} s with it")
    finally:
        subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], check=True)
