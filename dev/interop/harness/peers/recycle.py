"""A share with a recycle bin, as smbclient sees it; smbd with vfs_recycle is the reference."""

from ..model import Failure, Skip, group
from .host_users import UIDS, belongs
from .smbclient import Smbclient, holding

OTHER = "smbuser2"


@group("smbclient/recycle", profile="recycle")
def recycle(ctx):
    """Deleted files go to the bin of the user who deleted them, and come back by a rename."""
    is_frevo = ctx.server.kind == "frevo"
    share = "bin" if is_frevo else ctx.server.share
    client, there = Smbclient(ctx, holding("SMB3_11", "SMB3_11")), ctx.server.directory / share
    there.chmod(0o777)
    own = there / ".recycle" / "smbuser"
    local = ctx.work / "local"

    def put(text, *names):
        local.write_text(text)
        client.run(*(f'put "{local}" {name}' for name in names), share=share)

    def holds(path, text):
        if not path.is_file() or path.read_text() != text:
            raise Failure(f"{path.relative_to(there)} does not hold {text!r}")

    with ctx.check("deleted"):
        client.run("mkdir docs", share=share)
        put("one", "docs\\a.txt")
        client.run("del docs\\a.txt", share=share)
        if (there / "docs/a.txt").exists():
            raise Failure("the file is still there")
        holds(own / "docs/a.txt", "one")
    with ctx.check("deleted-again"):
        put("two", "docs\\a.txt")
        client.run("del docs\\a.txt", share=share)
        found = sorted(path.read_text() for path in (own / "docs").iterdir())
        if found != ["one", "two"]:
            raise Failure(f"the bin has {found}")
    with ctx.check("tree"):
        put("three", "docs\\b", "docs\\c")
        client.run("deltree docs", share=share)
        if (there / "docs").exists():
            raise Failure("the folder is still there")
        holds(own / "docs/b", "three")
        holds(own / "docs/c", "three")
    with ctx.check("restored"):
        client.run("rename .recycle\\smbuser\\docs\\b back", share=share)
        holds(there / "back", "three")
    with ctx.check("deleted-in-the-bin"):
        client.run("del .recycle\\smbuser\\docs\\c", share=share)
        if [path for path in (there / ".recycle").rglob("c*") if path.is_file()]:
            raise Failure("the file is still in the bin")
    if not is_frevo:
        return
    with ctx.check("bins-of-others"):
        listed = client.run("ls .recycle\\*", share=share, user=OTHER)
        if "smbuser " in listed:
            raise Failure("the folder of another user is listed")
        client.refused("NT_STATUS_", "ls .recycle\\smbuser\\*", share=share, user=OTHER)
        client.refused("NT_STATUS_", "get .recycle\\smbuser\\docs\\a.txt -", share=share, user=OTHER)
        client.refused("NT_STATUS_ACCESS_DENIED", f'put "{local}" .recycle\\smbuser\\x', share=share, user=OTHER)
    with ctx.check("excluded"):
        put("four", "a.tmp")
        client.run("del a.tmp", share=share)
        if list((there / ".recycle").rglob("*.tmp")):
            raise Failure("an excluded file is in the bin")
    with ctx.check("private"):
        mode = own.stat().st_mode & 0o777
        if mode != 0o700:
            raise Failure(f"the mode of the user's folder is {mode:o}")


@group("smbclient/recycle-host-users", profile="recycle-host-users")
def recycle_host_users(ctx):
    """The bins of two users under `run_as = "user"`: owners and modes on the disk."""
    client, there = Smbclient(ctx, holding("SMB3_11", "SMB3_11")), ctx.server.directory / "bin"
    local = ctx.work / "local"
    if ctx.server.kind != "frevo":
        with ctx.check("owners"):
            raise Skip("smbd makes no private folders")
        return
    with ctx.check("owners"):
        # Users may write to the share's folder, but may not make the folder that holds the recycle
        # bins.
        there.chmod(0o1777)
        for user, uid in UIDS.items():
            local.write_text(user)
            client.run(f"mkdir {user}", f'put "{local}" {user}\\a', f"del {user}\\a", share="bin", user=user)
            own = there / ".recycle" / user
            belongs(own, uid, own.stat().st_gid)
            if own.stat().st_mode & 0o777 != 0o700:
                raise Failure(f"the mode of the user's folder is {own.stat().st_mode & 0o777:o}")
            belongs(own / user / "a", uid)
            if (own / user / "a").read_text() != user:
                raise Failure("the file has another content")
        belongs(there / ".recycle", 0)
    with ctx.check("restored"):
        for user in UIDS:
            client.run(f"rename .recycle\\{user}\\{user}\\a {user}-back", share="bin", user=user)
            if (there / f"{user}-back").read_text() != user:
                raise Failure("the file has another content")
