//! Every information class of MS-FSCC 2.4: answered, or refused with its status.

use frevo_wire::command::query_info::{self, InfoType, QueryInfoFlags};
use frevo_wire::fscc::FileInfoClass;

use super::calls::*;
use crate::client::files::set_info_draft;
use crate::client::*;

/// The status of a query of a file, class by class.
const QUERIES: [(&[u8], Status); 6] = [
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
    // MS-SMB2 3.3.5.20.1 note 416: numbers that MS-FSCC does not have, as Windows answers them.
    (&[41, 43, 47, 49, 51, 53], Status::NOT_SUPPORTED),
    (&[52], Status::INFO_LENGTH_MISMATCH),
];

/// The same for setting, of a buffer of zeros that is long enough.
const SETS: [(&[u8], Status); 5] = [
    // With a buffer of zeros these succeed: Basic (4), Disposition (13; does not delete), Position
    // (14), Allocation (19), EndOfFile (20), DispositionEx (64).
    (&[4, 13, 14, 19, 20, 64], Status::SUCCESS),
    // Rename (10), Link (11) and RenameEx (65) need a name, which the zeros do not have.
    (&[10, 11, 65], Status::INVALID_PARAMETER),
    (&[39, 40], Status::PRIVILEGE_NOT_HELD),
    // 30 and 41 to 43: MS-SMB2 3.3.5.21.1 note 428.
    (&[30, 32, 41, 42, 43], Status::NOT_SUPPORTED),
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
        for class in 0..=u8::MAX {
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

/// The least output of each class that is answered: for files (MS-FSA 2.1.5.12).
const LEAST: [(u8, u32); 16] = [
    (4, 40),
    (5, 24),
    (6, 8),
    (7, 4),
    (8, 4),
    (14, 8),
    (16, 4),
    (17, 4),
    (18, 104),
    (21, 8),
    (22, 32),
    (28, 16),
    (34, 56),
    (35, 8),
    (48, 8),
    (59, 24),
];

/// The same for volumes (MS-FSA 2.1.5.13).
const LEAST_OF_VOLUME: [(u8, u32); 8] =
    [(1, 24), (3, 24), (4, 8), (5, 16), (6, 48), (7, 32), (8, 64), (11, 28)];

/// The same for pipes: FilePipe, FilePipeLocal and FilePipeRemoteInformation.
const LEAST_OF_PIPE: [(u8, u32); 3] = [(23, 8), (24, 40), (25, 12)];

/// The least buffer of each class that can be set: for files (MS-FSA 2.1.5.15).
const LEAST_TO_SET: [(u8, usize); 13] = [
    (4, 40),
    (10, 24),
    (11, 24),
    (13, 1),
    (14, 8),
    (16, 4),
    (19, 8),
    (20, 8),
    (23, 8),
    (39, 8),
    (40, 8),
    (64, 4),
    (65, 24),
];

fn query_in(info_type: u8, class: u8, file: FileId, room: u32) -> Draft {
    let request = query_info::Request {
        info_type: InfoType(info_type),
        file_info_class: class,
        output_buffer_length: room,
        additional_information: 0,
        flags: QueryInfoFlags::EMPTY,
        file_id: file,
        input: &[],
    };
    Draft::new(Command::QUERY_INFO).with(|w| request.encode(w))
}

async fn queried(
    peer: &mut Peer,
    mount: &Mount,
    what: (u8, u8),
    file: FileId,
    room: u32,
) -> Status {
    peer.on(mount, query_in(what.0, what.1, file, room)).await.status()
}

/// MS-SMB2 3.3.5.20.1 and .2: a buffer that cannot hold the fixed part is INFO_LENGTH_MISMATCH, for
/// each class that is answered; the others have the same status whatever room there is.
#[test]
fn every_class_has_its_least_output() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let ipc = peer.mount(&mount.logon, "IPC$").await;
        let file = peer.open_file(&mount, &Want::file("FILE.TXT")).await;
        let folder = peer.open_file(&mount, &Want::directory("FOLDER")).await;
        let pipe = peer.open_file(&ipc, &Want::existing("srvsvc")).await;
        let of_files = LEAST.map(|(class, least)| ((1, class), least));
        let of_volumes = LEAST_OF_VOLUME.map(|(class, least)| ((2, class), least));
        let of_pipes = LEAST_OF_PIPE.map(|(class, least)| ((1, class), least));
        let places = [
            (file, &mount, [&of_files[..], &of_volumes[..]].concat()),
            (folder, &mount, [&of_files[..], &of_volumes[..]].concat()),
            (pipe, &ipc, of_pipes.to_vec()),
        ];
        for (open, mount, answered) in &places {
            for (what, least) in answered {
                for (room, fits) in
                    [(0, false), (1, *least == 1), (least - 1, false), (*least, true)]
                {
                    let status = queried(&mut peer, mount, *what, *open, room).await;
                    let is_enough = matches!(status, Status::SUCCESS | Status::BUFFER_OVERFLOW);
                    let case = format!("{what:?} in {room}: {status:?}");
                    assert_eq!(is_enough, fits, "{case}");
                    assert!(fits || status == Status::INFO_LENGTH_MISMATCH, "{case}");
                }
            }
        }
        for info_type in [1, 2] {
            for class in 0..=u8::MAX {
                let what = (info_type, class);
                let is_answered = |(known, _): &((u8, u8), u32)| *known == what;
                let has_least = places[0].2.iter().chain(&places[2].2).any(is_answered);
                // FullEa (15) asks for as much as its first entry takes.
                if !has_least && what != (1, 15) {
                    let status = queried(&mut peer, &mount, what, file, 65_536).await;
                    for room in [0, 1, 7] {
                        let in_less = queried(&mut peer, &mount, what, file, room).await;
                        assert_eq!(in_less, status, "{what:?} in {room}");
                    }
                }
            }
        }
        for (class, status) in [
            (0, Status::INVALID_INFO_CLASS),
            (2, Status::NOT_SUPPORTED),
            (9, Status::NOT_SUPPORTED),
            (10, Status::NOT_SUPPORTED),
            (12, Status::INVALID_INFO_CLASS),
            (100, Status::INVALID_INFO_CLASS),
            (255, Status::INVALID_INFO_CLASS),
        ] {
            assert_eq!(queried(&mut peer, &mount, (2, class), file, 4096).await, status, "{class}");
        }
        // Types of information that do not exist.
        for info_type in [0, 5, 255] {
            for room in [0, 4096] {
                let status = queried(&mut peer, &mount, (info_type, 4), file, room).await;
                assert_eq!(status, Status::INVALID_PARAMETER, "{info_type}");
            }
            let reply = peer.on(&mount, set_in(info_type, 4, file, 64)).await;
            assert_eq!(reply.status(), Status::INVALID_PARAMETER, "{info_type}");
        }
        // A descriptor that does not fit: MS-SMB2 3.3.5.20.3.
        for room in [0, 19] {
            let status = queried(&mut peer, &mount, (3, 0), file, room).await;
            assert_eq!(status, Status::BUFFER_TOO_SMALL, "{room}");
        }
    });
}

