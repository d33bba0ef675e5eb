//! Snapshots, object ids, reparse points, compression; and what is not there.

use frevo_wire::command::create::CreateOptions;
use frevo_wire::command::ioctl::CtlCode;
use frevo_wire::command::ioctl::network_interface;
use frevo_wire::command::ioctl::snapshots::SnapshotArray;
use frevo_wire::command::negotiate::GlobalCapabilities;
use frevo_wire::fscc::fsctl::ObjectIdBuffer;
use frevo_wire::fscc::reparse::{ReparseBuffer, ReparseData, ReparseTag};

use super::calls::*;
use crate::client::*;

#[test]
fn there_are_no_snapshots() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let root = peer.open_file(&mount, &Want::existing("")).await;
        let code = CtlCode::SRV_ENUMERATE_SNAPSHOTS;
        for room in 0..16 {
            ask(&mut peer, &mount, code, root, &[], room).await.expect(Status::INVALID_PARAMETER);
        }
        for room in [16, 17, 65_536] {
            let reply = ask(&mut peer, &mount, code, root, &[], room).await;
            let none = output(reply.ok());
            assert_eq!(none.len(), 16);
            assert_eq!(SnapshotArray::parse(&none).unwrap().number_of_snapshots, 0);
        }
    });
}

#[test]
fn object_ids_stay_and_differ() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let mut ids = Vec::new();
        for (name, code) in [
            ("one", CtlCode::CREATE_OR_GET_OBJECT_ID),
            ("two", CtlCode::CREATE_OR_GET_OBJECT_ID),
            ("one", CtlCode::GET_OBJECT_ID),
        ] {
            let file = peer.open_file(&mount, &Want::file(name)).await;
            ask(&mut peer, &mount, code, file, &[], 63).await.expect(Status::INVALID_PARAMETER);
            let reply = ask(&mut peer, &mount, code, file, &[], 64).await;
            ids.push(ObjectIdBuffer::parse(&output(reply.ok())).unwrap());
            peer.close(&mount, file).await;
        }
        assert_eq!(ids[0], ids[2]);
        assert_ne!(ids[0].object_id, ids[1].object_id);
        assert_eq!(ids[0].birth_volume_id, ids[1].birth_volume_id);
    });
}

#[test]
fn plain_files_are_no_reparse_points() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        for want in [Want::file("f"), Want::directory("d")] {
            let file = peer.open_file(&mount, &want).await;
            let plain = Status::NOT_A_REPARSE_POINT;
            let code = CtlCode::GET_REPARSE_POINT;
            ask(&mut peer, &mount, code, file, &[], 4096).await.expect(plain);
            let code = CtlCode::DELETE_REPARSE_POINT;
            let head = u64::from(ReparseTag::SYMLINK.0).to_le_bytes();
            ask(&mut peer, &mount, code, file, &head, 0).await.expect(plain);
            let short = Status::IO_REPARSE_DATA_INVALID;
            ask(&mut peer, &mount, code, file, &head[..7], 0).await.expect(short);
        }
    });
}

#[test]
fn links_say_where_they_lead() {
    in_world(async |world| {
        std::os::unix::fs::symlink("d/target", world.path("link")).unwrap();
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let itself = Want::existing("link").options(CreateOptions::OPEN_REPARSE_POINT);
        let itself = itself.access(frevo_wire::dtyp::AccessMask::READ_ATTRIBUTES);
        let link = peer.open_file(&mount, &itself).await;
        let code = CtlCode::GET_REPARSE_POINT;
        let reply = ask(&mut peer, &mount, code, link, &[], 4096).await;
        let whole = output(reply.ok());
        let buffer = ReparseBuffer::parse(&whole).unwrap();
        let ReparseData::Symlink(symlink) = buffer.meaning().unwrap() else { panic!("{buffer:?}") };
        assert!(symlink.relative);
        assert_eq!(symlink.substitute_name.decode().unwrap(), "d\\target");
        // A buffer of 12 bytes gets the part that fits; one of 7 bytes is too small for the fixed
        // fields.
        let reply = ask(&mut peer, &mount, code, link, &[], 12).await;
        assert_eq!(output(reply.expect(Status::BUFFER_OVERFLOW)), whole[..12]);
        ask(&mut peer, &mount, code, link, &[], 7).await.expect(Status::BUFFER_TOO_SMALL);
    });
}

