//! A symbolic link in the way, MS-SMB2 2.2.2.2.1 and 3.3.5.9: the server goes
//! on to no link's target by itself, it tells the client where the link leads.

use frevo_store::vfs::{Kind, Opened, Vfs};
use frevo_store::{Name, Node};
use frevo_wire::Status;
use frevo_wire::codec::Writer;
use frevo_wire::error_response::SymlinkError;
use frevo_wire::fscc::name::WireName;
use frevo_wire::fscc::reparse::{ReparseBuffer, ReparseData};
use frevo_wire::utf16::Utf16;

use crate::objects::refusal::Refusal;
use crate::shares::protection;

/// The separator of the targets that a client is told, and tells: a request with the POSIX create
/// context has `/` in them, as in all of its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::command) enum Separator {
    Windows,
    Posix,
}

impl Separator {
    pub(in crate::command) const fn of(posix: bool) -> Self {
        if posix { Self::Posix } else { Self::Windows }
    }

    /// Returns what a link of the host is shown as.
    pub(in crate::command) fn show(self, target: String) -> String {
        if self == Self::Windows { target.replace('/', "\\") } else { target }
    }

    /// Returns what a kept relative link is shown as, whichever kind of client made it.
    pub(in crate::command) fn show_kept(self, target: String) -> String {
        self.show(Self::slashed(target))
    }

    /// Returns what a relative target of a client is on the host.
    pub(in crate::command) fn read(self, target: String) -> String {
        if self == Self::Windows { target.replace('\\', "/") } else { Self::slashed(target) }
    }

    /// Frevo's client and older ones have `\` in targets even with the POSIX create context. Where
    /// there is a `/`, a `\` is part of a name.
    fn slashed(target: String) -> String {
        if target.contains('/') { target } else { target.replace('\\', "/") }
    }
}

/// The answer for a name on whose way there is a link: STOPPED_ON_SYMLINK with
/// the first link's target, or ACCESS_DENIED when it cannot be told. `text` is the name as
/// the client spelled it.
pub(in crate::command) fn stopped(
    vfs: &dyn Vfs,
    name: &Name,
    text: &str,
    separator: Separator,
) -> Refusal {
    first_link(vfs, name, text, separator).unwrap_or_else(|| Status::ACCESS_DENIED.into())
}

/// MS-FSA 2.1.5.1.2: what is kept with a file as a reparse point is not opened
/// as if it were the file. A link that the host cannot have says where it leads.
pub(super) fn check(opened: &Opened, separator: Separator) -> Result<(), Refusal> {
    let stat = &opened.stat;
    if stat.reparse_tag == 0 || !matches!(stat.kind, Kind::File | Kind::Directory) {
        return Ok(());
    }
    Err(kept(&*opened.node, 0, separator))
}

/// The answer for a reparse point that is kept beside a file or directory, with the bytes of
/// the name that follow it.
///
/// A mount point leads to a volume of the server, which has none: the client is told of it as of
/// a link.
fn kept(node: &dyn Node, unparsed: usize, separator: Separator) -> Refusal {
    let told = node.reparse_buffer().ok().and_then(|buffer| {
        let buffer = ReparseBuffer::parse(&buffer).ok()?;
        let (substitute, print, relative) = match buffer.meaning().ok()? {
            ReparseData::Symlink(link) => (link.substitute_name, link.print_name, link.relative),
            ReparseData::MountPoint { substitute_name, print_name } => {
                (substitute_name, print_name, false)
            }
            _ => return None,
        };
        let text = |name: WireName<'_>| {
            let text = name.decode().ok()?;
            Some(if relative { separator.show_kept(text) } else { text })
        };
        data(&text(substitute)?, &text(print)?, relative, unparsed)
    });
    match told {
        Some(data) => Refusal::Data(Status::STOPPED_ON_SYMLINK, data),
        None => Status::IO_REPARSE_TAG_NOT_HANDLED.into(),
    }
}

/// Returns the answer for the first link in the path. A name before the link can be opened, and a
/// name behind it cannot, so a binary search finds it: it takes ten steps at most.
fn first_link(vfs: &dyn Vfs, name: &Name, text: &str, separator: Separator) -> Option<Refusal> {
    let components: Vec<&str> = name.components().collect();
    let (mut first, mut last) = (1, components.len());
    while first <= last {
        let middle = usize::midpoint(first, last);
        let (way, behind) = components.split_at_checked(middle)?;
        let way = Name::from_stored(way.join("\\"));
        let Ok(opened) = vfs.open(&way, &protection::LOOK) else {
            last = middle.checked_sub(1)?;
            continue;
        };
        if let Some(link) = link(&opened, unparsed(text, behind.len()), separator) {
            return link;
        }
        first = middle + 1;
    }
    None
}

/// Returns the answer for a link, followed by `unparsed` bytes of the name. None for another
/// object, Some(None) for a link whose target cannot be told.
fn link(opened: &Opened, unparsed: usize, separator: Separator) -> Option<Option<Refusal>> {
    if opened.stat.kind == Kind::Symlink {
        let told = opened.node.link_target().ok().and_then(|target| {
            let relative = !target.starts_with('/');
            let path = separator.show(target);
            data(&path, &path, relative, unparsed)
        });
        return Some(told.map(|data| Refusal::Data(Status::STOPPED_ON_SYMLINK, data)));
    }
    let is_kept = opened.stat.reparse_tag != 0 && opened.node.reparse_buffer().is_ok();
    is_kept.then(|| Some(kept(&*opened.node, unparsed, separator)))
}

/// MS-SMB2 2.2.2.2.1.1: the bytes of the name behind the link, with the separator before them,
/// when the last `count` components are behind it.
fn unparsed(text: &str, count: usize) -> usize {
    let mut rest = text.trim_end_matches(['\\', '/']);
    for _ in 0..count {
        let before = rest.trim_end_matches(|c| !matches!(c, '\\' | '/'));
        rest = before.trim_end_matches(['\\', '/']);
    }
    let behind = text.get(rest.len()..).unwrap_or_default();
    if count == 0 { 0 } else { behind.encode_utf16().count() * 2 }
}

fn data(substitute: &str, print: &str, relative: bool, unparsed: usize) -> Option<Vec<u8>> {
    let error = SymlinkError {
        unparsed_path_length: u16::try_from(unparsed).ok()?,
        substitute_name: Utf16::from_str(substitute),
        print_name: Utf16::from_str(print),
        relative,
    };
    let mut bytes = Vec::new();
    error.encode(&mut Writer::new(&mut bytes));
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unparsed_part_begins_with_its_separator() {
        for (text, count, bytes) in
            [("a\\b\\c", 0, 0), ("a\\b\\c", 1, 4), ("a\\\\b\\c\\", 2, 12), ("l\\s:t:$DATA", 1, 20)]
        {
            assert_eq!(unparsed(text, count), bytes, "{text}");
        }
    }
}
