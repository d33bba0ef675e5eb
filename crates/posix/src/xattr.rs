//! Extended attributes: DOSATTRIB, and those that clients may see.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use frevo_store::Fault;
use frevo_store::vfs::{EaChange, Kind, VfsResult, links};
use hashbrown::{HashMap, HashSet};
use rustix::fs::{Statx, XattrFlags};
use rustix::io::Errno;

use crate::dosattrib::{DosAttrib, ENCODED_LEN};
use crate::errno::fault_of;
use crate::fold;
use crate::limits::{
    DOSATTRIB_BYTES, RETRIES, XATTR_LIST_BYTES, XATTR_LIST_FILLED, XATTR_NAME_BYTES,
    XATTR_NAMES_ON_CORE, XATTR_VALUE_BYTES,
};
use crate::ntacl;
use crate::patience;
use crate::stat;
use crate::sys::ProcPath;

/// [`crate::dosattrib::NAME`] for system calls.
pub(crate) const DOSATTRIB: &CStr = c"user.DOSATTRIB";

/// The name space of clients' attributes.
const PREFIX: &str = "user.";

/// Names in that name space that servers and their modules use themselves, compared without case. A
/// period or asterisk at the end matches all names with that beginning.
const PRIVATE: [&str; 9] = [
    "DOSATTRIB",
    "DosStream.",
    "DosStreams",
    "DosEAs",
    "SAMBA_PAI",
    "SAMBA_STREAMS",
    "NTACL",
    "frevo.",
    "org.netatalk.",
];

/// A descriptor, through which extended attributes are reached.
#[derive(Debug, Clone)]
pub(crate) struct Handle {
    fd: Arc<OwnedFd>,
    /// True if it was opened with O_PATH.
    path_only: bool,
}

/// True if a directory has a default access list, which new objects in it get.
pub(crate) fn has_default_list(dir: BorrowedFd<'_>) -> bool {
    rustix::fs::getxattr_query(ProcPath::of(dir).as_c_str(), ntacl::DEFAULT).is_ok()
}

/// Returns the access list of a directory; None for one whose mode says all.
pub(crate) fn access_list(dir: BorrowedFd<'_>) -> Result<Option<Vec<u8>>, Errno> {
    let path = ProcPath::of(dir);
    let mut value = vec![0; XATTR_VALUE_BYTES];
    match rustix::fs::getxattr(path.as_c_str(), ntacl::ACCESS, &mut value[..]) {
        Ok(len) => {
            value.truncate(len);
            Ok(Some(value))
        }
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(errno) => Err(errno),
    }
}

impl Handle {
    pub(crate) fn new(fd: OwnedFd, path_only: bool) -> Self {
        Self { fd: Arc::new(fd), path_only }
    }

    /// A handle on a descriptor that is not O_PATH and has other owners.
    pub(crate) const fn of_shared(fd: Arc<OwnedFd>) -> Self {
        Self { fd, path_only: false }
    }

    /// Returns a shared owner of the descriptor.
    pub(crate) fn shared(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.fd)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns the target of the symbolic link that this is, as stored.
    pub(crate) fn link_target(&self) -> Result<Vec<u8>, Errno> {
        rustix::fs::readlinkat(self.fd(), c"", Vec::new()).map(CString::into_bytes)
    }

    /// True for a symbolic link that stands for a directory.
    pub(crate) fn is_directory_link(&self, stx: &Statx) -> bool {
        stat::kind_of(stx) == Kind::Symlink
            && self.link_target().is_ok_and(|target| links::is_of_directory(&target))
    }

    pub(crate) const fn is_path_only(&self) -> bool {
        self.path_only
    }

    pub(crate) fn value(&self, name: &CStr, into: &mut [u8]) -> Result<usize, Errno> {
        if self.path_only {
            rustix::fs::getxattr(ProcPath::of(self.fd()).as_c_str(), name, into)
        } else {
            rustix::fs::fgetxattr(&self.fd, name, into)
        }
    }

    pub(crate) fn value_len(&self, name: &CStr) -> Result<usize, Errno> {
        if self.path_only {
            rustix::fs::getxattr_query(ProcPath::of(self.fd()).as_c_str(), name)
        } else {
            rustix::fs::fgetxattr_query(&self.fd, name)
        }
    }

