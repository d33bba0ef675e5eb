"""A share on NFS whose server stalls and recovers; the NFS server is the guest's own kernel."""

import struct
import time

import raw
from guest import has, same, sh, smbclient, space, status, tree, write
from report import check, pattern

BLOCK = pattern(65536)
# Seconds that a request may take in a slow guest if it does not use NFS, which is away for longer.
PROMPT = 10.0


def timed(act):
    """Runs `work`; fails if it takes longer than that."""
    began = time.monotonic()
    act()
    took = time.monotonic() - began
    assert took < PROMPT, f"{took:.1f} s"


def everything():
    """Files, lists, names, attributes and streams on NFS."""
    t = tree("nfs")
    file = t.open("file", access=0x001F01FF, disposition=5)
    for at in range(8):
        write(t, file, at * 65536, BLOCK)
    status(t.client.call(raw.FLUSH, raw.flush_body(file)), "SUCCESS")
    same(sh("stat -c %s /mnt/exp/file").strip(), "524288", "on the server's disk")
    same(t.read(file, 65536), BLOCK)
    same(t.list(""), ["file"])
    # Attributes and streams are kept in extended attributes, which NFS has since 4.2.
    status(t.client.call(raw.SET_INFO, raw.set_body(file, 1, 4, struct.pack("<QQQQII", 0, 0, 0, 0, 2, 0))), "SUCCESS")
    same(struct.unpack_from("<I", t.query(file, 1, 4), 32)[0] & 2, 2, "HIDDEN")
    stream = t.open("file:stream", disposition=5)
    t.write(stream, b"in a stream")
    same(t.read(stream), b"in a stream")
    for f in (stream, file):
        t.close(f)
    assert space(t)[2] > 0
    said = smbclient("nfs", "smbuser", "mkdir dir", "rename file dir\\moved", "del dir\\moved", "rmdir dir")
    assert "NT_STATUS" not in said, said
    same(t.list(""), [], "left")
    t.client.close()


def stalls():
    """An NFS server that stops answering: requests for it get an interim response, all others are served at once."""
    clients = [tree("nfs") for _ in range(3)]
    files = [c.open(f"f{at}", access=0x001F01FF, disposition=5) for at, c in enumerate(clients)]
    for c, f in zip(clients, files, strict=True):
        write(c, f, 0, BLOCK)
        status(c.client.call(raw.FLUSH, raw.flush_body(f)), "SUCCESS")
    other = tree("ext4")
    # The NFS connection is dead. The guest's other interface still works.
    sh("echo 3 > /proc/sys/vm/drop_caches; ip link set lo down")
    began = time.monotonic()
    waiting = []
    for at, (c, f) in enumerate(zip(clients, files, strict=True)):
        waiting.append((c, c.client.send(raw.WRITE, raw.write_body(f, 65536, BLOCK, 1))))
        waiting.append((c, c.client.send(raw.CREATE, raw.create_body(f"new{at}", disposition=5))))
        waiting.append((c, c.client.send(raw.FLUSH, raw.flush_body(f))))
    for c, message in waiting[:3]:
        status(c.client.await_answer(message, final=False), "PENDING")
    for _ in range(20):

        def one():
            file = other.open("meanwhile", disposition=5)
            write(other, file, 0, BLOCK)
            same(other.read(file, 65536), BLOCK)
            other.close(file)

        timed(one)
    for c in clients:
        # Requests that do not use NFS work on the connections whose other requests wait.
        timed(lambda c=c: status(c.client.call(13, struct.pack("<HH", 4, 0), tree_id=0), "SUCCESS"))
    timed(lambda: tree("ext4", "smbuser2").client.close())
    timed(lambda: same("meanwhile" in smbclient("ext4", "smbuser", "ls"), True))
    # A request on a dead disk waits, but it holds up neither an answer after cancellation nor the
    # end of a connection.
    assert time.monotonic() - began > 0.3
    sh("ip link set lo up; ip addr add 127.0.0.1/8 dev lo 2>/dev/null || true")
    for c, message in waiting:
        answer = status(c.client.await_answer(message), "SUCCESS")
        if answer.command == raw.CREATE:
            c.close(answer.body[64:80])
    for c, f in zip(clients, files, strict=True):
        same(
            c.client.call(raw.READ, raw.read_body(f, 65536, 65536)).must().buffer() == BLOCK,
            True,
            "what was written meanwhile",
        )
        c.close(f)
        c.client.close()
    same(sorted(other.list("")), ["lost+found", "meanwhile"])
    other.client.close()
    sh("cd /mnt/exp; for n in 0 1 2; do [ $(stat -c %s f$n) = 131072 ]; done; rm -f f? new?")
    sh("rm /mnt/srv/ext4/meanwhile")


if has("nfs", "everything", "stalls"):
    with check("everything"):
        everything()
    with check("stalls"):
        stalls()
