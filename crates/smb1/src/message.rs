//! Messages: a header, a parameter block of words, a data block of bytes (MS-CIFS 2.2.3).

use alloc::vec::Vec;

use frevo_wire::codec::{Malformed, Parsed, Reader, Writer, pointed};

use crate::header::{Command, HEADER_LEN, Header};

/// Bytes before the header that the length of the message takes: RFC 1002 4.3.1, MS-SMB 2.1.
pub const PREFIX_LEN: usize = 4;

/// Where the parameter words begin, from the header.
const WORDS_AT: usize = HEADER_LEN + 1;

/// A request that is not encoded yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request<'a> {
    /// The operation.
    pub command: Command,
    /// The parameter words, as bytes. Their number is even.
    pub words: Vec<u8>,
    /// The data block, up to the payload.
    pub bytes: Vec<u8>,
    /// The end of the data block: data of a file.
    pub payload: &'a [u8],
}

impl Request<'_> {
    /// Returns a request without payload.
    pub(crate) const fn new(command: Command, words: Vec<u8>, bytes: Vec<u8>) -> Self {
        Self { command, words, bytes, payload: &[] }
    }

    /// Returns the length of the message, from the header.
    pub fn message_len(&self) -> usize {
        let blocks = self.words.len().saturating_add(self.bytes.len());
        blocks.saturating_add(self.payload.len()).saturating_add(WORDS_AT).saturating_add(2)
    }

    /// Returns the message behind its length, up to the payload.
    pub(crate) fn head(&self, header: &Header) -> Vec<u8> {
        let len = self.message_len();
        let head_len = len.saturating_sub(self.payload.len()).saturating_add(PREFIX_LEN);
        let mut frame = Vec::with_capacity(head_len);
        let prefix = u32::try_from(len).unwrap_or(u32::MAX) & 0x00FF_FFFF;
        frame.extend_from_slice(&prefix.to_be_bytes());
        let mut w = Writer::new(&mut frame);
        header.encode(&mut w);
        w.u8(u8::try_from(self.words.len() / 2).unwrap_or(u8::MAX)).bytes(&self.words);
        // MS-SMB 2.2.4.3.1: the count of a large WRITE is in its words; this field has the low bits.
        let count = self.bytes.len().saturating_add(self.payload.len()) & 0xFFFF;
        w.u16(u16::try_from(count).unwrap_or(u16::MAX)).bytes(&self.bytes);
        frame
    }

    /// Returns the message behind its length.
    #[cfg(test)]
    pub(crate) fn frame(&self, header: &Header) -> Vec<u8> {
        let mut frame = self.head(header);
        frame.extend_from_slice(self.payload);
        frame
    }
}

/// The words of a request, behind the AndX block of commands that have one.
pub(crate) fn words(fill: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut words = Vec::with_capacity(64);
    fill(&mut Writer::new(&mut words));
    debug_assert!(words.len().is_multiple_of(2), "parameters are words");
    words
}

/// The words of a request that ends its AndX chain.
pub(crate) fn and_x(fill: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    words(|w| {
        w.u8(Command::NO_ANDX_COMMAND.0).u8(0).u16(0);
        fill(w);
    })
}

/// A parsed response.
#[derive(Debug, Clone, Copy)]
pub struct Response<'a> {
    /// The header.
    pub header: Header,
    message: &'a [u8],
    words: &'a [u8],
    bytes: &'a [u8],
    bytes_at: usize,
}

impl<'a> Response<'a> {
    /// Parses a message from its header.
    ///
    /// # Errors
    /// If a block goes beyond its end.
    pub fn parse(message: &'a [u8]) -> Parsed<Self> {
        let header = Header::parse(message)?;
        let r = &mut Reader::new(message);
        r.skip(HEADER_LEN, "header")?;
        let words = usize::from(r.u8("WordCount")?).saturating_mul(2);
        let words = r.take(words, "Words")?;
        // Errors of some servers end behind the words.
        let count = if r.is_empty() { 0 } else { usize::from(r.u16("ByteCount")?) };
        let bytes_at = r.position();
        let bytes = r.take(count, "Bytes")?;
        Ok(Self { header, message, words, bytes, bytes_at })
    }

    /// Returns a reader of the parameter words, which must be at least `least` words.
    pub(crate) fn words(&self, least: usize, what: &'static str) -> Parsed<Reader<'a>> {
        if self.words.len() / 2 < least {
            return Err(Malformed::new(what));
        }
        Ok(Reader::new(self.words))
    }

    /// Returns a reader of the words behind the AndX block. A response that is a chain was not asked for.
    pub(crate) fn and_x(&self, least: usize, what: &'static str) -> Parsed<Reader<'a>> {
        let mut r = self.words(least, what)?;
        if Command(r.u8("AndXCommand")?) != Command::NO_ANDX_COMMAND {
            return Err(Malformed::new("AndXCommand"));
        }
        r.skip(3, "AndXOffset")?;
        Ok(r)
    }

    /// Returns the number of parameter words.
    pub const fn word_count(&self) -> usize {
        self.words.len() / 2
    }

    /// Returns the data block.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the part of the message behind the words that an offset from the header points to.
    pub(crate) fn pointed(&self, offset: u32, length: u32, what: &'static str) -> Parsed<&'a [u8]> {
        pointed(self.message, offset, length, self.bytes_at, what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Flags2;
    use proptest::prelude::*;

    pub(crate) const HEADER: Header = Header {
        command: Command::ECHO,
        status: 0,
        is_reply: true,
        flags2: Flags2::EMPTY,
        signature: [0; 8],
        tree: 1,
        user: 2,
        mid: 3,
    };

    #[test]
    fn a_message_is_taken_apart_as_it_was_put_together() {
        let request = Request {
            command: Command::ECHO,
            words: [1, 0, 2, 0].to_vec(),
            bytes: [7].to_vec(),
            payload: &[8, 9],
        };
        let frame = request.frame(&HEADER);
        assert_eq!(frame[..4], [0, 0, 0, 32 + 1 + 4 + 2 + 3]);
        assert_eq!(frame.len(), request.message_len() + 4);
        let response = Response::parse(&frame[4..]).unwrap();
        assert_eq!(response.word_count(), 2);
        assert_eq!(response.bytes(), [7, 8, 9]);
        assert_eq!(response.words(2, "x").unwrap().u16("x").unwrap(), 1);
        assert!(response.words(3, "x").is_err());
        assert!(response.and_x(2, "x").is_err(), "a chain");
        assert_eq!(response.pointed(39, 3, "x").unwrap(), [7, 8, 9]);
        assert!(response.pointed(38, 1, "x").is_err(), "inside of the words");
        assert!(response.pointed(39, 4, "x").is_err(), "beyond the end");
        assert_eq!(response.pointed(0, 0, "x").unwrap(), []);
    }

    #[test]
    fn blocks_beyond_the_end_are_refused() {
        let frame = Request::new(Command::ECHO, [1, 0].to_vec(), [7].to_vec()).frame(&HEADER);
        for end in 32..frame.len() - 4 {
            let cut = Response::parse(&frame[4..4 + end]);
            // Where the words end, a byte count may be left out.
            assert_eq!(cut.is_ok(), end == 35, "{end}");
        }
    }

    proptest! {
        #[test]
        fn any_message_is_parsed(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut message = crate::header::PROTOCOL_ID.to_vec();
            message.extend_from_slice(&bytes);
            let _ = Response::parse(&message);
        }
    }
}
