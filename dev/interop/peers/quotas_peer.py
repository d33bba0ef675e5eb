"""Quotas kept by the kernel of a guest with ext4 and XFS: queried, enforced and set.

The requests come from the raw client, smbcquotas and smbclient.
"""

import json
import os
import re
import shlex
import struct
import sys
import tempfile
from pathlib import Path

import raw
from guest import (
    ADDRESS,
    ADMIN,
    KIND,
    PASSWORD,
    PORT,
    STATUS,
    USERS,
    frevo,
    has,
    run,
    same,
    sh,
    smbclient,
    space,
    status,
    tree,
    write,
)
from report import check, pattern

KIB, MIB = 1 << 10, 1 << 20
UID = USERS["smbuser"]
NONE = 2**64 - 1
INDEX = "$Extend\\$Quota:$Q:$INDEX_ALLOCATION"
ADMINISTRATORS, USERS_ALIAS = (struct.pack("<BB6sII", 1, 2, b"\0\0\0\0\0\5", 32, alias) for alias in (544, 545))
here = Path(tempfile.mkdtemp())


def sid(uid):
    """Returns the SID S-1-22-1-uid, a user of a Unix host."""
    return struct.pack("<BB6sII", 1, 2, b"\0\0\0\0\0\x16", 1, uid)


def limit(disk, soft, hard, uid=UID):
    """Sets a user's limits on the host, in KiB."""
    sh(f"setquota -u {uid} {soft} {hard} 0 0 /mnt/srv/{disk}")


def kept(disk, uid=UID):
    """Returns the kernel's figures for a user by repquota, in KiB: used, soft limit, hard limit."""
    for line in sh(f"repquota -v -u -n -O csv /mnt/srv/{disk}").splitlines():
        if line.startswith(f"#{uid},"):
            fields = line.split(",")
            return tuple(int(fields[i]) for i in (3, 4, 5))
    return None


def entry(uid, threshold, most, who=None):
    """Returns a FILE_QUOTA_INFORMATION without a successor."""
    who = sid(uid) if who is None else who
    return struct.pack("<IIQqqq", 0, len(who), 0, 0, threshold, most) + who


def quotas(answer):
    """Returns {SID: (used, threshold, limit)} of an answer."""
    found = {}
    for data in raw.chained(answer.buffer()):
        length, _, used, threshold, most = struct.unpack_from("<IQqqq", data, 4)
        found[data[40 : 40 + length]] = (used, threshold, most)
    return found


def ask(t, file, *uids, restart=True):
    """Queries the quotas of these users, or of all."""
    sids = b""
    for at, uid in enumerate(uids):
        sids += struct.pack("<II", 24 if at + 1 < len(uids) else 0, 16) + sid(uid)
    data = struct.pack("<BBHIII", 0, restart, 0, len(sids), 0, 0) + sids
    return t.client.call(raw.QUERY_INFO, raw.query_body(file, 4, 0, data=data))


def set_quota(t, file, data):
    return t.client.call(raw.SET_INFO, raw.set_body(file, 4, 0, data))


def set_defaults(t, file, threshold, most, flags=2):
    data = struct.pack("<qqqQQII", 0, 0, 0, threshold, most, flags, 0)
    return t.client.call(raw.SET_INFO, raw.set_body(file, 2, 6, data))


def smbcquotas(disk, *args, user=ADMIN):
    return run("smbcquotas", f"//{ADDRESS}/{disk}", "-U", f"{user}%{PASSWORD}", "-n", *args)


def control(t):
    """Returns DefaultQuotaThreshold, DefaultQuotaLimit and FileSystemControlFlags."""
    root = t.open("", access=0x100081, options=1)
    data = t.query(root, 2, 6)
    t.close(root)
    return struct.unpack_from("<QQI", data, 24)


def command(disk, *args):
    """Runs `frevo quota` in the guest, for a configuration with a share of this disk."""
    config = f'[[share]]\nname = "{disk}"\npath = "/mnt/srv/{disk}"\n'
    text = shlex.join(["quota", "--config", f"/tmp/{disk}.toml", *args])
    program = os.environ["FREVO_CLIENT"]
    return sh(f"printf %s {shlex.quote(config)} > /tmp/{disk}.toml; {program} {text} 2>&1; echo rc $?")