    /// Reads a whole value, which may change meanwhile.
    pub(crate) fn whole_value(&self, name: &CStr) -> Result<Vec<u8>, Errno> {
        for _ in 0..RETRIES {
            let mut value = vec![0; self.value_len(name)?.max(1)];
            match self.value(name, &mut value) {
                Ok(len) => {
                    value.truncate(len);
                    return Ok(value);
                }
                Err(Errno::RANGE) => {}
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::BUSY)
    }

    pub(crate) fn set(&self, name: &CStr, value: &[u8]) -> Result<(), Errno> {
        self.set_if(name, value, XattrFlags::empty())
    }

    /// Sets an attribute only if it is absent (CREATE, else EEXIST) or present (REPLACE, else
    /// ENODATA).
    pub(crate) fn set_if(&self, name: &CStr, value: &[u8], on: XattrFlags) -> Result<(), Errno> {
        if self.path_only {
            rustix::fs::setxattr(ProcPath::of(self.fd()).as_c_str(), name, value, on)
        } else {
            rustix::fs::fsetxattr(&self.fd, name, value, on)
        }
    }

    /// Sets an attribute that is not there yet, if the list of names has room for it: XFS and Btrfs keep
    /// lists that are too long to be read.
    pub(crate) fn add(&self, name: &CStr, value: &[u8]) -> Result<(), Errno> {
        let listed = match self.list_bytes() {
            Err(Errno::OPNOTSUPP) => 0,
            listed => listed?,
        };
        if !has_room(listed, name) {
            return Err(Errno::NOSPC);
        }
        self.set(name, value)
    }

    pub(crate) fn remove(&self, name: &CStr) -> Result<(), Errno> {
        if self.path_only {
            rustix::fs::removexattr(ProcPath::of(self.fd()).as_c_str(), name)
        } else {
            rustix::fs::fremovexattr(&self.fd, name)
        }
    }

    fn list(&self, into: &mut [u8]) -> Result<usize, Errno> {
        if self.path_only {
            rustix::fs::listxattr(ProcPath::of(self.fd()).as_c_str(), into)
        } else {
            rustix::fs::flistxattr(&self.fd, into)
        }
    }

    /// Returns the bytes of the list of names, which may be too long to be read.
    fn list_bytes(&self) -> Result<usize, Errno> {
        if self.path_only {
            rustix::fs::listxattr_query(ProcPath::of(self.fd()).as_c_str())
        } else {
            rustix::fs::flistxattr_query(&self.fd)
        }
    }

    /// Returns the DOSATTRIB value; None for one that cannot be read or parsed.
    pub(crate) fn dos_attrib(&self) -> Option<DosAttrib> {
        let mut value = [0; DOSATTRIB_BYTES];
        let len = self.value(DOSATTRIB, &mut value).ok()?;
        DosAttrib::decode(value.get(..len)?)
    }

    pub(crate) fn set_dos_attrib(&self, value: &DosAttrib) -> Result<(), Errno> {
        self.set(DOSATTRIB, value.encode(&mut [0; ENCODED_LEN]))
    }

    /// Returns the stored names for which `wanted` returns true.
    pub(crate) fn names(&self, wanted: impl Fn(&[u8]) -> bool) -> Result<Vec<CString>, Errno> {
        Ok(listed(|list| self.list(list), wanted)?.names)
    }

    /// Returns the names that clients may see, as stored, with the prefix.
    fn visible(&self) -> Result<Vec<CString>, Errno> {
        visible(|list| self.list(list))
    }

    /// Returns the size of the extended attributes; see [`ea_size`].
    pub(crate) fn ea_size(&self) -> Result<u32, Errno> {
        ea_size(|list| self.list(list), |name| self.value_len(name))
    }

    pub(crate) fn eas(&self) -> VfsResult<Vec<(String, Vec<u8>)>> {
        let mut found = Vec::new();
        let names = self.visible().map_err(fault_of)?;
        let bytes: usize = names.iter().map(|name| name.as_bytes().len()).sum();
        if bytes > XATTR_NAMES_ON_CORE && patience::is_short() {
            return Err(fault_of(patience::give_up()));
        }
        for name in names {
            match self.whole_value(&name) {
                Ok(value) => {
                    let full_name = name.to_string_lossy();
                    found.push((full_name[PREFIX.len()..].to_owned(), value));
                }
                // The attribute was removed after the names were listed, so it is left out.
                Err(Errno::NODATA) => {}
                Err(errno) => return Err(fault_of(errno)),
            }
        }
        Ok(found)
    }

    /// Sets an attribute; an empty value removes it. A name that differs only in case means the
    /// present attribute, which keeps its spelling, as in smbd.
    pub(crate) fn set_ea(&self, name: &str, value: &[u8]) -> VfsResult<()> {
        check_ea(name, value)?;
        let wanted = format!("{PREFIX}{name}");
        let existing = self
            .visible()
            .map_err(fault_of)?
            .into_iter()
            .find(|stored| fold::alike(stored.as_bytes(), wanted.as_bytes()));
        if value.is_empty() {
            let Some(stored) = existing else { return Ok(()) };
            self.need(name, false).map_err(fault_of)?;
            return match self.remove(&stored) {
                Ok(()) | Err(Errno::NODATA) => Ok(()),
                Err(errno) => Err(fault_of(errno)),
            };
        }
        match existing {
            Some(stored) => self.set(&stored, value),
            None => self.add(&CString::new(wanted).map_err(|_| Fault::NameInvalid)?, value),
        }
        .map_err(fault_of)
    }
}

/// True if a list of so many bytes has room for another name.
fn has_room(listed: usize, name: &CStr) -> bool {
    listed.saturating_add(name.to_bytes_with_nul().len()) <= XATTR_LIST_FILLED
}

/// Refuses an attribute that clients may not set.
fn check_ea(name: &str, value: &[u8]) -> VfsResult<()> {
    if name.is_empty() || name.len() > XATTR_NAME_BYTES - PREFIX.len() || name.contains('\0') {
        return Err(Fault::NameInvalid);
    }
    if is_private(name) {
        return Err(Fault::AccessDenied);
    }
    if value.len() > XATTR_VALUE_BYTES {
        return Err(Fault::FileTooLarge);
    }
    Ok(())
}

/// The names of a file's attributes, listed once for many changes.
struct Listed {
    /// Names with the prefix, by their folded form.
    visible: HashMap<Box<[u8]>, CString>,
    /// The attributes that mark another one as FILE_NEED_EA.
    marks: HashSet<CString>,
    /// Bytes of the list of all names.
    bytes: usize,
}

impl Listed {
    /// Counts the names of attributes that are to be added, if there is room for all of them. Returns their
    /// bytes.
    fn count(&mut self, names: &[&CStr]) -> Result<usize, Errno> {
        let bytes = names.iter().map(|name| name.to_bytes_with_nul().len()).sum();
        let listed = self.bytes.saturating_add(bytes);
        if bytes > 0 && listed > XATTR_LIST_FILLED {
            return Err(Errno::NOSPC);
        }
        self.bytes = listed;
        Ok(bytes)
    }

