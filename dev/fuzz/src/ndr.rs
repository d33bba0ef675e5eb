//! NDR as pipes carry it: a program of reads on any bytes, and of writes that must be
//! read back.

use frevo_rpc::srvsvc;
use frevo_wire::dtyp::Sid;
use frevo_wire::ndr::{NdrReader, NdrWriter};

use crate::choices::Choices;

const WHAT: &str = "fuzz";

/// The first byte chooses; reads take their program from the first chunk.
pub fn ndr(data: &[u8]) {
    let mut choices = Choices::new(data);
    match choices.u8() % 3 {
        0 => reads(choices.blob(), choices.rest()),
        1 => writes(&mut choices),
        _ => {
            let level = u32::from(choices.u8()) % 600;
            let stub = choices.rest();
            for level in [0, 1, 2, 501, 502, level] {
                let _ = srvsvc::parse_share_info(stub, level);
                let _ = srvsvc::ShareEnumReply::parse(stub, level);
            }
        }
    }
}

fn reads(program: &[u8], stub: &[u8]) {
    let mut reader = NdrReader::new(stub);
    for step in program {
        let before = reader.remaining();
        let count = u32::from(step / 12);
        let read = match step % 12 {
            0 => reader.u8(WHAT).map(drop),
            1 => reader.u16(WHAT).map(drop),
            2 => reader.u32(WHAT).map(drop),
            3 => reader.handle(WHAT).map(drop),
            4 => reader.sid(WHAT).map(drop),
            5 => reader.sid_or_none(WHAT).map(drop),
            6 => match reader.unicode_head(WHAT) {
                Ok(head) => reader.unicode(head, WHAT).map(drop),
                Err(fault) => Err(fault),
            },
            7 => reader.string(WHAT).map(drop),
            8 => reader.unique_string(WHAT).map(drop),
            9 => reader.bytes(count, WHAT).map(drop),
            10 => reader.varying(count, 4, WHAT).map(drop),
            _ => reader.array(count, 4, WHAT).map(|count| {
                assert!(count <= reader.remaining() / 4, "an array that is there");
            }),
        };
        assert!(reader.remaining() <= before);
        if read.is_err() {
            return;
        }
    }
}

fn writes(choices: &mut Choices<'_>) {
    let mut writer = NdrWriter::new();
    let (number, half, byte) = (choices.u32(), choices.u16(), choices.u8());
    let bytes = choices.blob();
    let sid = Sid::parse(choices.take(24)).unwrap_or(Sid::EVERYONE);
    // In NDR a NUL ends a string, so the text must not contain one.
    let text: String = choices.text().chars().filter(|c| *c != '\0').collect();
    writer.u8(byte).u16(half).u32(number).unique_string(Some(&text)).sid(&sid).bytes(bytes);
    writer.unique_string(None).u32(number);
    let stub = writer.into_stub();
    let mut reader = NdrReader::new(&stub);
    assert_eq!(reader.u8(WHAT), Ok(byte));
    assert_eq!(reader.u16(WHAT), Ok(half));
    assert_eq!(reader.u32(WHAT), Ok(number));
    let read = reader.unique_string(WHAT).expect("a string").expect("one that is there");
    assert!(read.is(&text), "{read:?} {text:?}");
    assert_eq!(reader.sid(WHAT), Ok(sid));
    let count = u32::try_from(bytes.len()).expect("a short list");
    assert_eq!(reader.bytes(count, WHAT), Ok(bytes));
    assert_eq!(reader.unique_string(WHAT), Ok(None));
    assert_eq!(reader.u32(WHAT), Ok(number));
    assert_eq!(reader.remaining(), 0);
}
