//! TRANSACTION and TRANSACTION2: MS-CIFS 2.2.4.33 and 2.2.4.46. A request is one message; an answer may be
//! several.

use alloc::vec::Vec;

use frevo_wire::codec::{Malformed, Parsed, Reader};

use crate::charset::{Charset, Strings, Unmappable};
use crate::header::{Command, HEADER_LEN};
use crate::limits::{TRANSACTION_BYTES_MAX, TRANSACTION_PARTS_MAX};
use crate::message::{Request, Response, words};

/// The subcommands of TRANSACTION2, MS-CIFS 2.2.6.
pub(crate) const FIND_FIRST2: u16 = 0x0001;
/// TRANS2_FIND_NEXT2
pub(crate) const FIND_NEXT2: u16 = 0x0002;
/// TRANS2_QUERY_FS_INFORMATION
pub(crate) const QUERY_FS_INFORMATION: u16 = 0x0003;
/// TRANS2_SET_FS_INFORMATION
pub(crate) const SET_FS_INFORMATION: u16 = 0x0004;
/// TRANS2_QUERY_PATH_INFORMATION
pub(crate) const QUERY_PATH_INFORMATION: u16 = 0x0005;
/// TRANS2_SET_PATH_INFORMATION
pub(crate) const SET_PATH_INFORMATION: u16 = 0x0006;
/// TRANS2_QUERY_FILE_INFORMATION
pub(crate) const QUERY_FILE_INFORMATION: u16 = 0x0007;
/// TRANS2_SET_FILE_INFORMATION
pub(crate) const SET_FILE_INFORMATION: u16 = 0x0008;

/// TRANS_TRANSACT_NMPIPE, MS-CIFS 2.2.5.6.
const TRANSACT_NMPIPE: u16 = 0x0026;

/// Parameters of an answer that are accepted, bytes.
const PARAMETERS_MAX: u16 = 64;

/// Data of an answer that is accepted, bytes: with the parameters and the rest one message of this client.
const DATA_MAX: u16 = 0xFFFF - 1_024;

/// A transaction to send.
#[derive(Debug)]
pub(crate) struct Transaction<'a> {
    pub(crate) command: Command,
    /// The name of the pipe or mailslot, of TRANSACTION.
    pub(crate) name: Option<&'a str>,
    pub(crate) setup: &'a [u16],
    pub(crate) parameters: &'a [u8],
    pub(crate) data: &'a [u8],
    pub(crate) max_data: u16,
}

/// The next multiple of 4, counted from the header, for a position in the data block.
const fn aligned(words: usize, at: usize) -> usize {
    let before = HEADER_LEN.saturating_add(3).saturating_add(words);
    before.saturating_add(at).saturating_add(3) & !3
}

impl Transaction<'_> {
    /// Returns the request.
    ///
    /// # Errors
    /// If the code page lacks a character of the name.
    pub(crate) fn request(&self, charset: Charset) -> Result<Request<'static>, Unmappable> {
        let field = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
        let mut bytes = Strings::new(charset);
        match self.name {
            Some(name) => bytes.text(name)?,
            None => bytes.raw(&[0]),
        };
        let words_len = self.setup.len().saturating_mul(2).saturating_add(28);
        let before = HEADER_LEN.saturating_add(3).saturating_add(words_len);
        let parameters_at = aligned(words_len, bytes.bytes.len());
        bytes.bytes.resize(parameters_at.saturating_sub(before), 0);
        bytes.raw(self.parameters);
        let data_at = aligned(words_len, bytes.bytes.len());
        if !self.data.is_empty() {
            bytes.bytes.resize(data_at.saturating_sub(before), 0);
            bytes.raw(self.data);
        }
        let words = words(|w| {
            w.u16(field(self.parameters.len())).u16(field(self.data.len()));
            w.u16(PARAMETERS_MAX).u16(self.max_data).u8(0).u8(0).u16(0).u32(0).u16(0);
            w.u16(field(self.parameters.len())).u16(field(parameters_at));
            w.u16(field(self.data.len())).u16(field(data_at));
            w.u8(u8::try_from(self.setup.len()).unwrap_or(u8::MAX)).u8(0);
            for word in self.setup {
                w.u16(*word);
            }
        });
        Ok(Request::new(self.command, words, bytes.bytes))
    }
}

