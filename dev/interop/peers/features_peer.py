"""File system features on the guest's ext4, XFS and btrfs: holes, shared extents, snapshots, access control lists."""

import struct
import tempfile
import time
from pathlib import Path

import raw
from guest import KIND, has, same, sh, smbclient, space, status, tree, write
from report import check, pattern

KIB, MIB = 1 << 10, 1 << 20
SET_SPARSE, SET_ZERO_DATA, QUERY_RANGES, DUPLICATE, COPYCHUNK, RESUME_KEY, SNAPSHOTS = (
    0x900C4,
    0x980C8,
    0x940CF,
    0x98344,
    0x1480F2,
    0x140078,
    0x144064,
)
here = Path(tempfile.mkdtemp())


def ioctl(t, file, code, data=b"", *wanted):
    return status(t.client.call(raw.IOCTL, raw.ioctl_body(file, code, data)), *wanted or ("SUCCESS",))


def output(answer):
    """Returns the output buffer of an IOCTL."""
    offset, length = struct.unpack_from("<II", answer.body, 32)
    return answer.message[offset : offset + length]


def fill(t, file, size, at=0):
    for offset in range(0, size, 65536):
        write(t, file, at + offset, pattern(65536))


def flush(t, file):
    status(t.client.call(raw.FLUSH, raw.flush_body(file)), "SUCCESS")


def blocks(path):
    """Returns the bytes that a file takes on the guest's disk."""
    return int(sh(f"sync -f {path}; stat -c %b {path}")) * 512


def ranges(t, file, length):
    data = output(ioctl(t, file, QUERY_RANGES, struct.pack("<QQ", 0, length)))
    return [struct.unpack_from("<QQ", data, at) for at in range(0, len(data), 16)]


def holes(disk):
    """FSCTL_SET_ZERO_DATA of a sparse file frees its space: FALLOC_FL_PUNCH_HOLE."""
    t = tree(disk)
    file = t.open("holes", access=0x001F01FF, disposition=5)
    fill(t, file, 2 * MIB)
    flush(t, file)
    before = blocks(f"{disk}/holes")
    assert before >= 2 * MIB, before
    ioctl(t, file, SET_SPARSE)
    ioctl(t, file, SET_ZERO_DATA, struct.pack("<QQ", 512 * KIB, 1536 * KIB))
    flush(t, file)
    after = blocks(f"{disk}/holes")
    assert before - after >= MIB, (before, after)
    same(ranges(t, file, 4 * MIB), [(0, 512 * KIB), (1536 * KIB, 512 * KIB)], "what is allocated")
    one = pattern(65536)
    same(t.read(file, 65536), one)
    same(sh(f"tail -c +$((512 * 1024 + 1)) {disk}/holes | head -c 1048576 | tr -d '\\0' | wc -c").strip(), "0", "zeros")
    t.close(file)
    t.client.close()
    sh(f"rm {disk}/holes")


def copies(disk, shares):
    """FSCTL_DUPLICATE_EXTENTS_TO_FILE and SRV_COPYCHUNK: equal bytes, and no space used where extents are shared."""
    t = tree(disk)
    source = t.open("source", access=0x001F01FF, disposition=5)
    fill(t, source, 4 * MIB)
    flush(t, source)
    root = t.open("", access=0x100081, options=1)
    told = bool(struct.unpack_from("<I", t.query(root, 2, 5))[0] & 0x08000000)
    same(told, shares, "FILE_SUPPORTS_BLOCK_REFCOUNTING")
    copy = t.open("duplicate", access=0x001F01FF, disposition=5)
    t.set(copy, 1, 20, struct.pack("<Q", 4 * MIB))
    sh(f"sync -f {disk}/source")
    free = space(t)[2]
    answer = t.client.call(raw.IOCTL, raw.ioctl_body(copy, DUPLICATE, source + struct.pack("<QQQ", 0, 0, 4 * MIB)))
    if not shares:
        status(answer, "NOT_SUPPORTED", "INVALID_DEVICE_REQUEST")
    else:
        status(answer, "SUCCESS")
        sh(f"cmp {disk}/source {disk}/duplicate; sync -f {disk}/source")
        assert free - space(t)[2] < MIB, (free, space(t)[2])
        # The files share extents: a write to one file must not change the other.
        write(t, copy, 0, bytes(65536))
        flush(t, copy)
        same(t.read(source, 65536), pattern(65536))
        # The server refuses a range that is not aligned to blocks.
        status(
            t.client.call(raw.IOCTL, raw.ioctl_body(copy, DUPLICATE, source + struct.pack("<QQQ", 1, 0, 4096))),
            "INVALID_PARAMETER",
            "NOT_SUPPORTED",
        )
    key = output(ioctl(t, source, RESUME_KEY))[:24]
    target = t.open("chunks", access=0x001F01FF, disposition=5)
    free = space(t)[2]
    chunks = b"".join(struct.pack("<QQII", at * MIB, at * MIB, MIB, 0) for at in range(4))
    done = output(ioctl(t, target, COPYCHUNK, key + struct.pack("<II", 4, 0) + chunks))
    same(struct.unpack("<III", done), (4, 0, 4 * MIB))
    sh(f"cmp {disk}/source {disk}/chunks; sync -f {disk}/source")
    if shares and KIND == "frevo":
        assert free - space(t)[2] < MIB, f"COPYCHUNK took {free - space(t)[2]} bytes"
    for file in (source, copy, target):
        t.close(file)
    t.client.close()
    sh(f"rm {disk}/source {disk}/duplicate {disk}/chunks")


