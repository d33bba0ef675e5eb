//! Answers that are errors: codes of gRPC with a reason in words.

use alloc::string::String;

use super::Parsed;
use super::reader::{Reader, whole};
use crate::limits::{ANSWER_BYTES, REASON_BYTES};
use crate::types::Fault;

/// An error that etcd answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refusal {
    /// The code of gRPC, such as 5 for "not found".
    pub code: u64,
    /// The reason in words: at most [`REASON_BYTES`].
    pub reason: String,
}

/// The effect of a refusal on the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The request has this end.
    End(Fault),
    /// The token is missing or no longer valid. The request did not happen.
    Token,
    /// This member cannot serve requests now. The request did not happen.
    NotNow,
    /// It is not known if the request happens.
    Unknown,
}

/// Reads the body of an answer whose status is not 200.
///
/// # Errors
/// [`Fault::Malformed`] if it is not an error of etcd's gateway.
pub fn refusal(body: &[u8]) -> Parsed<Refusal> {
    let refusal = whole(body, |reader| Refusal::read_error(reader))?;
    if refusal.code == 0 && refusal.reason.is_empty() {
        return Err(Fault::Malformed("an error without a reason"));
    }
    Ok(refusal)
}

/// The reason in the body of a refusal that is a text: at most [`REASON_BYTES`].
pub fn plain_reason(body: &[u8]) -> String {
    let start = body.get(..REASON_BYTES).unwrap_or(body);
    shortened(&String::from_utf8_lossy(start))
}

impl Refusal {
    /// Reads an error: that of a request, and that within a stream, which older gateways write with
    /// other names.
    pub(super) fn read_error(reader: &mut Reader<'_>) -> Parsed<Self> {
        let mut refusal = Self::default();
        reader.object(|name, value| {
            match name {
                b"code" | b"grpc_code" => refusal.code = value.unsigned()?,
                // etcd 3.4 has the same words as "error" and as "message".
                b"message" | b"error" if value.is_string() => {
                    refusal.reason = shortened(&value.text(ANSWER_BYTES)?);
                }
                _ => value.skip()?,
            }
            Ok(())
        })?;
        Ok(refusal)
    }

    /// Returns an error that has words only: `rpc error: code = Unauthenticated desc = ...`.
    pub(super) fn of_words(reason: &str) -> Self {
        let code = match reason.split_once("code = ") {
            Some((_, code)) if code.starts_with("Unauthenticated") => 16,
            Some((_, code)) if code.starts_with("Unavailable") => 14,
            Some((_, code)) if code.starts_with("Canceled") => 1,
            _ => 9,
        };
        Self { code, reason: shortened(reason) }
    }

    /// Returns the effect on the request.
    pub fn verdict(self) -> Verdict {
        let is_about = |words: &str| self.reason.contains(words);
        if is_about("requested lease not found") {
            return Verdict::End(Fault::LeaseNotFound);
        }
        if is_about("required revision has been compacted") {
            return Verdict::End(Fault::Compacted);
        }
        // etcd asks for the token before it proposes a change, and compares the revision of the
        // accounts before it applies one.
        if self.code == 16 || is_about("auth store is old") || is_about("user name is empty") {
            return Verdict::Token;
        }
        // A member without a leader refuses requests that want one before it reads them; so does one
        // that has too many.
        if is_about("etcdserver: no leader") || is_about("etcdserver: too many requests") {
            return Verdict::NotNow;
        }
        if is_about("database space exceeded") {
            return Verdict::End(Fault::NoSpace(self.reason));
        }
        if is_about("received message larger than max") {
            return Verdict::End(Fault::Malformed("an answer that is too long"));
        }
        match self.code {
            // Cancelled, unknown, deadline exceeded, internal, unavailable, data loss.
            0 | 1 | 2 | 4 | 13 | 14 | 15 => Verdict::Unknown,
            _ => Verdict::End(Fault::Refused(self.reason)),
        }
    }
}

/// Cuts a reason, and leaves out control characters: it is for logs.
fn shortened(reason: &str) -> String {
    let mut short: String = reason.chars().filter(|letter| !letter.is_control()).collect();
    while short.len() > REASON_BYTES {
        short.pop();
    }
    short
}
