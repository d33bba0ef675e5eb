//! Bytes recorded from Samba 4.17, both of its ends.

use super::*;
use crate::WinError;
use crate::pdu::*;
use crate::srvsvc::*;
use frevo_wire::dtyp::{AccessMask, SecurityDescriptor, Sid};

/// The bind of Samba 4.17's client.
const CLIENT_BIND: &str = "05000b03100000004800000001000000b810b810000000000100000000000100c84f324b7016d30112785a47 \
     bf6ee18803000000045d888aeb1cc9119fe808002b10486002000000";

/// The answer of Samba's server.
const SERVER_BIND_ACK: &str = "05000c03100000004400000001000000b810b810c72000000d005c706970655c737276737663000001000000 \
     00000000045d888aeb1cc9119fe808002b10486002000000";

/// NetrShareEnum, level 1, of smbclient.
const SHARE_ENUM_REQUEST: &str = "05000003100000005c000000020000004400000000000f00000002000a000000000000000a00000031003200 \
     37002e0030002e0030002e00310000000100000001000000040002000000000000000000ffffffff08000200 \
     00000000";

/// The answer of smbd.
const SHARE_ENUM_REPLY: &str = "0500020310000000fc01000002000000e40100000000000001000000010000000c0002000700000010000200 \
     070000001400020000000000180002001c00020000000000200002002400020000000000280002002c000200 \
     00000000300002003400020000000000380002003c0002000000000040000200440002000300008048000200 \
     0600000000000000060000007300680061007200650000000100000000000000010000000000000007000000 \
     0000000007000000730068006100720065003200000000000100000000000000010000000000000003000000 \
     000000000300000072006f000000000001000000000000000100000000000000040000000000000004000000 \
     65006e0063000000010000000000000001000000000000000b000000000000000b0000006800690064006500 \
     75006e0072006500610064000000000001000000000000000100000000000000080000000000000008000000 \
     74006f0072007400750072006500000001000000000000000100000000000000050000000000000005000000 \
     4900500043002400000000002300000000000000230000004900500043002000530065007200760069006300 \
     650020002800530061006d0062006100200034002e00310037002e00310032002d0044006500620069006100 \
     6e00290000000000070000004c0002000000000000000000";

/// NetrShareGetInfo, level 502, of rpcclient.
const SHARE_GET_INFO_REQUEST: &str = "050000031000000058000000070000004000000000001000000002000a000000000000000a00000031003200 \
     37002e0030002e0030002e0031000000060000000000000006000000730068006100720065000000f6010000";

/// The answer of smbd to that.
const SHARE_GET_INFO_REPLY: &str = "05000203100000000401000007000000ec00000000000000f60100000400020008000200000000000c000200 \
     00000000ffffffff010000001000020014000200300000001800020006000000000000000600000073006800 \
     6100720065000000010000000000000001000000000000001f000000000000001f00000043003a005c007400 \
     6d0070005c0077006900740068002d00730061006d00620061002e0046006e0066006500630065005c007300 \
     6800610072006500000000000100000000000000010000000000000030000000010004800000000000000000 \
     000000001400000002001c000100000000001400ff011f0001010000000000010000000000000000";

fn body(pdu: &[u8]) -> &[u8] {
    &pdu[Header::SIZE..]
}

#[test]
fn binds_are_alike_to_the_byte() {
    assert_eq!(Client::new(SyntaxId::SRVSVC).bind(), hex(CLIENT_BIND));
    let theirs = hex(SERVER_BIND_ACK);
    assert_eq!(Client::new(SyntaxId::SRVSVC).handle_bind_reply(&theirs), Ok(true));
    let assoc_group_id = BindAck::parse(body(&theirs)).unwrap().assoc_group_id;
    let mut endpoint = End::new(&INTERFACE, assoc_group_id);
    endpoint.write(&hex(CLIENT_BIND), &fixture()).unwrap();
    let mut ours = endpoint.read(usize::MAX).unwrap().data;
    // Samba writes the secondary address in lower case, which is the only difference.
    ours[26..39].make_ascii_lowercase();
    assert_eq!(ours, theirs);
}

#[test]
fn share_enum() {
    let request = hex(SHARE_ENUM_REQUEST);
    let request = Request::parse(body(&request), PduFlags::WHOLE).unwrap();
    assert_eq!(request.opnum, SHARE_ENUM);
    let asked = ShareEnum { level: 1, max_len: MAX_PREFERRED_LENGTH, resume: Some(0) };
    assert_eq!(ShareEnum::parse(request.stub), Ok(asked));
    assert_eq!(asked.encode("127.0.0.1"), request.stub);
    let reply = hex(SHARE_ENUM_REPLY);
    let stub = Response::parse(body(&reply)).unwrap().stub;
    let told = ShareEnumReply::parse(stub, 1).unwrap();
    assert_eq!((told.status, told.total, told.resume), (WinError::SUCCESS, 7, Some(0)));
    let names: Vec<_> = told.shares.iter().map(|share| share.name.as_str()).collect();
    assert_eq!(names, ["share", "share2", "ro", "enc", "hideunread", "torture", "IPC$"]);
    assert_eq!(told.shares[6].kind, ShareType::IPC | ShareType::SPECIAL);
    assert_eq!(told.shares[6].remark, "IPC Service (Samba 4.17.12-Debian)");
    let ours = ShareEnumReply {
        level: 1,
        shares: &told.shares[..],
        total: 7,
        resume: Some(0),
        status: told.status,
    };
    assert_eq!(without_referents(&ours.encode()), without_referents(stub));
}

#[test]
fn share_get_info() {
    let request = hex(SHARE_GET_INFO_REQUEST);
    let request = Request::parse(body(&request), PduFlags::WHOLE).unwrap();
    let asked = ShareGetInfo::parse(request.stub).unwrap();
    assert!(asked.name.is("share") && asked.level == 502 && request.opnum == SHARE_GET_INFO);
    assert_eq!(ShareGetInfo { name: "share", level: 502 }.encode("127.0.0.1"), request.stub);
    let reply = hex(SHARE_GET_INFO_REPLY);
    let share =
        parse_share_info(Response::parse(body(&reply)).unwrap().stub, 502).unwrap().unwrap();
    assert_eq!((share.name.as_str(), share.max_uses), ("share", u32::MAX));
    let descriptor =
        SecurityDescriptor::parse(share.security_descriptor.as_ref().unwrap()).unwrap();
    let dacl = descriptor.dacl.unwrap();
    assert_eq!(dacl.aces[0].sid(), Some(&Sid::EVERYONE));
    assert_eq!(dacl.aces[0].mask(), Some(AccessMask::FILE_ALL));
}
