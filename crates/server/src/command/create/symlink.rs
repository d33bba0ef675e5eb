//! A symbolic link in the way, MS-SMB2 2.2.2.2.1 and 3.3.5.9: the server goes
//! on to no link's target by itself, it tells the client where the link leads.

use frevo_store::Name;
use frevo_store::vfs::{Existence, Kind, KindWanted, OpenHow, Vfs};
use frevo_wire::Status;
use frevo_wire::codec::Writer;
use frevo_wire::dtyp::FileAttributes;
use frevo_wire::error_response::SymlinkError;
use frevo_wire::utf16::Utf16;

use crate::refusal::Refusal;

/// How a link itself is looked at.
const LINK: OpenHow = OpenHow {
    existence: Existence::MustExist,
    kind: KindWanted::Any,
    read: false,
    write: false,
    open_link: true,
    attributes: FileAttributes::EMPTY,
    mode: None,
    case_sensitive: false,
};

/// The answer for a name on whose way there is a link: STOPPED_ON_SYMLINK with
/// the first link's target, or ACCESS_DENIED when it cannot be told.
pub(super) fn stopped(vfs: &dyn Vfs, name: &Name) -> Refusal {
    let data = first_link(vfs, name).and_then(|(target, unparsed)| data(&target, unparsed));
    match data {
        Some(data) => Refusal::Data(Status::STOPPED_ON_SYMLINK, data),
        None => Status::ACCESS_DENIED.into(),
    }
}

/// The first link's target, and how many bytes of the name are behind it, with
/// the separator.
fn first_link(vfs: &dyn Vfs, name: &Name) -> Option<(String, usize)> {
    let mut way = Name::root();
    let mut components = name.components();
    while let Some(component) = components.next() {
        way = way.child(component);
        let opened = vfs.open(&way, &LINK).ok()?;
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
