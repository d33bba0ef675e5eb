"""Two users of the host on one share: owners on disk, and POSIX permissions between them."""

import concurrent.futures
import os

from .. import trees
from ..model import Failure, group
from .smbclient import MIB, Smbclient, holding

# The user IDs of dev/interop/accounts, and the ID of the group that contains both users.
UIDS, BOTH = {"smbuser": 50001, "smbuser2": 50002}, 50003
DENIED = "NT_STATUS_ACCESS_DENIED"
AT_ONCE = 40


def belongs(path, uid, gid=None):
    """Fails unless the file has this owner and group."""
    found, wanted = os.stat(path), (uid, uid if gid is None else gid)
    if (found.st_uid, found.st_gid) != wanted:
        raise Failure(f"{path.name} belongs to {found.st_uid}:{found.st_gid}, wanted {wanted[0]}:{wanted[1]}")


def place(path, uid, gid, mode, content=None):
    """Makes a file on the host, or a folder if `content` is None."""
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    os.chown(path, uid, gid)
    path.chmod(mode)


def holds(path, content):
    if path.read_bytes() != content:
        raise Failure(f"{path.name} has wrong content")


@group("smbclient/host-users", profile="host-users")
def host_users(ctx):
    """Two users under `run_as = "user"`: owners on disk, and EACCES by POSIX permissions."""
    client, there = Smbclient(ctx, holding("SMB3_11", "SMB3_11")), ctx.server.path
    one, two = UIDS
    source, back = trees.fill(ctx.work / "source", 3 * MIB + 5, 50), ctx.work / "back"
    data = source.read_bytes()

    def gets(user, name):
        client.run(f'get {name} "{back}"', user=user)
        trees.same_file(source, back)

    def refused(user, *commands):
        for command in commands:
            client.refused(DENIED, command, user=user)

    with ctx.check("owners"):
        for user, uid in UIDS.items():
            client.run(f"mkdir {user}", f'put "{source}" {user}\\large', f'put "{source}" {user}-top', user=user)
            for name in (user, f"{user}/large", f"{user}-top"):
                belongs(there / name, uid)
            trees.same_file(source, there / user / "large")
    with ctx.check("private-folder"):
        place(there / "private", UIDS[one], UIDS[one], 0o700)
        place(there / "private/secret", UIDS[one], UIDS[one], 0o644, data)
        gets(one, "private\\secret")
        refused(
            two,
            "ls private\\*",
            f'get private\\secret "{back}"',
            f'put "{source}" private\\new',
            "mkdir private\\sub",
            "del private\\secret",
            "rename private\\secret taken",
        )
        if sorted(os.listdir(there / "private")) != ["secret"]:
            raise Failure(f"files left: {os.listdir(there / 'private')}")
    with ctx.check("others-may-read"):
        place(there / "shown", UIDS[one], UIDS[one], 0o755)
        place(there / "shown/file", UIDS[one], UIDS[one], 0o644, data)
        gets(two, "shown\\file")
        refused(
            two,
            "put /etc/hostname shown\\file",
            f'put "{source}" shown\\new',
            "mkdir shown\\sub",
            "del shown\\file",
            "rename shown\\file shown\\other",
            "rename shown\\file other",
            "setmode shown\\file +h",
        )
        holds(there / "shown/file", data)
        if os.listdir(there / "shown") != ["file"] or os.listxattr(there / "shown/file"):
            raise Failure(f"{os.listdir(there / 'shown')}, {os.listxattr(there / 'shown/file')}")
        client.run("put /etc/hostname shown\\file", user=one)
        belongs(there / "shown/file", UIDS[one])
    with ctx.check("group"):
        place(there / "ours", 0, BOTH, 0o660, b"before")
        place(there / "roots", 0, 0, 0o660, b"before")
        for user in UIDS:
            client.run(f'put "{source}" ours', user=user)
            gets(user, "ours")
            belongs(there / "ours", 0, BOTH)
            refused(user, f'get roots "{back}"', f'put "{source}" roots')
        holds(there / "roots", b"before")
    with ctx.check("sticky-folder"):
        place(there / "sticky", 0, 0, 0o1777)
        place(there / "sticky/file", UIDS[one], UIDS[one], 0o666, b"before")
        client.run(f'put "{source}" sticky\\file', user=two)
        belongs(there / "sticky/file", UIDS[one])
        refused(two, "del sticky\\file", "rename sticky\\file sticky\\other")
        holds(there / "sticky/file", data)
        client.run("del sticky\\file", user=one)
        if os.listdir(there / "sticky"):
            raise Failure("the owner could not delete it")
    with ctx.check("both-at-once"):
        place(there / "all", 0, 0, 0o777)
        small = trees.fill(ctx.work / "small", 5000, 51)

        def work(user):
            client.run(*[f'put "{small}" all\\{user}.{at}' for at in range(AT_ONCE)], user=user)

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(work, [*UIDS, *UIDS]))
        found = sorted((there / "all").iterdir())
        if len(found) != 2 * AT_ONCE:
            raise Failure(f"{len(found)} files")
        for path in found:
            belongs(path, UIDS[path.name.split(".")[0]])
            trees.same_file(small, path)