def streams(disk):
    """Streams and extended attributes of all sizes: large ones are stored in files of their own."""
    t = tree(disk)
    t.close(t.open("streamed", disposition=5))
    sizes = {"empty": 0, "small": 100, "block": 3000, "page": 4096, "large": 70_000, "huge": 3 * MIB}
    for name, size in sizes.items():
        file = t.open(f"streamed:{name}", disposition=5)
        for offset in range(0, size, 65536):
            write(t, file, offset, pattern(65536)[: min(65536, size - offset)])
        flush(t, file)
        t.close(file)
    for name, size in sizes.items():
        file = t.open(f"streamed:{name}")
        same(struct.unpack_from("<QQ", t.query(file, 1, 5))[1], size, f"size of {name}")
        for offset in range(0, size, 65536):
            count = min(65536, size - offset)
            answer = status(t.client.call(raw.READ, raw.read_body(file, offset, count)), "SUCCESS")
            same(answer.buffer() == pattern(65536)[:count], True, f"{name} at {offset}")
        t.close(file)
    file = t.open("streamed", access=0x001F01FF)
    names = {
        e[24 : 24 + struct.unpack_from("<I", e, 4)[0]].decode("utf-16-le") for e in raw.chained(t.query(file, 1, 22))
    }
    same(names, {"::$DATA", *(f":{name}:$DATA" for name in sizes)}, "listed")
    # Streams stay with the file when it is renamed, and when a program on the host copies it with
    # its attributes.
    t.close(file)
    said = smbclient(disk, "smbuser", "rename streamed moved", f"get moved:huge {here}/huge")
    same((here / "huge").stat().st_size, 3 * MIB, said)
    smbclient(disk, "smbuser", "del moved")
    same(
        sh(f"find {disk} -xdev ! -path '*/lost+found*' -type f | grep -v snapshots || true"),
        "",
        "left of what was removed",
    )
    t.client.close()


def default_lists(disk):
    """New files inherit a folder's default POSIX ACL, as by the kernel."""
    sh(f"mkdir {disk}/lists; chmod 777 {disk}/lists; setfacl -d -m u:61001:rwx,g:61002:r-x,o::--- {disk}/lists")
    said = smbclient(disk, "smbuser", "cd lists", "mkdir inner", "put /etc/hostname file")
    assert "NT_STATUS" not in said, said
    file, inner = (sh(f"getfacl -cnp {disk}/lists/{name}").split() for name in ("file", "inner"))
    for line in ("user:61001:rwx", "group:61002:r-x"):
        assert line in " ".join(file) and line in inner, (file, inner)
    assert "default:user:61001:rwx" in inner and "other::---" in inner and "other::---" in file, (file, inner)
    t = tree(disk)
    handle = t.open("lists\\file", access=0x20080)
    descriptor = t.query(handle, 3, 0, additional=7)
    # The client sees the host's user 61001 as S-1-22-1-61001 and the host's group 61002 as
    # S-1-22-2-61002.
    for sub, number in ((1, 61001), (2, 61002)):
        assert struct.pack("<BB6sII", 1, 2, b"\0\0\0\0\0\x16", sub, number) in descriptor, descriptor.hex()
    t.close(handle)
    t.client.close()
    sh(f"rm -r {disk}/lists")


