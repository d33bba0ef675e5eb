//! Faults of the medium: the client hears of each, once, and nothing is left
//! half done.

use frevo_store::memory::Operation;
use frevo_store::{Fault, Name, Vfs as _};
use frevo_wire::command::create::{CreateDisposition, CreateOptions};
use frevo_wire::dtyp::{AccessMask, FileAttributes};
use frevo_wire::fscc::FileInfoClass;
use proptest::prelude::*;

use super::disk::*;
use crate::client::files::{
    close_draft, delete_draft, flush_draft, read_draft, rename_draft, write_draft,
};
use crate::client::*;

const IO: Fault = Fault::Io(5);

#[test]
fn a_flush_that_failed_says_so() {
    on_disk(async |disk, peer, mount| {
        for (fault, status) in [
            (IO, Status::UNEXPECTED_IO_ERROR),
            (Fault::DiskFull, Status::DISK_FULL),
            (Fault::QuotaExceeded, Status::DISK_FULL),
        ] {
            let file = peer.open_file(mount, &Want::file("a")).await;
            peer.write(mount, file, 0, b"data").await;
            disk.faults().fail_next(Operation::Sync, fault);
            peer.on(mount, flush_draft(file)).await.expect(status);
            // After a failed flush, this Open's later flushes and write-throughs must fail as well.
            peer.on(mount, flush_draft(file)).await.expect(status);
            peer.on(mount, write_through_draft(file, 0, b"more")).await.expect(status);
            assert_eq!(contents(&disk.vfs.crash()), []);
            peer.close(mount, file).await;
        }
        let file = peer.open_file(mount, &Want::file("a")).await;
        peer.write(mount, file, 0, b"last").await;
        peer.on(mount, flush_draft(file)).await.ok();
        assert_eq!(contents(&disk.vfs.crash()), [("a".into(), b"last".to_vec())]);
        // A directory's flush reports a failed sync in the same way.
        let dir = peer.open_file(mount, &Want::directory("d")).await;
        disk.faults().fail_next(Operation::Sync, IO);
        peer.on(mount, flush_draft(dir)).await.expect(Status::UNEXPECTED_IO_ERROR);
    });
}

#[test]
fn each_of_many_flushes_has_its_own_answer() {
    on_disk(async |disk, peer, mount| {
        let mut files = Vec::new();
        for at in 0..5 {
            files.push(peer.open_file(mount, &Want::file(&format!("f{at}"))).await);
        }
        disk.faults().fail(Operation::Sync, 2, 1, IO);
        let drafts = files.iter().map(|file| mount.put(flush_draft(*file))).collect();
        let replies = peer.ask_all(drafts, mount.via()).await;
        let failed = replies.iter().filter(|r| r.status() == Status::UNEXPECTED_IO_ERROR).count();
        let done = replies.iter().filter(|r| r.status() == Status::SUCCESS).count();
        assert_eq!((failed, done), (1, 4));
    });
}

#[test]
fn a_write_through_that_failed_says_so() {
    on_disk(async |disk, peer, mount| {
        for (name, options) in
            [("mode", CreateOptions::WRITE_THROUGH), ("flag", CreateOptions::EMPTY)]
        {
            let want = Want::file(name).options(options);
            let draft = |file| match options {
                CreateOptions::EMPTY => write_through_draft(file, 0, b"data"),
                _ => write_draft(file, 0, b"data"),
            };
            let kept = || contents(&disk.vfs.crash()).into_iter().find(|(n, _)| n == name);
            let file = peer.open_file(mount, &Want::file(name)).await;
            peer.close(mount, file).await;
            let file = peer.open_file(mount, &want).await;
            disk.faults().fail_next(Operation::Write, Fault::DiskFull);
            let syncs = disk.faults().calls(Operation::Sync);
            peer.on(mount, draft(file)).await.expect(Status::DISK_FULL);
            assert_eq!(disk.faults().calls(Operation::Sync), syncs);
            disk.faults().fail_next(Operation::Sync, IO);
            peer.on(mount, draft(file)).await.expect(Status::UNEXPECTED_IO_ERROR);
            assert_eq!(kept(), None);
            peer.close(mount, file).await;
            let file = peer.open_file(mount, &want).await;
            peer.on(mount, draft(file)).await.ok();
            assert_eq!(kept(), Some((name.into(), b"data".to_vec())));
        }
        let plain = peer.open_file(mount, &Want::file("plain")).await;
        let syncs = disk.faults().calls(Operation::Sync);
        peer.write(mount, plain, 0, b"data").await;
        assert_eq!(disk.faults().calls(Operation::Sync), syncs, "nobody asked for it");
    });
}