    /// Counts no more the name of an attribute that was removed.
    fn forget(&mut self, name: &CStr) {
        self.uncount(name.to_bytes_with_nul().len());
    }

    /// Takes back the count of names that were not added.
    fn uncount(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

impl Handle {
    /// Changes several attributes; see [`frevo_store::Node::set_eas`]. The names are listed once,
    /// so the cost depends only on the attributes that change.
    pub(crate) fn set_eas(&self, changes: &[EaChange<'_>]) -> VfsResult<()> {
        changes.iter().try_for_each(|change| check_ea(change.name, change.value))?;
        let mut listed = self.listed().map_err(fault_of)?;
        let mut done = Ok(());
        for change in changes {
            done = done.and(self.change_ea(&mut listed, change).map_err(fault_of));
        }
        done
    }

    fn listed(&self) -> Result<Listed, Errno> {
        let is_mark = |name: &[u8]| name.starts_with(NEEDED.as_bytes());
        let wanted = |name: &[u8]| is_mark(name) || is_visible(name);
        let NameList { names, bytes } = listed(|list| self.list(list), wanted)?;
        let (marks, visible): (Vec<_>, Vec<_>) =
            names.into_iter().partition(|name| is_mark(name.as_bytes()));
        let key = |name: &CString| fold::Folded::of(name.as_bytes()).as_bytes().into();
        let visible = visible.into_iter().map(|name| (key(&name), name)).collect();
        Ok(Listed { visible, marks: marks.into_iter().collect(), bytes })
    }

    fn change_ea(&self, listed: &mut Listed, change: &EaChange<'_>) -> Result<(), Errno> {
        let wanted = format!("{PREFIX}{}", change.name);
        let key: Box<[u8]> = fold::Folded::of(wanted.as_bytes()).as_bytes().into();
        let mark = need_mark(change.name);
        let goes = change.value.is_empty();
        if goes && !listed.visible.contains_key(&key) {
            return Ok(());
        }
        if (goes || !change.need) && listed.marks.contains(&mark) {
            self.need(change.name, false)?;
            listed.marks.remove(&mark);
            listed.forget(&mark);
        }
        if goes {
            let Some(stored) = listed.visible.remove(&key) else { return Ok(()) };
            listed.forget(&stored);
            return match self.remove(&stored) {
                Err(Errno::NODATA) => Ok(()),
                removed => removed,
            };
        }
        let present = listed.visible.get(&key).cloned();
        let is_new = present.is_none();
        let stored = match present {
            Some(stored) => stored,
            None => CString::new(wanted).map_err(|_| Errno::INVAL)?,
        };
        let is_marked = change.need && !listed.marks.contains(&mark);
        let added: Vec<&CStr> = [(is_new, &stored), (is_marked, &mark)]
            .into_iter()
            .filter_map(|(is_added, name)| is_added.then_some(name.as_c_str()))
            .collect();
        let counted = listed.count(&added)?;
        // The mark comes first: without its attribute it says nothing.
        let mut done = if is_marked { self.need(change.name, true) } else { Ok(()) };
        if done.is_ok() {
            done = self.set(&stored, change.value);
            if done.is_err() && is_marked {
                let _ = self.need(change.name, false);
            }
        }
        if done.is_err() {
            listed.uncount(counted);
            return done;
        }
        if is_marked {
            listed.marks.insert(mark);
        }
        listed.visible.insert(key, stored);
        Ok(())
    }
}

/// The beginning of the names of attributes that mark another one as FILE_NEED_EA.
const NEEDED: &str = "user.frevo.need_ea.";

/// Returns the attribute that marks the attribute `name`, in whatever case. One list in one
/// attribute could be changed by two calls at once, and the name itself might be too long, so the
/// mark's name has a hash.
fn need_mark(name: &str) -> CString {
    let hash = fold::Folded::of(name.as_bytes())
        .as_bytes()
        .iter()
        .fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3)
        });
    CString::new(format!("{NEEDED}{hash:016x}")).unwrap_or_default()
}

impl Handle {
    /// Sets or clears FILE_NEED_EA of the attribute `name`.
    fn need(&self, name: &str, needed: bool) -> Result<(), Errno> {
        let mark = need_mark(name);
        if needed {
            return self.set(&mark, b"1");
        }
        match self.remove(&mark) {
            Err(Errno::NODATA) => Ok(()),
            removed => removed,
        }
    }

