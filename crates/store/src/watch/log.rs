//! The log of one watched directory, with the read positions of its watches.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use core::sync::atomic::Ordering;
use core::task::Waker;

use frevo_wire::command::change_notify::CompletionFilter;
use frevo_wire::fscc::notify::NotifyAction;
use hashbrown::HashMap;
use smallvec::SmallVec;

use super::{Bytes, Change, Filters, Payer, Reported, Wakers, Wanted};
use crate::limits::{
    CHANGE_BYTES_PER_WATCH, CHANGES_PER_WATCH, REPORT_BYTES_PER_DIRECTORY, REPORTS_PER_DIRECTORY,
    WAKES_AT_ONCE,
};
use crate::open_id::OpenId;
use crate::surplus::return_surplus;

/// The kinds of watches that a report is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Audience(u8);

impl Audience {
    /// Watches of the directory only.
    pub(super) const FLAT: Self = Self(1);
    /// Watches of the whole tree.
    pub(super) const TREE: Self = Self(2);
    /// Watches of both kinds.
    pub(super) const ALL: Self = Self(3);

    const fn has(self, is_tree: bool) -> bool {
        self.0 & (if is_tree { Self::TREE.0 } else { Self::FLAT.0 }) != 0
    }
}

/// Changes that are reported together: one change, or the two names of a rename.
#[derive(Debug)]
pub(super) struct Report {
    /// The report's number in the log.
    number: u64,
    audience: Audience,
    pub(super) filters: Filters,
    /// The changes; None for lost changes.
    changes: SmallVec<[Change; 1]>,
    /// True if a request may have waited for this report. A later report of an equal change must
    /// then be kept separately.
    was_awaited: bool,
}

impl Report {
    pub(super) const fn new(
        audience: Audience,
        filters: Filters,
        changes: SmallVec<[Change; 1]>,
    ) -> Self {
        Self { number: 0, audience, filters, changes, was_awaited: false }
    }

    pub(super) fn of_loss(audience: Audience) -> Self {
        let filters = Filters::of(CompletionFilter(u32::MAX));
        Self::new(audience, filters, SmallVec::new())
    }

    pub(super) fn is_loss(&self) -> bool {
        self.changes.is_empty()
    }

    const fn is_for(&self, wants: Wants) -> bool {
        let Wants { filter, is_tree } = wants;
        self.audience.has(is_tree)
            && filter.intersects(self.filters.matches)
            && !filter.intersects(self.filters.unless)
    }

    /// True if `later` is another write to the same file, which needs no report of its own.
    fn is_repeated_by(&self, later: &Self) -> bool {
        let is_modified = |report: &Self| matches!(&*report.changes, [change] if change.action == NotifyAction::MODIFIED);
        !self.was_awaited
            && is_modified(later)
            && self.changes == later.changes
            && (self.audience, self.filters) == (later.audience, later.filters)
    }

    fn bytes(&self) -> usize {
        let names = self.changes.iter().map(|change| change.name.capacity());
        let changes = self.changes.len().saturating_mul(size_of::<Change>());
        names.fold(size_of::<Self>().saturating_add(changes), usize::saturating_add)
    }
}

/// The interest of a watch. Watches with equal interests wait together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wants {
    filter: CompletionFilter,
    is_tree: bool,
}

#[derive(Debug)]
struct Group {
    wants: Wants,
    watches: usize,
    /// For each watch the first request without an answer.
    waiters: BTreeMap<OpenId, Waker>,
}

/// Reports from one number up to another, exclusive.
type Span = (u64, u64);

/// The reports that a watch has still to read.
#[derive(Debug)]
struct Position {
    /// The first report that the watch has not read.
    cursor: u64,
    /// Spans before the cursor that ended requests leave to the next request.
    returned: Vec<Span>,
}

