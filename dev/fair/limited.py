"""How long a neighbour waits while an account reads as fast as a limit of rate lets it: rounds with and without that
load take turns, so that other work on the machine meets both alike."""

import time

from client import READ, Client, at_niceness, charge, read
from server import Figures, Server
from slow_calls import OPEN

from attacks import keep_busy

ROUNDS, SECONDS, SETTLING = 20, 3, 0.3
CONNECTIONS, LENGTH = 16, 1 << 20
LOWEST = 19
LIMIT = '[[rate]]\nname = "ann"\nusers = ["ann"]\nread = "20M"\n'
#: A neighbour's 99th percentile with the load, by that without it.
GOAL = 1.2
HEAD = (
    "| ann's reads | MB/s | | bob, ms: median / 99 % / longest | 99 %, by that without the load |\n"
    "|---|---|---|---|---|"
)


class Load:
    """Connections of ann that read a file in the page cache."""

    def __init__(self, port):
        self.clients = [Client(port, "ann") for _ in range(CONNECTIONS)]
        self.files = {client: client.open("large.bin", access=0x120089, disposition=OPEN) for client in self.clients}

    def run(self, seconds):
        """Reads, and returns the bytes."""

        def again(client, number):
            return READ, read(self.files[client], number % 8 * LENGTH, LENGTH), charge(LENGTH)

        # What ann's computer has to do is not the server's part of bob's wait.
        with at_niceness(LOWEST):
            return keep_busy(self.clients, time.time() + seconds, again) * LENGTH

    def take_the_rest(self):
        """Takes the answers to the last requests, which wait for the limit."""
        for client in self.clients:
            client.close()


def phases(server, port):
    """Returns the spans of time without and with the load, and the bytes that were read in them."""
    spans, total = {"quiet": [], "load": []}, 0
    for _ in range(ROUNDS):
        begin = time.time()
        time.sleep(SECONDS)
        spans["quiet"].append((begin, time.time()))
        load = Load(port)
        begin = time.time()
        total += load.run(SETTLING + SECONDS)
        spans["load"].append((begin + SETTLING, time.time()))
        load.take_the_rest()
        time.sleep(SETTLING)
    return spans, total


def together(rows, spans):
    """The figures of all spans."""
    figures = Figures([], 0, 0)
    for begin, end in spans:
        one = Figures(rows, begin, end)
        figures.times += one.times
        figures.faults += one.faults
    figures.times.sort()
    return figures


def shared(directory):
    """Makes a directory with the file that ann reads."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "large.bin").write_bytes(bytes(8 * LENGTH))
    return directory


def measure(options, limits, label, *, apart=False):
    """Returns the lines of one server, and how much longer bob waits. With `apart` ann reads from a further server."""
    servers = [
        Server(options.server, options.dir / "server", options.port, shared(options.dir / "limited"), limits=limits)
    ]
    try:
        if apart:
            data = shared(options.dir / "apart")
            servers.append(Server(options.server, options.dir / "other", options.port + 1, data, limits=limits))
        servers[0].start_probes(("bob",))
        time.sleep(1)
        spans, total = phases(servers[0], servers[-1].port)
        rows = servers[0].rows("bob")
    finally:
        for server in servers:
            server.stop()
    quiet, load = together(rows, spans["quiet"]), together(rows, spans["load"])
    ratio = load.at(0.99) / quiet.at(0.99)
    speed = total / ROUNDS / (SETTLING + SECONDS) / 1e6
    return [f"| {label} | | without | {quiet} | |", f"| | {speed:.0f} | with | {load} | {ratio:.2f} |"], ratio


def table(options):
    """Returns the lines of the table, and the goals that are missed.

    A limited account that reads from a further server shows what is not the server's part: both share processors."""
    limited, ratio = measure(options, LIMIT, "limited to 20 MiB/s")
    print(HEAD, *limited, sep="\n", flush=True)
    apart, part = measure(options, LIMIT, "limited to 20 MiB/s, on a server of its own", apart=True)
    print(*apart, sep="\n", flush=True)
    free, _ = measure(options, "", "without a limit")
    print(*free, sep="\n", flush=True)
    missed = []
    if ratio > max(GOAL, part):
        beside = f"{part:.2f} beside a further server"
        missed.append(f"bob's 99th percentile is {ratio:.2f} times that without the load, {beside}")
    return [HEAD, *limited, *apart, *free], missed
