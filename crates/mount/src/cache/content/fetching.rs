//! Pages are fetched once for all who need them, and ahead of who reads on.

use std::sync::Arc;

use frevo_client::{File, Grant};

use super::super::pages::{Missing, Pages};
use super::{Content, PAGE};
use crate::errno::{Outcome, errno};
use crate::limits::{AHEAD_BYTES, FETCH_PAGES, PAGE_BYTES};

impl Content {
    /// Fetches pages, or waits for who does.
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

    /// Fetches pages that are marked as being fetched.
    async fn fetch_marked(
        self: &Arc<Self>,
        file: &File,
        grant: Grant,
        first: u64,
        count: u64,
    ) -> Outcome<()> {
        let _marks = Marks { content: self, first, count };
        // Somebody may have written since these pages were found missing: what is not
        // on the server yet must be sent first, by who needs them.
        let Some(changes) = self.pages.lock().before_fetch(first, count) else { return Ok(()) };
        let mut bytes = vec![0; count as usize * PAGE_BYTES];
        let read = file.read_at(first * PAGE, &mut bytes).await.map_err(|error| errno(&error))?;
        let there = bytes.get(..read).unwrap_or_default();
        if self.is_still(grant) {
            let fetched =
                |pages: &mut Pages| pages.fetched(grant.version, changes, first, there, count);
            let new = self.with(fetched);
            self.keeper.came(self, &new.unwrap_or_default());
        }
        Ok(())
    }

    /// Begins to fetch what lies behind `end`, to where was read from `offset`, `ahead` bytes
    /// of it.
    pub(super) fn read_ahead(
        self: &Arc<Self>,
        file: &File,
        grant: Grant,
        (offset, end): (u64, u64),
        ahead: u64,
    ) {
        // What is as far ahead as can be was looked through when this page was come to.
        let is_done = ahead >= AHEAD_BYTES && offset / PAGE == end / PAGE;
        if ahead == 0 || is_done {
            return;
        }
        let first = end.div_ceil(PAGE);
        let count = ahead.min(AHEAD_BYTES) / PAGE;
        let unknown = self.pages.lock().unknown(first, count);
        // One request for each run; a run begins where a whole request fits, so that
        // the window does not move by single pages.
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
            // It is this one's pages that are marked, whatever the node keeps by then.
            let (content, file) = (Arc::clone(self), file.clone());
            tokio::spawn(async move {
                if let Err(error) = content.fetch_marked(&file, grant, at, len).await {
                    tracing::debug!(?error, "nothing read ahead");
                }
            });
        }
    }
}

/// Pages that are being fetched; afterwards they are not, whatever came of it.
struct Marks<'a> {
    content: &'a Content,
    first: u64,
    count: u64,
}

impl Drop for Marks<'_> {
    fn drop(&mut self) {
        let mut fetching = self.content.fetching.lock();
        (self.first..self.first + self.count).for_each(|page| _ = fetching.remove(&page));
        drop(fetching);
        self.content.fetched.notify_waiters();
    }
}