def told(disk, *args):
    """Returns the quotas that `frevo quota show --json` prints, by kind and name."""
    lines = command(disk, "show", disk, "--json", *args).splitlines()
    objects = [json.loads(line) for line in lines if line.startswith("{")]
    return {(one["kind"], one["name"]): one for one in objects}


def by_command(disk, user):
    """`frevo quota` on the host, against setquota, repquota and what clients see."""
    with check(f"{disk}-command-user"):
        said = command(disk, "set", disk, "--user", str(UID), "--space", "4M", "--soft-space", "2M")
        assert "rc 0" in said and kept(disk)[1:] == (2048, 4096), (said, kept(disk))
        said = command(disk, "set", disk, "--user", str(UID), "--soft-space", "none")
        assert "rc 0" in said and kept(disk)[1:] == (0, 4096), (said, kept(disk))
        limit(disk, 1024, 3072)
        names = [name for (kind, name), one in told(disk).items() if kind == "user" and one["id"] == UID]
        one = told(disk)[("user", names[0])]
        same((one["soft_space"], one["hard_space"], one["enforced"]), (1 * MIB, 3 * MIB, True), "shown")
        same(one["space"], kept(disk)[0] * KIB, "what the user has")
        limit(disk, 0, 0)
    with check(f"{disk}-command-group"):
        said = command(disk, "set", disk, "--group", "61777", "--space", "5M", "--files", "9")
        assert "rc 0" in said, said
        said = sh(f"repquota -g -n -v -O csv /mnt/srv/{disk}")
        assert re.search(r"#61777,.*,5120,", said), said
        one = told(disk, "--group", "61777")[("group", "61777")]
        same((one["hard_space"], one["hard_files"]), (5 * MIB, 9), "shown")
    with check(f"{disk}-command-share"):
        sh(f"mkdir -p {disk}/deep && head -c 100000 /dev/zero > {disk}/deep/old && chmod 777 {disk}/deep")
        said = command(disk, "set", disk, "--share", "--space", "8M")
        assert "rc 0" in said, said
        one = told(disk)[("share", None)]
        assert one["hard_space"] == 8 * MIB and one["space"] >= 100000 and one["enforced"], one
        same(space(user)[0], 8 * MIB, "the size that clients see")
        file = user.open("deep\\new", disposition=5)
        for at in range(200):
            answer = user.client.call(raw.WRITE, raw.write_body(file, at * 65536, pattern(65536)))
            if answer.status:
                break
        status(answer, "DISK_FULL")
        user.close(file)
        sh(f"rm -r {disk}/deep")
        said = command(disk, "set", disk, "--share", "--space", "none")
        assert "rc 0" in said and told(disk)[("share", None)]["hard_space"] is None, said
        print(command(disk, "show"), file=sys.stderr)