def host_changes(disk):
    """A client that watches a folder is notified of the host's changes."""
    t = tree(disk)
    sh(f"mkdir {disk}/watched; chmod 777 {disk}/watched")
    folder = t.open("watched", access=0x100081, options=1)
    for script, action, name in [(f"touch {disk}/watched/made", 1, "made"), (f"rm {disk}/watched/made", 2, "made")]:
        message = t.client.send(raw.CHANGE_NOTIFY, raw.notify_body(folder, filter=3))
        status(t.client.await_answer(message, final=False), "PENDING")
        time.sleep(0.1)
        sh(script)
        told = [
            (struct.unpack_from("<I", e, 4)[0], e[12:].decode("utf-16-le").rstrip("\0"))
            for e in raw.chained(status(t.client.await_answer(message), "SUCCESS").buffer())
        ]
        assert (action, name) in told, told
        time.sleep(0.2)
    t.close(folder)
    t.client.close()
    sh(f"rmdir {disk}/watched")


def snapshots():
    """Subvolumes: snapshots of the share are previous versions; a subvolume inside it is an ordinary folder."""
    t = tree("btrfs")
    file = t.open("kept", access=0x001F01FF, disposition=5)
    t.write(file, b"as it was")
    flush(t, file)
    sh("mkdir btrfs/.snapshots; btrfs subvolume snapshot -r btrfs btrfs/.snapshots/@GMT-2026.01.02-03.04.05")
    t.write(file, b"as it is!")
    flush(t, file)
    found = output(ioctl(t, file, SNAPSHOTS))
    same(found[12:].decode("utf-16-le").rstrip("\0"), "@GMT-2026.01.02-03.04.05", "listed")
    old = t.open("@GMT-2026.01.02-03.04.05\\kept", access=0x00120089)
    same(t.read(old), b"as it was")
    same(t.read(file), b"as it is!")
    status(t.client.call(raw.WRITE, raw.write_body(old, 0, b"no")), "ACCESS_DENIED", "MEDIA_WRITE_PROTECTED")
    t.close(old)
    said = smbclient("btrfs", "smbuser", "allinfo kept")
    assert "@GMT-2026.01.02-03.04.05" in said, said
    sh("btrfs subvolume create btrfs/sub >/dev/null; chmod 777 btrfs/sub")
    sh("echo in it > btrfs/sub/file; chmod 666 btrfs/sub/file")
    same(t.list("sub"), ["file"])
    inner = t.open("sub\\file")
    same(t.read(inner), b"in it\n")
    # On btrfs both root folders have inode 256. Clients expect unique inode numbers within a share.
    roots = [t.open(name, access=0x100081, options=1) for name in ("", "sub")]
    numbers = [t.query(f, 1, 6) for f in roots]
    assert numbers[0] != numbers[1] or KIND != "frevo", f"one number for two folders: {numbers[0].hex()}"
    listing = status(
        t.client.call(raw.QUERY_DIRECTORY, raw.directory_body(roots[0], 37, pattern="sub", flags=1)), "SUCCESS"
    )
    same(listing.buffer()[96:104], numbers[1], "as it is listed")
    for f in roots:
        t.close(f)
    # The server refuses a rename into another file system, and the client copies the file instead.
    path = "sub\\moved".encode("utf-16-le")
    mover = t.open("kept", access=0x00110000)
    status(
        t.client.call(raw.SET_INFO, raw.set_body(mover, 1, 10, struct.pack("<B7xQI", 0, 0, len(path)) + path)),
        "NOT_SAME_DEVICE",
    )
    for f in (mover, inner, file):
        t.close(f)
    t.client.close()


for disk in ("ext4", "xfs", "btrfs"):
    if not has(disk, f"{disk}-copies"):
        continue
    for name, act in [
        ("holes", holes),
        ("streams", streams),
        ("default-lists", default_lists),
        ("host-changes", host_changes),
    ]:
        with check(f"{disk}-{name}"):
            act(disk)
    with check(f"{disk}-copies"):
        copies(disk, shares=disk != "ext4")
if has("btrfs", "btrfs-snapshots"):
    with check("btrfs-snapshots"):
        snapshots()
