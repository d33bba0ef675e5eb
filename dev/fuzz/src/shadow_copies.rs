//! Shadow copies over the network, MS-FSRVP: arguments, stored states, and the sets under any order of calls.

use std::time::Duration;

use frevo_rpc::fsrvp::{Context, NewCopy, Reply, Request, ShadowCopySets};
use frevo_rpc::limits::{MAX_FSRVP_COPIES, MAX_FSRVP_LEFT, MAX_FSRVP_SETS};
use frevo_wire::dtyp::{FileTime, Guid};

use crate::choices::Choices;
use crate::settles;

/// Steps of one input: more find nothing new.
const STEPS: usize = 300;

/// Stub data of the call that the first byte names, a stored state, or steps of clients.
pub fn shadow_copies(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    match kind % 16 {
        opnum @ 0..13 => {
            let opnum = u16::from(opnum);
            let Ok(request) = Request::parse(opnum, data) else { return };
            assert_eq!(Request::parse(opnum, &request.encode()).as_ref(), Ok(&request));
            if let Ok(reply) = Reply::parse(&request, data) {
                let stub = Reply::encode(&request, &reply);
                assert!(Reply::parse(&request, &stub).is_ok(), "{reply:?}");
            }
        }
        13 => settles(data, |bytes| {
            ShadowCopySets::from_bytes(bytes, Duration::ZERO).map(|sets| sets.to_bytes())
        }),
        _ => steps(&mut Choices::new(data)),
    }
}

fn guid(number: u8) -> Guid {
    Guid([number % 8; 16])
}

fn steps(choices: &mut Choices<'_>) {
    let mut sets = ShadowCopySets::default();
    let mut now = Duration::ZERO;
    for step in 0..STEPS {
        if choices.is_over() {
            break;
        }
        now += Duration::from_secs(u64::from(choices.u8()));
        let (kind, set, other) = (choices.u8(), guid(choices.u8()), guid(choices.u8()));
        let client = [192, 0, 2, kind / 64].into();
        let fresh = Guid([u8::try_from(8 + step % 200).unwrap_or(u8::MAX); 16]);
        let set = if kind & 32 != 0 { fresh } else { set };
        let unc = if kind & 16 != 0 { choices.text() } else { format!(r"\\box\s{}", kind / 64) };
        match kind % 13 {
            0 => {
                let set = sets.set_context(Context(u32::from(other.0[0])), client, now);
                set.removal.released.into_iter().for_each(|copy| sets.leave(copy));
            }
            1 => drop(sets.start(other, set, "ann", now)),
            2 => {
                let volume = unc.to_lowercase();
                let share = unc.clone();
                let created = FileTime(u64::from(choices.u8()));
                let new = NewCopy { id: other, share_unc: unc, share, volume, created };
                drop(sets.add(set, new, now));
            }
            3 => drop(sets.prepare(set, now)),
            4 => drop(sets.begin_commit(set)),
            5 => drop(sets.end_commit(set, Ok(&[u64::from(choices.u8())]), now)),
            6 => drop(sets.begin_expose(set)),
            7 => drop(sets.end_expose(set, kind & 64 != 0, now)),
            8 => drop(sets.complete_recovery(set)),
            9 => drop(sets.abort(set)),
            10 => drop(sets.delete(set, other, &unc)),
            11 => drop(sets.mapping(set, other, &unc, 1, now)),
            _ if kind & 128 != 0 => {
                sets.surplus_left().iter().for_each(|gone| sets.forget_left(gone));
            }
            _ => drop(sets.elapse(now)),
        }
        assert!(sets.left_count() <= MAX_FSRVP_LEFT + MAX_FSRVP_COPIES);
        assert!(sets.snapshots().count() <= MAX_FSRVP_SETS * MAX_FSRVP_COPIES);
        assert!(sets.exposures().count() <= sets.snapshots().count());
    }
}