/// Returns a request of TRANSACTION2 with one subcommand.
pub(crate) fn transaction2(
    charset: Charset,
    subcommand: u16,
    parameters: &[u8],
    data: &[u8],
) -> Result<Request<'static>, Unmappable> {
    let setup = &[subcommand];
    let (command, name, max_data) = (Command::TRANSACTION2, None, DATA_MAX);
    Transaction { command, name, setup, parameters, data, max_data }.request(charset)
}

/// Returns a request that writes `data` to a pipe and reads up to `max_data` bytes from it.
///
/// # Errors
/// None: the name has ASCII characters alone.
pub fn transact_pipe(
    charset: Charset,
    fid: crate::open::Fid,
    data: &[u8],
    max_data: u16,
) -> Result<Request<'static>, Unmappable> {
    let setup = &[TRANSACT_NMPIPE, fid.0];
    let (command, name, parameters) = (Command::TRANSACTION, Some("\\PIPE\\"), &[][..]);
    let max_data = max_data.min(DATA_MAX);
    Transaction { command, name, setup, parameters, data, max_data }.request(charset)
}

/// The whole answer to a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Results {
    /// The parameters.
    pub parameters: Vec<u8>,
    /// The data.
    pub data: Vec<u8>,
}

impl Results {
    /// Returns a reader of the parameters.
    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader::new(&self.parameters)
    }
}

/// An answer that is put together from its messages.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    results: Results,
    parts: usize,
}

/// The fields of one message of an answer.
struct Part<'a> {
    total_parameters: usize,
    total_data: usize,
    parameters: &'a [u8],
    parameters_at: usize,
    data: &'a [u8],
    data_at: usize,
}

impl<'a> Part<'a> {
    fn parse(response: &Response<'a>) -> Parsed<Self> {
        let r = &mut response.words(10, "transaction WordCount")?;
        let total_parameters = usize::from(r.u16("TotalParameterCount")?);
        let total_data = usize::from(r.u16("TotalDataCount")?);
        r.skip(2, "Reserved1")?;
        let parameter_count = u32::from(r.u16("ParameterCount")?);
        let parameter_offset = u32::from(r.u16("ParameterOffset")?);
        let parameters_at = usize::from(r.u16("ParameterDisplacement")?);
        let data_count = u32::from(r.u16("DataCount")?);
        let data_offset = u32::from(r.u16("DataOffset")?);
        let data_at = usize::from(r.u16("DataDisplacement")?);
        let parameters = response.pointed(parameter_offset, parameter_count, "ParameterOffset")?;
        let data = response.pointed(data_offset, data_count, "DataOffset")?;
        Ok(Self { total_parameters, total_data, parameters, parameters_at, data, data_at })
    }
}

