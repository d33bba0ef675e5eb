//! The steps of a scan of a directory: MS-FSA 2.1.5.6.3.

use std::borrow::Cow;

use frevo_store::name::Rules;
use frevo_store::posix_name::posix_spelling;
use frevo_store::security::Token;
use frevo_store::short_name::short_name;
use frevo_store::vfs::{self, VfsResult};
use frevo_store::{Fault, Name, Stat};
use frevo_wire::fscc::Pattern;
use frevo_wire::fscc::posix::PosixAttributes;

use crate::base::limits::SCAN_BYTES;
use crate::objects::enumeration::{Scan, Stage};
use crate::objects::open::FileOpen;
use crate::shares::{posix, protection, visibility};

/// Steps of a comparison that take as long as reading a name and its state.
const STEPS_PER_ENTRY: usize = 256;

impl Scan {
    /// The name of the entry at hand as the client spells it.
    pub(crate) fn shown(&self) -> Cow<'_, str> {
        spelling(&self.name, self.posix)
    }

    /// MS-SMB2 3.3.5.18: whether the entry at hand is one that `viewer` can read.
    pub(crate) fn is_visible(&self, file: &FileOpen, viewer: &Token) -> VfsResult<bool> {
        if let (Some(access), Some(stat)) = (self.plain, &self.held) {
            return Ok(visibility::shows(protection::host_rights(
                access,
                stat.kind != vfs::Kind::Directory,
            )));
        }
        let name = file.name().child(&self.name);
        visibility::is_visible(&*file.vfs, &name, viewer)
    }

    /// Level 100 of the entry at hand, for POSIX clients. None for others.
    pub(crate) fn posix_attributes(&self, file: &FileOpen, stat: &Stat) -> Option<PosixAttributes> {
        if !self.posix {
            return None;
        }
        let is_above = self.name == ".." && file.name().is_root();
        Some(if is_above { posix::hidden_parent(stat) } else { posix::attributes(stat) })
    }

    /// POSIX clients know of none.
    fn has_short_names(&self, file: &FileOpen) -> bool {
        !self.posix && file.vfs.volume().short_names
    }

    /// Looks at one name and holds it if it matches, with the access to it if that is asked for;
    /// false at the end.
    pub(crate) fn step(&mut self, file: &FileOpen, asks: bool) -> VfsResult<bool> {
        match self.stage {
            Stage::Dot => {
                self.stage = Stage::DotDot;
                if self.pattern.matches(".") {
                    self.name.replace_range(.., ".");
                    self.held = Some(file.node.stat()?);
                }
            }
            Stage::DotDot => {
                self.stage = Stage::List;
                if self.pattern.matches("..") {
                    self.name.replace_range(.., "..");
                    self.held = Some(parent(file)?);
                }
            }
            Stage::List => {
                // If the listing fails, the stage stays as it is, so that the next call tries
                // again.
                if self.pattern.literal().is_none() {
                    self.list(file)?;
                }
                self.stage = Stage::Names;
            }
            Stage::Names if self.listing.is_none() => self.look_up(file)?,
            Stage::Names => self.next_name(file, asks)?,
            Stage::End => return Ok(false),
        }
        Ok(true)
    }

    /// Begins to read the directory, or begins again.
    fn list(&mut self, file: &FileOpen) -> VfsResult<()> {
        match &mut self.listing {
            Some(listing) => listing.rewind(),
            none => {
                let listing = file.node.directory()?;
                let bytes = SCAN_BYTES.saturating_add(listing.bytes());
                self.charge.resize(bytes).map_err(|_| Fault::NoMemory)?;
                *none = Some(listing);
                self.is_new = true;
                Ok(())
            }
        }
    }

    /// One name need not be searched for: clients ask for the state of a file
    /// in this way.
    fn look_up(&mut self, file: &FileOpen) -> VfsResult<()> {
        let literal = self.pattern.literal().filter(|name| !matches!(*name, "." | ".."));
        let Some(literal) = literal else {
            self.stage = Stage::End;
            return Ok(());
        };
        let name = child(&file.name(), literal, self.posix)?;
        // If the entry cannot be opened, the stage stays as it is, so that the next call tries
        // again.
        match file.vfs.open(&name, &protection::LOOK) {
            Ok(opened) => {
                self.stage = Stage::End;
                self.name.replace_range(.., opened.name.last());
                self.held = Some(opened.stat);
            }
            // The directory was moved on the host, so the entry's path is not valid any more. The
            // open directory is listed instead.
            Err(Fault::PathNotFound | Fault::PathNotDirectory) => {
                self.list(file)?;
                self.stage = Stage::Names;
            }
            Err(Fault::NotFound | Fault::NameInvalid | Fault::NameTooLong) => {
                self.stage = Stage::End;
            }
            Err(fault) => return Err(fault),
        }
        Ok(())
    }

    fn next_name(&mut self, file: &FileOpen, asks: bool) -> VfsResult<()> {
        let has_short = self.has_short_names(file);
        let Some(listing) = &mut self.listing else { return Ok(()) };
        match listing.next_name()? {
            Some(name) => {
                self.compared += self.pattern.steps(name) / STEPS_PER_ENTRY;
                if self.pattern.matches(&spelling(name, self.posix))
                    || has_short && by_short_name(&self.pattern, name)
                {
                    self.name.clear();
                    self.name.push_str(name);
                    // `held` becomes None if the entry was removed after its name had been read.
                    self.held = listing.entry_stat()?;
                    if asks && self.held.is_some() {
                        self.plain = listing.plain_access();
                    }
                }
            }
            None => {
                self.stage = Stage::End;
                self.close();
            }
        }
        Ok(())
    }
}

/// MS-FSA 2.1.5.6.3: an entry is found by either of its names.
fn by_short_name(pattern: &Pattern, name: &str) -> bool {
    short_name(name).is_some_and(|short| pattern.matches(&short))
}

/// The containing directory; the share's root stands for its own, so that
/// nothing above it shows.
fn parent(file: &FileOpen) -> VfsResult<Stat> {
    let name = file.name();
    if name.is_root() {
        return file.node.stat();
    }
    file.vfs.stat(&name.parent()).or_else(|_| file.node.stat())
}

/// How a client spells a stored name.
fn spelling(name: &str, posix: bool) -> Cow<'_, str> {
    if posix { posix_spelling(name) } else { Cow::Borrowed(name) }
}

/// The name of an entry that a client spells so.
fn child(directory: &Name, component: &str, posix: bool) -> VfsResult<Name> {
    if !posix {
        return Ok(directory.child(component));
    }
    let name = Name::parse(component, Rules::Posix).map_err(|_| Fault::NameInvalid)?;
    Ok(directory.child(name.last()).into_exact())
}
