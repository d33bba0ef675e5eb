"""Compression on the wire: cifs.ko's `compress`, and Frevo's client with ksmbd and with Frevo's server.

The bytes on the link tell whether data went compressed; the files have to be the same at both ends.
"""

import random
from pathlib import Path

from ..model import Failure, group
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