impl Position {
    /// Returns the spans for a request that arrived at report `arrived`, of the reports up to `next`,
    /// and moves behind them; None while there are none.
    fn spans(
        &mut self,
        wants: Wants,
        arrived: u64,
        next: u64,
        reports: &VecDeque<Report>,
        dropped: u64,
    ) -> Option<SmallVec<[Span; 1]>> {
        let first = if dropped > self.cursor {
            Some(dropped.saturating_sub(1))
        } else {
            reports_from(reports, self.cursor)
                .find(|report| report.is_for(wants))
                .map(|report| report.number)
        };
        if self.returned.is_empty() && first.is_none() {
            // None of the reports is for this watch, so the watch skips them all.
            self.cursor = next;
            return None;
        }
        let mut spans: SmallVec<[Span; 1]> = mem::take(&mut self.returned).into();
        let to = match first {
            Some(_) if !spans.is_empty() => next,
            Some(first) => arrived.max(first.saturating_add(1)),
            None => self.cursor,
        };
        if first.is_some() {
            spans.push((self.cursor, to));
            self.cursor = to;
        }
        Some(spans)
    }
}

/// A watch with its requests.
#[derive(Debug)]
struct Reader {
    wants: Wants,
    position: Position,
    /// Waiting requests in the order of their arrival.
    waiting: VecDeque<Waiting>,
    /// Number of deletions of the directory before the watch began.
    deletions: u64,
    /// The account of its client.
    payer: Box<dyn Payer>,
}

#[derive(Debug)]
struct Waiting {
    ticket: u64,
    /// The number of the next report when the request arrived.
    arrived: u64,
    waker: Option<Waker>,
    /// The answer to the request: it begins with the change that ended its wait; later changes are
    /// for the next request (MS-FSA 2.1.4.1).
    told: Option<SmallVec<[Span; 1]>>,
}

/// For each bit of a filter, the number after the last dropped report that matches it.
#[derive(Debug, Default)]
struct Dropped([u64; 32]);

impl Dropped {
    fn note(&mut self, report: &Report) {
        for (bit, number) in self.0.iter_mut().enumerate() {
            if is_set(report.filters.matches, bit) {
                *number = report.number.saturating_add(1);
            }
        }
    }

    /// Returns the number after the last dropped report that a watch with this filter would have
    /// read.
    fn for_filter(&self, filter: CompletionFilter) -> u64 {
        let bits = self.0.iter().enumerate();
        bits.filter(|(bit, _)| is_set(filter, *bit)).map(|(_, number)| *number).max().unwrap_or(0)
    }
}

fn is_set(filter: CompletionFilter, bit: usize) -> bool {
    filter.0 & 1_u32.unbounded_shl(u32::try_from(bit).unwrap_or(u32::MAX)) != 0
}

#[derive(Debug)]
pub(super) struct Log {
    /// The directory's present name.
    pub(super) name: String,
    reports: VecDeque<Report>,
    /// The number of the next report.
    next: u64,
    bytes: usize,
    /// The watch whose client pays for them.
    paying: Option<OpenId>,
    all_bytes: Arc<Bytes>,
    /// Dropped reports for watches of the directory, and of the tree.
    dropped: [Dropped; 2],
    readers: HashMap<OpenId, Reader>,
    groups: Vec<Group>,
    /// Requests that still have to be woken.
    to_wake: Vec<BTreeMap<OpenId, Waker>>,
    deletions: u64,
    last_ticket: u64,
    /// The number after the last report that any request has been answered with.
    told: u64,
    /// Number of reports since reports that every watch has read were last removed.
    untidy: usize,
}

impl Log {
    pub(super) fn new(name: String, all_bytes: Arc<Bytes>) -> Self {
        Self {
            name,
            reports: VecDeque::new(),
            next: 1,
            bytes: 0,
            paying: None,
            all_bytes,
            dropped: Default::default(),
            readers: HashMap::new(),
            groups: Vec::new(),
            to_wake: Vec::new(),
            deletions: 0,
            last_ticket: 0,
            told: 0,
            untidy: 0,
        }
    }

