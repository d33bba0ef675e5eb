//! Every information class of MS-FSCC 2.4: answered, or refused with its status.

use frevo_wire::fscc::FileInfoClass;

use super::calls::*;
use crate::client::*;

/// The status of a query of a file, class by class.
const QUERIES: [(&[u8], Status); 4] = [
    // Basic, Standard, Internal, Ea, Access, Position, Mode, Alignment, All,
    // AlternateName (the name is one), Stream, Compression, NetworkOpen,
    // AttributeTag, NormalizedName, Id.
    (&[4, 5, 6, 7, 8, 14, 16, 17, 18, 21, 22, 28, 34, 35, 48, 59], Status::SUCCESS),
    // FullEa of a file without extended attributes.
    (&[15], Status::NO_EAS_ON_FILE),
    // The classes of pipes.
    (&[23, 24, 25], Status::INVALID_PARAMETER),
    // Known classes that are not available over the network, or not for this kind of file.
    (&[9, 26, 29, 32, 33, 44, 45, 46, 54, 60, 64, 65, 78, 79, 80, 81], Status::NOT_SUPPORTED),
];

/// The same for setting, of a buffer of zeros that is long enough.
const SETS: [(&[u8], Status); 5] = [
    // Basic, Disposition (not to be deleted), Position, EndOfFile, Allocation,
    // DispositionEx, Mode.
    (&[4, 13, 14, 19, 20, 64], Status::SUCCESS),
    // No name: Rename, Link, RenameEx. Zeros are no mode of this handle's.
    (&[10, 11, 65], Status::INVALID_PARAMETER),
    (&[39, 40], Status::PRIVILEGE_NOT_HELD),
    (&[32], Status::NOT_SUPPORTED),
    // An attribute without a name.
    (&[15], Status::INVALID_EA_NAME),
];

fn expected(table: &[(&[u8], Status)], class: u8) -> Status {
    let row = table.iter().find(|(classes, _)| classes.contains(&class));
    row.map_or(Status::INVALID_INFO_CLASS, |(_, status)| *status)
}

#[test]
fn every_class_is_answered_or_refused() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let file = peer.open_file(&mount, &Want::file("FILE.TXT")).await;
        for class in 0..=100 {
            // QUERY_DIRECTORY classes and POSIX classes are refused here.
            let reply = peer.on(&mount, query_draft(FileInfoClass(class), file)).await;
            assert_eq!(reply.status(), expected(&QUERIES, class), "query {class}");
            // Modes and pipes have rules of their own.
            if !matches!(class, 16 | 23) {
                let reply = peer.on(&mount, set_draft(FileInfoClass(class), file, &[0; 64])).await;
                assert_eq!(reply.status(), expected(&SETS, class), "set {class}");
            }
        }
        assert!(world.dir.path().join("FILE.TXT").exists());
    });
}

/// THREATS F4: no name of an extended attribute reaches what servers keep.
#[test]
fn f4_extended_attributes_reach_no_private_ones() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let stream = peer.open_file(&mount, &Want::file("f:s")).await;
        peer.write(&mount, stream, 0, b"kept").await;
        let file = peer.open_file(&mount, &Want::existing("f")).await;
        let entry = |name: &str, value: &[u8]| {
            let mut bytes = vec![0, 0, 0, 0, 0, u8::try_from(name.len()).unwrap()];
            bytes.extend_from_slice(&u16::try_from(value.len()).unwrap().to_le_bytes());
            bytes.extend_from_slice(name.as_bytes());
            bytes.push(0);
            bytes.extend_from_slice(value);
            bytes
        };
        for name in [
            "DOSATTRIB",
            "dosattrib",
            "DosStream.s",
            "DOSSTREAM.",
            "SAMBA_PAI",
            "NTACL",
            "frevo.streams",
            "Frevo.x",
        ] {
            for value in [&b"evil"[..], b""] {
                let list = entry(name, value);
                let reply = peer.on(&mount, set_draft(FileInfoClass::FULL_EA, file, &list)).await;
                assert_eq!(reply.status(), Status::ACCESS_DENIED, "{name}");
            }
        }
        // Prefixes are part of a name, not a way to another name space.
        for name in ["security.NTACL", "user.DOSATTRIB", "system.posix_acl_access"] {
            let list = entry(name, b"mine");
            peer.on(&mount, set_draft(FileInfoClass::FULL_EA, file, &list)).await.ok();
        }
        assert_eq!(peer.read(&mount, stream, 0, 10).await, b"kept");
        let reply = peer.on(&mount, query_draft(FileInfoClass::FULL_EA, file)).await;
        reply.ok();
        let shown = String::from_utf8_lossy(&reply.message).into_owned();
        assert!(shown.contains("user.DOSATTRIB") && !shown.contains("DosStream"), "{shown}");
    });
}
