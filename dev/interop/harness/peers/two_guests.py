"""Two Linux kernels on one share at once: each sees the other's changes and gives up its cache in time."""

import threading

from .. import trees
from ..model import HERE, Failure, group
from .cifs import TOOLS

# The beginning of both guests' scripts. The guests signal each other by files on the host, which
# both see.
COMMON = """set -uo pipefail
mark() { touch "$WORK/$1"; }
await() {
    for ((i = 0; i < 600; i++)); do [ -e "$WORK/$1" ] && return; sleep 0.05; done
    echo "nobody said $1" >&2; exit 9
}
# Number of READ answers so far, on all shares.
reads() { sed -n 's/.*Reads: \\([0-9]*\\).*/\\1/p' /proc/fs/cifs/Stats | head -n 1; }
say() { echo "$1" >"$WORK/$2"; }
"""

# Lock the whole file until the second guest has tried to lock it.
HOLD_LOCK = """import fcntl, os, time
work = os.environ["WORK"]
file = open("locked", "r+")
fcntl.lockf(file, fcntl.LOCK_EX)
open(work + "/locked", "w")
while not os.path.exists(work + "/tried"):
    time.sleep(.05)
"""

# Each entry: name of the check, script of the first guest, script of the second guest. The scripts
# begin when both guests are ready.
SCENES = [
    # The data is only in the first guest's cache. The second guest's open must make the first guest
    # write it to the server.
    (
        "unwritten-data-is-seen",
        "exec 3<>dirty; cat $WORK/data >&3; mark dirty; await fetched; exec 3>&-",
        "await dirty; cat dirty >$WORK/dirty.copy; mark fetched",
    ),
    # No other client uses the file: with a lease, reading it a second time sends no READ.
    (
        "reading-again-asks-nobody",
        """exec 3<data; cat data >$WORK/first.copy; before=$(reads); cat data >$WORK/second.copy
        say $(($(reads) - before)) reads; exec 3<&-; mark counted""",
        "await counted",
    ),
    # The first guest has cached the file and has it open. Then the second guest writes the file.
    (
        "cached-data-is-dropped",
        "exec 3<data; cat data >$WORK/old.copy; mark cached; await changed; cat data >$WORK/new.copy; exec 3<&-",
        "await cached; cat $WORK/other >data; sync data; mark changed",
    ),
    # The guests append in turn. Each opens the file anew, and its kernel closes the handle late.
    (
        "appended-in-turn",
        """for n in 0 2 4 6 8; do
            [ $n = 0 ] || await turn$n; echo line $n >>log; tail -n 1 log >$WORK/seen$n; mark turn$((n + 1))
        done; await turn10""",
        """for n in 1 3 5 7 9; do
            await turn$n; echo line $n >>log; tail -n 1 log >$WORK/seen$n; mark turn$((n + 1))
        done""",
    ),
    (
        "new-names-are-listed",
        """mkdir folder; touch folder/mine; ls folder >$WORK/names.before; mark listed
        await made; ls folder >$WORK/names.after""",
        "await listed; echo theirs >folder/theirs; mark made",
    ),
    # The kernel caches attributes for one second. If a program looks at the file again under any
    # name, the old name stays valid for one more second.
    (
        "names-that-went-are-gone",
        """stat -c %s folder/theirs >$WORK/size.before; mark asked; await moved; sleep 1.5
        [ ! -e folder/theirs ] && mark gone; cat folder/moved >$WORK/moved.copy""",
        "await asked; mv folder/theirs folder/moved; mark moved",
    ),
    (
        "locks-are-shared",
        f"""touch locked; exec 4<>locked; $CHECKS lock locked -; say $? lock.free
python3 -c '{HOLD_LOCK}'
exec 4>&-; mark unlocked""",
        """await locked; $CHECKS lock locked -; say $? lock.held; mark tried
        await unlocked; $CHECKS lock locked -; say $? lock.again""",
    ),
    # Each guest writes one half of the file through its cache.
    (
        "halves-are-both-there",
        """truncate -s 2M halves; mark sized
        dd if=$WORK/half0 of=halves bs=64k conv=notrunc status=none; sync halves; mark half0; await half1""",
        """await sized
        dd if=$WORK/half1.data of=halves bs=64k seek=16 conv=notrunc status=none
        sync halves; mark half1; await half0""",
    ),
]