def of(disk):
    if not has(disk, f"{disk}-told"):
        return
    admin, user = tree(disk, ADMIN), tree(disk)
    index = admin.open(INDEX, access=0x0012019F)

    with check(f"{disk}-told"):
        limit(disk, 2048, 4096)
        file = user.open("told", disposition=5)
        for at in range(16):
            write(user, file, at * 65536, pattern(65536))
        status(user.client.call(raw.FLUSH, raw.flush_body(file)), "SUCCESS")
        used, soft, hard = kept(disk)
        same((soft, hard), (2048, 4096), "the host's limits")
        # XFS may allocate more blocks than the data needs.
        assert 1024 <= used <= 2048, used
        mine = (used * KIB, 2 * MIB, 4 * MIB)
        found = quotas(status(ask(admin, index), "SUCCESS"))
        same(found[sid(UID)], mine, "listed")
        assert sid(0) in found, "root's files are not counted"
        same(
            quotas(status(ask(admin, index, UID, 61234), "SUCCESS")),
            {sid(UID): mine, sid(61234): (0, 0, 0)},
            "asked for",
        )
        same(control(admin)[2] & 3, 2, "enforced")
        root = admin.open("", access=0x100081, options=1)
        assert struct.unpack_from("<I", admin.query(root, 2, 5))[0] & 0x20, "no FILE_VOLUME_QUOTAS"
        admin.close(root)
        user.close(file)
    with check(f"{disk}-own"):
        if KIND == "frevo":
            file = user.open("", access=0x100081, options=1)
            same(quotas(status(ask(user, file, UID), "SUCCESS"))[sid(UID)][1:], (2 * MIB, 4 * MIB), "his own")
            for asked in [ask(user, file), ask(user, file, 0), set_quota(user, file, entry(UID, -1, -1))]:
                status(asked, "ACCESS_DENIED")
            user.close(file)
        else:
            status(user.client.call(raw.CREATE, raw.create_body(INDEX)), "ACCESS_DENIED")
    with check(f"{disk}-smbcquotas"):
        limit(disk, 2048, 4096)
        code, said = smbcquotas(disk, "-L")
        same(code, 0, said)
        assert re.search(rf"S-1-22-1-{UID}\s*:\s*{kept(disk)[0] * KIB}/\s*{2 * MIB}/\s*{4 * MIB}", said), said
        code, said = smbcquotas(disk, "-u", f"S-1-22-1-{UID}")
        assert code == 0 and re.search(rf"/\s*{2 * MIB}/\s*{4 * MIB}", said), said
        code, said = smbcquotas(disk, "-F")
        print(said, file=sys.stderr)
        assert code == 0 and re.search(r"Quotas Enabled: On", said) and re.search(r"Deny Disk:\s+On", said), said
    with check(f"{disk}-set"):
        code, said = smbcquotas(disk, "-S", f"UQLIM:S-1-22-1-{UID}:{3 * MIB}/{5 * MIB}")
        assert code == 0 and kept(disk)[1:] == (3072, 5120), (said, kept(disk))
        status(set_quota(admin, index, entry(UID, 1 * MIB, 3 * MIB)), "SUCCESS")
        same(kept(disk)[1:], (1024, 3072), "set by a raw request")
    if KIND == "frevo":
        set_exactly(disk, admin, user, index)
    with check(f"{disk}-space"):
        limit(disk, 0, 4096)
        total, caller, free = space(user)
        used = kept(disk)[0]
        same((total, caller), (4 * MIB, (4096 - used) * KIB), "size and what the user may have")
        assert free > 16 * MIB, free
        same(space(admin)[0] > 16 * MIB, True, "who has no limit has the disk")
        said = smbclient(disk, "smbuser", "ls")
        unit, left = map(int, re.search(r"blocks of size (\d+)\. (\d+) blocks available", said).groups())
        same(unit * left, caller, said[-200:])
    with check(f"{disk}-beyond"):
        beyond(disk, user)
    with check(f"{disk}-put"):
        (here / "large").write_bytes(pattern(6 * MIB))
        said = smbclient(disk, "smbuser", f"put {here}/large large")
        assert "NT_STATUS_DISK_FULL" in said, said
        code, said = frevo("put", disk, "large2", here / "large", "URL")
        assert code != 0 and "space" in said and "quota" in said, said
        print(said, file=sys.stderr)
        smbclient(disk, "smbuser", "del large", "del large2")
        (here / "small").write_bytes(pattern(MIB))
        code, said = frevo("put", disk, "small", here / "small", "URL")
        same(code, 0, said)
        same(sh(f"sha256sum < {disk}/small").split()[0], run("sha256sum", here / "small")[1].split()[0])
        smbclient(disk, "smbuser", "del small")
    with check(f"{disk}-soft"):
        sh(f"find {disk} -type f -delete")
        # SMB does not report that the soft limit is passed. After the grace time the soft limit
        # acts as a hard limit.
        sh(f"setquota -u {UID} 512 8192 0 0 /mnt/srv/{disk}; setquota -t -u 4 4 /mnt/srv/{disk}")
        file = user.open("soft", disposition=5)
        for at in range(16):
            write(user, file, at * 65536, pattern(65536))
        status(user.client.call(raw.FLUSH, raw.flush_body(file)), "SUCCESS")
        sh("sleep 5.5")
        if disk == "ext4":
            write(user, file, 16 * 65536, pattern(65536), "DISK_FULL")
        user.close(file)
        sh(f"setquota -t -u 604800 604800 /mnt/srv/{disk}")
        limit(disk, 0, 0)
        sh(f"rm {disk}/soft")
    if KIND == "frevo":
        by_command(disk, user)
    for t in (admin, user):
        t.client.close()