impl Gathering {
    /// Takes the next message. Returns the answer when it is whole.
    ///
    /// # Errors
    /// If the message is malformed, or does not continue those before it. TCP keeps their order, so that
    /// one out of order comes from no server.
    pub(crate) fn take(&mut self, response: &Response<'_>) -> Parsed<Option<Results>> {
        let part = Part::parse(response)?;
        self.parts = self.parts.saturating_add(1);
        if self.parts > TRANSACTION_PARTS_MAX {
            return Err(Malformed::new("transaction: too many parts"));
        }
        let Results { parameters, data } = &mut self.results;
        if (!part.parameters.is_empty() && part.parameters_at != parameters.len())
            || (!part.data.is_empty() && part.data_at != data.len())
        {
            return Err(Malformed::new("transaction: a part out of order"));
        }
        parameters.extend_from_slice(part.parameters);
        data.extend_from_slice(part.data);
        if parameters.len().saturating_add(data.len()) > TRANSACTION_BYTES_MAX
            || parameters.len() > part.total_parameters
            || data.len() > part.total_data
        {
            return Err(Malformed::new("transaction: more than its total"));
        }
        let is_whole = parameters.len() == part.total_parameters && data.len() == part.total_data;
        Ok(is_whole.then(|| core::mem::take(&mut self.results)))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::header::Header;
    use crate::message::PREFIX_LEN;
    use crate::{CodePage, Flags2};

    pub(crate) const HEADER: Header = Header {
        command: Command::TRANSACTION2,
        status: 0,
        is_reply: true,
        flags2: Flags2(Flags2::NT_STATUS.0 | Flags2::UNICODE.0),
        signature: [0; 8],
        tree: 1,
        user: 2,
        mid: 3,
    };

    /// A message of an answer: totals, parameters with their displacement, data with theirs.
    pub(crate) fn part(
        header: &Header,
        totals: [u16; 2],
        parameters: (u16, &[u8]),
        data: (u16, &[u8]),
    ) -> Vec<u8> {
        let at = 32 + 1 + 20 + 2 + 1;
        let count = |bytes: &[u8]| u16::try_from(bytes.len()).unwrap();
        let words = words(|w| {
            w.u16(totals[0]).u16(totals[1]).u16(0);
            w.u16(count(parameters.1)).u16(at).u16(parameters.0);
            w.u16(count(data.1)).u16(at + count(parameters.1)).u16(data.0).u8(0).u8(0);
        });
        let bytes = [&[0], parameters.1, data.1].concat();
        Request::new(header.command, words, bytes).frame(header)[PREFIX_LEN..].to_vec()
    }

    fn take(gathering: &mut Gathering, message: &[u8]) -> Parsed<Option<Results>> {
        gathering.take(&Response::parse(message).unwrap())
    }

    #[test]
    fn parameters_and_data_of_a_request_are_aligned() {
        for (charset, name) in [
            (Charset::Unicode, None),
            (Charset::Unicode, Some("\\PIPE\\")),
            (Charset::Oem(CodePage::Cp850), Some("\\PIPE\\")),
        ] {
            let (parameters, data) = (&[1, 2, 3][..], &[4, 5][..]);
            let (command, setup, max_data) = (Command::TRANSACTION, &[0x26, 9][..], 100);
            let request = Transaction { command, name, setup, parameters, data, max_data };
            let message = &request.request(charset).unwrap().frame(&HEADER)[PREFIX_LEN..];
            assert_eq!(message[32], 16);
            let word = |at: usize| {
                usize::from(u16::from_le_bytes([message[33 + 2 * at], message[34 + 2 * at]]))
            };
            assert_eq!([word(0), word(1), word(3), word(9), word(11)], [3, 2, 100, 3, 2]);
            assert!(word(10).is_multiple_of(4) && word(12).is_multiple_of(4));
            assert_eq!(&message[word(10)..][..3], parameters);
            assert_eq!(&message[word(12)..], data);
            assert_eq!([word(13), word(14), word(15)], [2, 0x26, 9]);
        }
    }

    #[test]
    fn an_answer_in_parts_is_put_together() {
        let mut gathering = Gathering::default();
        assert_eq!(take(&mut gathering, &part(&HEADER, [2, 5], (0, b"pp"), (0, b"ab"))), Ok(None));
        assert_eq!(take(&mut gathering, &part(&HEADER, [2, 5], (0, b""), (2, b"c"))), Ok(None));
        // A total may become smaller.
        let whole = take(&mut gathering, &part(&HEADER, [2, 4], (0, b""), (3, b"d"))).unwrap();
        assert_eq!(whole.unwrap(), Results { parameters: b"pp".to_vec(), data: b"abcd".to_vec() });
    }

    #[test]
    fn parts_that_do_not_fit_are_refused() {
        let first = part(&HEADER, [0, 4], (0, b""), (0, b"ab"));
        for (totals, at, data, why) in [
            ([0, 4], 1, &b"b"[..], "overlaps"),
            ([0, 4], 3, b"d", "leaves a hole"),
            ([0, 4], 2, b"cde", "more than the total"),
            ([0, 1], 2, b"c", "a total below what is there"),
        ] {
            let mut gathering = Gathering::default();
            assert_eq!(take(&mut gathering, &first), Ok(None));
            let next = part(&HEADER, totals, (0, b""), (at, data));
            assert!(take(&mut gathering, &next).is_err(), "{why}");
        }
        let mut gathering = Gathering::default();
        let empty = part(&HEADER, [0, 4], (0, b""), (0, b""));
        for _ in 0..TRANSACTION_PARTS_MAX {
            assert_eq!(take(&mut gathering, &empty), Ok(None));
        }
        assert!(take(&mut gathering, &empty).is_err(), "parts without end");
        let mut outside = part(&HEADER, [0, 4], (0, b""), (0, b"abcd"));
        let len = outside.len();
        outside.truncate(len - 1);
        assert!(Response::parse(&outside).is_err());
    }
}