def run(ctx, options):
    """Boots both guests, runs every scene, then checks what each saw and the server's disk."""
    w = ctx.work
    data, other = trees.fill(w / "data", 300_000, 40), trees.fill(w / "other", 300_000, 41)
    halves = trees.fill(w / "half0", 1 << 20, 42), trees.fill(w / "half1.data", 1 << 20, 43)
    (ctx.server.path / "data").write_bytes(data.read_bytes())
    for number in (0, 1):
        scenes = "\n".join(
            f"mark begin-{name}-{number}; await begin-{name}-{1 - number}\n"
            f"({scene[number]}) || mark failed-{name}-{number}\n"
            f"mark end-{name}-{number}; await end-{name}-{1 - number}"
            for name, *scene in SCENES
        )
        (w / f"script{number}").write_text(
            f"export WORK={w} CHECKS={TOOLS}/frevo-guest-checks\n" + COMMON + scenes + "\n"
        )
    outcomes = [None, None]

    def guest(number):
        mount = ["-o", options] if options else []
        try:
            outcomes[number] = ctx.command(
                HERE / "linux-client", *mount, "-g", number, "-t", 150, "--", "bash", w / f"script{number}", timeout=180
            )
        except Exception as e:  # for the thread that waits
            outcomes[number] = (-1, repr(e))

    threads = [threading.Thread(target=guest, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with ctx.check("both-end"):
        for number, (status, output) in enumerate(outcomes):
            if status:
                raise Failure(f"guest {number}: status {status}: {output.strip()[-200:]}")

    def text(name):
        try:
            return (w / name).read_text().strip()
        except OSError:
            raise Failure(f"the guest did not write {name}") from None

    def same(copy, original):
        if not (w / copy).exists():
            raise Failure(f"the guest did not write {copy}")
        trees.same_file(original, w / copy)

    def appended():
        for n in range(10):
            if text(f"seen{n}") != f"line {n}":
                raise Failure(f"after line {n} its writer saw {text(f'seen{n}')!r}")
        found = (ctx.server.path / "log").read_text()
        if found != "".join(f"line {n}\n" for n in range(10)):
            raise Failure(f"wrong content on the server's disk: {found!r}")

    def listed():
        if text("names.before").split() != ["mine"] or text("names.after").split() != ["mine", "theirs"]:
            raise Failure(f"listed {text('names.before').split()}, then {text('names.after').split()}")

    def moved():
        if text("size.before") != "7" or text("moved.copy") != "theirs" or not (w / "gone").exists():
            raise Failure("the old name still exists, or the new one is missing")

    def locks():
        found = [text(name) for name in ("lock.free", "lock.held", "lock.again")]
        if found != ["0", "9", "0"]:
            raise Failure(f"lock results {found}, wanted 0 (granted), 9 (refused), 0")

    def reads():
        same("first.copy", data)
        same("second.copy", data)
        if text("reads") != "0":
            raise Failure(f"the second reading took {text('reads')} READs")

    def dropped():
        same("old.copy", data)
        same("new.copy", other)

    def both_halves():
        if (ctx.server.path / "halves").read_bytes() != b"".join(half.read_bytes() for half in halves):
            raise Failure("wrong bytes on the server's disk")

    looked_at = {
        "unwritten-data-is-seen": lambda: same("dirty.copy", data),
        "reading-again-asks-nobody": reads,
        "cached-data-is-dropped": dropped,
        "appended-in-turn": appended,
        "new-names-are-listed": listed,
        "names-that-went-are-gone": moved,
        "locks-are-shared": locks,
        "halves-are-both-there": both_halves,
    }
    for name, *_ in SCENES:
        with ctx.check(name):
            failed = [n for n in (0, 1) if (w / f"failed-{name}-{n}").exists()]
            if failed:
                raise Failure(f"guest {failed} failed: {outcomes[failed[0]][1].strip()[-200:]}")
            looked_at[name]()


for _name, _options, _full in (
    ("two-guests", "", False),
    ("two-guests-posix", "posix", True),
    ("two-guests-seal", "seal", True),
):

    @group(f"cifs/{_name}", full_only=_full)
    def _two_guests(ctx, options=_options):
        """Two kernels on one share: each sees the other's data, names and locks at once."""
        run(ctx, options)