def set_exactly(disk, admin, user, index):
    """Checks setting of quotas by MS-FSA 2.1.5.22."""
    with check(f"{disk}-set-exactly"):
        for data, wanted, after in [
            (entry(UID, -1, 2 * MIB), "SUCCESS", (0, 2048)),
            (entry(UID, 5 * MIB, 3 * MIB), "SUCCESS", (3072, 3072)),
            (entry(UID, 1, 0), "SUCCESS", None),
            (entry(UID, MIB, -1), "SUCCESS", (1024, 0)),
            (entry(UID, -1, -1), "SUCCESS", (0, 0)),
            (entry(UID, -1, -3), "INVALID_PARAMETER", (0, 0)),
            (entry(UID, -2, 4 * MIB), "INVALID_PARAMETER", (0, 0)),
            (entry(UID, 0, 0)[:55], "INVALID_PARAMETER", (0, 0)),
            (entry(0, -1, 4 * MIB), "ACCESS_DENIED", (0, 0)),
            (entry(0, -1, 4 * MIB, ADMINISTRATORS), "ACCESS_DENIED", (0, 0)),
            (entry(0, -1, -1, ADMINISTRATORS), "SUCCESS", (0, 0)),
            (entry(0, -1, 4 * MIB, USERS_ALIAS), "INVALID_PARAMETER", (0, 0)),
            (entry(0, -1, -2, sid(61999)), "NO_MATCH", (0, 0)),
            (entry(UID, 0, 4 * MIB), "SUCCESS", None),
            (entry(UID, -1, -2), "SUCCESS", (0, 0)),
        ]:
            status(set_quota(admin, index, data), wanted)
            if after is not None:
                same(kept(disk)[1:], after, f"after {wanted} to {data[24:40].hex()}")
        # Two entries in one request. The first entry has the SID of an account in the server's
        # domain.
        first = struct.pack("<IIQqqq", 56, 16, 0, 0, MIB, 2 * MIB) + sid(UID)
        status(set_quota(admin, index, first + entry(61001, -1, 8 * MIB)), "SUCCESS")
        same((kept(disk)[1:], kept(disk, 61001)[1:]), ((1024, 2048), (0, 8192)), "two at once")
        status(set_quota(admin, index, entry(61001, -1, -2)), "SUCCESS")
    with check(f"{disk}-set-by-whom"):
        file = user.open("by-whom", disposition=5)
        status(set_quota(user, file, entry(UID, -1, 1 << 40)), "ACCESS_DENIED")
        status(set_defaults(user, file, NONE, 1 << 40), "ACCESS_DENIED")
        user.close(file)
        same(kept(disk)[2], 2048)
    with check(f"{disk}-defaults"):
        same(control(admin)[:2], (NONE, NONE), "defaults at first")
        status(set_defaults(admin, index, NONE, NONE), "SUCCESS")
        if disk == "xfs":
            status(set_defaults(admin, index, MIB, 6 * MIB), "SUCCESS")
            same(control(admin)[:2], (MIB, 6 * MIB), "defaults")
            sh(f"touch {disk}/new; chown 61777 {disk}/new")
            same(kept(disk, 61777)[1:], (1024, 6144), "who is new")
            same(quotas(status(ask(admin, index, 0), "SUCCESS"))[sid(0)][1:], (-1, -1), "root has none")
            status(set_defaults(admin, index, NONE, NONE), "SUCCESS")
            same(control(admin)[:2], (NONE, NONE), "defaults at last")
        else:
            status(set_defaults(admin, index, NONE, 6 * MIB), "INVALID_PARAMETER")
    with check(f"{disk}-none-kept"):
        t = tree("share2", ADMIN)
        file = t.open("f", disposition=5)
        status(ask(t, file), "NOT_SUPPORTED")
        status(set_quota(t, file, entry(UID, -1, MIB)), "NOT_SUPPORTED")
        status(set_defaults(t, file, NONE, MIB), "VOLUME_NOT_UPGRADED")
        t.close(file)
        t.client.close()


