//! Requests that a server need not know: each of the statuses by which servers say so leads to the older way.
#![allow(missing_docs, clippy::disallowed_methods, reason = "tests")]

use crate::dialed;
use crate::evil;

use std::sync::Arc;

use dialed::one_thing;
use evil::{Act, Asked, Manners, buffer};
use frevo_client::{Credentials, Error, OpenOptions, Options, ServerName, Share};
use frevo_wire::command::ioctl::{self, CtlCode};
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::{Command, Status};
use parking_lot::Mutex;

/// The answers of servers that do not have what is asked for.
const UNKNOWN: [Status; 3] =
    [Status::NOT_SUPPORTED, Status::NOT_IMPLEMENTED, Status::INVALID_INFO_CLASS];
/// READONLY and ARCHIVE, MS-FSCC 2.6.
const READ_ONLY: u32 = 0x21;

/// Does `work` in a share of a server that follows `script`.
fn in_share<T>(
    script: impl Fn(&Asked<'_>) -> Act + Send + Sync + 'static,
    work: impl AsyncFnOnce(&Share) -> Result<T, Error>,
) -> Result<T, Error> {
    let done = one_thing(Manners::default(), Options::default(), script, async |client| {
        let user = Credentials::new("ann", "secret");
        let session = client.connect(ServerName::new("simple"), user).await?;
        work(&session.share("data").await?).await
    });
    done.0
}

/// FileAllInformation with these attributes, links and length, MS-FSCC 2.4.2.
fn told(attributes: u32, links: u8, len: u64) -> Act {
    Act::Changed(Box::new(move |answer| {
        let mut all = vec![0; 104];
        all[32..36].copy_from_slice(&attributes.to_le_bytes());
        all[48..56].copy_from_slice(&len.to_le_bytes());
        (all[56], all[64]) = (links, 77);
        // The bytes are the status in the header, which becomes SUCCESS (MS-SMB2 2.2.1.2).
        answer[8..12].fill(0);
        answer.truncate(64);
        answer.extend(buffer(&all));
    }))
}

fn class_of(asked: &Asked<'_>) -> FileInfoClass {
    FileInfoClass(asked.message.get(67).copied().unwrap_or(0))
}

/// A server that refuses one class of SET_INFO, and the classes that it is asked to set.
fn refusing(
    class: FileInfoClass,
    links: u8,
    status: Status,
    work: impl AsyncFnOnce(&Share) -> Result<(), Error>,
) -> (Result<(), Error>, Vec<FileInfoClass>) {
    let set = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&set);
    let script = move |asked: &Asked<'_>| match asked.header.command {
        Command::QUERY_INFO => told(READ_ONLY, links, 0),
        Command::SET_INFO => {
            noted.lock().push(class_of(asked));
            if class_of(asked) == class { Act::Refused(status) } else { Act::Honest }
        }
        _ => Act::Honest,
    };
    let done = in_share(script, work);
    let set = std::mem::take(&mut *set.lock());
    (done, set)
}

/// FileRenameInformationEx ignores READONLY. Without it the attribute is taken away and given back.
#[test]
fn a_read_only_file_is_replaced_without_the_newer_class() {
    use FileInfoClass as Class;
    let rename = async |share: &Share| share.rename_over_read_only("new", "known").await;
    for status in UNKNOWN {
        let (done, set) = refusing(Class::RENAME_EX, 2, status, rename);
        done.unwrap();
        let ways = [Class::RENAME_EX, Class::BASIC, Class::RENAME_EX, Class::RENAME, Class::BASIC];
        assert_eq!(set, ways, "{status:?}");
    }
    let (done, _) = refusing(Class::RENAME_EX, 2, Status::DISK_FULL, rename);
    assert_eq!(done.unwrap_err().status(), Some(frevo_client::Status::DISK_FULL));
}

/// FileDispositionInformationEx ignores READONLY. Without it the attribute is taken away at first.
#[test]
fn a_read_only_file_is_removed_without_the_newer_class() {
    use FileInfoClass as Class;
    let remove = async |share: &Share| {
        share.remove_file_anyway("known").await?;
        // The server is not asked twice for what it does not know.
        share.remove_file_anyway("other").await
    };
    for status in UNKNOWN {
        let (done, set) = refusing(Class::DISPOSITION_EX, 1, status, remove);
        done.unwrap();
        let old = [Class::BASIC, Class::DISPOSITION];
        assert_eq!(set, [&[Class::DISPOSITION_EX][..], &old, &old].concat(), "{status:?}");
    }
    let (done, _) = refusing(Class::DISPOSITION_EX, 1, Status::SHARING_VIOLATION, remove);
    assert_eq!(done.unwrap_err().status(), Some(frevo_client::Status::SHARING_VIOLATION));
}

/// A server without any way to copy: the caller reads and writes.
#[test]
fn a_server_that_cannot_copy_leaves_it_to_the_caller() {
    for status in UNKNOWN {
        // Either none of the FSCTLs is known, or all but the copy itself.
        for knows_key in [false, true] {
            let asked_for = Arc::new(Mutex::new(Vec::new()));
            let noted = Arc::clone(&asked_for);
            let script = move |asked: &Asked<'_>| match asked.header.command {
                Command::QUERY_INFO => told(0x20, 1, 0),
                Command::IOCTL => {
                    let code = ioctl::Request::parse(asked.message).unwrap().ctl_code;
                    noted.lock().push(code);
                    let is_known = knows_key && code == CtlCode::SRV_REQUEST_RESUME_KEY;
                    if is_known { Act::Honest } else { Act::Refused(status) }
                }
                _ => Act::Honest,
            };
            let copy = async |share: &Share| {
                let source = share.open("known").await?;
                let to = OpenOptions::new().read(true).write(true).create(true);
                let target = to.open(share, "to").await?;
                source.copy_range_to(&target, 0, 0, 5_000).await
            };
            assert_eq!(in_share(script, copy).unwrap(), None, "{status:?}");
            let asked_for = std::mem::take(&mut *asked_for.lock());
            let copies = asked_for.contains(&CtlCode::SRV_COPYCHUNK_WRITE);
            assert_eq!(copies, knows_key, "{asked_for:?}");
            for code in [CtlCode::OFFLOAD_READ, CtlCode::DUPLICATE_EXTENTS_TO_FILE] {
                assert!(asked_for.contains(&code), "{asked_for:?}");
            }
        }
    }
}
