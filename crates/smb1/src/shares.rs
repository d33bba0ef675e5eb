//! Lists of shares by the Remote Administration Protocol, MS-RAP, for servers without the calls of MS-SRVS.
//! Its strings have one byte for each character, on every connection.

use alloc::string::String;
use alloc::vec::Vec;

use frevo_wire::codec::{Malformed, Parsed, Reader};

use crate::charset::{Charset, CodePage, Unmappable};
use crate::header::Command;
use crate::limits::LIST_BYTES;
use crate::message::Request;
use crate::transaction::{Results, Transaction};

/// NetShareEnum, MS-RAP 2.5.6.1.1: its opcode, ParamDesc, DataDesc and the level 1.
const NET_SHARE_ENUM: &[u8] = b"\0\0WrLeh\0B13BWz\0\x01\0";

/// The pipe of RAP, MS-CIFS 3.2.4.42.
const PIPE: &str = "\\PIPE\\LANMAN";

/// Bytes of a NetShareInfo1, MS-RAP 2.5.6.3.2.
const SHARE_BYTES: usize = 20;

/// ERROR_MORE_DATA: there are more shares than the answer has.
const MORE_DATA: u16 = 234;

/// A share in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedShare {
    /// Its name.
    pub name: String,
    /// Its kind: 0 for files, 1 for a printer, 2 for a device, 3 for pipes.
    pub kind: u16,
    /// The comment of the server on it.
    pub comment: String,
}

/// The answer to a request for the shares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listed {
    /// The shares; `is_whole` is false if the server has more of them.
    Shares {
        /// The shares.
        shares: Vec<ListedShare>,
        /// True if these are all shares with names that the protocol has.
        is_whole: bool,
    },
    /// The server's error, a code of MS-ERREF 2.2.
    Refused(u16),
}

/// Returns a request for the shares, in the tree connect of IPC$.
///
/// # Errors
/// None: the name has ASCII characters alone.
pub fn list(charset: Charset) -> Result<Request<'static>, Unmappable> {
    let parameters = &[NET_SHARE_ENUM, &LIST_BYTES.to_le_bytes()].concat();
    let (command, name) = (Command::TRANSACTION, Some(PIPE));
    let (setup, data, max_data) = (&[][..], &[][..], LIST_BYTES);
    Transaction { command, name, setup, parameters, data, max_data }.request(charset)
}

/// Reads the answer to [`list`].
///
/// # Errors
/// If it is malformed.
pub fn listed(results: &Results, page: CodePage) -> Parsed<Listed> {
    // MS-RAP 2.5.2 and 2.5.6.1.2.
    let r = &mut results.reader();
    let status = r.u16("Win32ErrorCode")?;
    if status != 0 && status != MORE_DATA {
        return Ok(Listed::Refused(status));
    }
    let converter = r.u16("Converter")?;
    let count = usize::from(r.u16("EntriesReturned")?);
    let available = usize::from(r.u16("EntriesAvailable")?);
    let fixed = count.saturating_mul(SHARE_BYTES);
    let Some(entries) = results.data.get(..fixed) else {
        return Err(Malformed::new("EntriesReturned"));
    };
    let text = |bytes: &[u8]| Charset::Oem(page).decode(bytes);
    let one = |entry: &[u8]| -> Parsed<ListedShare> {
        let r = &mut Reader::new(entry);
        let name = text(r.take(13, "NetworkName")?)?;
        r.skip(1, "Pad")?;
        let kind = r.u16("Type")?;
        // The upper half of the offset is not used.
        let at = usize::from(r.u16("RemarkOffsetLow")?.wrapping_sub(converter));
        let comment = text(results.data.get(at..).unwrap_or_default())?;
        Ok(ListedShare { name, kind, comment })
    };
    let shares = entries.chunks_exact(SHARE_BYTES).map(one).collect::<Parsed<Vec<_>>>()?;
    Ok(Listed::Shares { shares, is_whole: status == 0 && count >= available })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::{Flags2, Header};
    use crate::message::PREFIX_LEN;
    use crate::transaction::tests::HEADER;
    use alloc::vec;
    use proptest::prelude::*;

    fn results(status: u16, converter: u16, counts: [u16; 2], data: Vec<u8>) -> Results {
        let parameters = [status, converter, counts[0], counts[1]];
        Results { parameters: parameters.into_iter().flat_map(u16::to_le_bytes).collect(), data }
    }

    fn share(name: &[u8], kind: u16, remark: u16) -> Vec<u8> {
        let mut entry = name.to_vec();
        entry.resize(14, 0);
        entry.extend([kind, remark, 0xAAAA].into_iter().flat_map(u16::to_le_bytes));
        entry
    }

    #[test]
    fn a_request_asks_for_the_first_level() {
        let flags2 = Flags2(Flags2::NT_STATUS.0);
        let header = Header { command: Command::TRANSACTION, flags2, ..HEADER };
        let request = list(Charset::Oem(CodePage::Cp850)).unwrap();
        let message = &request.frame(&header)[PREFIX_LEN..];
        // No setup words, and the parameters of the example in MS-RAP 4.1.
        assert_eq!(message[32], 14);
        assert!(message.windows(13).any(|part| part == b"\\PIPE\\LANMAN\0"));
        assert!(message.ends_with(b"\0\0WrLeh\0B13BWz\0\x01\0\xFF\x7F"));
    }

    #[test]
    fn the_converter_counts_before_the_comments() {
        let mut data = [share(b"JOBS", 0, 0x1028), share(b"IPC$", 3, 0x102F)].concat();
        data.extend(b"\x84lt. 1\0x\0");
        let found = listed(&results(0, 0x1000, [2, 2], data.clone()), CodePage::Cp850).unwrap();
        let shares = [("JOBS", 0, "ält. 1"), ("IPC$", 3, "x")];
        let shares = shares.map(|(name, kind, comment)| ListedShare {
            name: name.into(),
            kind,
            comment: comment.into(),
        });
        assert_eq!(found, Listed::Shares { shares: shares.to_vec(), is_whole: true });
        let found = listed(&results(234, 0x1000, [1, 2], data), CodePage::Cp850).unwrap();
        assert_eq!(found, Listed::Shares { shares: shares[..1].to_vec(), is_whole: false });
    }

    #[test]
    fn wrong_answers_are_refused() {
        let page = CodePage::Cp850;
        assert_eq!(listed(&results(5, 0, [0, 0], vec![]), page), Ok(Listed::Refused(5)));
        assert!(listed(&results(0, 0, [2, 2], share(b"A", 0, 0)), page).is_err());
        let cut = Results { parameters: vec![0, 0, 0], data: vec![] };
        assert!(listed(&cut, page).is_err());
        // A comment outside of the answer is none.
        let far = results(0, 0, [1, 1], share(b"A", 0, 9_000));
        let Ok(Listed::Shares { shares, .. }) = listed(&far, page) else { panic!("no list") };
        assert_eq!(shares[0].comment, "");
    }

    proptest! {
        #[test]
        fn any_answer_is_read(
            parameters in proptest::collection::vec(any::<u8>(), 0..12),
            data in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let _ = listed(&Results { parameters, data }, CodePage::Cp437);
        }
    }
}
