//! Changes of files that also return the metadata after them, in one round trip.

use std::sync::Arc;

use frevo_wire::codec::Writer;
use frevo_wire::command::create::{CreateDisposition, CreateOptions};
use frevo_wire::command::oplock_break::LeaseState;
use frevo_wire::command::query_info::InfoType;
use frevo_wire::dtyp::{AccessMask, SecurityInformation};
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::fscc::set::FileRenameInformation;

use crate::Status;
use crate::error::{Cause, During, Result};
use crate::metadata::Metadata;
use crate::open::create::Ask;
use crate::open::info::set_call;
use crate::path::posix_path;
use crate::session::lease::Lease;
use crate::share::compound::{RELATED, close_call, look_at};
use crate::share::lookup::{looks, seen};
use crate::share::posix::descriptor;
use crate::share::set_attributes::SetMetadata;
use crate::share::{Replay, Share};

/// Changes of a file; those that are `None` change nothing. Mode and owners need the POSIX
/// extensions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Change {
    /// Times and DOS attributes.
    pub basic: Option<SetMetadata>,
    /// The permission bits.
    pub mode: Option<u32>,
    /// The owner's number.
    pub uid: Option<u32>,
    /// The group's number.
    pub gid: Option<u32>,
}

impl Change {
    /// Returns true if nothing is to be changed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The parts of the security descriptor that are set.
    fn parts(&self) -> SecurityInformation {
        let mut parts = SecurityInformation::EMPTY;
        for (is_set, part) in [
            (self.mode.is_some(), SecurityInformation::DACL),
            (self.uid.is_some(), SecurityInformation::OWNER),
            (self.gid.is_some(), SecurityInformation::GROUP),
        ] {
            if is_set {
                parts |= part;
            }
        }
        parts
    }

    /// The rights that the change needs.
    fn access(&self) -> AccessMask {
        let mut access = AccessMask::EMPTY;
        if self.basic.is_some() {
            access |= AccessMask::WRITE_ATTRIBUTES;
        }
        if self.mode.is_some() {
            access |= AccessMask::WRITE_DAC;
        }
        if self.uid.is_some() || self.gid.is_some() {
            access |= AccessMask::WRITE_OWNER;
        }
        if self.parts().is_empty() { access } else { access | AccessMask::READ_CONTROL }
    }
}

impl Share {
    /// Changes `path` and returns its metadata afterwards. A symbolic link is not followed. The change
    /// does not break `lease`, by which this client caches the file.
    ///
    /// # Errors
    /// Fails if `path` does not exist, or the server refuses; with [`Status::INVALID_PARAMETER`] if
    /// `lease` belongs to another file (MS-SMB2 3.3.5.9.8).
    #[doc(hidden)]
    pub async fn change(
        &self,
        path: &str,
        change: &Change,
        lease: Option<&Arc<Lease>>,
    ) -> Result<Metadata> {
        let parts = change.parts();
        let operation =
            if parts.is_empty() { "set the attributes of" } else { "set the access list of" };
        let url = self.url(path);
        let mut security = Vec::new();
        let encoded = descriptor(change.mode, change.uid, change.gid).encode(&mut security);
        encoded.map_err(|_| Cause::Usage("the owner is not valid")).during(operation, &url)?;
        let basic = change.basic.map(|basic| basic.encode());
        let posix = self.is_posix();
        let calls = || {
            let mut all = Vec::new();
            if !parts.is_empty() {
                all.push(set_call(InfoType::SECURITY, 0, parts.0, RELATED, &security));
            }
            if let Some(basic) = &basic {
                all.push(set_call(InfoType::FILE, FileInfoClass::BASIC.0, 0, RELATED, basic));
            }
            all.extend(looks(posix));
            all.push(close_call());
            all
        };
        let also = [Status::BUFFER_OVERFLOW];
        let mut ask = look_at(change.access());
        // MS-FSA 2.1.5.1.2: a CREATE for attributes only does not break a lease, so it need not
        // join the lease of the file.
        let lease = lease.filter(|lease| !parts.is_empty() && !lease.wire_state().is_empty());
        if let Some(lease) = lease {
            // The CREATE joins the lease and requests only READ; the server keeps the lease state
            // as it is (MS-SMB2 3.3.5.9.11).
            (ask.shared, ask.lease) = (Some(Arc::clone(lease)), LeaseState::READ);
        }
        let answers = self.chain(operation, path, Replay::Settled, &ask, &also, calls).await?;
        let sets = 1 + usize::from(!parts.is_empty()) + usize::from(basic.is_some());
        let looked = answers.messages.get(sets..).unwrap_or_default();
        let found = answers.found(seen(looked, posix).during(operation, &url)?);
        // The change is made, so a lost answer about the tag is no failure.
        Ok(self.with_tag("look up", path, found).await.unwrap_or(found))
    }

    /// Creates a directory, as [`Self::create_dir`] with permission bits for a share with the POSIX
    /// extensions, and returns its metadata; `None` if the answer was lost after the directory was
    /// made, or does not have the directory's number.
    ///
    /// # Errors
    /// Fails as [`Self::create_dir`] does.
    #[doc(hidden)]
    pub async fn make_dir(&self, path: &str, mode: u32) -> Result<Option<Metadata>> {
        const OPERATION: &str = "make directory";
        let mut ask = Ask::existing(AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE);
        ask.disposition = CreateDisposition::CREATE;
        ask.options |= CreateOptions::DIRECTORY_FILE;
        (ask.mode, ask.identity) = (mode, true);
        let calls = || vec![close_call()];
        let answers = self.chain(OPERATION, path, Replay::Once, &ask, &[], calls).await?;
        if answers.messages.is_empty() {
            return Ok(None);
        }
        let opened = answers.opened(OPERATION, &self.url(path))?;
        let made = answers.found(Metadata::from(&opened));
        Ok(Some(made).filter(|made| made.file_id() != 0))
    }

    /// Makes `link` a further name of the file `original`, as [`Self::hard_link`], and returns the
    /// metadata of both; `None` if the answer was lost after the link was made.
    ///
    /// # Errors
    /// Fails as [`Self::hard_link`] does.
    #[doc(hidden)]
    pub async fn make_link(&self, original: &str, link: &str) -> Result<Option<Metadata>> {
        const OPERATION: &str = "link";
        let (share, from, target) = self.together(OPERATION, original, link).await?;
        let target = if share.is_posix() { posix_path(&target) } else { target };
        let mut data = Vec::new();
        FileRenameInformation { replace_if_exists: false, root_directory: 0, name: &*target }
            .encode(&mut Writer::new(&mut data));
        let access = AccessMask::WRITE_ATTRIBUTES;
        let ask = Ask { is_of_name: true, ..look_at(access) };
        let posix = share.is_posix();
        let calls = || {
            let mut all = vec![set_call(InfoType::FILE, FileInfoClass::LINK.0, 0, RELATED, &data)];
            all.extend(looks(posix));
            all.push(close_call());
            all
        };
        let answers = share.chain(OPERATION, &from, Replay::Once, &ask, &[], calls).await?;
        let Some(looked) = answers.messages.get(2..).filter(|looked| !looked.is_empty()) else {
            return Ok(None);
        };
        let found = answers.found(seen(looked, posix).during(OPERATION, &self.url(original))?);
        // The link is made, so a lost answer about the tag of its original is no failure.
        Ok(self.with_tag("look up", original, found).await.ok())
    }
}
