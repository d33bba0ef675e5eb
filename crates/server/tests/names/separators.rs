//! Separators in a row, and at the end of a name: smbprotocol, go-smb2 and jcifs send them in CREATE.

use frevo_wire::command::create::CreateOptions;
use frevo_wire::command::query_directory::QueryDirectoryFlags;
use frevo_wire::fscc::FileInfoClass;

use crate::client::files::rename_draft;
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