    /// Returns the attributes with FILE_NEED_EA; see [`frevo_store::Node::needed_eas`].
    pub(crate) fn needed_eas(&self) -> VfsResult<Vec<String>> {
        let is_mark = |name: &[u8]| name.starts_with(NEEDED.as_bytes());
        let listed = self.names(|name| is_mark(name) || is_visible(name)).map_err(fault_of)?;
        let (marks, visible): (Vec<_>, Vec<_>) =
            listed.into_iter().partition(|name| is_mark(name.as_bytes()));
        if marks.is_empty() {
            return Ok(Vec::new());
        }
        let marks: HashSet<CString> = marks.into_iter().collect();
        let names = visible.iter().filter_map(|name| {
            name.to_str().ok().and_then(|name| name.strip_prefix(PREFIX)).map(str::to_owned)
        });
        Ok(names.filter(|name| marks.contains(&need_mark(name))).collect())
    }

    /// Sets or clears FILE_NEED_EA; see [`frevo_store::Node::set_ea_needed`].
    pub(crate) fn set_ea_needed(&self, name: &str, needed: bool) -> VfsResult<()> {
        if needed {
            let wanted = format!("{PREFIX}{name}");
            let mut there = self.visible().map_err(fault_of)?.into_iter();
            if !there.any(|stored| fold::alike(stored.as_bytes(), wanted.as_bytes())) {
                return Err(Fault::NotFound);
            }
            let mark = need_mark(name);
            if self.value_len(&mark) == Err(Errno::NODATA) {
                return self.add(&mark, b"1").map_err(fault_of);
            }
        }
        self.need(name, needed).map_err(fault_of)
    }
}

/// Returns the names that clients may see, with the prefix, from the list that `list` reads.
fn visible(list: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<CString>, Errno> {
    Ok(listed(list, is_visible)?.names)
}

/// Names from the kernel's list.
#[derive(Default)]
struct NameList {
    names: Vec<CString>,
    /// Bytes of the list, with names that were not wanted.
    bytes: usize,
}

fn listed(
    list: impl Fn(&mut [u8]) -> Result<usize, Errno>,
    wanted: impl Fn(&[u8]) -> bool,
) -> Result<NameList, Errno> {
    let split = |list: &[u8]| NameList { names: split_names(list, wanted), bytes: list.len() };
    // Most files have few attributes, so a small buffer on the stack is tried first.
    let mut small = [0; 512];
    match list(&mut small) {
        Ok(len) => Ok(split(small.get(..len).unwrap_or_default())),
        Err(Errno::RANGE) => {
            let mut large = vec![0; XATTR_LIST_BYTES];
            let len = list(&mut large)?;
            Ok(split(large.get(..len).unwrap_or_default()))
        }
        Err(Errno::OPNOTSUPP) => Ok(NameList::default()),
        Err(errno) => Err(errno),
    }
}

/// Returns the bytes of the visible attributes as FileEaInformation counts them: four, and for each
/// a header of four, the name with its NUL and the value (MS-FSA 2.1.5.12.10).
pub(crate) fn ea_size(
    list: impl Fn(&mut [u8]) -> Result<usize, Errno>,
    value_len: impl Fn(&CStr) -> Result<usize, Errno>,
) -> Result<u32, Errno> {
    let names = visible(list)?;
    let mut total = 0usize;
    for name in names {
        if let Ok(len) = value_len(&name) {
            let name_len = name.as_bytes().len().saturating_sub(PREFIX.len());
            total = total.saturating_add(name_len).saturating_add(len).saturating_add(5);
        }
    }
    let with_header = if total == 0 { 0 } else { total.saturating_add(4) };
    Ok(u32::try_from(with_header).unwrap_or(u32::MAX))
}

/// True if clients may see an attribute of this name.
fn is_visible(name: &[u8]) -> bool {
    core::str::from_utf8(name)
        .ok()
        .and_then(|name| name.strip_prefix(PREFIX))
        .is_some_and(|name| !name.is_empty() && !is_private(name))
}

/// The names of a file's attributes, as far as a listing needs them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Names {
    pub(crate) has_dosattrib: bool,
    /// True if one restricts access to the file, stores a stream, or is of the system and unknown.
    pub(crate) has_protection: bool,
}

impl Names {
    /// Reads the kernel's list of names.
    pub(crate) fn of(list: &[u8]) -> Self {
        let mut names = Self { has_dosattrib: false, has_protection: false };
        for name in list.split(|&b| b == 0).filter(|name| !name.is_empty()) {
            if name == DOSATTRIB.to_bytes() {
                names.has_dosattrib = true;
            } else if !is_harmless(name) {
                names.has_protection = true;
            }
        }
        names
    }
}

/// True if an attribute has no effect on access to its file and stores no stream.
fn is_harmless(name: &[u8]) -> bool {
    let name = core::str::from_utf8(name).unwrap_or_default();
    match name.strip_prefix(PREFIX) {
        Some("frevo.reparse") => true,
        Some(own) => !is_private(own) || own.starts_with("frevo.need_ea."),
        None => name == "security.capability" || name.starts_with("trusted."),
    }
}

/// Splits the kernel's list of names.
fn split_names(list: &[u8], wanted: impl Fn(&[u8]) -> bool) -> Vec<CString> {
    list.split(|&b| b == 0)
        .filter(|name| !name.is_empty() && wanted(name))
        .filter_map(|name| CString::new(name).ok())
        .collect()
}

/// True if a name (without prefix) belongs to servers.
fn is_private(name: &str) -> bool {
    PRIVATE.iter().any(|private| {
        let head = name.get(..private.len());
        head.is_some_and(|head| head.eq_ignore_ascii_case(private))
            && (private.ends_with('.') || name.len() == private.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_of_protection() {
        for name in ["user.mime_type", "security.capability", "trusted.x", "user.frevo.reparse"] {
            let names = Names::of(format!("user.DOSATTRIB\0{name}\0").as_bytes());
            assert!(names.has_dosattrib && !names.has_protection, "{name}");
        }
        for name in [
            "user.NTACL",
            "security.NTACL",
            "security.selinux",
            "system.posix_acl_access",
            "system.posix_acl_default",
            "user.DosStream.x:$DATA",
            "user.frevo.streams",
            "user.dosattrib",
            "x",
        ] {
            let names = Names::of(format!("user.a\0{name}\0").as_bytes());
            assert!(names.has_protection && !names.has_dosattrib, "{name}");
        }
        let none = Names::of(b"");
        assert!(!none.has_dosattrib && !none.has_protection);
    }

    #[test]
    fn private_names_are_hidden_in_any_case() {
        for name in
            ["DOSATTRIB", "dosattrib", "DosStream.x:$DATA", "DOSSTREAM.", "ntacl", "Frevo.x"]
        {
            assert!(is_private(name), "{name}");
        }
        for name in ["DOSATTRIB2", "DosStreamX", "frev", "é", "mime_type"] {
            assert!(!is_private(name), "{name}");
        }
        let list = b"user.a\0user.DosAttrib\0security.x\0user.\0user.B\0system.posix_acl_access\0";
        let names = split_names(list, is_visible);
        assert_eq!(names, [c"user.a".to_owned(), c"user.B".to_owned()]);
    }
}
