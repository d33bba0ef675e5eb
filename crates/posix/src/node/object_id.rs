//! Object ids, in an extended attribute of the file: copying a file with its attributes copies its
//! id too.

use std::ffi::CStr;

use frevo_store::Fault;
use frevo_store::vfs::{ObjectId, ObjectIdChange, VfsResult};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::errno::fault_of;
use crate::node::PosixNode;

/// The attribute that holds FILE_OBJECTID_BUFFER.
const ATTRIBUTE: &CStr = c"user.frevo.object_id";

impl PosixNode {
    /// Returns the stored id. A value of another length was not written by this program, and counts
    /// as none.
    pub(crate) fn kept_object_id(&self) -> VfsResult<Option<ObjectId>> {
        if !self.has_xattrs() {
            return Err(Fault::NotSupported);
        }
        let mut value = [0; size_of::<ObjectId>()];
        match self.handle().value(ATTRIBUTE, &mut value) {
            Ok(len) if len == value.len() => Ok(Some(value)),
            Ok(_) | Err(Errno::NODATA | Errno::RANGE) => Ok(None),
            Err(errno) => Err(fault_of(errno)),
        }
    }

    pub(crate) fn change_kept_object_id(&self, change: &ObjectIdChange) -> VfsResult<()> {
        let old = self.kept_object_id()?;
        let handle = self.handle();
        match (*change, old) {
            (ObjectIdChange::New(_), Some(_)) => Err(Fault::Exists),
            (ObjectIdChange::New(id), None) => {
                // With XATTR_CREATE only one of two concurrent calls sets an id. An attribute that
                // exists but is no id is replaced.
                match handle.set_if(ATTRIBUTE, &id, XattrFlags::CREATE) {
                    Err(Errno::EXIST) if self.kept_object_id()?.is_none() => {
                        handle.set(ATTRIBUTE, &id).map_err(fault_of)
                    }
                    made => made.map_err(fault_of),
                }
            }
            (ObjectIdChange::Extended(_), None) => Err(Fault::NotFound),
            (ObjectIdChange::Extended(extended), Some(mut id)) => {
                if let Some(old) = id.last_chunk_mut() {
                    *old = extended;
                }
                match handle.set_if(ATTRIBUTE, &id, XattrFlags::REPLACE) {
                    Err(Errno::NODATA) => Err(Fault::NotFound),
                    set => set.map_err(fault_of),
                }
            }
            (ObjectIdChange::Forget, _) => match handle.remove(ATTRIBUTE) {
                Ok(()) | Err(Errno::NODATA) => Ok(()),
                Err(errno) => Err(fault_of(errno)),
            },
        }
    }
}