    /// Begins a watch.
    pub(super) fn begin(&mut self, id: OpenId, wanted: Wanted, payer: Box<dyn Payer>) {
        let Wanted { filter, is_tree, .. } = wanted;
        let wants = Wants { filter, is_tree };
        match self.group(wants) {
            Some(group) => group.watches = group.watches.saturating_add(1),
            None => self.groups.push(Group { wants, watches: 1, waiters: BTreeMap::new() }),
        }
        let reader = Reader {
            wants,
            position: Position { cursor: self.next, returned: Vec::new() },
            waiting: VecDeque::new(),
            deletions: self.deletions,
            payer,
        };
        self.readers.insert(id, reader);
    }

    /// Ends a watch. True for the last of its kind.
    pub(super) fn end(&mut self, id: OpenId) -> bool {
        let Some(reader) = self.readers.remove(&id) else { return false };
        return_surplus(&mut self.readers);
        if let Some(group) = self.group(reader.wants) {
            group.watches = group.watches.saturating_sub(1);
            group.waiters.remove(&id);
        }
        self.groups.retain(|group| group.watches > 0);
        if self.paying == Some(id) {
            self.paying = None;
            self.tidy();
        }
        !self.groups.iter().any(|group| group.wants.is_tree == reader.wants.is_tree)
    }

    /// Returns the number of watches that have room.
    #[cfg(test)]
    pub(super) fn room_of_readers(&self) -> usize {
        self.readers.capacity()
    }

    pub(super) fn is_unwatched(&self) -> bool {
        self.readers.is_empty()
    }

    fn group(&mut self, wants: Wants) -> Option<&mut Group> {
        self.groups.iter_mut().find(|group| group.wants == wants)
    }

    /// True if a watch is interested in such a report.
    pub(super) fn is_wanted(&self, audience: Audience, filters: Filters) -> bool {
        let report = Report::new(audience, filters, SmallVec::new());
        self.groups.iter().any(|group| report.is_for(group.wants))
    }

    /// Appends a report, and hands out the first requests to be woken for it.
    pub(super) fn append(&mut self, mut report: Report, wakers: &mut Wakers) {
        let told = self.told;
        let is_again = |last: &Report| last.number >= told && last.is_repeated_by(&report);
        if self.reports.back().is_some_and(is_again) {
            // The report is repeated, so the earlier one is replaced. It gets a new number, so that
            // a watch that has read it reads it again.
            let last = self.reports.pop_back();
            self.count(0, last.as_ref().map_or(0, Report::bytes));
        }
        report.number = self.next;
        self.next = self.next.saturating_add(1);
        for group in &mut self.groups {
            if report.is_for(group.wants) && !group.waiters.is_empty() {
                report.was_awaited = true;
                self.to_wake.push(mem::take(&mut group.waiters));
            }
        }
        self.count(report.bytes(), 0);
        self.reports.push_back(report);
        self.untidy = self.untidy.saturating_add(1);
        self.tidy();
        self.hand_out(wakers);
    }

    fn count(&mut self, more: usize, less: usize) {
        self.bytes = self.bytes.saturating_add(more).saturating_sub(less);
        self.all_bytes.used.fetch_add(more, Ordering::Relaxed);
        self.all_bytes.used.fetch_sub(less, Ordering::Relaxed);
    }