fn set_in(info_type: u8, class: u8, file: FileId, length: usize) -> Draft {
    set_info_draft(file, InfoType(info_type), class, 0, &vec![0; length])
}

/// MS-FSA 2.1.5.15 and 2.1.5.16, MS-SMB2 3.3.5.21.1 and .2.
#[test]
fn every_class_has_its_least_buffer_to_set() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let mismatch = Status::INFO_LENGTH_MISMATCH;
        for want in [Want::file("f"), Want::directory("d"), Want::file("f:s")] {
            let file = peer.open_file(&mount, &want).await;
            for (class, least) in LEAST_TO_SET {
                // MS-SMB2 3.3.5.21: no buffer at all.
                let reply = peer.on(&mount, set_in(1, class, file, 0)).await;
                assert_eq!(reply.status(), Status::INVALID_PARAMETER, "{class}");
                for length in
                    [1, least - 1].into_iter().filter(|length| (1..least).contains(length))
                {
                    let reply = peer.on(&mount, set_in(1, class, file, length)).await;
                    assert_eq!(reply.status(), mismatch, "{class} with {length}");
                }
                let reply = peer.on(&mount, set_in(1, class, file, least)).await;
                assert_ne!(reply.status(), mismatch, "{class} with {least}");
            }
            for class in 0..=u8::MAX {
                if class == 15 || LEAST_TO_SET.iter().any(|(known, _)| *known == class) {
                    continue;
                }
                for length in [1, 7, 64] {
                    let reply = peer.on(&mount, set_in(1, class, file, length)).await;
                    assert_eq!(reply.status(), expected(&SETS, class), "{class} with {length}");
                }
            }
            for class in 0..=u8::MAX {
                let statuses = match class {
                    2 | 9 | 10 => [Status::NOT_SUPPORTED; 2],
                    6 => [mismatch, Status::VOLUME_NOT_UPGRADED],
                    8 => [Status::INVALID_INFO_CLASS, Status::INVALID_PARAMETER],
                    _ => [Status::INVALID_INFO_CLASS; 2],
                };
                for (length, status) in [47, 64].into_iter().zip(statuses) {
                    let reply = peer.on(&mount, set_in(2, class, file, length)).await;
                    assert_eq!(reply.status(), status, "volume {class} with {length}");
                }
            }
            peer.close(&mount, file).await;
        }
        // Classes of data and links for a folder.
        let folder = peer.open_file(&mount, &Want::directory("d")).await;
        for (class, status) in [
            (11, Status::INVALID_PARAMETER),
            (19, Status::INVALID_PARAMETER),
            (20, Status::INVALID_PARAMETER),
        ] {
            let reply = peer.on(&mount, set_in(1, class, folder, 64)).await;
            assert_eq!(reply.status(), status, "{class}");
        }
        // A pipe has FilePipeInformation alone.
        let ipc = peer.mount(&mount.logon, "IPC$").await;
        let pipe = peer.open_file(&ipc, &Want::existing("srvsvc")).await;
        peer.on(&ipc, set_in(1, 23, pipe, 7)).await.expect(mismatch);
        peer.on(&ipc, set_in(1, 23, pipe, 8)).await.ok();
        peer.on(&ipc, set_in(1, 14, pipe, 8)).await.expect(Status::NOT_SUPPORTED);
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
