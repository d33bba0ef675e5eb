//! The SMB 3.1.1 POSIX extensions: modes, owners, exact names.
//!
//! They are not Microsoft's; Samba, the Linux kernel and ksmbd agree on them. NEGOTIATE
//! offers them (context 0x0100), a CREATE with their context makes a POSIX Open, and
//! level 100 of QUERY_INFO and QUERY_DIRECTORY tells what `stat` does. Owners and modes
//! are set as SIDs that stand for numbers.

use std::sync::atomic::Ordering;

use frevo_wire::codec::{Parsed, Writer};
use frevo_wire::command::create::CreateOptions;
use frevo_wire::command::query_info::InfoType;
use frevo_wire::create_context::PosixResponse;
use frevo_wire::dtyp::{
    AccessMask, Ace, AceFlags, Acl, SdControl, SecurityDescriptor, SecurityInformation, Sid,
};
use frevo_wire::file_id::FileId;
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::fscc::posix::PosixAttributes;
use frevo_wire::fscc::reparse::NfsSpecial;

use crate::create::Opened;
use crate::error::{Cause, During, Result};
use crate::file::{output, query};
use crate::lookup::{close_call, look_at, missing};
use crate::metadata::Metadata;
use crate::session::Live;
use crate::share::{Replay, Share};

/// Room for what `stat` says: the fixed part and two SIDs.
const ROOM: u32 = 512;
/// Where the file type stands in a mode.
const TYPE_SHIFT: u32 = 12;

/// What a file is to POSIX.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A file or a directory: its attributes tell which.
    Plain,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
}

/// Mode and owners of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Posix {
    /// What it is.
    pub kind: Kind,
    /// Permission bits, with those above the nine.
    pub mode: u16,
    /// Who owns it, if the server told a number.
    pub uid: Option<u32>,
    /// Whose group it is.
    pub gid: Option<u32>,
}

impl Posix {
    pub(crate) fn of(found: &PosixAttributes) -> Self {
        Self::new(found.mode, &found.owner, &found.group)
    }

    /// What the answer to the create context says.
    pub(crate) fn of_answer(answer: &PosixResponse<'_>) -> std::result::Result<Self, Cause> {
        let owner = Sid::parse(answer.owner_sid)?;
        let group = Sid::parse(answer.group_sid)?;
        Ok(Self::new(answer.mode, &owner, &group))
    }

    fn new(mode: u32, owner: &Sid, group: &Sid) -> Self {
        // The extensions' own numbers; a directory's, 1, is left to the attributes.
        let kind = match mode >> TYPE_SHIFT {
            2 => Kind::Symlink,
            3 => Kind::CharDevice,
            4 => Kind::BlockDevice,
            5 => Kind::Fifo,
            6 => Kind::Socket,
            _ => Kind::Plain,
        };
        let mode = u16::try_from(mode & 0o7777).unwrap_or(0);
        Self { kind, mode, uid: number(owner, 1), gid: number(group, 2) }
    }
}

/// The number in S-1-22-kind-number or S-1-5-88-kind-number.
fn number(sid: &Sid, kind: u32) -> Option<u32> {
    match (sid.authority(), sid.sub_authorities()) {
        (22, [found, number]) | (5, [88, found, number]) if *found == kind => Some(*number),
        _ => None,
    }
}

/// Level 100.
pub(crate) fn read_posix(bytes: &[u8]) -> Parsed<Metadata> {
    let found = PosixAttributes::parse(bytes)?;
    Ok(Metadata {
        len: found.end_of_file,
        allocation: found.allocation_size,
        attributes: found.attributes,
        created: found.creation_time,
        accessed: found.last_access_time,
        written: found.last_write_time,
        changed: found.change_time,
        reparse_tag: found.reparse_tag,
        file_id: found.inode,
        links: found.links,
        posix: Some(Posix::of(&found)),
        is_junction: false,
        special: None,
    })
}

