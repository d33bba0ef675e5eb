//! Structures of fixed layout, declared once for both directions.

use crate::codec::{Parsed, Reader, Writer};
use crate::dtyp::{AccessMask, FileAttributes, FileTime, Guid};
use crate::file_id::FileId;

/// A field of known size.
pub(crate) trait Field: Sized {
    /// Bytes on the wire.
    const SIZE: usize;
    /// Takes the field from the reader.
    fn read(r: &mut Reader<'_>, what: &'static str) -> Parsed<Self>;
    /// Appends the field to `w`.
    fn write(&self, w: &mut Writer<'_>);
}

macro_rules! number_field {
    ($($number:ident: $size:literal,)*) => {
        $(impl Field for $number {
            const SIZE: usize = $size;
            fn read(r: &mut Reader<'_>, what: &'static str) -> Parsed<Self> {
                r.$number(what)
            }
            fn write(&self, w: &mut Writer<'_>) {
                w.$number(*self);
            }
        })*
    };
}

number_field! { u8: 1, u16: 2, u32: 4, u64: 8, i64: 8, }

/// Lets a newtype over a number stand in a structure.
macro_rules! newtype_field {
    ($($name:ident($number:ty),)*) => {
        $(impl $crate::fscc::fixed::Field for $name {
            const SIZE: usize = <$number as $crate::fscc::fixed::Field>::SIZE;
            fn read(r: &mut $crate::codec::Reader<'_>, what: &'static str) -> $crate::codec::Parsed<Self> {
                <$number as $crate::fscc::fixed::Field>::read(r, what).map(Self)
            }
            fn write(&self, w: &mut $crate::codec::Writer<'_>) {
                $crate::fscc::fixed::Field::write(&self.0, w);
            }
        })*
    };
}
pub(crate) use newtype_field;

newtype_field! { FileTime(u64), AccessMask(u32), FileAttributes(u32), Guid([u8; 16]), }

/// MS-FSCC 2.1.8: zero is false, everything else is taken for true.
impl Field for bool {
    const SIZE: usize = 1;
    fn read(r: &mut Reader<'_>, what: &'static str) -> Parsed<Self> {
        r.u8(what).map(|v| v != 0)
    }
    fn write(&self, w: &mut Writer<'_>) {
        w.u8(u8::from(*self));
    }
}

impl<const N: usize> Field for [u8; N] {
    const SIZE: usize = N;
    fn read(r: &mut Reader<'_>, what: &'static str) -> Parsed<Self> {
        r.array(what)
    }
    fn write(&self, w: &mut Writer<'_>) {
        w.bytes(self);
    }
}

impl Field for FileId {
    const SIZE: usize = 16;
    fn read(r: &mut Reader<'_>, _: &'static str) -> Parsed<Self> {
        Self::read(r)
    }
    fn write(&self, w: &mut Writer<'_>) {
        self.encode(w);
    }
}

/// Declares structures of fixed layout with `SIZE`, `read`, `parse` and
/// `encode`. `pad N` after a field stands for reserved bytes: written as zero,
/// ignored on receipt.
macro_rules! fixed_struct {
    ($(
        $(#[$meta:meta])*
        $name:ident {
            $($(#[$fmeta:meta])* $field:ident: $ty:ty $(, pad $pad:literal)?;)*
        }
    )*) => {
        $(
            $(#[$meta])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq)]
            pub struct $name {
                $($(#[$fmeta])* pub $field: $ty,)*
            }

            impl $name {
                /// Bytes of the structure on the wire.
                pub const SIZE: usize = 0 $(+ <$ty as $crate::fscc::fixed::Field>::SIZE $(+ $pad)?)*;

                /// Takes the structure from a reader.
                pub fn read(r: &mut $crate::codec::Reader<'_>) -> $crate::codec::Parsed<Self> {
                    $(
                        let $field = <$ty as $crate::fscc::fixed::Field>::read(
                            r,
                            concat!(stringify!($name), " ", stringify!($field)),
                        )?;
                        $(r.skip($pad, concat!(stringify!($name), " padding"))?;)?
                    )*
                    Ok(Self { $($field,)* })
                }

                /// Parses the structure at the start of `bytes`; a longer
                /// buffer is allowed, a shorter one is malformed
                /// (STATUS_INFO_LENGTH_MISMATCH).
                pub fn parse(bytes: &[u8]) -> $crate::codec::Parsed<Self> {
                    Self::read(&mut $crate::codec::Reader::new(bytes))
                }

                /// Appends the structure to `w`.
                pub fn encode(&self, w: &mut $crate::codec::Writer<'_>) {
                    $(
                        $crate::fscc::fixed::Field::write(&self.$field, w);
                        $(w.zeros($pad);)?
                    )*
                }
            }

            impl $crate::fscc::fixed::Field for $name {
                const SIZE: usize = Self::SIZE;
                fn read(r: &mut $crate::codec::Reader<'_>, _: &'static str) -> $crate::codec::Parsed<Self> {
                    Self::read(r)
                }
                fn write(&self, w: &mut $crate::codec::Writer<'_>) {
                    self.encode(w);
                }
            }
        )*
    };
}
pub(crate) use fixed_struct;
