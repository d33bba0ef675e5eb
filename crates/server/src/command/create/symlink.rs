//! A symbolic link in the way, MS-SMB2 2.2.2.2.1 and 3.3.5.9: the server goes
//! on to no link's target by itself, it tells the client where the link leads.

use frevo_store::Name;
use frevo_store::vfs::{Kind, Opened, Vfs};
use frevo_wire::Status;
use frevo_wire::codec::Writer;
use frevo_wire::error_response::SymlinkError;
use frevo_wire::fscc::name::WireName;
use frevo_wire::fscc::reparse::{ReparseBuffer, ReparseData, Symlink};
use frevo_wire::utf16::Utf16;

use crate::protection;
use crate::refusal::Refusal;

/// The answer for a name on whose way there is a link: STOPPED_ON_SYMLINK with
/// the first link's target, or ACCESS_DENIED when it cannot be told.
pub(super) fn stopped(vfs: &dyn Vfs, name: &Name) -> Refusal {
    let data = first_link(vfs, name).and_then(|(target, unparsed)| data(&target, unparsed));
    match data {
        Some(data) => Refusal::Data(Status::STOPPED_ON_SYMLINK, data),
        None => Status::ACCESS_DENIED.into(),
    }
}

/// MS-FSA 2.1.5.1.2: what is kept with a file as a reparse point is not opened
/// as if it were the file. A link that the host cannot have says where it leads.
pub(super) fn check(opened: &Opened) -> Result<(), Refusal> {
    let stat = &opened.stat;
    if stat.reparse_tag == 0 || !matches!(stat.kind, Kind::File | Kind::Directory) {
        return Ok(());
    }
    let told = opened.node.reparse_buffer().ok().and_then(|buffer| {
        let buffer = ReparseBuffer::parse(&buffer).ok()?;
        match buffer.meaning().ok()? {
            ReparseData::Symlink(link) => kept(&link),
            _ => None,
        }
    });
    Err(match told {
        Some(data) => Refusal::Data(Status::STOPPED_ON_SYMLINK, data),
        None => Status::IO_REPARSE_TAG_NOT_HANDLED.into(),
    })
}

fn kept(link: &Symlink<WireName<'_>>) -> Option<Vec<u8>> {
    let (substitute, print) = (link.substitute_name.decode().ok()?, link.print_name.decode().ok()?);
    let error = SymlinkError {
        unparsed_path_length: 0,
        substitute_name: Utf16::from_str(&substitute),
        print_name: Utf16::from_str(&print),
        relative: link.relative,
    };
    let mut bytes = Vec::new();
    error.encode(&mut Writer::new(&mut bytes));
    Some(bytes)
}

/// The first link's target, and how many bytes of the name are behind it, with
/// the separator.
fn first_link(vfs: &dyn Vfs, name: &Name) -> Option<(String, usize)> {
    let mut way = Name::root();
    let mut components = name.components();
    while let Some(component) = components.next() {
        way = way.child(component);
        let opened = vfs.open(&way, &protection::LOOK).ok()?;
        if opened.stat.kind == Kind::Symlink {
            let units = |component: &str| component.encode_utf16().count() + 1;
            let unparsed = components.map(units).sum::<usize>() * 2;
            return Some((opened.node.link_target().ok()?, unparsed));
        }
    }
    None
}

fn data(target: &str, unparsed: usize) -> Option<Vec<u8>> {
    let path = target.replace('/', "\\");
    let error = SymlinkError {
        unparsed_path_length: u16::try_from(unparsed).ok()?,
        substitute_name: Utf16::from_str(&path),
        print_name: Utf16::from_str(&path),
        relative: !target.starts_with('/'),
    };
    let mut bytes = Vec::new();
    error.encode(&mut Writer::new(&mut bytes));
    Some(bytes)
}
