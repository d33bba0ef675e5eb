//! clamd's stream protocol: the command INSTREAM takes chunks, each with its length before it, and the chunk of
//! length 0 ends them. Commands and replies of the form `z` end with a zero byte.

use super::{Machine, Offer, Output, Refusal, Verdict, words};

/// Longest reply, bytes. clamd's have the name of a virus, or an error.
const REPLY_BYTES: usize = 1024;
/// The longest chunk that is sent, bytes.
const CHUNK_BYTES: usize = 32 << 10;

/// A reply up to its zero byte.
#[derive(Debug, Default)]
struct Reply(Vec<u8>);

impl Reply {
    fn take(&mut self, bytes: &[u8]) -> Result<Option<Vec<u8>>, Refusal> {
        let end = bytes.iter().position(|byte| *byte == 0);
        let more = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
        if self.0.len() + more.len() > REPLY_BYTES {
            return Err(Refusal::Malformed("its answer is too long"));
        }
        self.0.extend_from_slice(more);
        Ok(end.map(|_| std::mem::take(&mut self.0)))
    }
}

/// The scan of one file.
#[derive(Debug, Default)]
pub(crate) struct ClamdScan {
    begun: bool,
    sent_all: bool,
    reply: Reply,
}

impl Machine for ClamdScan {
    type Result = Verdict;

    fn next_output(&mut self) -> Output {
        if !self.begun {
            self.begun = true;
            return Output::Bytes(b"zINSTREAM\0".to_vec());
        }
        if self.sent_all { Output::Nothing } else { Output::Data(CHUNK_BYTES) }
    }

    fn frame(&mut self, bytes: &[u8], is_last: bool) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len() + 8);
        if !bytes.is_empty() {
            out.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
            out.extend_from_slice(bytes);
        }
        if is_last {
            out.extend([0; 4]);
            self.sent_all = true;
        }
        out
    }

    fn handle_input(&mut self, bytes: &[u8]) -> Result<Option<Verdict>, Refusal> {
        let Some(reply) = self.reply.take(bytes)? else { return Ok(None) };
        verdict(&reply, self.sent_all).map(Some)
    }
}

/// The verdict of `stream: OK`, `stream: NAME FOUND` or an error. A file is clean only once all of it was sent.
fn verdict(reply: &[u8], sent_all: bool) -> Result<Verdict, Refusal> {
    let said = reply.strip_prefix(b"stream: ").unwrap_or(reply);
    if said == b"OK" {
        return match sent_all {
            true => Ok(Verdict::Clean),
            false => Err(Refusal::Malformed("it answers before it has the file")),
        };
    }
    match said.strip_suffix(b" FOUND") {
        Some(name) => Ok(Verdict::Infected(words(name))),
        None => Err(Refusal::Refused(words(said))),
    }
}

/// The question for the version of clamd and of its signatures.
#[derive(Debug, Default)]
pub(crate) struct ClamdVersion {
    begun: bool,
    reply: Reply,
}

impl Machine for ClamdVersion {
    type Result = Offer;

    fn next_output(&mut self) -> Output {
        if self.begun {
            return Output::Nothing;
        }
        self.begun = true;
        Output::Bytes(b"zVERSION\0".to_vec())
    }

    fn frame(&mut self, _bytes: &[u8], _is_last: bool) -> Vec<u8> {
        Vec::new()
    }

    /// `ClamAV 1.4.3/27453/Mon Nov 30 09:26:44 2026`: program, number of the signatures, their time.
    fn handle_input(&mut self, bytes: &[u8]) -> Result<Option<Offer>, Refusal> {
        Ok(self.reply.take(bytes)?.map(|tag| Offer { tag, preview: None }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_sent_in_chunks_and_judged_by_the_reply() {
        let mut scan = ClamdScan::default();
        assert_eq!(scan.next_output(), Output::Bytes(b"zINSTREAM\0".to_vec()));
        assert_eq!(scan.next_output(), Output::Data(CHUNK_BYTES));
        assert_eq!(scan.frame(b"abc", false), b"\0\0\0\x03abc");
        assert_eq!(scan.frame(b"d", true), b"\0\0\0\x01d\0\0\0\0");
        assert_eq!(scan.next_output(), Output::Nothing);
        assert_eq!(scan.handle_input(b"stream: O"), Ok(None));
        assert_eq!(scan.handle_input(b"K\0"), Ok(Some(Verdict::Clean)));
        let mut empty = ClamdScan::default();
        assert_eq!(empty.frame(b"", true), [0; 4]);
        let found = empty.handle_input(b"stream: Eicar-Test-Signature FOUND\0");
        assert_eq!(found, Ok(Some(Verdict::Infected(String::from("Eicar-Test-Signature")))));
    }

    #[test]
    fn other_replies_are_no_verdict() {
        let reply = |bytes: &[u8]| {
            let mut scan = ClamdScan::default();
            scan.frame(b"", true);
            scan.handle_input(bytes)
        };
        let said = String::from("INSTREAM size limit exceeded. ERROR");
        assert_eq!(reply(b"INSTREAM size limit exceeded. ERROR\0"), Err(Refusal::Refused(said)));
        assert_eq!(reply(b"\0"), Err(Refusal::Refused(String::new())));
        let controls = Err(Refusal::Refused(String::from("a?b")));
        assert_eq!(reply(b"stream: a\x1bb\0"), controls);
        let long = Err(Refusal::Malformed("its answer is too long"));
        assert_eq!(reply(&[b'a'; REPLY_BYTES + 1]), long);
        // A service that says OK at once has not seen the file.
        let mut early = ClamdScan::default();
        early.frame(b"abc", false);
        assert!(early.handle_input(b"stream: OK\0").is_err());
        assert_eq!(early.handle_end(), Err(Refusal::Closed));
        let mut drip = ClamdScan::default();
        let ends = (0..=REPLY_BYTES).map(|_| drip.handle_input(b"a")).find(Result::is_err);
        assert_eq!(ends, Some(long));
    }

    #[test]
    fn the_version_is_told() {
        let mut version = ClamdVersion::default();
        assert_eq!(version.next_output(), Output::Bytes(b"zVERSION\0".to_vec()));
        assert_eq!(version.next_output(), Output::Nothing);
        assert_eq!(version.handle_input(b"ClamAV 1.4.3/27453/").unwrap(), None);
        assert_eq!(version.handle_input(b"x\0").unwrap().unwrap().tag, b"ClamAV 1.4.3/27453/x");
    }
}
