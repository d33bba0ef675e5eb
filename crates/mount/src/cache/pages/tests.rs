//! Tests the pages against a model: a file in memory.

use super::*;

/// A file on a server and its cache, driven as by the mount.
struct Driven {
    pages: Pages,
    server: Vec<u8>,
}

impl Driven {
    fn read(&mut self, offset: u64, len: usize) -> Vec<u8> {
        loop {
            match self.pages.read(offset, len) {
                Ok(data) => return data,
                Err(Missing { first, count }) => {
                    if self.pages.is_unsent(first * PAGE, count * PAGE) {
                        self.flush();
                        continue;
                    }
                    let from = ((first * PAGE) as usize).min(self.server.len());
                    let to = (from + count as usize * PAGE_BYTES).min(self.server.len());
                    let bytes = self.server[from..to].to_vec();
                    let changes = self.pages.before_fetch(first, count).unwrap();
                    assert!(self.pages.fetched(1, changes, first, &bytes, count).is_some());
                }
            }
        }
    }

    fn flush(&mut self) {
        for (at, data) in self.pages.take() {
            let end = at as usize + data.len();
            if self.server.len() < end {
                self.server.resize(end, 0);
            }
            self.server[at as usize..end].copy_from_slice(data.as_slice());
        }
        self.pages.sent();
    }
}

#[test]
fn whatever_is_done_it_reads_like_a_file() {
    for seed in 1..=40_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let start: Vec<u8> = (0..random(3 * PAGE)).map(|at| at as u8).collect();
        let mut truth = start.clone();
        let mut file = Driven { pages: Pages::default(), server: start };
        file.pages.begin(1, truth.len() as u64, 0);
        for _ in 0..400 {
            let at = random(4 * PAGE);
            match random(8) {
                kind @ 0..=2 => {
                    // Some of the writes are large enough that the pages and the request share one
                    // copy.
                    let least = if kind == 0 && random(8) == 0 { SHARED_FROM } else { 1 };
                    let data = vec![random(256) as u8; least + random(PAGE + 100) as usize];
                    let end = at as usize + data.len();
                    if truth.len() < end {
                        truth.resize(end, 0);
                    }
                    truth[at as usize..end].copy_from_slice(&data);
                    file.pages.write(at, &data);
                }
                3 => {
                    file.flush();
                    truth.resize(at as usize, 0);
                    file.server.resize(at as usize, 0);
                    file.pages.resized(at);
                }
                4 => file.flush(),
                5 => _ = file.pages.evict(random(5)),
                _ => {
                    let len = random(2 * PAGE) as usize;
                    let from = (at as usize).min(truth.len());
                    let to = (from + len).min(truth.len());
                    assert!(file.read(at, len) == truth[from..to], "{seed}: {at} {len}");
                }
            }
            assert_eq!(file.pages.len(), truth.len() as u64, "{seed}");
            let waiting: usize = file.pages.dirty.values().map(Data::len).sum();
            assert_eq!(file.pages.unsent(), waiting as u64, "{seed}");
        }
        file.flush();
        assert!(file.server == truth, "{seed}");
        assert_eq!(file.pages.unsent(), 0);
    }
}

#[test]
fn what_was_fetched_before_a_write_is_not_kept() {
    let mut pages = Pages::default();
    pages.begin(1, 10, 0);
    let changes = pages.before_fetch(0, 1).unwrap();
    pages.write(0, b"new");
    assert_eq!(pages.fetched(1, changes, 0, b"0123456789", 1), None);
    pages.take();
    pages.sent();
    let changes = pages.before_fetch(0, 1).unwrap();
    assert_eq!(pages.fetched(2, changes, 0, b"0123456789", 1), None);
}

#[test]
fn what_the_server_does_not_have_is_not_fetched() {
    let mut pages = Pages::default();
    pages.begin(1, 3 * PAGE, 0);
    pages.write(PAGE + 10, b"new");
    assert_eq!(pages.before_fetch(0, 3), None);
    assert!(pages.before_fetch(0, 1).is_some() && pages.before_fetch(2, 1).is_some());
    pages.take();
    assert_eq!(pages.before_fetch(1, 1), None, "it is on its way");
    pages.sent();
    assert!(pages.before_fetch(0, 3).is_some());
}

