"""Shares that administrators add and remove with Samba's net: MS-SRVS."""

from ..model import Failure, Skip, group
from .smbclient import Smbclient, holding


def net(ctx, *arguments, user=None):
    """Returns (status, output) of `net rpc share` as `user`."""
    server = ctx.server
    account = f"{user or server.user}%{server.password}"
    return ctx.command(
        "net", "rpc", "share", *arguments, "-S", server.address, "-p", server.port, "-U", account, timeout=60
    )


def done(ctx, *arguments):
    status, output = net(ctx, *arguments)
    if status:
        raise Failure(output)
    return output


def refused(ctx, *arguments, user=None):
    status, output = net(ctx, *arguments, user=user)
    if not status and "WERR_" not in output and "NT_STATUS_" not in output:
        raise Failure(f"it is done: {output}")


@group("srvsvc/shares", profile="share-roots")
def shares(ctx):
    """`net rpc share add|delete` as a member of Administrators, and as somebody else."""
    server = ctx.server
    if server.kind != "frevo":
        with ctx.check("add"):
            raise Skip("smbd asks a script of the administrator")
        return
    client, root = Smbclient(ctx, holding("SMB3_11", "SMB3_11")), server.directory / "roots"
    for name in ("new", "other"):
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name).chmod(0o777)
    (root / "link").symlink_to(server.directory / "state")
    with ctx.check("add"):
        done(ctx, "add", f"new={root}/new", "-C", "made by net")
        listed = done(ctx, "list")
        if "new" not in listed.split():
            raise Failure(listed)
        (root / "new" / "file").write_text("here")
        if "file" not in client.run("ls", share="new"):
            raise Failure("the share does not show its files")
    with ctx.check("add-as-windows-writes-paths"):
        path = str(root / "other").replace("/", "\\")
        done(ctx, "add", f"other=C:{path}")
        client.run("ls", share="other", user=server.user2)
    with ctx.check("refused"):
        outside = (f"state={root}/link", f"up={root}/../state", "etc=/etc")
        for wrong in (f"new={root}/other", *outside, f"no={root}/absent"):
            refused(ctx, "add", wrong)
        refused(ctx, "add", f"third={root}/other", user=server.user2)
        refused(ctx, "delete", "new", user=server.user2)
        refused(ctx, "delete", server.share)
        refused(ctx, "delete", "absent")
        client.run("ls", share="new")
        client.run("ls", share=server.share)
    with ctx.check("delete"):
        done(ctx, "delete", "other")
        client.refused("NT_STATUS_BAD_NETWORK_NAME", "ls", share="other")
        done(ctx, "delete", "new")
        client.refused("NT_STATUS_BAD_NETWORK_NAME", "ls", share="new")
        if not (root / "new" / "file").exists():
            raise Failure("the folder of the share is gone")
