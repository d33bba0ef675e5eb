//! Share modes: compares the access and sharing of two Opens of one file. MS-FSA 2.1.5.1.2.2.

use frevo_wire::dtyp::AccessMask;

/// The uses that an Open allows to others, MS-SMB2 2.2.13 ShareAccess.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sharing {
    /// FILE_SHARE_READ
    pub read: bool,
    /// FILE_SHARE_WRITE
    pub write: bool,
    /// FILE_SHARE_DELETE
    pub delete: bool,
}

impl Sharing {
    /// Everything is shared.
    pub const ALL: Self = Self { read: true, write: true, delete: true };
    /// Nothing is shared.
    pub const NONE: Self = Self { read: false, write: false, delete: false };
}

const READS: AccessMask = AccessMask(AccessMask::READ_DATA.0 | AccessMask::EXECUTE.0);
const WRITES: AccessMask = AccessMask(AccessMask::WRITE_DATA.0 | AccessMask::APPEND_DATA.0);
const CONTENDING: AccessMask = AccessMask(READS.0 | WRITES.0 | AccessMask::DELETE.0);

/// Granted access and sharing of one Open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// Open.GrantedAccess
    pub access: AccessMask,
    /// Open.SharingMode
    pub sharing: Sharing,
}

/// The result of comparing two claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Both Opens may exist.
    Compatible,
    /// The later Open is refused with STATUS_SHARING_VIOLATION.
    Violation,
}

impl Claim {
    /// True if this Open touches data. Opens for attributes alone never conflict.
    pub const fn contends(self) -> bool {
        self.access.intersects(CONTENDING)
    }

    /// Compares a new claim with an existing one. The order of the two does not matter.
    pub const fn beside(self, other: Self) -> Verdict {
        if !self.contends() || !other.contends() {
            return Verdict::Compatible;
        }
        if self.tolerates(other.access) && other.tolerates(self.access) {
            Verdict::Compatible
        } else {
            Verdict::Violation
        }
    }

    /// Returns for each kind of access if this Open has it and if it allows it to others.
    fn parts(self) -> impl Iterator<Item = (bool, bool)> {
        let Sharing { read, write, delete } = self.sharing;
        KINDS.map(|kind| self.access.intersects(kind)).into_iter().zip([read, write, delete])
    }

    const fn tolerates(self, access: AccessMask) -> bool {
        (self.sharing.read || !access.intersects(READS))
            && (self.sharing.write || !access.intersects(WRITES))
            && (self.sharing.delete || !access.intersects(AccessMask::DELETE))
    }
}

/// The claims of all Opens of a file, as counts: a comparison with all of them takes no longer than
/// one with one of them. Opens that touch no data do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Claims {
    /// Opens that read, that write, and that delete.
    uses: [u32; 3],
    /// Opens that do not share reading, writing and deletion.
    denials: [u32; 3],
}

/// The kinds of access that share modes know.
const KINDS: [AccessMask; 3] = [READS, WRITES, AccessMask::DELETE];

impl Claims {
    /// No claims.
    pub(crate) const NONE: Self = Self { uses: [0; 3], denials: [0; 3] };

    /// Counts the claim of a new Open.
    pub(crate) fn add(&mut self, claim: Claim) {
        self.change(claim, u32::saturating_add);
    }

    /// Counts the claim of an Open no more.
    pub(crate) fn remove(&mut self, claim: Claim) {
        self.change(claim, u32::saturating_sub);
    }

    fn change(&mut self, claim: Claim, by: impl Fn(u32, u32) -> u32) {
        if !claim.contends() {
            return;
        }
        let counts = self.uses.iter_mut().zip(&mut self.denials);
        for ((uses, denials), (does, shares)) in counts.zip(claim.parts()) {
            *uses = by(*uses, does.into());
            *denials = by(*denials, (!shares).into());
        }
    }

    /// Compares a new claim with all of these but `except`.
    pub(crate) fn beside(mut self, claim: Claim, except: Option<Claim>) -> Verdict {
        if !claim.contends() {
            return Verdict::Compatible;
        }
        if let Some(except) = except {
            self.remove(except);
        }
        let counts = self.uses.iter().zip(&self.denials);
        let clashes = counts
            .zip(claim.parts())
            .any(|((uses, denials), (does, shares))| does && *denials > 0 || !shares && *uses > 0);
        if clashes { Verdict::Violation } else { Verdict::Compatible }
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use proptest::prelude::*;

    fn claim(access: u32, read: bool, write: bool, delete: bool) -> Claim {
        Claim { access: AccessMask(access), sharing: Sharing { read, write, delete } }
    }

    #[test]
    fn attribute_opens_never_contend() {
        let attributes = Claim {
            access: AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE,
            sharing: Sharing::NONE,
        };
        let all = Claim { access: AccessMask::FILE_ALL, sharing: Sharing::NONE };
        assert_eq!(attributes.beside(all), Verdict::Compatible);
        assert_eq!(all.beside(all), Verdict::Violation);
    }

    #[test]
    fn each_right_needs_its_share_bit() {
        for (access, sharing) in [
            (AccessMask::READ_DATA, Sharing { read: true, ..Sharing::NONE }),
            (AccessMask::EXECUTE, Sharing { read: true, ..Sharing::NONE }),
            (AccessMask::WRITE_DATA, Sharing { write: true, ..Sharing::NONE }),
            (AccessMask::APPEND_DATA, Sharing { write: true, ..Sharing::NONE }),
            (AccessMask::DELETE, Sharing { delete: true, ..Sharing::NONE }),
        ] {
            let a = Claim { access, sharing };
            assert_eq!(a.beside(a), Verdict::Compatible, "{access:?}");
            let closed = Claim { access, sharing: Sharing::NONE };
            assert_eq!(a.beside(closed), Verdict::Violation, "{access:?}");
            assert_eq!(closed.beside(a), Verdict::Violation, "{access:?}");
        }
    }

    proptest! {
        #[test]
        fn order_does_not_matter(
            a in any::<u32>(), b in any::<u32>(), s in any::<[bool; 6]>(),
        ) {
            let x = claim(a, s[0], s[1], s[2]);
            let y = claim(b, s[3], s[4], s[5]);
            prop_assert_eq!(x.beside(y), y.beside(x));
        }

        /// Tests that the counts say what a comparison with each claim says, also after some of them
        /// have gone.
        #[test]
        fn counts_say_what_each_claim_says(
            all in prop::collection::vec((any::<u32>(), any::<[bool; 3]>(), any::<bool>()), 0..12),
            new in (any::<u32>(), any::<[bool; 3]>()),
            except in any::<prop::sample::Index>(),
        ) {
            // Only a few bits are used, so that many claims include no access to data.
            let of = |access: u32, s: [bool; 3]| claim(access & 0x1_0083, s[0], s[1], s[2]);
            let mut counts = Claims::NONE;
            all.iter().for_each(|(access, s, _)| counts.add(of(*access, *s)));
            all.iter().filter(|one| one.2).for_each(|(access, s, _)| counts.remove(of(*access, *s)));
            let left: Vec<Claim> =
                all.iter().filter(|one| !one.2).map(|(access, s, _)| of(*access, *s)).collect();
            let new = of(new.0, new.1);
            let except = (!left.is_empty()).then(|| except.index(left.len()));
            let others = left.iter().enumerate().filter(|(at, _)| Some(*at) != except);
            let clash = others.into_iter().any(|(_, one)| one.beside(new) == Verdict::Violation);
            let verdict = counts.beside(new, except.map(|at| left[at]));
            prop_assert_eq!(verdict == Verdict::Violation, clash);
        }
    }
}
