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

    const fn tolerates(self, access: AccessMask) -> bool {
        (self.sharing.read || !access.intersects(READS))
            && (self.sharing.write || !access.intersects(WRITES))
            && (self.sharing.delete || !access.intersects(AccessMask::DELETE))
    }
}

#[cfg(test)]
mod tests {
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
    }
}