#[test]
fn nothing_is_compressed() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let get = CtlCode::GET_COMPRESSION;
        assert_eq!(output(ask(&mut peer, &mount, get, file, &[], 2).await.ok()), [0, 0]);
        ask(&mut peer, &mount, get, file, &[], 1).await.expect(Status::INVALID_PARAMETER);
        let set = CtlCode::SET_COMPRESSION;
        ask(&mut peer, &mount, set, file, &[0, 0], 0).await.ok();
        for format in [1, 2, 3] {
            let able = if format < 3 { Status::NOT_SUPPORTED } else { Status::INVALID_PARAMETER };
            ask(&mut peer, &mount, set, file, &[format, 0], 0).await.expect(able);
        }
        ask(&mut peer, &mount, set, file, &[0], 0).await.expect(Status::INVALID_PARAMETER);
    });
}

#[test]
fn interfaces_are_listed_to_the_room_there_is() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let code = CtlCode::QUERY_NETWORK_INTERFACE_INFO;
        let none = FileId::ALL_ONES;
        let reply = ask(&mut peer, &mount, code, none, &[], 65_536).await;
        let all = network_interface::parse_list(&output(reply.ok())).unwrap();
        assert!(!all.is_empty() && all.iter().all(|i| i.if_index != 0 && i.link_speed != 0));
        let reply = ask(&mut peer, &mount, code, none, &[], 152).await;
        assert_eq!(network_interface::parse_list(&output(reply.ok())).unwrap(), all[..1]);
        ask(&mut peer, &mount, code, none, &[], 151).await.expect(Status::BUFFER_TOO_SMALL);
        let file = peer.open_file(&mount, &Want::file("f")).await;
        for id in [file, FileId { persistent: 0, volatile: 0 }, FileId { volatile: 1, ..none }] {
            ask(&mut peer, &mount, code, id, &[], 4096).await.expect(Status::INVALID_PARAMETER);
        }
        // As on Windows, the interfaces are returned in old dialects, too, which have no
        // multichannel.
        for dialect in [Dialect::SMB_2_0_2, Dialect::SMB_2_1] {
            let (mut old, mount) = world.session("ann", &Offer::only(dialect)).await;
            let reply = ask(&mut old, &mount, code, none, &[], 65_536).await;
            assert_eq!(network_interface::parse_list(&output(reply.ok())).unwrap(), all);
        }
        // Nor need a client of a newer dialect have asked for multichannel.
        let usual = Offer::default();
        let capabilities = usual.capabilities.without(GlobalCapabilities::MULTI_CHANNEL);
        let (mut one, mount) = world.session("ann", &Offer { capabilities, ..usual }).await;
        let reply = ask(&mut one, &mount, code, none, &[], 65_536).await;
        assert_eq!(network_interface::parse_list(&output(reply.ok())).unwrap(), all);
    });
}

#[test]
fn what_is_not_here_says_so() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let none = FileId::ALL_ONES;
        let dfs = Status::FS_DRIVER_REQUIRED;
        ask(&mut peer, &mount, CtlCode::DFS_GET_REFERRALS, none, &[4, 0], 4096).await.expect(dfs);
        ask(&mut peer, &mount, CtlCode::DFS_GET_REFERRALS_EX, none, &[], 4096).await.expect(dfs);
        ask(&mut peer, &mount, CtlCode::IS_PATHNAME_VALID, file, &[1; 9], 0).await.ok();
        let blocked = Status::NOT_SUPPORTED;
        for code in [CtlCode::SRV_READ_HASH, CtlCode(0x0009_0000), CtlCode(0), CtlCode(u32::MAX)] {
            ask(&mut peer, &mount, code, file, &[0; 8], 4096).await.expect(blocked);
            // MS-SMB2 3.3.5.15: a code of a file system needs an Open, and this request has none,
            // so FILE_CLOSED is returned. The other codes are blocked before that.
            let is_of_files = matches!(code.0, 0x0009_0000 | 0x0014_41BB);
            let status = if is_of_files { Status::FILE_CLOSED } else { blocked };
            ask(&mut peer, &mount, code, none, &[0; 8], 4096).await.expect(status);
        }
        let absent = Status::INVALID_DEVICE_REQUEST;
        for code in [
            CtlCode::SIS_COPYFILE,
            CtlCode::QUERY_FAT_BPB,
            CtlCode::WRITE_USN_CLOSE_RECORD,
            CtlCode::QUERY_SHARED_VIRTUAL_DISK_SUPPORT,
            CtlCode::SVHDX_SYNC_TUNNEL_REQUEST,
            CtlCode::SVHDX_ASYNC_TUNNEL_REQUEST,
        ] {
            ask(&mut peer, &mount, code, file, &[0; 64], 4096).await.expect(absent);
        }
    });
}