#[test]
fn a_full_disk_spares_what_was_there() {
    on_disk(async |disk, peer, mount| {
        let old = peer.open_file(mount, &Want::file("old")).await;
        peer.write(mount, old, 0, &[1; 8192]).await;
        let file = peer.open_file(mount, &Want::file("new")).await;
        peer.write(mount, file, 0, b"first").await;
        disk.faults().set_capacity(4 * 4096);
        let reply = peer.on(mount, write_draft(file, 5, &[2; 40_000])).await;
        reply.expect(Status::DISK_FULL);
        let reply = peer.on(mount, write_draft(old, 100_000, &[3; 10])).await;
        reply.expect(Status::DISK_FULL);
        // The disk is full, but overwriting and reading need no more space, so they still work.
        peer.write(mount, old, 100, &[4; 10]).await;
        assert_eq!(peer.read(mount, file, 0, 5).await, b"first");
        let content = peer.whole(mount, old).await;
        assert_eq!((content.len(), &content[100..110]), (8192, &[4; 10][..]));
        assert!(content[..100].iter().chain(&content[110..]).all(|b| *b == 1));
        // If the disk has no space for the AllocationSize, CREATE fails and makes no file.
        let want = Want { contexts: making_contexts(), ..Want::file("third") };
        assert_eq!(peer.try_create(mount, &want).await, Status::DISK_FULL);
        assert_eq!(peer.try_create(mount, &Want::existing("third")).await, NOT_FOUND);
        peer.on(mount, end_draft(file, 0)).await.ok();
        assert_eq!(peer.try_create(mount, &want).await, Status::DISK_FULL, "too much still");
        disk.faults().set_capacity(5 * 4096);
        assert_eq!(peer.try_create(mount, &want).await, Status::SUCCESS);
    });
}

const NOT_FOUND: Status = Status::OBJECT_NAME_NOT_FOUND;

#[test]
fn a_read_that_failed_gives_no_data() {
    on_disk(async |disk, peer, mount| {
        let file = peer.open_file(mount, &Want::file("a")).await;
        peer.write(mount, file, 0, b"data").await;
        disk.faults().fail_next(Operation::Read, IO);
        let reply = peer.on(mount, read_draft(file, 0, 4)).await;
        reply.expect(Status::UNEXPECTED_IO_ERROR);
        assert_eq!(peer.read(mount, file, 0, 4).await, b"data");
    });
}

const DISPOSITIONS: [CreateDisposition; 6] = [
    CreateDisposition::SUPERSEDE,
    CreateDisposition::OPEN,
    CreateDisposition::CREATE,
    CreateDisposition::OPEN_IF,
    CreateDisposition::OVERWRITE,
    CreateDisposition::OVERWRITE_IF,
];

/// The calls that a CREATE may make, once or more often.
const IN_CREATE: [Operation; 8] = [
    Operation::Open,
    Operation::Create,
    Operation::Stat,
    Operation::SetEndOfFile,
    Operation::SetBasic,
    Operation::SetAllocation,
    Operation::SetEa,
    Operation::Eas,
];

#[test]
fn a_create_that_failed_made_nothing_and_opened_nothing() {
    on_disk(async |disk, peer, mount| {
        let file = peer.open_file(mount, &Want::file("there")).await;
        peer.write(mount, file, 0, b"content").await;
        peer.close(mount, file).await;
        let mut failed = 0;
        for disposition in DISPOSITIONS {
            for operation in IN_CREATE {
                for delete in [CreateOptions::EMPTY, CreateOptions::DELETE_ON_CLOSE] {
                    let making = Want { contexts: making_contexts(), ..Want::file("new") };
                    let want = making.disposition(disposition).options(delete);
                    let existed = disk.contents();
                    disk.faults().fail_next(operation, IO);
                    let reply = peer.create(mount, &want).await;
                    disk.faults().heal();
                    let what = format!("{disposition:?} {operation:?}: {:?}", reply.status());
                    if reply.status() == Status::SUCCESS {
                        peer.on(mount, delete_draft(files::file_id(&reply))).await.ok();
                        peer.close(mount, files::file_id(&reply)).await;
                    } else {
                        failed += 1;
                    }
                    assert_eq!(disk.contents(), existed, "{what}");
                    assert!(disk.world.server.files.is_empty(), "open after {what}");
                }
                // If opening or overwriting an existing file fails, its content must stay.
                let want = Want::file("there").disposition(disposition);
                if want.disposition == CreateDisposition::OPEN
                    || want.disposition == CreateDisposition::OPEN_IF
                    || operation == Operation::SetBasic
                    || operation == Operation::SetEndOfFile
                {
                    disk.faults().fail_next(operation, IO);
                    let status = peer.try_create(mount, &want).await;
                    disk.faults().heal();
                    assert!(disk.world.server.files.is_empty());
                    if status != Status::SUCCESS {
                        let content = ("there".to_string(), b"content".to_vec());
                        assert!(
                            disk.contents().contains(&content),
                            "{disposition:?} {operation:?}"
                        );
                    }
                    let again = peer.open_file(mount, &Want::file("there")).await;
                    peer.write(mount, again, 0, b"content").await;
                    peer.close(mount, again).await;
                }
            }
        }
        assert!(failed >= 40, "{failed} requests failed");
    });
}

