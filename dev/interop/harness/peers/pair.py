"""Two Linux kernels on one share: each must see the other's changes."""

import concurrent.futures

from .. import trees
from ..model import HERE, Failure, group
from .cifs import script

# The two sides take the same steps: `say` announces a step, `hear` waits for it.
COMMON = """
set -uo pipefail
say() { touch "$WORK/$1"; }
hear() {
    local i
    for ((i = 0; i < 600; i++)); do [ -e "$WORK/$1" ] && return; sleep 0.05; done
    echo "never heard $1"; exit 9
}
row() { # NAME COMMAND...: a line for the table
    local name=$1 out; shift
    if out=$("$@" 2>&1); then echo "ok $name 0"; else echo "FAIL $name 0 ${out//$'\\n'/ }"; fi
}
# The kernel caches an absent name for a second, regardless of actimeo.
echo 0 >/proc/fs/cifs/LookupCacheEnabled
reads() { grep -o 'Reads: [0-9]*' /proc/fs/cifs/Stats | head -1 | tr -dc 0-9; }
"""

# Changes that a client without an attribute cache must see at once.
FIRST = """
exec 3<>data.bin; cat $WORK/one >&3; say written; hear read
cat $WORK/two 1<>data.bin; say overwritten; hear reread
cat $WORK/one >>data.bin; say appended; hear appended-seen
truncate -s 1000 data.bin; say truncated; hear truncated-seen
exec 3>&-
mkdir folder; echo text >folder/new; say made; hear made-seen
mv folder/new folder/renamed; say renamed; hear renamed-seen
rm folder/renamed; rmdir folder; say removed; hear removed-seen
hear made-by-second
row other-way-name test -e second/file
row other-way-data cmp second/file $WORK/one
say done
"""
SECOND = """
gone() { ! test -e "$1"; }
absent() { ! ls -A "$1" | grep -qx "$2"; }
size() { local s; s=$(stat -c %s "$1"); [ "$s" = "$2" ] || { echo "size $s, not $2"; false; }; }
hear written; row data cmp data.bin $WORK/one; exec 4<data.bin; cat <&4 >/dev/null; say read
hear overwritten; row overwritten-data cmp data.bin $WORK/two; say reread
hear appended; row appended-size size data.bin 600000; cat $WORK/two $WORK/one >$WORK/both
row appended-data cmp data.bin $WORK/both; say appended-seen
hear truncated; row truncated-size size data.bin 1000; row not-yet-there gone folder; say truncated-seen
hear made; row new-name test -e folder/new; row new-data grep -qx text folder/new; say made-seen
hear renamed; row old-name-gone gone folder/new; row renamed-name test -e folder/renamed
row old-name-not-listed absent folder new; say renamed-seen
hear removed; row removed gone folder/renamed; row removed-folder gone folder
row removed-not-listed absent . folder; say removed-seen
mkdir second; cat $WORK/one >second/file; say made-by-second; hear done
"""
SEEN = [
    "data",
    "overwritten-data",
    "appended-size",
    "appended-data",
    "truncated-size",
    "not-yet-there",
    "new-name",
    "new-data",
    "old-name-gone",
    "renamed-name",
    "old-name-not-listed",
    "removed",
    "removed-folder",
    "removed-not-listed",
    "other-way-name",
    "other-way-data",
]

