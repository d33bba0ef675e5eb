//! Random reads get only the requested bytes, without the rest of the page. A page that is read
//! again is fetched whole.

use std::sync::Arc;

use bytes::Bytes;
use frevo_client::File;
use frevo_client::internal::Grant;

use super::super::pages::Missing;
use super::{FileCache, PAGE};
use crate::errno::{Outcome, errno};
use crate::limits::PARTLY_READ_PAGES;

/// Pages that were recently read in part: a table of page number plus 1, indexed by page number.
#[derive(Debug, Default)]
pub(super) struct RecentPages(Vec<u64>);

impl RecentPages {
    /// Records `page`; returns true if it was remembered.
    fn again(&mut self, page: u64) -> bool {
        if self.0.is_empty() {
            self.0.resize(PARTLY_READ_PAGES, 0);
        }
        // `page + 1` cannot overflow, because a page number is far below u64::MAX.
        let (place, mark) = (page as usize % PARTLY_READ_PAGES, page + 1);
        self.0.get_mut(place).is_some_and(|known| std::mem::replace(known, mark) == mark)
    }
}

impl FileCache {
    /// Returns true for a random read, which gets these bytes alone.
    pub(super) fn is_jump(&self, len: usize, missing: Missing) -> bool {
        (len as u64) < PAGE
            && !self.fetching.lock().contains(&missing.first)
            && !self.asked.lock().again(missing.first)
    }

    /// Reads the requested bytes without caching them. None if the file changes meanwhile: the
    /// caller tries again.
    pub(super) async fn read_that(
        self: &Arc<Self>,
        file: &File,
        grant: Grant,
        offset: u64,
        len: usize,
    ) -> Outcome<Option<Bytes>> {
        let (changes, end, is_unsent) = {
            let pages = self.pages.lock();
            if !pages.is_of(grant.version) {
                return Ok(None);
            }
            (pages.changes(), pages.len(), pages.is_unsent(offset, len as u64))
        };
        if is_unsent {
            // Unsent data of a local write is newer than the server's bytes, so it is sent first.
            self.send_unasked().await;
            return Ok(None);
        }
        let wanted = end.saturating_sub(offset).min(len as u64);
        let Ok(wanted) = u32::try_from(wanted) else { return Ok(None) };
        let found = file.read_bytes(offset, wanted).await.map_err(|error| errno(&error))?;
        if found.len() == wanted as usize {
            return Ok(Some(found));
        }
        // A short answer means the end of the file, or a server with short reads. If the file still
        // has this length, the bytes between its end and later unsent data are zeros.
        let (is_same, stored) = {
            let pages = self.pages.lock();
            (pages.is_of(grant.version) && pages.changes() == changes, pages.stored())
        };
        let is_end = offset + found.len() as u64 >= stored;
        if !(is_same && is_end && self.is_still(grant)) {
            return Ok(None);
        }
        let mut padded = Vec::with_capacity(wanted as usize);
        padded.extend_from_slice(&found);
        padded.resize(wanted as usize, 0);
        Ok(Some(padded.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_back_is_known_and_what_is_remembered_is_bounded() {
        let mut asked = RecentPages::default();
        assert!(!asked.again(0) && asked.again(0));
        assert!(!asked.again(7) && asked.again(7) && asked.again(0));
        let far = PARTLY_READ_PAGES as u64 * 5;
        assert!(!asked.again(far), "it has the place of page 0");
        assert!(!asked.again(0));
        for page in 0..10 * PARTLY_READ_PAGES as u64 {
            asked.again(page);
        }
        assert_eq!(asked.0.len(), PARTLY_READ_PAGES);
    }
}
