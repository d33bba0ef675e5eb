"""One folder, two servers: what smbd wrote, Frevo must show, and the other way round."""

import contextlib
import json
import subprocess

from ..model import HERE, Failure, group
from ..prepare import VENV
from ..servers import Server

FACETS = [
    "names",
    "data",
    "attributes",
    "creation-times",
    "write-times",
    "streams",
    "stream-data",
    "eas",
    "dacls",
    "owners",
]
WRITTEN = ["names", "attributes", "times", "streams", "eas", "dacls"]
CHANGED = ["names", "attributes", "streams", "eas", "dacls"]

# Beside the server under test, which has 198.18.0.1.
OTHER_ADDRESS = "198.18.1.1"


@contextlib.contextmanager
def both(ctx):
    """Yields (the server under test, smbd), both serving one and the same folder as their share `torture`.

    They are to be used in turn: neither knows of the other's open files. In a run of the reference both are smbd.
    """
    other = Server("smbd", "crossing", address=OTHER_ADDRESS)
    # Frevo holds its folder by a handle, so it is smbd's that gives way; only this run's mount namespace sees it.
    subprocess.run(["mount", "--bind", ctx.server.path2, other.path2], check=True)
    try:
        yield ctx.server, other
    finally:
        subprocess.run(["umount", "-l", other.path2], check=True)
        other.stop()


def peer(ctx, server, what, *args, **more):
    """crossing_peer.py against one of the two; its output."""
    status, output = ctx.command(
        VENV / "bin/python",
        HERE / "peers/crossing_peer.py",
        what,
        *args,
        env={**server.environment(), "SMB_SHARE": "torture", **more},
        timeout=120,
    )
    return status, output


def facts(ctx, server, name, what="facts", **more):
    path = ctx.work / name
    status, output = peer(ctx, server, what, path, **more)
    if status or not path.exists():
        raise Failure(f"{server.kind} does not tell: {output.strip()[-200:]}")
    return json.loads(path.read_text())


def compare(ctx, prefix, here, there):
    """A row for each facet: what two servers tell of one folder."""
    for facet in FACETS:
        with ctx.check(prefix + facet):
            ours, theirs = here()[facet], there()[facet]
            for name in sorted({*ours, *theirs}):
                a, b = ours.get(name), theirs.get(name)
                if a != b or str(a).startswith("error"):
                    raise Failure(f"{name!r}: written {str(a)[:110]}, shown {str(b)[:110]}")
            if not ours:
                raise Failure("nothing to compare")


def crossing(ctx, writer, reader):
    """`writer` fills the folder and `reader` shows it; then `reader` changes it and `writer` shows that."""
    done = {}

    def once(server, name):
        """The facts, asked for once and before anything else happens to the folder."""
        if name not in done:
            try:
                done[name] = facts(ctx, server, name)
            except Failure as e:
                done[name] = e

        def answer():
            if isinstance(done[name], Failure):
                raise done[name]
            return done[name]

        return answer

    ctx.report(peer(ctx, writer, "write")[1], needed=["write-" + f for f in WRITTEN])
    compare(ctx, "", once(writer, "written"), once(reader, "shown"))
    ctx.report(peer(ctx, reader, "change")[1], needed=["change-" + f for f in CHANGED])
    compare(ctx, "changed-", once(reader, "changed"), once(writer, "shown-changed"))


@group("crossing/from-smbd", profile="crossing")
def from_smbd(ctx):
    """A folder that smbd filled, shown and then changed by the server under test."""
    with both(ctx) as (server, smbd):
        crossing(ctx, smbd, server)


@group("crossing/to-smbd", profile="crossing")
def to_smbd(ctx):
    """A folder that the server under test filled, shown and then changed by smbd."""
    with both(ctx) as (server, smbd):
        crossing(ctx, server, smbd)


def audited(ctx, writer, reader):
    """System access control lists that `writer` sets and `reader` shows and changes, for who may; root may on both."""
    names = ["audit-audited.txt", "audit-audited-folder"]
    ctx.report(peer(ctx, writer, "audit", SMB_USER="root")[1], needed=names)
    for prefix in ("", "changed-"):
        with ctx.check(prefix + "audits"):
            ours = facts(ctx, writer, prefix + "ours", "audits", SMB_USER="root")["audits"]
            theirs = facts(ctx, reader, prefix + "theirs", "audits", SMB_USER="root")["audits"]
            if ours != theirs or bool(ours["audited folder"]) == bool(prefix):
                raise Failure(f"{writer.kind}: {ours}, {reader.kind}: {theirs}")
        ctx.report(
            peer(ctx, reader, "unprivileged")[1].replace("unprivileged", prefix + "unprivileged"),
            needed=[prefix + "unprivileged"],
        )
        if not prefix:
            output = peer(ctx, reader, "reaudit", SMB_USER="root")[1]
            ctx.report(output.replace("audit-", "reaudit-"), needed=["re" + name for name in names])


@group("crossing/audits-from-smbd", profile="crossing")
def audits_from_smbd(ctx):
    """What smbd keeps of auditing, shown and changed by the server under test."""
    with both(ctx) as (server, smbd):
        audited(ctx, smbd, server)


@group("crossing/audits-to-smbd", profile="crossing")
def audits_to_smbd(ctx):
    """The same the other way round."""
    with both(ctx) as (server, smbd):
        audited(ctx, server, smbd)