impl Share {
    /// Finds out whether the share has the extensions, if [`crate::Options::posix`]
    /// offered them. From then on all that is opened in it are POSIX Opens: case counts
    /// in names, and nothing but separators is reserved. Not in a DFS namespace, of whose
    /// servers some may not have them.
    ///
    /// # Errors
    /// What the server says.
    pub async fn speak_posix(&self) -> Result<bool> {
        const OPERATION: &str = "look up";
        if self.is_dfs() {
            return Ok(false);
        }
        self.inner.posix.store(true, Ordering::Release);
        let mut asking = Asking { share: self, is_posix: false };
        let ask = look_at(AccessMask::EMPTY);
        let calls = || vec![close_call()];
        let answers = self.chain(OPERATION, "", Replay::Idempotent, &ask, &[], calls).await;
        let found = answers.and_then(|answers| match &*answers.messages {
            [opened, ..] => Opened::parse(opened).during(OPERATION, &self.url("")),
            [] => Err(missing(OPERATION, self.url(""))),
        });
        asking.is_posix = matches!(&found, Ok(opened) if opened.posix.is_some());
        found.map(|_| asking.is_posix)
    }

    /// Whether what is opened in it are POSIX Opens.
    pub fn is_posix(&self) -> bool {
        self.inner.posix.load(Ordering::Acquire)
    }

    /// The same in a session, which must have them too.
    pub(crate) fn is_posix_in(&self, live: &Live) -> bool {
        live.posix && self.is_posix()
    }

    /// [`Self::lookup`], with modes and owners.
    pub(crate) async fn lookup_posix(&self, path: &str) -> Result<Metadata> {
        const OPERATION: &str = "look up";
        let related = FileId::ALL_ONES;
        let class = FileInfoClass::POSIX.0;
        let calls = || vec![query(InfoType::FILE, class, 0, related, &[], ROOM), close_call()];
        let ask = look_at(AccessMask::EMPTY);
        let answers = self.chain(OPERATION, path, Replay::Idempotent, &ask, &[], calls).await?;
        let url = self.url(path);
        let [_, found, ..] = &*answers.messages else { return Err(missing(OPERATION, url)) };
        let read = output(found).and_then(|bytes| Ok(read_posix(bytes)?));
        Ok(answers.of_there(read.during(OPERATION, &url)?))
    }

    /// Sets permission bits, owner and group of `path`, those that are given. A symbolic
    /// link is not followed.
    ///
    /// # Errors
    /// What the server says.
    pub async fn set_posix(
        &self,
        path: &str,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<()> {
        let mut which = SecurityInformation::EMPTY;
        for (is_set, part) in [
            (mode.is_some(), SecurityInformation::DACL),
            (uid.is_some(), SecurityInformation::OWNER),
            (gid.is_some(), SecurityInformation::GROUP),
        ] {
            if is_set {
                which |= part;
            }
        }
        if which.is_empty() {
            return Ok(());
        }
        self.set_security(path, &descriptor(mode, uid, gid), which).await
    }

    /// Makes a FIFO, a socket or a device at `path`.
    ///
    /// # Errors
    /// What the server says; then nothing is left behind.
    pub async fn make_special(
        &self,
        path: &str,
        special: &NfsSpecial<&str>,
        mode: u32,
    ) -> Result<()> {
        const OPERATION: &str = "make the special file";
        let mut input = Vec::new();
        let encoded = special.encode(&mut Writer::new(&mut input)).map(|()| input);
        let kind = CreateOptions::NON_DIRECTORY_FILE;
        self.make_reparse_point(path, kind, mode, encoded, OPERATION).await
    }
}

/// It is being found out, or was given up, which is no yes.
struct Asking<'a> {
    share: &'a Share,
    is_posix: bool,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.share.inner.posix.store(self.is_posix, Ordering::Release);
    }
}

/// Numbers as SIDs: the form that Windows' NFS server has for them, of which the mode
/// stands in an entry that allows nothing.
fn descriptor(mode: Option<u32>, uid: Option<u32>, gid: Option<u32>) -> SecurityDescriptor {
    let nfs = |kind: u32, number: u32| Sid::new(5, &[88, kind, number]);
    let dacl = mode.and_then(|mode| {
        let ace = Ace::deny(AceFlags::EMPTY, AccessMask::EMPTY, nfs(3, mode & 0o7777)?);
        Some(Acl::new(vec![ace]))
    });
    let mut control = SdControl::SELF_RELATIVE;
    if dacl.is_some() {
        control |= SdControl::DACL_PRESENT;
    }
    SecurityDescriptor {
        control,
        rm_control: 0,
        owner: uid.and_then(|uid| nfs(1, uid)),
        group: gid.and_then(|gid| nfs(2, gid)),
        sacl: None,
        dacl,
    }
}
