"""Namespaces that administrators change with Samba's rpcclient, and smbtorture's rpc.dfs: MS-DFSNM."""

from ..model import Failure, Skip, group
from .rpc import run_suite

ROOT = r"\\{}\dfs"
ADMINISTRATOR = "root"


def rpcclient(ctx, *words, user=ADMINISTRATOR):
    """Returns (status, output) of a command of rpcclient, whose shell takes one backslash of two away."""
    server = ctx.server
    command = " ".join(str(word).replace("\\", "\\\\") for word in words)
    account = f"{user}%{server.password}"
    return ctx.command("rpcclient", "-p", server.port, "-U", account, server.address, "-c", command, timeout=60)


def answered(ctx, *words, user=ADMINISTRATOR, has=(), has_not=()):
    status, output = rpcclient(ctx, *words, user=user)
    missing = [text for text in has if text not in output] + [text for text in has_not if text in output]
    if status or "WERR_" in output or "DOS code" in output or missing:
        raise Failure(f"{words}: {missing} {output}")


def refused(ctx, *words, user=ADMINISTRATOR, code):
    _, output = rpcclient(ctx, *words, user=user)
    if code not in output:
        raise Failure(f"{words}: {output}")


@group("netdfs/rpcclient", profile="namespaces")
def calls(ctx):
    """dfsversion, dfsadd, dfsremove, dfsgetinfo, dfsenum and dfsenumex as an administrator, and as somebody else."""
    server = ctx.server
    root, somebody = ROOT.format(server.address), server.user
    red = root + r"\red"
    with ctx.check("version"):
        answered(ctx, "dfsversion", has=["dfs is present"])
    with ctx.check("add"):
        answered(ctx, "dfsadd", red, "nas1", "data", "comment")
        answered(ctx, "dfsadd", red, "nas2", "data", "comment")
        refused(ctx, "dfsadd", red, "nas2", "data", "comment", code="WERR_FILE_EXISTS")
    with ctx.check("refused"):
        refused(ctx, "dfsadd", root + r"\blue", "nas1", "data", "comment", user=somebody, code="WERR_ACCESS_DENIED")
        refused(ctx, "dfsremove", red, "nas1", "data", user=somebody, code="WERR_ACCESS_DENIED")
    for level in (1, 2, 3):
        with ctx.check(f"getinfo-{level}"):
            has = ["storage[0] server: nas1", "storage[1] server: nas2", "storage[1] share: data"] if level == 3 else []
            has += ["comment: comment", "num_stores: 2"] if level > 1 else []
            answered(ctx, "dfsgetinfo", red, "nas1", "data", level, user=somebody, has=[r"dfs\red", *has])
        with ctx.check(f"getinfo-root-{level}"):
            answered(ctx, "dfsgetinfo", root, "x", "dfs", level, user=somebody, has=[r"\dfs"])
        for name, words in (("enum", ()), ("enumex", (root,))):
            with ctx.check(f"{name}-{level}"):
                answered(ctx, f"dfs{name}", *words, level, user=somebody, has=[r"\dfs", r"dfs\red"])
    with ctx.check("enumex-300"):
        answered(ctx, "dfsenumex", root, 300, user=somebody)
    with ctx.check("absent"):
        code = "WERR_NOT_FOUND" if server.kind == "frevo" else "WERR_NERR_DFSNOSUCH"
        refused(ctx, "dfsgetinfo", root + r"\none", "a", "b", 1, code=code)
        refused(ctx, "dfsgetinfo", ROOT.format(server.address)[:-3] + "none", "a", "b", 1, code=code)
    with ctx.check("remove"):
        if server.kind != "frevo":
            raise Skip("smbd has added no link")
        refused(ctx, "dfsremove", red, "nas3", "data", code="WERR_FILE_NOT_FOUND")
        answered(ctx, "dfsremove", red, "nas2", "data")
        answered(ctx, "dfsgetinfo", red, "nas1", "data", 3, has=["num_stores: 1"], has_not=["nas2"])
        answered(ctx, "dfsremove", red, "nas1", "data")
        refused(ctx, "dfsgetinfo", red, "a", "b", 1, code="WERR_NOT_FOUND")
        answered(ctx, "dfsenum", 1, has_not=["red"])


@group("netdfs/torture", profile="namespaces", seconds=120)
def torture(ctx):
    """smbtorture's rpc.dfs, as an administrator."""
    run_suite(ctx, "rpc.dfs", f"ncacn_np:{ctx.server.address}", user=ADMINISTRATOR)