#[test]
fn an_overwrite_that_failed_changed_nothing() {
    on_disk(async |disk, peer, mount| {
        let file = peer.open_file(mount, &Want::file("a")).await;
        peer.write(mount, file, 0, b"content").await;
        peer.close(mount, file).await;
        let state = || {
            let stat = disk.vfs.stat(&Name::from_stored("a".into())).unwrap();
            (disk.contents(), stat.attributes, stat.end_of_file)
        };
        let before = state();
        for operation in [Operation::SetBasic, Operation::SetEndOfFile] {
            for disposition in [DISPOSITIONS[0], DISPOSITIONS[4], DISPOSITIONS[5]] {
                let want = Want::file("a").disposition(disposition);
                let want = Want { attributes: FileAttributes::HIDDEN, ..want };
                disk.faults().fail_next(operation, IO);
                let status = peer.try_create(mount, &want).await;
                assert_eq!(status, Status::UNEXPECTED_IO_ERROR, "{operation:?}");
                assert_eq!(state(), before, "{disposition:?} {operation:?}");
            }
        }
    });
}

#[test]
fn a_create_that_is_refused_makes_nothing() {
    on_disk(async |disk, peer, mount| {
        let want = Want::file("new").options(CreateOptions::DELETE_ON_CLOSE);
        let want = Want { attributes: FileAttributes::READONLY, ..want };
        for disposition in [CreateDisposition::CREATE, CreateDisposition::OPEN_IF] {
            let want = want.clone().disposition(disposition);
            assert_eq!(peer.try_create(mount, &want).await, Status::CANNOT_DELETE);
            assert_eq!(disk.contents(), []);
        }
        assert!(disk.world.server.files.is_empty());
    });
}

#[test]
fn a_removal_that_failed_leaves_the_file_and_frees_its_name() {
    on_disk(async |disk, peer, mount| {
        let deleting = Want::file("a").options(CreateOptions::DELETE_ON_CLOSE);
        for round in 0..3 {
            let file = peer.open_file(mount, &deleting).await;
            disk.faults().fail_next(Operation::Remove, IO);
            // The deletion failed, so the status of CLOSE tells the client that the file still
            // exists. The FileId is closed nevertheless.
            peer.on(mount, close_draft(file)).await.expect(Status::UNEXPECTED_IO_ERROR);
            peer.on(mount, close_draft(file)).await.expect(Status::FILE_CLOSED);
            assert!(disk.world.server.files.is_empty(), "round {round}");
            assert_eq!(disk.contents().len(), 1);
        }
        let file = peer.open_file(mount, &deleting).await;
        peer.close(mount, file).await;
        assert_eq!(disk.contents(), []);
    });
}

