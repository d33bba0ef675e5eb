//! Fetching of pages: once for all readers, and ahead of sequential ones.

use std::ops::Range;
use std::sync::Arc;

use frevo_client::File;
use frevo_client::internal::Grant;

use super::super::pages::{Missing, Pages};
use super::{FileCache, PAGE};
use crate::errno::{Outcome, errno};
use crate::limits::{FETCH_PAGES, PAGE_BYTES, READ_AHEAD_BYTES};

impl FileCache {
    /// Fetches pages, or waits for a fetch in progress.
    pub(super) async fn fetch(
        self: &Arc<Self>,
        file: &File,
        grant: Grant,
        missing: Missing,
    ) -> Outcome<()> {
        let Missing { first, count } = missing;
        let count = count.min(FETCH_PAGES);
        if self.pages.lock().is_unsent(first * PAGE, count * PAGE) {
            self.send_unasked().await;
            return Ok(());
        }
        let ended = self.fetched.notified();
        tokio::pin!(ended);
        ended.as_mut().enable();
        let mine = {
            let mut fetching = self.fetching.lock();
            if fetching.contains(&first) {
                0
            } else {
                let free = (first..first + count).take_while(|page| !fetching.contains(page));
                let free: Vec<u64> = free.collect();
                fetching.extend(&free);
                free.len() as u64
            }
        };
        if mine == 0 {
            ended.await;
            return Ok(());
        }
        self.fetch_marked(file, grant, first, mine).await
    }

    /// Fetches pages that are marked in `fetching`.
    async fn fetch_marked(
        self: &Arc<Self>,
        file: &File,
        grant: Grant,
        first: u64,
        count: u64,
    ) -> Outcome<()> {
        let _marks = FetchGuard { content: self, first, count };
        // `before_fetch` returns None if a write has come meanwhile. Its data must be sent first,
        // by the reader that needs these pages.
        let Some(changes) = self.pages.lock().before_fetch(first, count) else { return Ok(()) };
        let mut bytes = vec![0; count as usize * PAGE_BYTES];
        let read = file.read_at(&mut bytes, first * PAGE).await.map_err(|error| errno(&error))?;
        let there = bytes.get(..read).unwrap_or_default();
        if self.is_still(grant) {
            let fetched =
                |pages: &mut Pages| pages.fetched(grant.version, changes, first, there, count);
            let new = self.with(fetched);
            self.budget.came(self, &new.unwrap_or_default());
        }
        Ok(())
    }

    /// Starts to fetch `ahead` bytes after those of the current read.
    pub(super) fn read_ahead(
        self: &Arc<Self>,
        file: &File,
        grant: Grant,
        read: Range<u64>,
        ahead: u64,
    ) {
        let Range { start: offset, end } = read;
        // A read-ahead with the largest window starts when a read enters a page, so further reads
        // of the same page need none.
        let is_done = ahead >= READ_AHEAD_BYTES && offset / PAGE == end / PAGE;
        if ahead == 0 || is_done {
            return;
        }
        let first = end.div_ceil(PAGE);
        let count = ahead.min(READ_AHEAD_BYTES) / PAGE;
        let unknown = self.pages.lock().unknown(first, count);
        // Each run of unknown pages becomes one request. A run begins only where a whole request
        // fits, so that the window moves in large steps.
        let mut runs: Vec<(u64, u64)> = Vec::new();
        {
            let mut fetching = self.fetching.lock();
            for page in
                unknown.into_iter().filter(|page| !fetching.contains(page)).collect::<Vec<_>>()
            {
                match runs.last_mut() {
                    Some((at, len)) if *at + *len == page && *len < FETCH_PAGES => *len += 1,
                    _ => runs.push((page, 1)),
                }
            }
            let behind = first + count;
            runs.retain(|(at, len)| *len == FETCH_PAGES || at + len < behind || *at == first);
            for (at, len) in &runs {
                fetching.extend(*at..*at + *len);
            }
        }
        for (at, len) in runs {
            // The task holds this cache and marks in it what it has fetched. The node may get
            // another cache meanwhile, and these bytes may not belong to the content of that cache.
            let (content, file) = (Arc::clone(self), file.clone());
            tokio::spawn(async move {
                if let Err(error) = content.fetch_marked(&file, grant, at, len).await {
                    tracing::debug!(?error, "read-ahead failed");
                }
            });
        }
    }
}

/// Marks pages as being fetched; its drop removes the marks.
struct FetchGuard<'a> {
    content: &'a FileCache,
    first: u64,
    count: u64,
}

impl Drop for FetchGuard<'_> {
    fn drop(&mut self) {
        let mut fetching = self.content.fetching.lock();
        (self.first..self.first + self.count).for_each(|page| _ = fetching.remove(&page));
        drop(fetching);
        self.content.fetched.notify_waiters();
    }
}
