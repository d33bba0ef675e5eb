//! Commands of persistent reservations, SPC-4 5.12, 6.15 and 6.16, as bytes.

use crate::limits::KEYS;

/// PERSISTENT RESERVE IN and OUT.
const IN: u8 = 0x5E;
const OUT: u8 = 0x5F;
/// Bytes of each command, and of the parameter list of PERSISTENT RESERVE OUT.
const COMMAND: usize = 10;
const LIST: usize = 24;
/// The scope LU_SCOPE with the type Write Exclusive - Registrants Only: only registered nodes write.
pub(super) const WRITE_REGISTRANTS: u8 = 0x05;
/// The bit APTPL: registrations outlive a loss of power.
const THROUGH_POWER_LOSS: u8 = 0x01;

/// Bytes of the answer to READ KEYS that are asked for.
pub(super) const KEYS_ROOM: usize = 8 + 8 * KEYS;
/// Bytes of the answer to READ RESERVATION.
pub(super) const RESERVATION_ROOM: usize = 24;

/// A command that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    ReadKeys,
    ReadReservation,
}

/// A command that changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// Registers the path of a command with a key, whatever key it has.
    Register { key: u64 },
    /// Registers the path of a command with a key if it has none.
    Join { key: u64 },
    /// Takes the registration of the path of a command away.
    Part { key: u64 },
    /// Reserves the disk for registered nodes.
    Reserve { own: u64 },
    /// Takes the registration of `other` away, and ends its commands that are under way.
    PreemptAndAbort { own: u64, other: u64 },
}

/// The bytes of a command with its parameter list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Out {
    pub(super) command: [u8; COMMAND],
    pub(super) list: [u8; LIST],
}

impl Ask {
    pub(super) const fn room(self) -> usize {
        match self {
            Self::ReadKeys => KEYS_ROOM,
            Self::ReadReservation => RESERVATION_ROOM,
        }
    }

    /// SPC-4 6.15.1: the service action, and the allocation length in bytes 7 and 8.
    pub(super) fn command(self) -> [u8; COMMAND] {
        let action = match self {
            Self::ReadKeys => 0x00,
            Self::ReadReservation => 0x01,
        };
        let [high, low] = u16::try_from(self.room()).unwrap_or(u16::MAX).to_be_bytes();
        [IN, action, 0, 0, 0, 0, 0, high, low, 0]
    }
}

impl Change {
    /// SPC-4 6.16.1 to 6.16.3. `lasts` asks that registrations outlive a loss of power. REGISTER without a
    /// key of reservation is for a path that is not registered; another path conflicts.
    pub(super) fn bytes(self, lasts: bool) -> Out {
        let (action, kind, own, other) = match self {
            Self::Register { key } => (0x06, 0, 0, key),
            Self::Join { key } => (0x00, 0, 0, key),
            Self::Part { key } => (0x00, 0, key, 0),
            Self::Reserve { own } => (0x01, WRITE_REGISTRANTS, own, 0),
            Self::PreemptAndAbort { own, other } => (0x05, WRITE_REGISTRANTS, own, other),
        };
        // The length of the parameter list is in bytes 5 to 8.
        let length = u8::try_from(LIST).unwrap_or_default();
        let command = [OUT, action, kind, 0, 0, 0, 0, 0, length, 0];
        let is_register = matches!(action, 0x00 | 0x06);
        let flags = if lasts && is_register { THROUGH_POWER_LOSS } else { 0 };
        let mut list = [0; LIST];
        let parts = own.to_be_bytes().into_iter().chain(other.to_be_bytes());
        for (byte, value) in list.iter_mut().zip(parts.chain([0, 0, 0, 0, flags])) {
            *byte = value;
        }
        Out { command, list }
    }
}

/// A reservation of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reservation {
    pub(super) key: u64,
    /// Scope and type.
    pub(super) kind: u8,
}

/// The registrations of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Registrations {
    /// PRGENERATION, which each change of registrations counts.
    pub(super) generation: u32,
    pub(super) keys: Vec<u64>,
}

impl Registrations {
    pub(super) fn has(&self, key: u64) -> bool {
        self.keys.contains(&key)
    }

    /// The paths of all machines that have this key (SPC-4 6.15.2: each registration is told).
    pub(super) fn count(&self, key: u64) -> usize {
        self.keys.iter().filter(|one| **one == key).count()
    }
}

/// Reads the answer to READ KEYS (SPC-4 6.15.2). None for bytes that are none, and for more keys than
/// were asked for.
pub(super) fn registrations(answer: &[u8]) -> Option<Registrations> {
    let generation = u32::from_be_bytes(answer.get(..4)?.try_into().ok()?);
    let length = length(answer)?;
    let keys = answer.get(8..8_usize.checked_add(length)?)?;
    let key = |bytes: &[u8]| Some(u64::from_be_bytes(bytes.try_into().ok()?));
    let keys = keys.chunks(8).map(key).collect::<Option<_>>()?;
    Some(Registrations { generation, keys })
}