def beyond(disk, user):
    """Every operation that exceeds the limit is refused, and old data stays."""
    limit(disk, 0, 2048)
    file = user.open("told", disposition=1)
    before = sh(f"sha256sum < {disk}/told")
    answers = [
        user.client.call(raw.WRITE, raw.write_body(file, MIB + at * 65536, pattern(65536))).status for at in range(24)
    ]
    full = answers.index(STATUS["DISK_FULL"])
    assert 10 <= full <= 16 and set(answers[:full]) == {0} and set(answers[full:]) == {STATUS["DISK_FULL"]}, answers
    same(sh(f"head -c {MIB} {disk}/told | sha256sum"), before, "what was there")
    # Reserving space by FileAllocationInformation needs quota.
    status(user.client.call(raw.SET_INFO, raw.set_body(file, 1, 19, struct.pack("<Q", 8 * MIB))), "DISK_FULL")
    status(user.client.call(raw.SET_INFO, raw.set_body(file, 1, 20, struct.pack("<Q", MIB))), "SUCCESS")
    same(sh(f"sha256sum < {disk}/told"), before, "cut again")
    # Reserving space by CREATE needs quota.
    answer = user.client.call(
        raw.CREATE, raw.create_body("reserved", disposition=2, contexts=[(b"AlSi", struct.pack("<Q", 8 * MIB))])
    )
    status(answer, "DISK_FULL")
    same(os.path.basename(sh(f"ls {disk} | grep reserved || true")), "", "what could not be made")
    write(user, file, MIB, pattern(65536))
    user.close(file)
    # The quota also limits the number of inodes.
    sh(f"setquota -u {UID} 0 0 0 4 /mnt/srv/{disk}")
    answers = [
        user.client.call(raw.CREATE, raw.create_body(f"inode{at}", access=0x0013019F, disposition=5, options=0x1000))
        for at in range(8)
    ]
    found = [a.status for a in answers]
    assert found[0] == 0 and found[-1] == STATUS["DISK_FULL"], [hex(f) for f in found]
    for a in answers:
        if a.status == 0:
            user.close(a.body[64:80])
    sh(f"setquota -u {UID} 0 4096 0 0 /mnt/srv/{disk}")


def projects():
    """A project quota of ext4 limits a folder: a share of this folder reports that size."""
    with check("ext4-project"):
        t = tree("ext4", ADMIN)
        sh("mkdir -p ext4/project; chmod 777 ext4/project; chattr -p 77 +P ext4/project")
        sh("setquota -P 77 0 1024 0 0 /mnt/srv/ext4")
        file = t.open("project\\f", disposition=5)
        answers = [
            t.client.call(raw.WRITE, raw.write_body(file, at * 65536, pattern(65536))).status for at in range(24)
        ]
        assert answers[0] == 0 and answers[-1] == STATUS["DISK_FULL"], [hex(a) for a in answers]
        t.close(file)
        t.client.close()
    with check("df-by-mount"):
        limit("ext4", 0, 4096)
        said = sh(
            f"""mkdir -p /mnt/df
            export USER=smbuser PASSWD={PASSWORD}
            mount.cifs //{ADDRESS}/ext4 /mnt/df -o vers=3.1.1,port={PORT},username=smbuser
            df -k --output=size,avail /mnt/df | tail -n 1; umount /mnt/df"""
        )
        size, available = map(int, said.split())
        same((size, available), (4096, 4096 - kept("ext4")[0]), "df")
        assert available > 1024, available
        limit("ext4", 0, 0)


for disk in ("ext4", "xfs"):
    of(disk)
if has("ext4", "ext4-project", "df-by-mount"):
    projects()
