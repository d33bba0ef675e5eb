//! The four bytes before every message of the Direct TCP transport, MS-SMB2 2.1, and the limits of
//! the length behind them.

use crate::Disconnect;
use crate::limits::{
    FRAME_BEFORE_AUTHENTICATION, FRAME_BEFORE_NEGOTIATE, FRAME_MAX, MESSAGE_OVERHEAD,
    MESSAGE_WITHOUT_PAYLOAD,
};
use frevo_wire::Command;
use frevo_wire::compression::UNCHAINED_HEADER_LEN;
use frevo_wire::transform::TRANSFORM_HEADER_LEN;

/// Length of the prefix, bytes.
pub const PREFIX_LEN: usize = 4;

/// The stage of a Connection, which determines the longest frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// NEGOTIATE has not been received yet.
    New,
    /// After NEGOTIATE, without an authenticated session.
    Negotiated,
    /// With at least one authenticated session so far.
    Authenticated {
        /// The largest of MaxTransactSize, MaxReadSize and MaxWriteSize.
        max_payload: u32,
    },
}

impl Stage {
    /// Returns the longest frame, without its prefix. A receiver checks it before it allocates.
    pub fn frame_limit(self) -> usize {
        match self {
            Self::New => FRAME_BEFORE_NEGOTIATE,
            Self::Negotiated => FRAME_BEFORE_AUTHENTICATION,
            Self::Authenticated { max_payload } => message_limit(max_payload)
                .saturating_add(TRANSFORM_HEADER_LEN)
                .saturating_add(UNCHAINED_HEADER_LEN)
                .clamp(FRAME_BEFORE_AUTHENTICATION, FRAME_MAX),
        }
    }
}

/// Returns the longest message, unsealed and decompressed, MS-SMB2 3.3.5.2.
fn message_limit(max_payload: u32) -> usize {
    usize::try_from(max_payload).unwrap_or(FRAME_MAX).saturating_add(MESSAGE_OVERHEAD)
}

/// The prefix of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameLength;

impl FrameLength {
    /// Parses `prefix` and returns the length of the frame, at most `limit`.
    pub fn parse(prefix: [u8; PREFIX_LEN], limit: usize) -> Result<usize, Disconnect> {
        let [kind, high, middle, low] = prefix;
        if kind != 0 {
            return Err(Disconnect::FrameType(kind));
        }
        let len = u32::from_be_bytes([0, high, middle, low]);
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len > limit { Err(Disconnect::FrameTooLong { len, limit }) } else { Ok(len) }
    }

    /// Returns the prefix of a frame of `len` bytes; None for a frame too long for a prefix, which
    /// must not be sent (MS-SMB2 3.2.4.1).
    pub fn prefix(len: usize) -> Option<[u8; PREFIX_LEN]> {
        if len > FRAME_MAX {
            return None;
        }
        u32::try_from(len).ok().map(u32::to_be_bytes)
    }
}

/// Checks the length of an unsealed and decompressed request, MS-SMB2 3.3.5.2. `command` is that of
/// the message, or of the first one of a compound.
pub fn check_message_len(
    command: Command,
    len: usize,
    is_multi_credit: bool,
    max_payload: u32,
) -> Result<(), Disconnect> {
    let carries_payload = matches!(
        command,
        Command::READ
            | Command::WRITE
            | Command::IOCTL
            | Command::QUERY_DIRECTORY
            | Command::CHANGE_NOTIFY
            | Command::QUERY_INFO
            | Command::SET_INFO
    );
    let limit = if is_multi_credit && carries_payload {
        message_limit(max_payload)
    } else {
        MESSAGE_WITHOUT_PAYLOAD
    };
    if len > limit { Err(Disconnect::MessageTooLong { len, limit }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_round_trip_and_limit() {
        for len in [0, 1, 0x1234, FRAME_MAX - 1, FRAME_MAX] {
            let prefix = FrameLength::prefix(len).unwrap();
            assert_eq!(FrameLength::parse(prefix, FRAME_MAX), Ok(len));
        }
        assert_eq!(FrameLength::prefix(0x0001_0203), Some([0, 1, 2, 3]));
        assert_eq!(FrameLength::prefix(FRAME_MAX + 1), None);
        let prefix = |len| FrameLength::prefix(len).unwrap();
        assert_eq!(FrameLength::parse(prefix(99), 100), Ok(99));
        assert_eq!(FrameLength::parse(prefix(100), 100), Ok(100));
        let long = Disconnect::FrameTooLong { len: 101, limit: 100 };
        assert_eq!(FrameLength::parse(prefix(101), 100), Err(long));
    }

    #[test]
    fn only_session_messages() {
        for kind in [1, 0x16, 0x81, 0x85, 0xFF] {
            let parsed = FrameLength::parse([kind, 0, 0, 4], FRAME_MAX);
            assert_eq!(parsed, Err(Disconnect::FrameType(kind)));
        }
    }

    #[test]
    fn limits_by_stage() {
        assert_eq!(Stage::New.frame_limit(), 131_072);
        assert_eq!(Stage::Negotiated.frame_limit(), 69_632);
        let small = Stage::Authenticated { max_payload: 65_536 };
        assert_eq!(small.frame_limit(), 69_632);
        let eight = Stage::Authenticated { max_payload: 8 << 20 };
        assert_eq!(eight.frame_limit(), (8 << 20) + 256 + 52 + 16);
        let absurd = Stage::Authenticated { max_payload: u32::MAX };
        assert_eq!(absurd.frame_limit(), FRAME_MAX);
    }

    #[test]
    fn message_lengths() {
        let max = 1 << 20;
        let check = |command, len, multi| check_message_len(command, len, multi, max).is_ok();
        for (command, multi) in
            [(Command::CREATE, true), (Command::CREATE, false), (Command::WRITE, false)]
        {
            assert!(check(command, 69_631, multi));
            assert!(check(command, 69_632, multi));
            assert!(!check(command, 69_633, multi));
        }
        let limit = (1 << 20) + 256;
        for command in [Command::WRITE, Command::IOCTL, Command::SET_INFO, Command::READ] {
            assert!(check(command, limit - 1, true));
            assert!(check(command, limit, true));
            assert!(!check(command, limit + 1, true));
        }
    }
}