# With a lease the first client caches reads and writes until the second client opens the file.
HOLDING = """
grows() { [ "$(reads)" -gt "$1" ]; }
same() { [ "$(reads)" -eq "$1" ] || { echo "$1 READs before, $(reads) after"; false; }; }
exec 3<cached.bin; cat <&3 >/dev/null; before=$(reads)
cat cached.bin | cmp - $WORK/one; row second-read-from-cache same $before
say cached; hear changed
row changed-data cmp cached.bin $WORK/two; exec 3<&-
exec 5<>dirty.bin; cat $WORK/one >&5; say dirty; hear dirty-read; exec 5>&-
# The client's handle stays open after cat has ended. The kernel also trusts a known name for a
# second, so wait longer.
cat cached.bin >/dev/null; say open-again; hear deleted; sleep 1.5
row deleted-under-the-lease test ! -e cached.bin; say done
"""
COMING = """
hear cached; began=$SECONDS; cat $WORK/two 1<>cached.bin
row no-wait-for-a-time-out test $((SECONDS - began)) -lt 10; say changed
hear dirty; row dirty-data cmp dirty.bin $WORK/one; say dirty-read
hear open-again; began=$SECONDS; row deletes rm cached.bin
row no-wait-at-delete test $((SECONDS - began)) -lt 10; say deleted; hear done
"""
HELD = [
    "second-read-from-cache",
    "changed-data",
    "no-wait-for-a-time-out",
    "dirty-data",
    "deletes",
    "no-wait-at-delete",
    "deleted-under-the-lease",
]


def pair(ctx, options, first, second, needed):
    """Boots two guests, runs a script in each, and makes rows from their output."""

    def boot(number, text):
        script = ctx.work / f"script{number}"
        script.write_text(f"WORK={ctx.work}\n" + COMMON + text)
        mount = ["-o", options] if options else []
        return ctx.command(HERE / "linux-client", "-g", number, *mount, "-t", 120, "--", "bash", script, timeout=150)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        guests = [pool.submit(boot, number, text) for number, text in enumerate((first, second))]
        done = [g.result() for g in guests]
    ctx.report("\n".join(output for _, output in done), needed=needed)
    with ctx.check("both-ended"):
        for number, (status, output) in enumerate(done):
            if status:
                raise Failure(f"guest {number}: status {status}: {output.strip()[-200:]}")


@group("cifs/two-clients")
def two_clients(ctx):
    """Two kernels without attribute caches: each sees the other's changes at once."""
    trees.fill(ctx.work / "one", 300_000, 60)
    trees.fill(ctx.work / "two", 300_000, 61)
    pair(ctx, "actimeo=0", FIRST, SECOND, SEEN)


@group("cifs/two-clients-leases")
def two_clients_leases(ctx):
    """Two kernels with leases: the first caches reads and writes, and gives way to the second."""
    for name, seed in (("one", 62), ("two", 63)):
        trees.fill(ctx.work / name, 300_000, seed)
    data = (ctx.work / "one").read_bytes()
    (ctx.server.path / "cached.bin").write_bytes(data)
    pair(ctx, "", HOLDING, COMING, HELD)


@group("cifs/odd-files")
def odd_files(ctx):
    """Symbolic links, pipes and devices with mfsymlinks and with sfu."""
    with ctx.check("mfsymlinks"):
        script(
            ctx,
            "mfsymlinks",
            "echo text >file; ln -s file link; ln -s nowhere/at/all loose\n"
            '[ "$(readlink link)" = file ]; grep -qx text link; [ "$(readlink loose)" = nowhere/at/all ]; rm loose',
        )
        kept = (ctx.server.path / "link").read_bytes()
        if len(kept) != 1067 or not kept.startswith(b"XSym\n0004\n"):
            raise Failure(f"not a symbolic link of Minshall and French: {len(kept)} bytes, {kept[:20]!r}")
    with ctx.check("sfu"):
        script(
            ctx,
            "sfu",
            "mkfifo pipe; mknod zero c 1 5; mknod disk b 8 1\n"
            '[ -p pipe ]; [ "$(stat -c %t:%T zero)" = 1:5 ]; [ "$(stat -c %F disk)" = "block special file" ]',
        )
        if (ctx.server.path / "zero").read_bytes() != b"IntxCHR\0" + (1).to_bytes(8, "little") + (5).to_bytes(
            8, "little"
        ):
            raise Failure("not a device in the layout of Interix")
