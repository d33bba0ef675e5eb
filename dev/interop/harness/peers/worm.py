"""A share whose files are written once, as smbclient sees it; smbd with vfs_worm is the reference."""

import time

from ..model import Failure, group
from .smbclient import Smbclient, holding

# Seconds after which the profile's files are committed.
AFTER = 3


@group("worm/smbclient", profile="worm")
def worm(ctx):
    """A file can be changed until it stayed unchanged for a while, and not any more after that."""
    client, there = Smbclient(ctx, holding("SMB3_11", "SMB3_11")), ctx.server.directory / "archive"
    local, other = ctx.work / "local", ctx.work / "other"
    local.write_text("one")
    other.write_text("other")
    refused = "NT_STATUS_"

    def unchanged(name="folder/kept", text="two"):
        path = there / name
        if not path.is_file() or path.read_text() != text:
            raise Failure(f"{name} does not hold {text!r}")

    with ctx.check("changed-at-first"):
        client.run("mkdir folder", f'put "{local}" folder\\kept', share="archive")
        local.write_text("two")
        client.run(f'put "{local}" folder\\kept', "rename folder\\kept folder\\k2", share="archive")
        client.run("rename folder\\k2 folder\\kept", share="archive")
        client.run(f'put "{other}" other', share="archive")
        unchanged()
    time.sleep(AFTER + 2)
    client.run(f'put "{local}" fresh', share="archive")
    for name, command in (
        ("overwrite", f'put "{other}" folder\\kept'),
        ("delete", "del folder\\kept"),
        ("rename", "rename folder\\kept folder\\away"),
        ("rename-over", "rename fresh folder\\kept -f"),
        ("attributes", "setmode folder\\kept +h"),
        ("times", "utimes folder\\kept -1 2001:01:01-00:00:00 2001:01:01-00:00:00 -1"),
        ("hard-link", "hardlink folder\\kept linked"),
        ("stream", f'put "{other}" folder\\kept:note'),
        ("delete-tree", "deltree folder"),
        ("folder", "rename folder moved"),
    ):
        with ctx.check(name):
            client.refused(refused, command, share="archive")
            unchanged()
            if (there / "linked").exists():
                raise Failure("there is a link")
    with ctx.check("read"):
        if "two" not in client.run("get folder\\kept -", share="archive"):
            raise Failure("the file cannot be read")
    with ctx.check("new-folder"):
        client.run("mkdir new", "rename new named", share="archive")
