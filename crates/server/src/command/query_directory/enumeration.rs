//! Scans of directories: MS-FSA 2.1.5.6.3.

use std::borrow::Cow;
use std::sync::Arc;

use frevo_net::watchdog::is_due;
use frevo_store::name::Rules;
use frevo_store::posix_name::posix_spelling;
use frevo_store::security::Token;
use frevo_store::short_name::short_name;
use frevo_store::vfs::{self, HostAccess, VfsResult};
use frevo_store::{Fault, Name, Stat};
use frevo_wire::Status;
use frevo_wire::fscc::posix::PosixAttributes;
use frevo_wire::fscc::{DirectoryEntry, DirectoryWriter, Pattern, Pushed, ShortName};

use super::super::query_info::wide_id;
use crate::base::limits::SCAN_BYTES;
use crate::objects::enumeration::{Enumeration, Scan, Stage};
use crate::objects::ledger::{Holder, Kind};
use crate::objects::open::FileOpen;
use crate::shares::apple::entries::Filling;
use crate::shares::posix;
use crate::shares::protection;
use crate::shares::visibility;

impl Enumeration {
    /// True when the scan may keep the descriptor that it has begun to use, or has none.
    /// Otherwise the scan gives it up and begins again with the next request.
    pub(super) fn keeps_within(&mut self, admits: impl FnOnce(usize) -> bool) -> bool {
        let Some(scan) = &mut self.scan else { return true };
        let number = scan.listing.as_ref().and_then(|listing| listing.descriptor());
        let is_kept = !std::mem::take(&mut scan.is_new) || number.is_none_or(admits);
        if !is_kept {
            scan.close();
            scan.restart();
        }
        is_kept
    }
}

/// Steps of a comparison that take as long as reading a name and its state.
const STEPS_PER_ENTRY: usize = 256;

/// Entries between two looks at the clock, where an entry is a name and its state. One that is
/// opened, for its access list or its streams, may take milliseconds by itself.
const LOOKS: usize = 16;

/// The reason why no more entries were added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Filled {
    /// The next entry does not fit, or is not wanted.
    Full,
    /// There are no more.
    End,
    /// Enough for one turn; there may be more.
    Slice,
}

impl Scan {
    /// A scan from the beginning, at the cost of `holder`.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES when the holder may not have more.
    pub fn new(pattern: Pattern, posix: bool, holder: &Arc<Holder>) -> Result<Self, Status> {
        Ok(Self {
            charge: holder.charge(Kind::Listing, SCAN_BYTES)?,
            pattern,
            posix,
            stage: Stage::Dot,
            listing: None,
            is_new: false,
            name: String::new(),
            held: None,
            plain: None,
            compared: 0,
        })
    }

    /// Begins with another pattern.
    pub fn search(&mut self, pattern: Pattern) {
        self.pattern = pattern;
        self.close();
        self.restart();
    }

    /// Begins again with the same pattern.
    pub fn restart(&mut self) {
        self.stage = Stage::Dot;
        self.held = None;
    }