#[test]
fn a_rename_that_failed_leaves_the_name() {
    on_disk(async |disk, peer, mount| {
        let other = peer.open_file(mount, &Want::file("other")).await;
        peer.write(mount, other, 0, b"other").await;
        peer.close(mount, other).await;
        let file = peer.open_file(mount, &Want::file("a")).await;
        peer.write(mount, file, 0, b"a").await;
        for (operation, after, fault, status) in [
            (Operation::Rename, 0, IO, Status::UNEXPECTED_IO_ERROR),
            (Operation::Rename, 0, Fault::DiskFull, Status::DISK_FULL),
            // A rename calls `stat` for the parent (call 0) and then for the file that it would
            // replace (call 1). Here the second call fails.
            (Operation::Stat, 1, IO, Status::UNEXPECTED_IO_ERROR),
        ] {
            disk.faults().fail(operation, after, 1, fault);
            let rename = rename_draft(FileInfoClass::RENAME, file, "OTHER", true);
            peer.on(mount, rename).await.expect(status);
            disk.faults().heal();
            let both = [("a".into(), b"a".to_vec()), ("other".into(), b"other".to_vec())];
            assert_eq!(disk.contents(), both);
        }
        // After the failed rename the file still has its old name, which the deletion removes.
        peer.on(mount, delete_draft(file)).await.ok();
        peer.close(mount, file).await;
        assert_eq!(disk.contents(), [("other".into(), b"other".to_vec())]);
        assert!(disk.world.server.files.is_empty());
    });
}

#[test]
fn a_chain_that_fails_in_its_middle_is_answered_in_whole() {
    on_disk(async |disk, peer, mount| {
        for (operation, expected) in [
            (Operation::Create, [1, 1, 1, 1]),
            (Operation::Write, [0, 1, 0, 0]),
            (Operation::Sync, [0, 0, 1, 0]),
            (Operation::Remove, [0, 0, 0, 1]),
        ] {
            disk.faults().fail_next(operation, IO);
            let want = Want::file("chain").options(CreateOptions::DELETE_ON_CLOSE);
            let chain = [
                want.draft(),
                write_draft(files::PREVIOUS, 0, b"data").related(),
                flush_draft(files::PREVIOUS).related(),
                close_draft(files::PREVIOUS).related(),
            ];
            let [first, rest @ ..] = chain;
            let drafts = std::iter::once(mount.put(first)).chain(rest).collect();
            let replies = peer.ask_all(drafts, mount.via()).await;
            let failed: Vec<_> =
                replies.iter().map(|r| usize::from(r.status() != Status::SUCCESS)).collect();
            assert_eq!(failed, expected, "{operation:?}");
            assert!(disk.world.server.files.is_empty(), "{operation:?}");
        }
        let deleting = Want::existing("chain").options(CreateOptions::DELETE_ON_CLOSE);
        assert_eq!(peer.try_create(mount, &deleting).await, Status::SUCCESS);
        assert_eq!(disk.contents(), []);
    });
}

#[test]
fn what_the_host_would_allow_is_asked_again_not_assumed() {
    on_disk(async |disk, peer, mount| {
        let want = Want::file("a").access(AccessMask::MAXIMUM_ALLOWED);
        // CREATE opens the directory, to read its descriptor, and then tries to open the file up to
        // three times, each time with less access. If all four fail, CREATE fails.
        disk.faults().fail(Operation::Open, 0, 4, Fault::AccessDenied);
        assert_eq!(peer.try_create(mount, &want).await, Status::ACCESS_DENIED);
        disk.faults().fail(Operation::Open, 0, 3, Fault::AccessDenied);
        let file = peer.open_file(mount, &want).await;
        let reply = peer.on(mount, write_draft(file, 0, b"data")).await;
        assert_ne!(reply.status(), Status::SUCCESS, "the node cannot write");
        peer.close(mount, file).await;
    });
}

const OPERATIONS: [Operation; 12] = [
    Operation::Open,
    Operation::Create,
    Operation::Remove,
    Operation::Rename,
    Operation::Stat,
    Operation::Read,
    Operation::Write,
    Operation::Sync,
    Operation::SetEndOfFile,
    Operation::SetBasic,
    Operation::List,
    Operation::SetEa,
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Random clients on a medium that fails at random: nothing panics, no
    /// reply is missing or too many, and nothing stays open.
    #[test]
    fn random_clients_on_a_failing_disk(
        script in prop::collection::vec(any::<u8>(), 200..1500),
        faults in prop::collection::vec((0..OPERATIONS.len(), 2..20u64, 1..4u64), 1..12),
        capacity in 0..40u64,
    ) {
        block_on(async {
            let disk = Disk::new(empty());
            disk.faults().set_capacity(capacity * 4096);
            for (operation, after, times) in faults {
                let fault = if times == 1 { Fault::DiskFull } else { IO };
                disk.faults().fail(OPERATIONS[operation], after, times, fault);
            }
            tokio::time::pause();
            script::play(&disk.world, &script).await;
            disk.world.wind_up().await;
        });
    }
}
