//! Messages between a server and the process that makes snapshots: fixed fields in little-endian order.

use alloc::string::String;
use alloc::vec::Vec;

use crate::limits::{LISTED, MESSAGE_BYTES, REASON_BYTES};
use crate::second::Second;

/// A thing to do with the snapshots of a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Lists the server's own snapshots.
    List,
    /// Mounts some snapshots that clients find by mounts alone and that are not mounted. Lists those that are left.
    Mount,
    /// Makes the snapshot of this second.
    Create(Second),
    /// Removes the snapshot of this second.
    Remove(Second),
}

/// A request of the server. Its share is a place in the list that the process got at its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The number that the answer has too.
    pub id: u32,
    /// The place of the share.
    pub share: u32,
    /// The thing to do.
    pub act: Act,
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The number of the request.
    pub id: u32,
    /// The end of the act, or a sentence.
    pub end: Result<Done, String>,
}

/// The end of an act that succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    /// The snapshots, the newest [`LISTED`] of them.
    Listed(Vec<Second>),
    /// The snapshot was made or removed.
    Changed,
}

const REQUEST_BYTES: usize = 20;
const HEADER_BYTES: usize = 8;

/// Kinds of requests and answers.
const LIST: u32 = 1;
const CREATE: u32 = 2;
const REMOVE: u32 = 3;
const CHANGED: u32 = 4;
const FAILED: u32 = 5;
const MOUNT: u32 = 6;

/// Takes a number off the front of a message.
fn number(message: &mut &[u8]) -> Option<u32> {
    let (head, rest) = message.split_first_chunk()?;
    *message = rest;
    Some(u32::from_le_bytes(*head))
}

fn second(message: &mut &[u8]) -> Option<Second> {
    let (head, rest) = message.split_first_chunk()?;
    *message = rest;
    Second::new(u64::from_le_bytes(*head))
}

impl Request {
    /// Returns the bytes of the request.
    pub fn to_bytes(self) -> Vec<u8> {
        let (kind, at) = match self.act {
            Act::List => (LIST, 0),
            Act::Mount => (MOUNT, 0),
            Act::Create(at) => (CREATE, at.since_1970()),
            Act::Remove(at) => (REMOVE, at.since_1970()),
        };
        let mut bytes = Vec::with_capacity(REQUEST_BYTES);
        for part in [self.id, kind, self.share] {
            bytes.extend(part.to_le_bytes());
        }
        bytes.extend(at.to_le_bytes());
        bytes
    }

    /// Reads a request. None for other bytes.
    pub fn parse(mut message: &[u8]) -> Option<Self> {
        if message.len() != REQUEST_BYTES {
            return None;
        }
        let rest = &mut message;
        let (id, kind, share, at) = (number(rest)?, number(rest)?, number(rest)?, second(rest)?);
        let act = match kind {
            LIST if at.since_1970() == 0 => Act::List,
            MOUNT if at.since_1970() == 0 => Act::Mount,
            CREATE => Act::Create(at),
            REMOVE => Act::Remove(at),
            _ => return None,
        };
        Some(Self { id, share, act })
    }
}