#[test]
fn writes_in_a_row_are_one_extent() {
    let mut pages = Pages::default();
    pages.begin(1, 0, 0);
    for at in 0..100 {
        pages.write(at * 10, &[at as u8; 10]);
    }
    let taken = pages.take();
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].1.len(), 1000);
}

#[test]
fn what_is_long_is_there_once() {
    let mut pages = Pages::default();
    pages.begin(1, 0, 0);
    let data: Vec<u8> = (0..SHARED_FROM).map(|at| at as u8).collect();
    let new = pages.write(PAGE / 2, &data);
    assert_eq!(new.len() as u64, SHARED_FROM as u64 / PAGE - 1 + 2);
    let within = |part: &Data, all: &Data| {
        let (part, all) = (part.as_slice().as_ptr_range(), all.as_slice().as_ptr_range());
        all.start <= part.start && part.end <= all.end
    };
    let shared = pages.dirty[&(PAGE / 2)].clone();
    let mut whole = 1..SHARED_FROM as u64 / PAGE;
    assert!(whole.all(|page| within(&pages.clean[&page], &shared)));
    // A later write must not change the bytes that are being sent, so page 2 gets a copy of its
    // own.
    pages.write(2 * PAGE, b"new");
    assert!(!within(&pages.clean[&2], &shared) && within(&pages.clean[&3], &shared));
    assert!(shared.as_slice() == data);
    assert_eq!(pages.read(2 * PAGE, 3).unwrap(), b"new");
    let sent: Vec<_> = pages.take().into_iter().map(|(at, data)| (at, data.len())).collect();
    let first = (PAGE + PAGE / 2) as usize;
    assert_eq!(sent[..2], [(PAGE / 2, first), (2 * PAGE, 3)]);
    assert_eq!(sent[2], (2 * PAGE + 3, SHARED_FROM - first - 3));
}

#[test]
fn of_two_that_write_at_once_neither_is_kept() {
    let mut pages = Pages::default();
    pages.begin(1, 10, 0);
    let changes = pages.changes();
    assert!(pages.fetched(1, changes, 0, b"0123456789", 1).is_some());
    // These two writes overlap, and the server may carry them out in another order than it answers,
    // so the content of the overlap is unknown.
    pages.pass(0, 3);
    pages.pass(2, 3);
    assert_eq!(pages.before_fetch(0, 1), None, "what it is nobody knows");
    pages.passed(2, b"two", true);
    pages.passed(0, b"one", true);
    assert_eq!(pages.read(0, 10), Err(Missing { first: 0, count: 1 }));
    // The write at 8 ends beyond the cached data, so only page 0 is cached.
    let changes = pages.before_fetch(0, 1).unwrap();
    assert!(pages.fetched(1, changes, 0, b"0123456789", 1).is_some());
    pages.pass(8, 3);
    pages.passed(8, b"end", true);
    assert_eq!(pages.read(0, 20).unwrap(), b"01234567end");
}

#[test]
fn what_was_not_written_is_not_read() {
    let mut pages = Pages::default();
    pages.begin(1, 3, 0);
    let changes = pages.changes();
    assert!(pages.fetched(1, changes, 0, b"old", 1).is_some());
    pages.pass(0, 6);
    pages.passed(0, b"failed", false);
    assert!(!pages.is_of(1) && pages.count() == 0);
}

#[test]
fn a_length_that_is_older_than_a_write_is_not_believed() {
    let mut pages = Pages::default();
    let changes = pages.changes();
    pages.pass(0, 5);
    pages.passed(0, b"abcde", true);
    pages.begin(1, 0, changes);
    assert!(!pages.is_of(1), "it is five bytes long by now");
    pages.begin(1, u64::MAX, pages.changes());
    assert_eq!(pages.len(), LEN_MAX, "no file is longer");
    pages.write(pages.len(), b"x");
    assert_eq!(pages.len(), LEN_MAX + 1);
}

#[test]
fn a_page_that_is_not_sent_does_not_make_room() {
    let mut pages = Pages::default();
    pages.begin(1, 0, 0);
    pages.write(0, b"new");
    assert_eq!(pages.evict(0), Evicted::Unsent);
    pages.take();
    pages.sent();
    assert_eq!(pages.evict(0), Evicted::Gone);
    assert_eq!(pages.evict(0), Evicted::Absent);
}
