//! Finds the dialect of a server that speaks none of those that the options allow, for the message.

use std::io::{ErrorKind, IoSlice};

use frevo_net::frame_reader::FrameReader;
use frevo_net::transport::Stream;
use tokio::time::timeout;

use super::connector::Connector;
use crate::Status;
use crate::connection::{Connection, Offer};
use crate::dial::ServerName;
use crate::error::Cause;
use crate::limits::SPOKEN_WITHIN;
use crate::options::{Encryption, Options};
use crate::types::Dialect;

/// Longest answer to the question for SMB 1, bytes.
const ANSWER_MAX: u32 = 4096;

/// A NEGOTIATE of SMB 1 for the dialect NT LM 0.12 (MS-CIFS 2.2.4.52.1), behind its length.
const SMB1: &[u8] = b"\0\0\0\x2f\xffSMBr\0\0\0\0\x18\x01\x28\0\0\0\0\0\0\0\0\0\0\0\0\
    \0\0\xff\xfe\0\0\0\0\0\x0c\0\x02NT LM 0.12\0";

/// Returns true if a connection may have failed because the server is too old: MS-SMB2 3.3.5.4
/// refuses an offer without a common dialect, and servers without SMB 2 end the connection.
pub(super) fn may_be_too_old(why: &Cause) -> bool {
    match why {
        Cause::Status(status) => *status == Status::NOT_SUPPORTED,
        Cause::Transport(error) => matches!(
            error.kind(),
            ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::UnexpectedEof
        ),
        Cause::NotSmb => true,
        _ => false,
    }
}

/// Returns the cause of a negotiation that failed by `why`, when the server at this address was asked
/// what else it speaks.
pub(super) async fn found(connector: &Connector, server: &ServerName, why: Cause) -> Cause {
    let spoken = timeout(SPOKEN_WITHIN, spoken(connector, server)).await.ok().flatten();
    spoken.unwrap_or(why)
}

/// Returns what the server speaks, if it is older than the options allow.
async fn spoken(connector: &Connector, server: &ServerName) -> Option<Cause> {
    let oldest = connector.options.oldest;
    if oldest > Dialect::Smb202 {
        // All dialects are offered this time. If the server chooses a modern one, the first
        // connection was lost for another reason.
        let options = Options {
            oldest: Dialect::Smb202,
            encryption: Encryption::AsServerAsks,
            ..(*connector.options).clone()
        };
        let stream = connector.dial.dial(server).await.ok()?;
        let unasked = connector.unasked.clone();
        let offer = Offer { only: None, ..connector.offering.offer() };
        let opened = Connection::open(stream, &options, offer, &connector.server, unasked).await;
        if let Ok(connection) = opened {
            let spoken = connection.agreed().terms.dialect.into();
            return (spoken < oldest).then_some(Cause::TooOld(Some(spoken)));
        }
    }
    let stream = connector.dial.dial(server).await.ok()?;
    speaks_smb1(&stream).await.then_some(Cause::TooOld(None))
}

/// Returns true if the server answers in SMB 1.
async fn speaks_smb1(stream: &Stream) -> bool {
    let mut left = SMB1;
    while !left.is_empty() {
        match stream.try_write_vectored(&[IoSlice::new(left)], false) {
            Ok(count) => left = left.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if stream.writable().await.is_err() {
                    return false;
                }
            }
            Err(_) => return false,
        }
    }
    let answer = FrameReader::new(ANSWER_MAX).next(stream).await;
    stream.abort();
    answer.is_ok_and(|frame| frame.is_some_and(|frame| frame.starts_with(b"\xffSMB")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_has_the_length_that_it_says() {
        let (prefix, message) = SMB1.split_at(4);
        assert_eq!(prefix, u32::try_from(message.len()).unwrap().to_be_bytes());
        assert!(message.starts_with(b"\xffSMBr") && message.ends_with(b"\x02NT LM 0.12\0"));
        // After the header of 32 bytes come WordCount (0) and ByteCount (12).
        assert_eq!(message.get(32..35), Some(&[0, 12, 0][..]));
    }
}
