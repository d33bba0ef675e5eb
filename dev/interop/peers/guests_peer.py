#!/usr/bin/env python3
"""smbprotocol as a guest of the server in SMB_*; the argument is the user, who has no account."""

import os
import sys
import uuid

from smbprotocol.connection import Connection
from smbprotocol.exceptions import SMBResponseException
from smbprotocol.open import (
    CreateDisposition,
    CreateOptions,
    FileAttributes,
    FilePipePrinterAccessMask,
    ImpersonationLevel,
    Open,
    ShareAccess,
)
from smbprotocol.session import Session
from smbprotocol.tree import TreeConnect

from report import check

address, port, other = (os.environ["SMB_" + k] for k in ("ADDR", "PORT", "SHARE"))
user = sys.argv[1]

connection = Connection(uuid.uuid4(), address, int(port), require_signing=False)
connection.connect()
session = Session(connection, user, "anything", require_encryption=False, auth_protocol="ntlm")
session.connect()


def opened(tree, access):
    file = Open(tree, user)
    file.create(
        ImpersonationLevel.Impersonation,
        access,
        FileAttributes.FILE_ATTRIBUTE_NORMAL,
        ShareAccess.FILE_SHARE_READ,
        CreateDisposition.FILE_OVERWRITE_IF,
        CreateOptions.FILE_NON_DIRECTORY_FILE,
    )
    return file


with check(f"{user}-is-a-guest"):
    # smbprotocol keeps no signing key for a guest.
    assert session.signing_key is None and not session.signing_required and not session.encrypt_data
with check(f"{user}-writes"):
    tree = TreeConnect(session, rf"\\{address}\inbox")
    tree.connect(require_secure_negotiate=False)
    file = opened(tree, FilePipePrinterAccessMask.GENERIC_WRITE | FilePipePrinterAccessMask.GENERIC_READ)
    file.write(b"a scan", 0)
    assert file.read(0, 6) == b"a scan"
    file.close()
with check(f"{user}-uses-no-other-share"):
    try:
        TreeConnect(session, rf"\\{address}\{other}").connect(require_secure_negotiate=False)
    except SMBResponseException as refused:
        assert refused.status == 0xC0000022, hex(refused.status)
    else:
        raise AssertionError("connected")
