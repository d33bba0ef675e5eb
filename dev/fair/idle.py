"""Memory of thousands of clients that ask nothing: of this program, and of an earlier one beside it."""

import pathlib
import time

from client import Client
from server import Server

#: Clients that have logged on and connected to a share: as many as the limits are set to.
LOGGED_ON = 10_000
#: Clients that have negotiated and not logged on: all addresses together may have 4,096, and each of them 64.
NEGOTIATED, OF_ADDRESS = 4_000, 50
LIMITS = "[limits]\nconnections_per_user = 20000\nsessions_per_user = 20000\nconnections_per_address = 20000"
HEAD = "| program | clients | | before, KiB | with them, KiB | KiB each |\n|---|---|---|---|---|---|"
#: Seconds between the last client and the look.
REST = 2


class Newcomer(Client):
    """A client that has negotiated and does not log on."""

    def __init__(self, port, source):
        self.source = source
        self.connect(port)


def resident(server):
    """The proportional set size of the server, KiB."""
    lines = pathlib.Path("/proc", str(server.process.pid), "smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def newcomers(port):
    sources = (divmod(number // OF_ADDRESS, 250) for number in range(NEGOTIATED))
    return [Newcomer(port, f"127.{3 + high}.{low + 1}.1") for high, low in sources]


def users(port):
    return [Client(port, "ann") for _ in range(LOGGED_ON)]


STATES = (("negotiated", newcomers), ("logged on, with a tree connect", users))


def measure(options, program, label):
    """Yields the lines of one program."""
    for state, arrive in STATES:
        server = Server(program, options.dir / "server", options.port, limits=LIMITS)
        try:
            # The first client has what is made once.
            Client(options.port, "ann").close()
            time.sleep(REST)
            before = resident(server)
            clients = arrive(options.port)
            time.sleep(REST)
            after = resident(server)
            each = (after - before) / len(clients)
            yield f"| {label} | {len(clients):,} | {state} | {before:,} | {after:,} | {each:.1f} |"
            for client in clients:
                client.close()
        finally:
            server.stop()


def table(options):
    """Returns the lines of the table."""
    programs = [(options.server, "this one")]
    if options.before:
        programs.insert(0, (options.before, "earlier"))
    lines = [HEAD]
    print(HEAD, flush=True)
    for program, label in programs:
        for measured in measure(options, program, label):
            print(measured, flush=True)
            lines.append(measured)
    return lines
