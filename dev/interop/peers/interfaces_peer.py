"""What the server tells of its network interfaces (FSCTL_QUERY_NETWORK_INTERFACE_INFO) while they come and go.

Runs in the server's network namespace, which it changes. The address of the connection is SMB_ADDR;
INTERFACE_TOLD is an address whose speed and capabilities the configuration tells.
"""

import ipaddress
import os
import struct
import subprocess
import time

import raw
from report import check

RSS, RDMA = 1, 2
MULTI_CHANNEL = 8
GBIT = 1_000_000_000
# The two ends of each link. The far ends are in another namespace.
NEAR, FAR = ("nic0", "nic1"), ("far0", "far1")
V4, V6 = "198.19.40.1", "fd00:40::1"
TOLD = os.environ["INTERFACE_TOLD"]
here = os.environ["SMB_ADDR"]


def ip(line):
    subprocess.run(["ip", *line.split()], check=True)


def told():
    """Returns (index, capability, speed) of each address that the server tells."""
    answer = client.call(raw.IOCTL, raw.ioctl_body(raw.RELATED, 0x001401FC)).must()
    offset, length = struct.unpack_from("<II", answer.body, 32)
    entry, found = answer.message[offset : offset + length], {}
    while entry:
        step, index, capability, _, speed, family = struct.unpack_from("<IIIIQH", entry)
        address = ipaddress.ip_address(entry[28:32] if family == 2 else entry[32:48])
        found[str(address)] = (index, capability, speed)
        entry = entry[step:] if step else b""
    return found


def soon(wanted):
    """Waits until exactly these addresses are told beside those of the beginning: the kernel takes a moment."""
    wanted = {*beginning, *wanted}
    end = time.monotonic() + 5
    while (found := set(told())) != wanted:
        if time.monotonic() > end:
            raise AssertionError(f"told {sorted(found)}, not {sorted(wanted)}")
        time.sleep(0.05)


def index(device):
    with open(f"/sys/class/net/{device}/ifindex") as file:
        return int(file.read())


# Declare multichannel: a server reports no interfaces to a client that can use only one connection.
raw.Client.capabilities |= MULTI_CHANNEL
client = raw.Client(here, int(os.environ["SMB_PORT"]), os.environ["SMB_USER"], os.environ["SMB_PASS"])
client.tree_connect(here, "IPC$")
keeper = subprocess.Popen(
    ["unshare", "--net", "sh", "-c", "echo; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
)
keeper.stdout.readline()
far = f"nsenter -t {keeper.pid} -n"

# Other checks in this namespace may have given the first tap further addresses.
beginning = set(told())
with check("alone"):
    # No program has opened the other taps, so they have no carrier and are not reported.
    if here not in beginning or any(not address.startswith("198.18.0.") for address in beginning):
        raise AssertionError(f"told {sorted(beginning)}")
with check("interface-added"):
    for at in (0, 1):
        ip(f"link add {NEAR[at]} numrxqueues 4 type veth peer name {FAR[at]} netns {keeper.pid}")
        ip(f"link set {NEAR[at]} up")
        subprocess.run([*far.split(), "ip", "link", "set", FAR[at], "up"], check=True)
    ip(f"addr add {V4}/24 dev nic0")
    ip(f"addr add {V6}/64 dev nic0 nodad")
    ip(f"addr add {TOLD}/24 dev nic1")
    soon([V4, V6, TOLD])
with check("indices"):
    found = told()
    indices = [found[address][0] for address in (V4, V6, TOLD)]
    if indices != [index("nic0"), index("nic0"), index("nic1")]:
        raise AssertionError(f"{found}")
with check("speed-and-queues"):
    # The kernel reports 10 Gbit/s for a veth.
    if {told()[address][1:] for address in (V4, V6)} != {(RSS, 10 * GBIT)}:
        raise AssertionError(f"{told()}")
with check("overrides"):
    if told()[TOLD][1:] != (RDMA, 25 * GBIT):
        raise AssertionError(f"{told()}")
with check("carrier-lost"):
    subprocess.run([*far.split(), "ip", "link", "set", "far0", "down"], check=True)
    soon([TOLD])
with check("carrier-back"):
    subprocess.run([*far.split(), "ip", "link", "set", "far0", "up"], check=True)
    soon([V4, V6, TOLD])
with check("address-removed"):
    ip(f"addr del {V4}/24 dev nic0")
    soon([V6, TOLD])
with check("address-added"):
    ip(f"addr add {V4}/24 dev nic0")
    soon([V4, V6, TOLD])
with check("set-down"):
    ip("link set nic1 down")
    soon([V4, V6])
with check("interface-removed"):
    ip("link del nic0")
    soon([])
keeper.stdin.close()
