//! Named streams, MS-FSA 2.1.1.4 Stream, on a file system without them.
//!
//! A stream is an extended attribute of its file in the layout of Samba's `streams_xattr`:
//! `user.DosStream.NAME:$DATA`, whose value is the data and a NUL. A stream that does not fit moves
//! to the [side folder](side). All Opens of one stream share its [`Body`], so that each knows its
//! present storage and name.

pub(crate) mod body;
pub(crate) mod layout;
pub(crate) mod side;
pub(crate) mod table;

use std::sync::Arc;

use frevo_store::Fault;
use frevo_store::vfs::{StreamStat, VfsResult};
use frevo_wire::fscc::{eq_ignore_case, upcase_name};
use hashbrown::HashSet;
use rustix::io::Errno;

use crate::errno::fault_of;
use crate::limits::STREAMS_SHOWN;
use crate::options::Streams;
use crate::patience;
use crate::share::Share;
use crate::sys;
use crate::xattr::Handle;
use body::Where;
use layout::{Extent, attribute, attributes, stream_key};

pub(crate) use table::Table;
use table::alive;

/// Gives up a call on a core that would look at so many streams: each takes several system calls.
fn few_for_a_core(streams: usize) -> VfsResult<()> {
    if patience::gives_up(streams) { Err(fault_of(Errno::AGAIN)) } else { Ok(()) }
}

/// A stream on the medium.
pub(crate) struct StoredStream {
    pub(crate) name: String,
    pub(crate) at: Where,
}

impl Share {
    /// Looks a stream up. Data in the side folder is newer than an attribute of that name: both
    /// exist between making the one and removing the other.
    pub(crate) fn find_stream(
        &self,
        file: &Handle,
        wanted: &str,
    ) -> VfsResult<Option<StoredStream>> {
        if let Some(name) = self.side_streams(file)?.into_iter().find(|n| eq_ignore_case(n, wanted))
        {
            let at = Where::Side(Arc::new(self.open_side(file, &name)?));
            return Ok(Some(StoredStream { name, at }));
        }
        let name = attributes(file)?.into_iter().find(|n| eq_ignore_case(n, wanted));
        Ok(name.map(|name| StoredStream { name, at: Where::Attribute }))
    }

    pub(crate) fn list_streams(&self, file: &Handle) -> VfsResult<Vec<StreamStat>> {
        if !self.volume.streams {
            return Ok(Vec::new());
        }
        let (beside, inside) = (self.side_streams(file)?, attributes(file)?);
        few_for_a_core(beside.len().saturating_add(inside.len()))?;
        let mut names: HashSet<_> = beside.iter().map(|name| upcase_name(name)).collect();
        let mut found = Vec::new();
        for name in beside {
            let Extent { size, allocation } = self.side_extent(file, &name)?;
            found.push(StreamStat { name, size, allocation });
        }
        for name in inside {
            if !names.insert(upcase_name(&name)) {
                continue;
            }
            let Some(attribute) = attribute(&name) else { continue };
            match file.value_len(&attribute) {
                Ok(len) => {
                    let Extent { size, allocation } =
                        Extent::of_attribute((len as u64).saturating_sub(1));
                    found.push(StreamStat { name, size, allocation });
                }
                // The attribute was removed after the names were listed, so the stream is left out.
                Err(Errno::NODATA) => {}
                Err(errno) => return Err(fault_of(errno)),
            }
        }
        found.sort_by_cached_key(|s| upcase_name(&s.name));
        found.truncate(STREAMS_SHOWN);
        Ok(found)
    }

    pub(crate) fn clear_streams(&self, file: &Handle) -> VfsResult<()> {
        if !self.volume.streams {
            return Ok(());
        }
        let stx = sys::stat_fd(file.fd()).map_err(fault_of)?;
        let key = self.marked(crate::stat::key_of(&stx));
        let (beside, inside) = (self.side_streams(file)?, attributes(file)?);
        few_for_a_core(beside.len().saturating_add(inside.len()))?;
        if !beside.is_empty() && patience::is_short() {
            // Their blocks are freed here.
            return Err(fault_of(patience::give_up()));
        }
        for name in inside.into_iter().chain(beside) {
            // Its blocks are freed without the lock, for which cores wait.
            let kept = self.open_side(file, &name);
            let mut open = self.streams.lock_soon()?;
            let stream = stream_key(key, &name);
            let body = alive(&open, stream);
            let mut state = body.as_ref().map(|body| body.lock_soon()).transpose()?;
            self.erase(file, &name)?;
            let ended = state.as_mut().map(|state| state.end());
            drop(state);
            open.remove(&stream);
            drop(open);
            drop((kept, ended));
        }
        self.forget_side(self.side_of(file));
        Ok(())
    }

    /// Removes a stream from its storage.
    pub(crate) fn erase(&self, file: &Handle, name: &str) -> VfsResult<()> {
        self.remove_side(file, name)?;
        let Some(attribute) = attribute(name) else { return Ok(()) };
        match file.remove(&attribute) {
            Ok(()) | Err(Errno::NODATA) => Ok(()),
            Err(errno) => Err(fault_of(errno)),
        }
    }

    /// Makes an empty stream.
    pub(crate) fn make_stream(&self, file: &Handle, name: &str) -> VfsResult<Where> {
        let attribute = attribute(name).filter(|_| self.options.streams == Streams::Xattr);
        let Some(attribute) = attribute else {
            return Ok(Where::Side(Arc::new(self.make_side(file, name)?)));
        };
        match file.add(&attribute, &[0]) {
            Ok(()) => Ok(Where::Attribute),
            Err(errno) if body::is_full(errno) => {
                Ok(Where::Side(Arc::new(self.make_side(file, name)?)))
            }
            Err(errno) => Err(fault_of(errno)),
        }
    }

    /// Renames a stream's data on the medium, in place of the stream `target`. That one stays until it is known
    /// that there is room for the data under the new name.
    pub(crate) fn move_stream(
        &self,
        file: &Handle,
        state: &mut body::State,
        new: &str,
        target: Option<&StoredStream>,
    ) -> VfsResult<()> {
        let old = attribute(&state.name);
        match (&state.at, attribute(new), old) {
            (Where::Gone, ..) => Err(Fault::Stale),
            (Where::Side(_), ..) => {
                if let Some(target) = target {
                    self.erase(file, &target.name)?;
                }
                self.rename_side(file, &state.name, new)
            }
            (Where::Attribute, Some(attribute), Some(old)) => {
                let mut value = file.whole_value(&old).map_err(fault_of)?;
                let at = match file.add(&attribute, &value) {
                    Ok(()) => Where::Attribute,
                    Err(errno) if body::is_full(errno) => {
                        value.pop();
                        Where::Side(Arc::new(self.move_to_side(file, new, &value)?))
                    }
                    Err(errno) => return Err(fault_of(errno)),
                };
                match target {
                    Some(target) if target.name != new => self.erase(file, &target.name)?,
                    Some(_) if matches!(at, Where::Attribute) => self.remove_side(file, new)?,
                    _ => {}
                }
                file.remove(&old).map_err(fault_of)?;
                state.at = at;
                Ok(())
            }
            (Where::Attribute, ..) => Err(Fault::NameTooLong),
        }
    }
}
