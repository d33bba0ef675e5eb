//! The verification trailer of a request, MS-RPCE 2.2.2.13: facts about the association that a
//! protected request repeats, so that nobody can have changed them when they were negotiated.

use crate::SyntaxId;
use crate::pdu::PduKind;
use frevo_wire::codec::{Parsed, Reader};
use frevo_wire::open_enum;

/// The signature of rpc_sec_verification_trailer.
const SIGNATURE: [u8; 8] = [0x8A, 0xE3, 0x13, 0x71, 0x02, 0xF4, 0x36, 0x71];

/// SEC_VT_COMMAND_END
const END: u16 = 0x4000;
/// SEC_VT_MUST_PROCESS_COMMAND
const MUST_PROCESS: u16 = 0x8000;

/// CLIENT_SUPPORT_HEADER_SIGNING
const SUPPORTS_HEADER_SIGNING: u32 = 1;

/// Commands of one trailer that are read: at most one instance of each of three is allowed.
const MAX_COMMANDS: usize = 8;

open_enum! {
    /// The command of a part of the trailer, without the two bits of processing.
    VtCommand(u16) {
        /// SEC_VT_COMMAND_BITMASK_1
        BITMASK_1 = 1,
        /// SEC_VT_COMMAND_PCONTEXT
        PCONTEXT = 2,
        /// SEC_VT_COMMAND_HEADER2
        HEADER2 = 3,
    }
}

/// The facts that a trailer repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) interface: SyntaxId,
    pub(crate) call_id: u32,
    pub(crate) context_id: u16,
    pub(crate) opnum: u16,
    pub(crate) signs_header: bool,
}

/// Returns stub data without its trailer; None if the trailer contradicts `bound`. The trailer is
/// looked for from the end on, since nothing tells the end of the arguments.
pub(crate) fn stripped<'a>(stub: &'a [u8], bound: &Bound) -> Option<&'a [u8]> {
    let last = stub.len().checked_sub(SIGNATURE.len());
    // MS-RPCE 2.2.2.13: the trailer is aligned to four bytes in the PDU, and so it is in the stub,
    // which begins at byte 24.
    let places = last.into_iter().flat_map(|last| (0..=last / 4).rev());
    let mut places = places.map(|place| place.saturating_mul(4)).take(MAX_DISTANCE);
    let found = places.find(|at| stub.get(*at..).is_some_and(|rest| rest.starts_with(&SIGNATURE)));
    let Some(at) = found else { return Some(stub) };
    let (arguments, trailer) = stub.split_at_checked(at)?;
    let agrees = read(trailer.get(SIGNATURE.len()..)?, bound).unwrap_or(false);
    agrees.then_some(arguments)
}

/// Places from the end at which a trailer is looked for: more than the commands take that exist.
const MAX_DISTANCE: usize = 64;

/// Returns false for a fact that differs.
fn read(commands: &[u8], bound: &Bound) -> Parsed<bool> {
    let what = "RPC verification trailer";
    let mut r = Reader::new(commands);
    for _ in 0..MAX_COMMANDS {
        let command = r.u16(what)?;
        let length = usize::from(r.u16(what)?);
        let mut value = Reader::new(r.take(length, what)?);
        let agrees = match VtCommand(command & !(END | MUST_PROCESS)) {
            VtCommand::BITMASK_1 => {
                value.u32(what)? & SUPPORTS_HEADER_SIGNING == 0 || bound.signs_header
            }
            VtCommand::PCONTEXT => {
                SyntaxId::read(&mut value)? == bound.interface
                    && SyntaxId::read(&mut value)? == SyntaxId::NDR
            }
            VtCommand::HEADER2 => {
                let kind = PduKind(value.u8(what)?);
                value.skip(3, what)?;
                let drep: [u8; 4] = value.array(what)?;
                let call_id = value.u32(what)?;
                let (context_id, opnum) = (value.u16(what)?, value.u16(what)?);
                kind == PduKind::REQUEST
                    && drep == [0x10, 0, 0, 0]
                    && (call_id, context_id, opnum)
                        == (bound.call_id, bound.context_id, bound.opnum)
            }
            // An unknown command is ignored, but refused if its must-process bit is set.
            _ => command & MUST_PROCESS == 0,
        };
        if !agrees {
            return Ok(false);
        }
        if command & END != 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use frevo_wire::codec::Writer;

    const BOUND: Bound = Bound {
        interface: SyntaxId::SAMR,
        call_id: 7,
        context_id: 1,
        opnum: 64,
        signs_header: true,
    };

    fn trailer(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut stub = b"arguments of a call.".to_vec();
        stub.extend(SIGNATURE);
        write(&mut Writer::from(&mut stub, 0));
        stub
    }

    fn header2(w: &mut Writer<'_>, call_id: u32, opnum: u16) {
        w.u16(3 | END).u16(16).u8(0).zeros(3).bytes(&[0x10, 0, 0, 0]);
        w.u32(call_id).u16(1).u16(opnum);
    }

    /// The trailer that Windows sends with the first request, all three parts in it.
    #[test]
    fn a_trailer_that_agrees_is_taken_off() {
        let stub = trailer(|w| {
            w.u16(1).u16(4).u32(1);
            w.u16(2).u16(40);
            SyntaxId::SAMR.encode(w);
            SyntaxId::NDR.encode(w);
            header2(w, 7, 64);
        });
        assert_eq!(stripped(&stub, &BOUND), Some(&b"arguments of a call."[..]));
        assert_eq!(stripped(b"short", &BOUND), Some(&b"short"[..]));
        assert_eq!(stripped(&[0; 64], &BOUND), Some(&[0; 64][..]));
    }

    #[test]
    fn a_contradiction_is_found() {
        let unsigned = Bound { signs_header: false, ..BOUND };
        let bitmask = trailer(|w| {
            w.u16(1 | END).u16(4).u32(1);
        });
        assert!(stripped(&bitmask, &BOUND).is_some() && stripped(&bitmask, &unsigned).is_none());
        for (call_id, opnum) in [(8, 64), (7, 65)] {
            assert_eq!(stripped(&trailer(|w| header2(w, call_id, opnum)), &BOUND), None);
        }
        let context = |interface: SyntaxId, transfer: SyntaxId| {
            trailer(|w| {
                w.u16(2 | END).u16(40);
                interface.encode(w);
                transfer.encode(w);
            })
        };
        assert!(stripped(&context(SyntaxId::SAMR, SyntaxId::NDR), &BOUND).is_some());
        assert_eq!(stripped(&context(SyntaxId::LSARPC, SyntaxId::NDR), &BOUND), None);
        assert_eq!(stripped(&context(SyntaxId::SAMR, SyntaxId::NDR64), &BOUND), None);
    }

    #[test]
    fn unknown_commands_count_when_the_client_insists() {
        let unknown = |bits: u16| {
            trailer(|w| {
                w.u16(0x55 | bits).u16(4).u32(9);
            })
        };
        assert!(stripped(&unknown(END), &BOUND).is_some());
        assert_eq!(stripped(&unknown(END | MUST_PROCESS), &BOUND), None);
        // The trailer is refused if its last command does not have the END bit, or if it is
        // truncated.
        assert_eq!(stripped(&unknown(0), &BOUND), None);
        let whole = unknown(END);
        for cut in 28..whole.len() {
            assert_eq!(stripped(&whole[..cut], &BOUND), None, "{cut}");
        }
    }
}
