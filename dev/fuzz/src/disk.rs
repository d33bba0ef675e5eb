//! A hostile disk: extended attributes written by another program.

use std::ffi::CStr;
use std::path::PathBuf;
use std::sync::Arc;

use frevo_posix::dosattrib::DosAttrib;
use frevo_posix::{NtAcls, PosixOptions, PosixVfs};
use frevo_server::internal::protocol::{AfpInfoNode, Record};
use frevo_store::memory::{MemoryOptions, MemoryVfs};
use frevo_store::name::Rules;
use frevo_store::vfs::{Existence, OpenHow, Security};
use frevo_store::{Name, Node, Vfs};
use frevo_wire::dtyp::{FileTime, SecurityDescriptor};
use frevo_wire::fscc::reparse::ReparseBuffer;
use rustix::fs::{XattrFlags, removexattr, setxattr};
use tempfile::TempDir;

use crate::choices::Choices;

/// The attributes that Frevo reads.
const ATTRIBUTES: [&CStr; 8] = [
    c"user.DOSATTRIB",
    c"security.NTACL",
    c"user.NTACL",
    c"system.posix_acl_access",
    c"user.frevo.reparse",
    c"user.frevo.object_id",
    c"user.frevo.streams",
    c"user.DosStream.one:$DATA",
];

struct Disk {
    path: PathBuf,
    shares: Vec<PosixVfs>,
    _folder: TempDir,
}

thread_local! {
    static DISK: Disk = Disk::new();
}

impl Disk {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, "content").expect("a file");
        let share = |nt_acls| {
            let options = PosixOptions { nt_acls, host_changes: false, ..PosixOptions::default() };
            PosixVfs::open_root(folder.path(), options).expect("a share")
        };
        let shares = vec![share(NtAcls::Xattr), share(NtAcls::Posix)];
        Self { path, shares, _folder: folder }
    }
}

/// Sets extended attributes of one file, each preceded by its length; the bits of the first byte
/// select them. Then calls all readers.
pub fn disk(data: &[u8]) {
    let mut choices = Choices::new(data);
    let which = choices.u8();
    let long = choices.u8();
    DISK.with(|disk| {
        let chosen = |at: &usize| which & 1 << at != 0;
        let mut set = Vec::new();
        for at in (0..ATTRIBUTES.len()).filter(chosen) {
            // This bit of `long` makes the value as long as an attribute may be.
            let mut value = choices.blob().to_vec();
            if long & 1 << at != 0 && !value.is_empty() {
                value = value.repeat(60_000 / value.len());
            }
            if at == 0 {
                dos_attributes(&value);
            }
            if setxattr(&disk.path, ATTRIBUTES[at], &value, XattrFlags::empty()).is_ok() {
                set.push(ATTRIBUTES[at]);
            }
        }
        for share in &disk.shares {
            read(share);
        }
        for name in set {
            let _ = removexattr(&disk.path, name);
        }
    });
}

fn dos_attributes(value: &[u8]) {
    let Some(read) = DosAttrib::decode(value) else { return };
    let mut buffer = [0; frevo_posix::dosattrib::ENCODED_LEN];
    let again = DosAttrib::decode(read.encode(&mut buffer)).expect("what we write we read");
    assert_eq!(again.attributes, read.attributes);
    assert_eq!(again.changed, read.changed);
}

fn read(share: &dyn Vfs) {
    let name = Name::parse("file", Rules::Windows).expect("a name");
    let _ = share.stat(&name);
    let how = OpenHow { open_link: true, read: true, ..OpenHow::LOOK };
    let Ok(opened) = share.open(&name, &how) else { return };
    let node = &*opened.node;
    let _ = (node.stat(), node.stat_without_eas(), node.birth(), node.object_id());
    let _ = (node.eas(), node.needed_eas(), node.host_access(), node.stored_security());
    if let Ok(Security::Stored(bytes)) = node.security() {
        let _ = SecurityDescriptor::parse(&bytes);
    }
    if let Ok(buffer) = node.reparse_buffer() {
        let _ = ReparseBuffer::parse(&buffer).map(|buffer| buffer.meaning().is_ok());
    }
    for stream in node.streams().unwrap_or_default() {
        assert!(!stream.name.is_empty());
    }
    let one = name.with_stream(Some("one"));
    if let Ok(stream) = share.open(&one, &OpenHow { read: true, ..OpenHow::LOOK }) {
        let mut content = [0; 64];
        let _ = (stream.node.stat(), stream.node.read_at(0, &mut content));
    }
    if let Ok(root) = share.open(&Name::root(), &OpenHow::DIRECTORY)
        && let Ok(mut directory) = root.node.directory()
    {
        while let Ok(Some(_)) = directory.next_name() {
            let _ = directory.entry_stat();
        }
    }
}

/// An AFP_AfpInfo stream: its stored content, then writes of a client.
pub fn afp_info(data: &[u8]) {
    let mut choices = Choices::new(data);
    let clock = Arc::new(|| FileTime(1 << 57));
    let vfs = MemoryVfs::new(MemoryOptions { capacity: 1 << 20, ..Default::default() }, clock);
    let name = Name::parse("file:AFP_AfpInfo", Rules::Windows).expect("a name");
    let existence = Existence::Either;
    let how = OpenHow { existence, read: true, write: true, ..OpenHow::LOOK };
    let stored = vfs.open(&name, &how).expect("a stream").node;
    let _ = stored.write_at(0, choices.blob());
    let finder = Record::read(&*stored).map(|record| record.finder_info());
    let node = AfpInfoNode::new(Arc::clone(&stored));
    while !choices.is_over() {
        let (offset, data) = (u64::from(choices.u8()), choices.blob());
        if node.write_at(offset, data).is_ok() {
            let mut whole = [0xAA; Record::SIZE];
            let count = node.read_at(0, &mut whole).expect("a record");
            assert_eq!(count, Record::SIZE, "always one record");
        }
        let mut part = [0; 16];
        let _ = (node.read_at(offset, &mut part), node.is_empty(), node.stat());
        if let Some(record) = Record::read(&*stored) {
            let _ = record.finder_info();
        }
    }
    let _ = finder;
}
