//! Sets of bits: rights, attributes, share modes, leases.

/// Declares a set of bits that stands for `$wire`. Bits without a name are kept.
macro_rules! flags {
    (
        $(#[$meta:meta])* $name:ident($repr:ty), $wire:path {
            $($(#[$bit:meta])* $variant:ident,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name($repr);

        impl $name {
            $($(#[$bit])* pub const $variant: Self = Self(<$wire>::$variant.0);)*

            /// The set without any bit.
            pub const EMPTY: Self = Self(0);

            /// Returns the set with these bits, named or not.
            pub const fn from_bits(bits: $repr) -> Self {
                Self(bits)
            }

            /// Returns the bits as the protocol numbers them.
            pub const fn bits(self) -> $repr {
                self.0
            }

            /// Returns true if every bit of `other` is set.
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Returns true if at least one bit of `other` is set.
            pub const fn intersects(self, other: Self) -> bool {
                self.0 & other.0 != 0
            }

            /// Returns true if no bit is set.
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// Returns the bits of both sets.
            #[must_use]
            pub const fn union(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// Returns the bits of this set that `other` does not have.
            #[must_use]
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }

            pub(crate) const fn wire(self) -> $wire {
                $wire(self.0)
            }
        }

        #[doc(hidden)]
        impl From<$wire> for $name {
            fn from(wire: $wire) -> Self {
                Self(wire.0)
            }
        }

        #[doc(hidden)]
        impl From<$name> for $wire {
            fn from(set: $name) -> Self {
                set.wire()
            }
        }

        impl std::ops::BitOr for $name {
            type Output = Self;

            fn bitor(self, other: Self) -> Self {
                self.union(other)
            }
        }

        impl std::ops::BitOrAssign for $name {
            fn bitor_assign(&mut self, other: Self) {
                *self = self.union(other);
            }
        }

        impl std::ops::BitAnd for $name {
            type Output = Self;

            fn bitand(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut rest = self.0;
                let mut separator = "";
                f.write_str(concat!(stringify!($name), "("))?;
                $(if self.contains(Self::$variant) {
                    write!(f, "{separator}{}", stringify!($variant))?;
                    separator = " | ";
                    rest &= !Self::$variant.0;
                })*
                if rest != 0 {
                    write!(f, "{separator}{rest:#x}")?;
                }
                f.write_str(")")
            }
        }
    };
}

pub(crate) use flags;

flags! {
    /// Rights on a file or directory: an ACCESS_MASK, MS-SMB2 2.2.13.1.
    AccessMask(u32), frevo_wire::dtyp::AccessMask {
        /// Read data; of a directory, list it.
        READ_DATA,
        /// Write data; of a directory, make files in it.
        WRITE_DATA,
        /// Append data; of a directory, make directories in it.
        APPEND_DATA,
        /// Read extended attributes.
        READ_EA,
        /// Write extended attributes.
        WRITE_EA,
        /// Execute a file; of a directory, pass through it.
        EXECUTE,
        /// Delete entries of a directory.
        DELETE_CHILD,
        /// Read attributes and times.
        READ_ATTRIBUTES,
        /// Write attributes and times.
        WRITE_ATTRIBUTES,
        /// Delete or rename the object.
        DELETE,
        /// Read the security descriptor.
        READ_CONTROL,
        /// Write the access list (DACL).
        WRITE_DAC,
        /// Write the owner and the group.
        WRITE_OWNER,
        /// Wait on the handle. Servers grant it with every other right.
        SYNCHRONIZE,
        /// Read and write the audit list (SACL); needs a privilege.
        ACCESS_SYSTEM_SECURITY,
        /// Ask for every right that the access list grants.
        MAXIMUM_ALLOWED,
        /// All rights of the object's kind.
        GENERIC_ALL,
        /// The rights that executing needs.
        GENERIC_EXECUTE,
        /// The rights that writing needs.
        GENERIC_WRITE,
        /// The rights that reading needs.
        GENERIC_READ,
    }
}

flags! {
    /// DOS attributes of a file, MS-FSCC 2.6.
    FileAttributes(u32), frevo_wire::dtyp::FileAttributes {
        /// Cannot be written or deleted.
        READONLY,
        /// Left out of ordinary listings.
        HIDDEN,
        /// Belongs to the operating system.
        SYSTEM,
        /// The entry is a directory.
        DIRECTORY,
        /// Was changed since the last backup.
        ARCHIVE,
        /// Has no other attribute.
        NORMAL,
        /// Is short-lived; the server may keep it in memory.
        TEMPORARY,
        /// May have holes, which take no space.
        SPARSE_FILE,
        /// Is a symbolic link or another reparse point.
        REPARSE_POINT,
        /// Is compressed by the file system.
        COMPRESSED,
        /// Has its data in offline storage.
        OFFLINE,
        /// Is not indexed for searches.
        NOT_CONTENT_INDEXED,
        /// Is encrypted by the file system.
        ENCRYPTED,
        /// Is protected by checksums (ReFS).
        INTEGRITY_STREAM,
        /// Is left out of background integrity scans.
        NO_SCRUB_DATA,
        /// Is fetched from remote storage when it is opened.
        RECALL_ON_OPEN,
        /// Is fetched from remote storage when its data is read.
        RECALL_ON_DATA_ACCESS,
    }
}

flags! {
    /// Uses of a file that other opens are allowed meanwhile: ShareAccess,
    /// MS-SMB2 2.2.13.
    ShareMode(u32), frevo_wire::command::create::ShareAccess {
        /// Other Opens may read.
        READ,
        /// Other Opens may write.
        WRITE,
        /// Others may delete or rename.
        DELETE,
    }
}

impl ShareMode {
    /// Others may read, write, delete and rename.
    pub const ALL: Self = Self(Self::READ.0 | Self::WRITE.0 | Self::DELETE.0);
}

flags! {
    /// Data that a lease allows the client to cache, MS-SMB2 2.2.13.2.8.
    LeaseState(u32), frevo_wire::command::oplock_break::LeaseState {
        /// Data that was read stays valid.
        READ,
        /// The handle may stay open after the program has closed the file.
        HANDLE,
        /// Data that was written may be held back.
        WRITE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_print_their_names_and_keep_unknown_bits() {
        let set = AccessMask::READ_DATA | AccessMask::DELETE | AccessMask::from_bits(0x800);
        assert_eq!(format!("{set:?}"), "AccessMask(READ_DATA | DELETE | 0x800)");
        assert_eq!(format!("{:?}", ShareMode::EMPTY), "ShareMode()");
        assert!(set.contains(AccessMask::DELETE) && !set.contains(AccessMask::WRITE_DATA));
        assert_eq!(set.without(AccessMask::DELETE).bits(), 0x801);
        assert_eq!(set.wire().0, set.bits());
    }
}