    /// The entry that was found and not answered yet.
    pub(super) fn held<'a>(
        &self,
        file: &FileOpen,
        filling: Option<&Filling>,
        shown: &'a str,
    ) -> Option<DirectoryEntry<&'a str>> {
        let stat = self.held.as_ref()?;
        let mut entry = entry(shown, stat, self.posix_attributes(file, stat));
        complete(file, filling, &mut entry, stat, self.plain).ok()?;
        Some(entry)
    }

    /// The name of the entry at hand as the client spells it.
    pub(super) fn shown(&self) -> Cow<'_, str> {
        spelling(&self.name, self.posix)
    }

    /// Writes entries, taking no longer than for `slice` names, without what
    /// `viewer` cannot read.
    pub(super) fn fill(
        &mut self,
        file: &FileOpen,
        filling: Option<&Filling>,
        writer: &mut DirectoryWriter<'_>,
        single: bool,
        viewer: Option<&Token>,
        slice: usize,
    ) -> VfsResult<Filled> {
        self.compared = 0;
        let mut looked_at: usize = 0;
        let asks = viewer.is_some() || filling.is_some();
        let mut may_take_long = asks;
        while looked_at.saturating_add(self.compared) < slice {
            looked_at += 1;
            // Entries take long that are far apart on the disk, or whose access
            // lists are long.
            if (std::mem::take(&mut may_take_long) || looked_at.is_multiple_of(LOOKS)) && is_due() {
                return Ok(Filled::Slice);
            }
            if single && !writer.is_empty() {
                return Ok(Filled::Full);
            }
            if self.held.is_none() {
                self.plain = None;
                let goes_on = self.step(file, asks)?;
                may_take_long = asks && self.held.is_some() && self.plain.is_none();
                if let (Some(viewer), Some(_)) = (viewer, &self.held)
                    && !matches!(&*self.name, "." | "..")
                    && !self.is_visible(file, viewer)?
                {
                    self.held = None;
                }
                if !goes_on {
                    return Ok(Filled::End);
                }
            }
            let Some(stat) = &self.held else { continue };
            let name = spelling(&self.name, self.posix);
            let mut entry = entry(&name, stat, self.posix_attributes(file, stat));
            complete(file, filling, &mut entry, stat, self.plain)?;
            match writer.push(&entry) {
                Pushed::Fits => self.held = None,
                Pushed::Full => return Ok(Filled::Full),
            }
        }
        Ok(Filled::Slice)
    }

    /// MS-SMB2 3.3.5.18: whether the entry at hand is one that `viewer` can read.
    fn is_visible(&self, file: &FileOpen, viewer: &Token) -> VfsResult<bool> {
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
    fn posix_attributes(&self, file: &FileOpen, stat: &Stat) -> Option<PosixAttributes> {
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
    fn step(&mut self, file: &FileOpen, asks: bool) -> VfsResult<bool> {
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
                // After a fault this comes again.
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

    /// Gives up the reader of the names: it is large, and clients keep directories open.
    fn close(&mut self) {
        self.listing = None;
        // Less is never refused.
        let _ = self.charge.resize(SCAN_BYTES);
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
        // After a fault the same name comes next.
        match file.vfs.open(&name, &protection::LOOK) {
            Ok(opened) => {
                self.stage = Stage::End;
                self.name.replace_range(.., opened.name.last());
                self.held = Some(opened.stat);
            }
            // The host moved the directory away from under its name.
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
                    // None when it has gone since its name was read.
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

/// An entry of any class.
fn entry<'a>(
    name: &'a str,
    stat: &Stat,
    posix: Option<PosixAttributes>,
) -> DirectoryEntry<&'a str> {
    DirectoryEntry {
        name,
        short_name: ShortName::NONE,
        file_index: 0,
        creation_time: stat.created,
        last_access_time: stat.accessed,
        last_write_time: stat.written,
        change_time: stat.changed,
        end_of_file: stat.end_of_file,
        allocation_size: stat.allocation,
        attributes: stat.attributes,
        ea_size: stat.ea_size,
        reparse_tag: stat.reparse_tag,
        file_id: posix.as_ref().map_or(stat.id, |posix| posix.inode),
        file_id_128: wide_id(stat),
        posix,
        reserved2: 0,
    }
}

/// Changes an entry to the form that the client wants.
///
/// # Errors
/// When it would take long on a core; see [`Filling::fill`].
fn complete(
    file: &FileOpen,
    filling: Option<&Filling>,
    entry: &mut DirectoryEntry<&str>,
    stat: &Stat,
    plain: Option<HostAccess>,
) -> VfsResult<()> {
    if entry.posix.is_none()
        && file.vfs.volume().short_names
        && let Some(short) = short_name(entry.name)
    {
        entry.short_name = ShortName::new(&short).unwrap_or(ShortName::NONE);
    }
    if file.apple {
        (entry.file_id, entry.file_id_128) = (0, [0; 16]);
    }
    match filling {
        Some(filling) => filling.fill(file, stat, plain, entry),
        None => Ok(()),
    }
}