    /// Removes reports beyond the limits: first those that every watch has read, then those that
    /// nobody pays for.
    fn tidy(&mut self) {
        let is_due = self.untidy >= self.readers.len().max(WAKES_AT_ONCE);
        if is_due || (self.paying.is_none() && self.bytes > 0) {
            self.untidy = 0;
            // Among equally slow watches, the one with the lowest id is chosen, so that a
            // simulation can be repeated.
            let needs = self.readers.iter().map(|(id, reader)| (reader.first_needed(), *id));
            let slowest = needs.min();
            let first = slowest.map_or(self.next, |(first, _)| first);
            while self.reports.front().is_some_and(|report| report.number < first) {
                self.drop_first();
            }
            self.bill(slowest.map(|(_, id)| id));
        }
        while !self.is_paid() && !self.reports.is_empty() {
            self.drop_first();
        }
        while self.reports.len() > REPORTS_PER_DIRECTORY
            || (self.reports.len() > 1
                && (self.bytes > REPORT_BYTES_PER_DIRECTORY
                    || self.all_bytes.used.load(Ordering::Relaxed)
                        > self.all_bytes.limit.load(Ordering::Relaxed)))
        {
            self.drop_first();
        }
    }

    /// Has the client of another watch pay.
    fn bill(&mut self, id: Option<OpenId>) {
        if self.paying == id {
            return;
        }
        if let Some(old) = self.paying.and_then(|old| self.readers.get(&old)) {
            old.payer.pay(0);
        }
        self.paying = id;
    }

    /// True when the client that pays may have the log as it is.
    fn is_paid(&self) -> bool {
        let paying = self.paying.and_then(|id| self.readers.get(&id));
        paying.is_none_or(|reader| reader.payer.pay(self.bytes))
    }

    fn drop_first(&mut self) {
        let Some(report) = self.reports.pop_front() else { return };
        self.count(0, report.bytes());
        for (is_tree, dropped) in [false, true].into_iter().zip(&mut self.dropped) {
            if report.audience.has(is_tree) {
                dropped.note(&report);
            }
        }
    }

    /// Hands out requests to wake, a few at a time.
    pub(super) fn hand_out(&mut self, wakers: &mut Wakers) {
        while wakers.len() < WAKES_AT_ONCE
            && let Some(waiters) = self.to_wake.last_mut()
        {
            match waiters.pop_first() {
                Some((_, waker)) => wakers.push(waker),
                None => _ = self.to_wake.pop(),
            }
        }
    }

    /// Ends every request because the directory is about to be deleted.
    pub(super) fn delete(&mut self, wakers: &mut Wakers) {
        self.deletions = self.deletions.saturating_add(1);
        for group in &mut self.groups {
            group.waiters.clear();
        }
        let readers = self.readers.iter_mut();
        let others = readers.flat_map(|(id, reader)| {
            reader.waiting.iter_mut().filter_map(|w| Some((*id, w.waker.take()?)))
        });
        // A map has one request for each watch, but a watch may have several requests. So each
        // further request of a watch gets a map of its own.
        self.to_wake.extend(others.map(|one| BTreeMap::from_iter([one])));
        self.hand_out(wakers);
    }

    pub(super) fn is_deleted(&self, id: OpenId) -> bool {
        self.readers.get(&id).is_some_and(|reader| reader.deletions < self.deletions)
    }

    /// Adds a request and returns its ticket.
    pub(super) fn arrive(&mut self, id: OpenId, wakers: &mut Wakers) -> u64 {
        self.last_ticket = self.last_ticket.wrapping_add(1);
        let (ticket, arrived) = (self.last_ticket, self.next);
        if let Some(reader) = self.readers.get_mut(&id) {
            reader.waiting.push_back(Waiting { ticket, arrived, waker: None, told: None });
        }
        self.tell(id, wakers);
        ticket
    }

    /// Gives reports to the requests without an answer, in their order.
    pub(super) fn tell(&mut self, id: OpenId, wakers: &mut Wakers) {
        let Some(reader) = self.readers.get_mut(&id) else { return };
        let [flat, tree] = &self.dropped;
        let dropped = if reader.wants.is_tree { tree } else { flat };
        let dropped = dropped.for_filter(reader.wants.filter);
        for waiting in reader.waiting.iter_mut().filter(|waiting| waiting.told.is_none()) {
            let position = &mut reader.position;
            let spans =
                position.spans(reader.wants, waiting.arrived, self.next, &self.reports, dropped);
            let Some(spans) = spans else { break };
            self.told = self.told.max(reader.position.cursor);
            waiting.told = Some(spans);
            wakers.extend(waiting.waker.take());
        }
        self.enlist(id);
    }

