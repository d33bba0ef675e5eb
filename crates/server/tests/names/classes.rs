//! Every information class of MS-FSCC 2.4: answered, or refused with its status.

use frevo_wire::fscc::FileInfoClass;

use super::calls::*;
use crate::client::*;

/// The status of a query of a file, class by class.
const QUERIES: [(&[u8], Status); 4] = [
    // These classes succeed: Basic (4), Standard (5), Internal (6), Ea (7), Access (8), Position
    // (14), Mode (16), Alignment (17), All (18), AlternateName (21; the name is its own short
    // name), Stream (22), Compression (28), NetworkOpen (34), AttributeTag (35), NormalizedName
    // (48), Id (59).
    (&[4, 5, 6, 7, 8, 14, 16, 17, 18, 21, 22, 28, 34, 35, 48, 59], Status::SUCCESS),
    // FullEa (15) fails, because the file has no extended attributes.
    (&[15], Status::NO_EAS_ON_FILE),
    // Pipe (23), PipeLocal (24) and PipeRemote (25) are only for pipes.
    (&[23, 24, 25], Status::INVALID_PARAMETER),
    // These classes are known, but not for queries over the network or not for this kind of file.
    (&[9, 26, 29, 32, 33, 44, 45, 46, 54, 60, 64, 65, 78, 79, 80, 81], Status::NOT_SUPPORTED),
];

/// The same for setting, of a buffer of zeros that is long enough.
const SETS: [(&[u8], Status); 5] = [
    // With a buffer of zeros these succeed: Basic (4), Disposition (13; does not delete), Position
    // (14), Allocation (19), EndOfFile (20), DispositionEx (64).
    (&[4, 13, 14, 19, 20, 64], Status::SUCCESS),
    // Rename (10), Link (11) and RenameEx (65) need a name, which the zeros do not have.
    (&[10, 11, 65], Status::INVALID_PARAMETER),
    (&[39, 40], Status::PRIVILEGE_NOT_HELD),
    (&[32], Status::NOT_SUPPORTED),
    // FullEa (15) gets an entry whose name is empty.
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
            // A class that is only for QUERY_DIRECTORY, or only for POSIX clients, is refused in
            // QUERY_INFO.
            let reply = peer.on(&mount, query_draft(FileInfoClass(class), file)).await;
            assert_eq!(reply.status(), expected(&QUERIES, class), "query {class}");
            // Setting class 16 (Mode) depends on the handle, and class 23 (Pipe) is for pipes, so
            // other tests cover them.
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
        // The name of a client's extended attribute is only a name. With the prefix "security." it
        // must not reach the host's other name spaces.
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
