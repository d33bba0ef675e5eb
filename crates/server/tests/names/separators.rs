//! Separators in a row, and at the end of a name: smbprotocol, go-smb2 and jcifs send them in CREATE.

use frevo_wire::command::create::{CreateDisposition, CreateOptions};
use frevo_wire::command::query_directory::QueryDirectoryFlags;
use frevo_wire::fscc::FileInfoClass;

use crate::client::files::{file_id, rename_draft};
use crate::client::queries::list_draft;
use crate::client::*;

#[test]
fn separators_in_a_row_count_as_one_in_every_name() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        for name in ["d", "d\\\\e\\\\"] {
            let directory = peer.open_file(&mount, &Want::directory(name)).await;
            peer.close(&mount, directory).await;
        }
        let file = peer.open_file(&mount, &Want::file("d\\\\\\e\\\\f")).await;
        assert!(world.path("d/e/f").is_file());
        for (class, to) in
            [(FileInfoClass::RENAME, "d\\\\g"), (FileInfoClass::LINK, "d\\\\e\\\\\\h")]
        {
            peer.on(&mount, rename_draft(class, file, to, false)).await.ok();
        }
        // MS-FSCC 2.1.5.2: the new name ends with a separator, so no name is left for the link.
        for class in [FileInfoClass::RENAME, FileInfoClass::RENAME_EX, FileInfoClass::LINK] {
            for to in ["q\\", "d\\q\\\\"] {
                let refused = peer.on(&mount, rename_draft(class, file, to, false)).await;
                assert_eq!(refused.status(), Status::OBJECT_NAME_INVALID, "{class:?} {to}");
            }
        }
        peer.close(&mount, file).await;
        assert!(!world.path("q").exists() && !world.path("d/q").exists());
        assert!(world.path("d/g").is_file() && world.path("d/e/h").is_file());

        let directory = peer.open_file(&mount, &Want::existing("d")).await;
        let restart = QueryDirectoryFlags::RESTART_SCANS;
        for (pattern, status) in [
            ("g\\", Status::SUCCESS),
            ("g*\\", Status::OBJECT_NAME_INVALID),
            ("\\", Status::OBJECT_NAME_INVALID),
            ("e\\\\h", Status::OBJECT_NAME_INVALID),
        ] {
            let ask = list_draft(directory, FileInfoClass::NAMES, restart, pattern);
            assert_eq!(peer.on(&mount, ask).await.status(), status, "{pattern}");
        }
        peer.close(&mount, directory).await;
        let file = Want::existing("d\\g\\\\").options(CreateOptions::NON_DIRECTORY_FILE);
        peer.create(&mount, &file).await.expect(Status::OBJECT_NAME_INVALID);
    });
}

/// MS-FSA 2.1.5.1 phases 6 and 7: a name with a separator at its end is a directory's. Only a request
/// that wants a directory makes one, and no request opens or makes a file by it.
#[test]
fn no_file_is_made_or_opened_by_a_name_that_ends_with_a_separator() {
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let logon = peer.log_on("ann").await;
        let slashes = peer.mount(&logon, "late").await;
        world.file("file", "content");
        std::fs::create_dir(world.path("d")).unwrap();
        let (invalid, taken) = (Status::OBJECT_NAME_INVALID, Status::OBJECT_NAME_COLLISION);
        let absent = Status::OBJECT_NAME_NOT_FOUND;
        for (disposition, new, file, folder) in [
            (CreateDisposition::OPEN, absent, invalid, Status::SUCCESS),
            (CreateDisposition::CREATE, invalid, invalid, taken),
            (CreateDisposition::OPEN_IF, invalid, invalid, Status::SUCCESS),
            (CreateDisposition::OVERWRITE, absent, invalid, taken),
            (CreateDisposition::OVERWRITE_IF, invalid, invalid, taken),
            (CreateDisposition::SUPERSEDE, invalid, invalid, taken),
        ] {
            for (mount, end) in [(&mount, "\\"), (&mount, "\\\\"), (&slashes, "/")] {
                for (name, status) in [("new", new), ("file", file), ("d", folder)] {
                    let name = format!("{name}{end}");
                    let want = Want::file(&name).disposition(disposition);
                    let reply = peer.create(mount, &want).await;
                    assert_eq!(reply.status(), status, "{disposition:?} {name}");
                    if status == Status::SUCCESS {
                        peer.close(mount, file_id(&reply)).await;
                    }
                    let want = want.options(CreateOptions::NON_DIRECTORY_FILE);
                    peer.create(mount, &want).await.expect(invalid);
                }
                let beside = Want::file(&format!("none\\f{end}")).disposition(disposition);
                peer.create(mount, &beside).await.expect(Status::OBJECT_PATH_NOT_FOUND);
            }
        }
        assert!(!world.path("new").exists() && world.content("file") == b"content");
        let made = Want::directory("made\\").disposition(CreateDisposition::CREATE);
        let made = peer.open_file(&mount, &made).await;
        peer.close(&mount, made).await;
        assert!(world.path("made").is_dir());
    });
}