    /// Makes the first request without an answer wait for the next report.
    fn enlist(&mut self, id: OpenId) {
        let Some(reader) = self.readers.get(&id) else { return };
        let first = reader.waiting.iter().find(|waiting| waiting.told.is_none());
        let waker = first.and_then(|first| first.waker.clone());
        let wants = reader.wants;
        let Some(group) = self.group(wants) else { return };
        match waker {
            Some(waker) => _ = group.waiters.insert(id, waker),
            None => _ = group.waiters.remove(&id),
        }
    }

    /// Returns the answer to the request; until there is one, `waker` is woken when it comes.
    pub(super) fn poll(&mut self, id: OpenId, ticket: u64, waker: &Waker) -> Option<Reported> {
        let reader = self.readers.get_mut(&id)?;
        let at = reader.waiting.iter().position(|waiting| waiting.ticket == ticket)?;
        if let Some(own) = reader.waiting.get_mut(at)
            && own.told.is_none()
        {
            own.waker = Some(waker.clone());
            self.enlist(id);
            return None;
        }
        let told = reader.waiting.remove(at)?.told?;
        let wants = reader.wants;
        Some(self.read(wants, &told))
    }

    /// Removes a request. If its answer was not sent, the next request gets it. Requests behind it
    /// that already have an answer got it later and keep it; only the order of answers can change.
    pub(super) fn leave(&mut self, id: OpenId, ticket: u64, wakers: &mut Wakers) {
        let Some(reader) = self.readers.get_mut(&id) else { return };
        let own = reader.waiting.iter().position(|waiting| waiting.ticket == ticket);
        let Some(own) = own.and_then(|at| reader.waiting.remove(at)) else { return };
        if let Some(told) = own.told {
            reader.position.returned.extend(told);
            reader.position.returned.sort_unstable();
        }
        self.tell(id, wakers);
    }

    /// Returns the changes of these spans, as far as the reply has room.
    fn read(&self, wants: Wants, spans: &[Span]) -> Reported {
        let [flat, tree] = &self.dropped;
        let dropped = if wants.is_tree { tree } else { flat }.for_filter(wants.filter);
        let mut changes: Vec<Change> = Vec::new();
        let mut bytes = 0_usize;
        for (from, to) in spans {
            if dropped > *from {
                return Reported::TooMany;
            }
            let reports = reports_from(&self.reports, *from);
            let reports = reports.take_while(|report| report.number < *to);
            for report in reports.filter(|report| report.is_for(wants)) {
                if report.is_loss() {
                    return Reported::TooMany;
                }
                for change in &report.changes {
                    let is_again = change.action == NotifyAction::MODIFIED;
                    if is_again && changes.last() == Some(change) {
                        continue;
                    }
                    bytes = bytes.saturating_add(change.name.len());
                    if changes.len() >= CHANGES_PER_WATCH || bytes > CHANGE_BYTES_PER_WATCH {
                        return Reported::TooMany;
                    }
                    changes.push(change.clone());
                }
            }
        }
        if changes.is_empty() { Reported::TooMany } else { Reported::Changes(changes) }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.all_bytes.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Reader {
    /// Returns the first report that the watch may still need.
    fn first_needed(&self) -> u64 {
        let told = self.waiting.iter().filter_map(|waiting| waiting.told.as_ref()).flatten();
        let spans = told.chain(&self.position.returned).map(|(from, _)| *from);
        spans.fold(self.position.cursor, u64::min)
    }
}

fn reports_from(reports: &VecDeque<Report>, from: u64) -> impl Iterator<Item = &Report> {
    let at = reports.partition_point(|report| report.number < from);
    reports.range(at..)
}
