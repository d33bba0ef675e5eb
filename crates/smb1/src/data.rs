//! READ_ANDX and WRITE_ANDX: MS-CIFS 2.2.4.42 and 2.2.4.43, MS-SMB 2.2.4.2 and 2.2.4.3.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use frevo_wire::codec::{Malformed, Parsed};

use crate::header::Command;
use crate::message::{Request, Response, and_x, words};
use crate::open::Fid;

/// Where the data of a WRITE begins, from the header.
const DATA_AT: u16 = 64;

/// Divides an offset or a length into its low part and its high one.
const fn halves(number: u32) -> [u16; 2] {
    [(number & 0xFFFF) as u16, (number >> 16) as u16]
}

/// Returns a request for `length` bytes at `offset`. A length over 0xFFFF needs CAP_LARGE_READX.
pub fn read(fid: Fid, offset: u64, length: u32) -> Request<'static> {
    let [low, high] = halves(length);
    let words = and_x(|w| {
        w.u16(fid.0).u32((offset & 0xFFFF_FFFF) as u32).u16(low).u16(0);
        w.u32(high.into()).u16(0).u32((offset >> 32) as u32);
    });
    Request::new(Command::READ_ANDX, words, Vec::new())
}

/// Returns where the data is in a response to a request for `asked` bytes, from its header.
///
/// # Errors
/// If it is malformed, or has more than was asked for.
pub fn read_range(response: &Response<'_>, asked: u32) -> Parsed<Range<usize>> {
    let r = &mut response.and_x(12, "READ_ANDX WordCount")?;
    r.skip(6, "Available to Reserved1")?;
    let low = u32::from(r.u16("DataLength")?);
    let offset = u32::from(r.u16("DataOffset")?);
    let high = u32::from(r.u16("DataLengthHigh")?);
    let length = high << 16 | low;
    if length > asked {
        return Err(Malformed::new("DataLength: more than was asked for"));
    }
    let data = response.pointed(offset, length, "DataOffset")?;
    let start = if data.is_empty() { 0 } else { usize::try_from(offset).unwrap_or(0) };
    Ok(start..start.saturating_add(data.len()))
}

/// Returns a request to write `data` at `offset`. More than 0xFFFF bytes need CAP_LARGE_WRITEX.
pub fn write(fid: Fid, offset: u64, data: &[u8]) -> Request<'_> {
    let [low, high] = halves(u32::try_from(data.len()).unwrap_or(u32::MAX));
    let words = and_x(|w| {
        w.u16(fid.0).u32((offset & 0xFFFF_FFFF) as u32).u32(0).u16(0).u16(0);
        w.u16(high).u16(low).u16(DATA_AT).u32((offset >> 32) as u32);
    });
    Request { command: Command::WRITE_ANDX, words, bytes: vec![0], payload: data }
}

/// Returns a request that sets the length of a file: a WRITE of no bytes there, MS-CIFS 2.2.4.12.1.
pub fn set_length(fid: Fid, length: u32) -> Request<'static> {
    let words = words(|w| {
        w.u16(fid.0).u16(0).u32(length).u16(0);
    });
    // BufferFormat and DataLength.
    Request::new(Command::WRITE, words, vec![1, 0, 0])
}

/// Returns the count of bytes that a response says were written, of `asked`.
///
/// # Errors
/// If it is malformed, or tells more than were sent.
pub fn written(response: &Response<'_>, asked: u32) -> Parsed<u32> {
    let r = &mut response.and_x(6, "WRITE_ANDX WordCount")?;
    let low = u32::from(r.u16("Count")?);
    r.skip(2, "Available")?;
    let high = u32::from(r.u16("CountHigh")?);
    let count = high << 16 | low;
    if count > asked {
        return Err(Malformed::new("Count: more than was sent"));
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Flags2;
    use crate::header::Header;
    use crate::message::PREFIX_LEN as PREFIX;

    const HEADER: Header = Header {
        command: Command::READ_ANDX,
        status: 0,
        is_reply: true,
        flags2: Flags2::EMPTY,
        signature: [0; 8],
        tree: 1,
        user: 2,
        mid: 3,
    };

    #[test]
    fn the_data_of_a_write_is_where_its_offset_says() {
        let data = vec![7u8; 0x1_0002];
        let request = write(Fid(9), 0x1_0000_0005, &data);
        assert_eq!(request.words.len(), 28);
        let frame = request.frame(&HEADER);
        let message = &frame[PREFIX..];
        assert_eq!(message[usize::from(DATA_AT)..], data);
        let words = &message[33..61];
        assert_eq!(words[4..10], [9, 0, 5, 0, 0, 0], "FID, Offset");
        assert_eq!(words[18..24], [1, 0, 2, 0, 64, 0], "DataLengthHigh, DataLength, DataOffset");
        assert_eq!(words[24..28], [1, 0, 0, 0], "OffsetHigh");
        assert_eq!(message[61..63], [3, 0], "the low bits of ByteCount");
    }

    fn answer(length: [u16; 2], offset: u16, bytes: &[u8]) -> Vec<u8> {
        let words = and_x(|w| {
            w.u16(0xFFFF).u16(0).u16(0).u16(length[0]).u16(offset).u16(length[1]).zeros(8);
        });
        Request::new(Command::READ_ANDX, words, bytes.to_vec()).frame(&HEADER)[PREFIX..].to_vec()
    }

    fn read_of(message: &[u8], asked: u32) -> Parsed<Vec<u8>> {
        let range = read_range(&Response::parse(message).unwrap(), asked)?;
        Ok(message[range].to_vec())
    }

    #[test]
    fn data_is_read_at_its_offset_and_never_outside() {
        assert_eq!(read_of(&answer([3, 0], 60, &[0, 1, 2, 3]), 3).unwrap(), [1, 2, 3]);
        assert_eq!(read_of(&answer([0, 0], 0, &[]), 3).unwrap(), []);
        assert!(read_of(&answer([3, 0], 60, &[0, 1, 2, 3]), 2).is_err(), "more than asked");
        assert!(read_of(&answer([4, 0], 60, &[0, 1, 2, 3]), 9).is_err(), "beyond the end");
        assert!(read_of(&answer([3, 0], 32, &[0, 1, 2, 3]), 9).is_err(), "inside of the words");
        assert!(read_of(&answer([3, 1], 60, &[0, 1, 2, 3]), u32::MAX).is_err(), "64 KiB and more");
        let large = vec![5u8; 0x1_0001];
        assert_eq!(read_of(&answer([1, 1], 59, &large), 0x1_0001).unwrap(), large);
    }

    #[test]
    fn a_count_over_what_was_sent_is_refused() {
        let of = |low, high, asked| {
            let words = and_x(|w| {
                w.u16(low).u16(0).u16(high).u16(0);
            });
            let frame = Request::new(Command::WRITE_ANDX, words, Vec::new()).frame(&HEADER);
            written(&Response::parse(&frame[PREFIX..]).unwrap(), asked)
        };
        assert_eq!(of(5, 1, 0x1_0005), Ok(0x1_0005));
        assert!(of(6, 1, 0x1_0005).is_err());
        let short = Request::new(Command::WRITE_ANDX, words(|_| {}), Vec::new()).frame(&HEADER);
        assert!(written(&Response::parse(&short[PREFIX..]).unwrap(), 1).is_err());
    }
}