/// Reads the answer to READ RESERVATION (SPC-4 6.15.3). `Some(None)` if the disk has none.
pub(super) fn reservation(answer: &[u8]) -> Option<Option<Reservation>> {
    match length(answer)? {
        0 => Some(None),
        16 => {
            let key = u64::from_be_bytes(answer.get(8..16)?.try_into().ok()?);
            Some(Some(Reservation { key, kind: *answer.get(21)? }))
        }
        _ => None,
    }
}

/// ADDITIONAL LENGTH, after PRGENERATION.
fn length(answer: &[u8]) -> Option<usize> {
    let bytes = answer.get(4..8)?.try_into().ok()?;
    usize::try_from(u32::from_be_bytes(bytes)).ok()
}

/// The sense key, of sense data in the fixed and in the descriptor format (SPC-4 4.5).
pub(super) fn sense_key(sense: &[u8]) -> Option<u8> {
    let at = match sense.first()? & 0x7F {
        0x70 | 0x71 => 2,
        0x72 | 0x73 => 1,
        _ => return None,
    };
    sense.get(at).map(|byte| byte & 0xF)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: u64 = 0x0123_4567_89AB_CDEF;
    const OTHER: u64 = 0xF1E2_D3C4_B5A6_9788;

    fn text(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The bytes that SPC-4's tables of fields give for these values.
    #[test]
    fn commands_have_the_bytes_of_spc_4() {
        assert_eq!(text(&Ask::ReadKeys.command()), "5e000000000000200800");
        assert_eq!(text(&Ask::ReadReservation.command()), "5e010000000000001800");
        let register = Change::Register { key: KEY };
        let bytes = register.bytes(true);
        assert_eq!(text(&bytes.command), "5f060000000000001800");
        let list = "00000000000000000123456789abcdef0000000001000000";
        assert_eq!(text(&bytes.list), list);
        assert_eq!(text(&register.bytes(false).list), list.replace("01000000", "00000000"));
        let join = Change::Join { key: KEY }.bytes(true);
        assert_eq!(
            (text(&join.command), text(&join.list)),
            ("5f000000000000001800".into(), list.into())
        );
        let part = Change::Part { key: KEY }.bytes(false);
        assert_eq!(text(&part.command), "5f000000000000001800");
        assert_eq!(text(&part.list), "0123456789abcdef00000000000000000000000000000000");
        let bytes = Change::Reserve { own: KEY }.bytes(true);
        assert_eq!(text(&bytes.command), "5f010500000000001800");
        assert_eq!(text(&bytes.list), "0123456789abcdef00000000000000000000000000000000");
        let bytes = Change::PreemptAndAbort { own: KEY, other: OTHER }.bytes(true);
        assert_eq!(text(&bytes.command), "5f050500000000001800");
        assert_eq!(text(&bytes.list), "0123456789abcdeff1e2d3c4b5a697880000000000000000");
    }

    #[test]
    fn answers_are_read_or_refused() {
        let keys = |answer: &[u8]| registrations(answer).map(|there| there.keys);
        let two =
            [&[0, 0, 0, 9, 0, 0, 0, 16][..], &KEY.to_be_bytes(), &OTHER.to_be_bytes(), &[7; 9]];
        assert_eq!(keys(&two.concat()), Some(vec![KEY, OTHER]));
        assert_eq!(registrations(&two.concat()).unwrap().generation, 9);
        assert_eq!(keys(&[0; 8]), Some(vec![]));
        assert_eq!(keys(&[0, 0, 0, 9, 0, 0, 0, 16, 1, 2]), None, "shorter than it says");
        assert_eq!(keys(&[0, 0, 0, 9, 0, 0, 0, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9]), None, "half a key");
        assert_eq!(keys(&[0xFF; 16]), None);
        let mut held = [0; RESERVATION_ROOM];
        held[7] = 16;
        held[8..16].copy_from_slice(&KEY.to_be_bytes());
        held[21] = WRITE_REGISTRANTS;
        let reservation = reservation;
        assert_eq!(reservation(&held), Some(Some(Reservation { key: KEY, kind: 5 })));
        assert_eq!(reservation(&[0; 8]), Some(None));
        assert_eq!(reservation(&held[..21]), None);
    }

    /// The limit: as many keys as there is room for are read, and one more is not.
    #[test]
    fn so_many_keys_are_read() {
        for (count, is_read) in [(KEYS - 1, true), (KEYS, true), (KEYS + 1, false)] {
            let length = u32::try_from(8 * count).unwrap();
            let mut answer = [&[0; 4][..], &length.to_be_bytes(), &vec![1; 8 * count]].concat();
            answer.truncate(KEYS_ROOM);
            assert_eq!(registrations(&answer).is_some(), is_read, "{count}");
        }
    }

    #[test]
    fn both_formats_of_sense_data_are_read() {
        // UNIT ATTENTION, REGISTRATIONS PREEMPTED.
        assert_eq!(sense_key(&[0x70, 0, 6, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x2A, 5]), Some(6));
        assert_eq!(sense_key(&[0x72, 6, 0x2A, 5, 0, 0, 0, 0]), Some(6));
        // ILLEGAL REQUEST.
        assert_eq!(sense_key(&[0xF0, 0, 0x25]), Some(5));
        assert_eq!((sense_key(&[]), sense_key(&[0x42, 6])), (None, None));
    }
}
