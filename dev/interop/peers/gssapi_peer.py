"""smbprotocol with tickets of the credentials cache (its GSS-API is MIT's, by the package gssapi).

It logs on by ticket alone, reads and writes; when the ticket ends, the library shows the status of the
server, and a new session with a new ticket goes on.
"""

import os
import subprocess
import time

import smbclient
from smbprotocol.exceptions import SMBOSError

from report import check, pattern

HOST, PORT, SHARE = (os.environ["SMB_" + name] for name in ("HOST", "PORT", "SHARE"))
NETWORK_SESSION_EXPIRED = 0xC000035C
base = rf"\\{HOST}\{SHARE}"
options = {"port": int(PORT), "auth_protocol": "kerberos"}
# Lifetime of a ticket in seconds: more than MIT's library allows an authenticator, and short enough
# to wait for its end.
LIFE = 8


def ticket(life):
    password = os.environ["SMB_PASS_OF_REALM"]
    subprocess.run(["kinit", "-l", life, "smbuser"], input=password, text=True, check=True, stdout=subprocess.DEVNULL)


def write(name, data):
    with smbclient.open_file(rf"{base}\{name}", "wb", **options) as file:
        file.write(data)


def read(name):
    with smbclient.open_file(rf"{base}\{name}", "rb", **options) as file:
        return file.read()


with check("smbprotocol-write-read"):
    ticket("1h")
    for size in (0, 1, 65_536, 3_000_001):
        write("gssapi.bin", pattern(size))
        assert read("gssapi.bin") == pattern(size), size
    assert "gssapi.bin" in smbclient.listdir(base, **options)
with check("smbprotocol-sealed"):
    smbclient.reset_connection_cache()
    options["encrypt"] = True
    assert read("gssapi.bin") == pattern(3_000_001)
with check("smbprotocol-after-the-end"):
    smbclient.reset_connection_cache()
    ticket(f"{LIFE}s")
    assert read("gssapi.bin") == pattern(3_000_001)
    time.sleep(LIFE + 2)
    try:
        read("gssapi.bin")
    except SMBOSError as refused:
        assert refused.ntstatus == NETWORK_SESSION_EXPIRED, refused
    else:
        raise AssertionError("the session outlives its ticket")
    ticket("1h")
    smbclient.reset_connection_cache(fail_on_error=False)
    assert read("gssapi.bin") == pattern(3_000_001)
