//! The frames in the bytes of one direction of a stream (MS-SMB2 2.1), and the messages of each frame
//! (MS-SMB2 3.2.4.1.4). The beginnings of messages are kept while the rest passes by.

use alloc::vec::Vec;

use frevo_wire::Command;
use frevo_wire::header::HEADER_LEN;

use crate::limits::{DATA_HEAD_BYTES, HEAD_BYTES, MESSAGES_OF_FRAME};

/// A message of a frame.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    /// Its first bytes.
    pub(super) head: Vec<u8>,
    /// Its length, with the padding before the message behind it.
    pub(super) len: usize,
    /// Bytes of it that are not in the file.
    pub(super) missing: usize,
}

/// The frames of one direction.
#[derive(Debug, Default)]
pub(super) struct Frames {
    prefix: Vec<u8>,
    messages: Vec<Message>,
    /// Length of the frame under way, and the bytes of it that have passed.
    len: usize,
    passed: usize,
    /// Position at which the last one of `messages` ends.
    end: usize,
    /// Bytes of the heads of `messages` behind their headers.
    kept: usize,
    /// True if bytes of the message under way are missing: its head ends there.
    is_cut: bool,
    /// True while the beginning of a frame is looked for.
    is_astray: bool,
}

impl Frames {
    /// Returns the frames of a stream of which only a later part is there.
    pub(super) fn astray() -> Self {
        Self { is_astray: true, ..Self::default() }
    }

    /// Takes bytes of the stream. Appends the messages of each frame that is whole.
    pub(super) fn take(&mut self, mut bytes: &[u8], out: &mut Vec<Vec<Message>>) {
        if self.is_astray {
            if !is_beginning(bytes) {
                return;
            }
            self.is_astray = false;
        }
        while !bytes.is_empty() {
            if self.prefix.len() < 4 {
                let wanted = 4_usize.saturating_sub(self.prefix.len()).min(bytes.len());
                let (taken, rest) = bytes.split_at(wanted);
                self.prefix.extend_from_slice(taken);
                bytes = rest;
                if let [kind, a, b, c] = *self.prefix.as_slice() {
                    self.len = usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap_or(0);
                    // Kinds of the NetBIOS session service, RFC 1002 4.3.1.
                    if !matches!(kind, 0 | 0x81..=0x85) || kind == 0 && self.len < 4 {
                        return self.stray();
                    }
                    self.begin_message();
                    self.end_if_whole(out);
                }
                continue;
            }
            let wanted = self.until_next().min(bytes.len());
            let (taken, rest) = bytes.split_at(wanted);
            self.keep(taken);
            bytes = rest;
            let is_strange = self.messages.first().is_some_and(|first| {
                self.prefix.first() == Some(&0) && first.head.len() >= 4 && !is_smb(&first.head)
            });
            if is_strange {
                return self.stray();
            }
            self.end_if_whole(out);
        }
    }

    /// Skips bytes that were not captured.
    pub(super) fn skip(&mut self, count: usize, out: &mut Vec<Vec<Message>>) {
        if count == 0 || self.is_astray {
            return;
        }
        let left = self.len.saturating_sub(self.passed);
        let has_header = self.messages.first().is_some_and(|one| one.head.len() >= HEADER_LEN);
        if self.prefix.len() < 4 || count > left || !has_header {
            return self.stray();
        }
        self.is_cut = true;
        let in_message = count.min(self.end.saturating_sub(self.passed));
        if let Some(last) = self.messages.last_mut() {
            last.missing = last.missing.saturating_add(in_message);
        }
        self.passed = self.passed.saturating_add(count);
        let has_header = self.messages.last().is_some_and(|one| one.head.len() >= HEADER_LEN);
        if !has_header {
            self.messages.pop();
        }
        if !has_header || self.passed > self.end {
            // The header of a message is not there, so nobody knows where those behind it are.
            self.end = self.len;
        }
        self.begin_next();
        self.end_if_whole(out);
    }

    /// Begins the next message of the frame, if it is its turn.
    fn begin_next(&mut self) {
        if self.passed == self.end && self.end < self.len {
            self.begin_message();
        }
    }

    /// Begins a message at the position that has been reached. It is the last one until its header tells of
    /// another.
    fn begin_message(&mut self) {
        let len = self.len.saturating_sub(self.passed);
        self.end = self.len;
        self.is_cut = false;
        self.messages.push(Message { head: Vec::new(), len, missing: 0 });
    }

    /// Returns the bytes up to the place where something is decided: the end of the header under way, or of
    /// the message.
    fn until_next(&self) -> usize {
        let in_message = self.end.saturating_sub(self.passed);
        match self.messages.last() {
            Some(last) if last.head.len() < HEADER_LEN && !self.is_cut => {
                HEADER_LEN.saturating_sub(last.head.len()).min(in_message)
            }
            _ => in_message,
        }
    }

    /// Passes bytes of the message under way, and keeps them as far as there is room.
    fn keep(&mut self, bytes: &[u8]) {
        self.passed = self.passed.saturating_add(bytes.len());
        match self.messages.last_mut() {
            Some(last) if !self.is_cut && last.head.len() < HEADER_LEN => {
                last.head.extend_from_slice(bytes);
                if last.head.len() == HEADER_LEN {
                    self.find_next();
                }
            }
            Some(last) if !self.is_cut => {
                let most = if is_data(&last.head) { DATA_HEAD_BYTES } else { HEAD_BYTES };
                let room = most.saturating_sub(last.head.len());
                let room = room.min(HEAD_BYTES.saturating_sub(self.kept)).min(bytes.len());
                last.head.extend_from_slice(bytes.get(..room).unwrap_or_default());
                self.kept = self.kept.saturating_add(room);
            }
            _ => {}
        }
        self.begin_next();
    }

    /// Reads where the message behind the one under way begins, whose header is whole.
    fn find_next(&mut self) {
        let begun = self.passed.saturating_sub(HEADER_LEN);
        let is_full = self.messages.len() >= MESSAGES_OF_FRAME;
        let Some(last) = self.messages.last_mut().filter(|_| !is_full) else { return };
        if let [0xFE, ..] = last.head.as_slice()
            && let Some(next) = last.head.get(20..).and_then(<[u8]>::first_chunk)
            && let Ok(next) = usize::try_from(u32::from_le_bytes(*next))
            && next >= HEADER_LEN
            && begun.saturating_add(next) < self.len
        {
            last.len = next;
            self.end = begun.saturating_add(next);
        }
    }

    fn end_if_whole(&mut self, out: &mut Vec<Vec<Message>>) {
        if self.passed < self.len {
            return;
        }
        let messages = core::mem::take(&mut self.messages);
        if self.prefix.first() == Some(&0) {
            out.push(messages);
        }
        *self = Self::default();
    }

    /// Loses the way: the next frame is looked for at the beginning of a segment.
    fn stray(&mut self) {
        *self = Self::astray();
    }
}

/// True for the header of a message that has data of files behind its fields.
fn is_data(head: &[u8]) -> bool {
    let command = head.get(12..).and_then(<[u8]>::first_chunk);
    let command = command.map(|bytes| Command(u16::from_le_bytes(*bytes)));
    head.first() == Some(&0xFE) && matches!(command, Some(Command::READ | Command::WRITE))
}

/// True for bytes with which a frame begins.
fn is_beginning(bytes: &[u8]) -> bool {
    bytes.first() == Some(&0) && bytes.get(4..).is_some_and(is_smb)
}

fn is_smb(message: &[u8]) -> bool {
    matches!(message, [0xFC..=0xFF, b'S', b'M', b'B', ..])
}