impl Answer {
    /// Returns the bytes of the answer, at most [`MESSAGE_BYTES`]: a longer list loses its oldest snapshots,
    /// and a longer reason its end.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::from(self.id.to_le_bytes());
        match &self.end {
            Ok(Done::Listed(list)) => {
                bytes.extend(LIST.to_le_bytes());
                let mut newest = list.clone();
                newest.sort_unstable_by(|a, b| b.cmp(a));
                newest.truncate(LISTED);
                bytes.extend(newest.iter().flat_map(|taken| taken.since_1970().to_le_bytes()));
            }
            Ok(Done::Changed) => bytes.extend(CHANGED.to_le_bytes()),
            Err(reason) => {
                bytes.extend(FAILED.to_le_bytes());
                let end = (0..=REASON_BYTES).rev().find(|at| reason.is_char_boundary(*at));
                let end = end.filter(|_| reason.len() > REASON_BYTES).unwrap_or(reason.len());
                bytes.extend(reason.as_bytes().iter().take(end));
            }
        }
        bytes
    }

    /// Reads an answer. None for other bytes.
    pub fn parse(mut message: &[u8]) -> Option<Self> {
        if message.len() > MESSAGE_BYTES || message.len() < HEADER_BYTES {
            return None;
        }
        let rest = &mut message;
        let (id, kind) = (number(rest)?, number(rest)?);
        let end = match kind {
            LIST => {
                let mut list = Vec::new();
                while !rest.is_empty() {
                    list.push(second(rest)?);
                }
                Ok(Done::Listed(list))
            }
            CHANGED if rest.is_empty() => Ok(Done::Changed),
            FAILED if rest.len() <= REASON_BYTES => {
                Err(String::from(core::str::from_utf8(rest).ok()?))
            }
            _ => return None,
        };
        (!matches!(&end, Ok(Done::Listed(list)) if list.len() > LISTED)).then_some(Self { id, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;

    fn seconds() -> impl Strategy<Value = Second> {
        (0..=253_402_300_799_u64).prop_map(|at| Second::new(at).unwrap())
    }

    #[test]
    fn lists_and_reasons_have_a_limit() {
        for count in [LISTED - 1, LISTED, LISTED + 1] {
            let list: Vec<_> = (0..count as u64).map(|at| Second::new(at).unwrap()).collect();
            let bytes = Answer { id: 1, end: Ok(Done::Listed(list)) }.to_bytes();
            assert!(bytes.len() <= MESSAGE_BYTES);
            let Some(Answer { end: Ok(Done::Listed(list)), .. }) = Answer::parse(&bytes) else {
                panic!("a list");
            };
            assert_eq!(list.len(), count.min(LISTED));
            assert_eq!(list[0], Second::new(count as u64 - 1).unwrap(), "the newest are there");
        }
        let mut long = Answer { id: 1, end: Ok(Done::Listed(vec![])) }.to_bytes();
        long.resize(HEADER_BYTES + 8 * (LISTED + 1), 0);
        assert_eq!(Answer::parse(&long), None);
        for count in [REASON_BYTES - 1, REASON_BYTES, REASON_BYTES + 1] {
            let reason = "x".repeat(count);
            let bytes = Answer { id: 1, end: Err(reason) }.to_bytes();
            assert_eq!(bytes.len() - HEADER_BYTES, count.min(REASON_BYTES));
        }
        let bytes = Answer { id: 1, end: Err("é".repeat(REASON_BYTES)) }.to_bytes();
        assert!(Answer::parse(&bytes).unwrap().end.unwrap_err().ends_with('é'));
        let bytes = Answer { id: 1, end: Err(std::format!("x{}", "é".repeat(600))) }.to_bytes();
        assert_eq!(Answer::parse(&bytes).unwrap().end.unwrap_err().len(), REASON_BYTES - 1);
    }

    #[test]
    fn other_bytes_are_no_message() {
        let request = Request { id: 7, share: 3, act: Act::List };
        let bytes = request.to_bytes();
        assert_eq!(Request::parse(&bytes), Some(request));
        assert_eq!(Request::parse(&bytes[1..]), None);
        assert_eq!(Request::parse(&[&bytes[..], &[0]].concat()), None);
        let mut unknown = bytes;
        unknown[4] = 9;
        assert_eq!(Request::parse(&unknown), None);
        let mut late =
            Request { id: 7, share: 3, act: Act::Create(Second::new(1).unwrap()) }.to_bytes();
        late[19] = 0xff;
        assert_eq!(Request::parse(&late), None, "after 9999");
    }

    proptest! {
        #[test]
        fn messages_come_back(id: u32, share: u32, at in seconds(), list in proptest::collection::vec(seconds(), 0..9), why in "\\PC{0,30}") {
            for act in [Act::List, Act::Mount, Act::Create(at), Act::Remove(at)] {
                let request = Request { id, share, act };
                prop_assert_eq!(Request::parse(&request.to_bytes()), Some(request));
            }
            let mut list = list;
            list.sort_unstable_by(|a, b| b.cmp(a));
            for end in [Ok(Done::Listed(list)), Ok(Done::Changed), Err(why)] {
                let answer = Answer { id, end };
                prop_assert_eq!(Answer::parse(&answer.to_bytes()), Some(answer));
            }
        }

        #[test]
        fn any_bytes_are_a_message_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            if let Some(request) = Request::parse(&bytes) {
                prop_assert_eq!(request.to_bytes(), bytes.clone());
            }
            let _ = Answer::parse(&bytes);
        }
    }
}
