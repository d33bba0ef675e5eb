//! Writes messages.

use super::value::{Cnids, MAGIC_BIG, MAGIC_LITTLE, Order, UNIT, Value, WHOLE_UNITS, complex, tag};
use alloc::vec::Vec;

/// A message with more bytes than its offsets can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

/// Returns the bytes of a message, in little-endian order.
///
/// # Errors
/// [`TooLong`] for 512 KiB and more.
pub fn pack(values: &[Value]) -> Result<Vec<u8>, TooLong> {
    pack_in(Order::Little, values)
}

/// Returns the bytes of a message in this order.
///
/// # Errors
/// [`TooLong`] for 512 KiB and more.
pub fn pack_in(order: Order, values: &[Value]) -> Result<Vec<u8>, TooLong> {
    let mut packer = Packer { order, data: Vec::new(), contents: Vec::new() };
    for value in values {
        packer.value(value)?;
    }
    packer.finish()
}

/// A message that is being written.
struct Packer {
    order: Order,
    /// The data section.
    data: Vec<u8>,
    /// The entries of the table of contents.
    contents: Vec<u64>,
}

/// A tag, or an entry of the table of contents.
const fn tagged(size: u16, kind: u16, count: u32) -> u64 {
    let [a, b] = size.to_le_bytes();
    let [c, d] = kind.to_le_bytes();
    let [e, f, g, h] = count.to_le_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

fn short(number: usize) -> Result<u16, TooLong> {
    u16::try_from(number).map_err(|_| TooLong)
}

fn long(number: usize) -> Result<u32, TooLong> {
    u32::try_from(number).map_err(|_| TooLong)
}

fn put(bytes: &mut Vec<u8>, order: Order, unit: u64) {
    bytes.extend_from_slice(&match order {
        Order::Little => unit.to_le_bytes(),
        Order::Big => unit.to_be_bytes(),
    });
}

impl Packer {
    fn unit(&mut self, unit: u64) {
        put(&mut self.data, self.order, unit);
    }

    /// Writes a value of one unit.
    fn single(&mut self, kind: u16, unit: u64) {
        self.unit(tagged(2, kind, 1));
        self.unit(unit);
    }

    fn value(&mut self, value: &Value) -> Result<(), TooLong> {
        match value {
            Value::Nil => self.unit(tagged(1, tag::NIL, 1)),
            Value::Bool(is) => self.unit(tagged(1, tag::BOOL, u32::from(*is))),
            Value::Integer(number) => self.single(tag::INTEGER, *number),
            Value::Float(number) => self.single(tag::FLOAT, number.to_bits()),
            Value::Date(date) => self.single(tag::DATE, date.to_bits()),
            Value::Uuid(uuid) => {
                self.unit(tagged(3, tag::UUID, 1));
                self.data.extend_from_slice(uuid);
            }
            Value::Text(text) => {
                self.begin(complex::TEXT, in_last_unit(text.len()))?;
                self.bytes(text.as_bytes(), in_last_unit(text.len()))?;
            }
            Value::WideText(text) => {
                let mark = core::iter::once(0xFEFF);
                let units = mark.chain(text.encode_utf16());
                let bytes: Vec<u8> = match self.order {
                    Order::Little => units.flat_map(u16::to_le_bytes).collect(),
                    Order::Big => units.flat_map(u16::to_be_bytes).collect(),
                };
                self.begin(complex::WIDE_TEXT, in_last_unit(bytes.len()))?;
                self.bytes(&bytes, in_last_unit(bytes.len()))?;
            }
            Value::Array(elements) => self.elements(complex::ARRAY, elements)?,
            Value::Dictionary(entries) => self.elements(complex::DICTIONARY, entries)?,
            Value::Cnids(cnids) => self.cnids(cnids)?,
            Value::FileMeta(nested) => self.file_meta(nested)?,
        }
        Ok(())
    }

    /// Writes the tag of a complex value, and its entry of the table of contents.
    fn begin(&mut self, kind: u16, count: u32) -> Result<(), TooLong> {
        // Numbers count from 1, and offsets from the second unit of the header.
        let number = long(self.contents.len().saturating_add(1))?;
        self.unit(tagged(1, tag::COMPLEX, number));
        let units = self.data.len().checked_div(UNIT).unwrap_or(0);
        self.contents.push(tagged(short(units.saturating_add(1))?, kind, count));
        Ok(())
    }

    /// Writes bytes with their tag, filled up to whole units.
    fn bytes(&mut self, bytes: &[u8], last: u32) -> Result<(), TooLong> {
        let units = bytes.len().div_ceil(UNIT);
        self.unit(tagged(short(units.saturating_add(1))?, tag::DATA, last));
        self.data.extend_from_slice(bytes);
        self.data.resize(self.data.len().next_multiple_of(UNIT), 0);
        Ok(())
    }

    fn elements(&mut self, kind: u16, elements: &[Value]) -> Result<(), TooLong> {
        self.begin(kind, long(elements.len())?)?;
        elements.iter().try_for_each(|element| self.value(element))
    }

    fn cnids(&mut self, cnids: &Cnids) -> Result<(), TooLong> {
        self.begin(complex::CNIDS, 0)?;
        if cnids.ids.is_empty() {
            self.unit(tagged(1, tag::CNIDS, WHOLE_UNITS));
            return Ok(());
        }
        let size = short(cnids.ids.len().saturating_add(2))?;
        self.unit(tagged(size, tag::CNIDS, WHOLE_UNITS));
        self.unit(tagged(short(cnids.ids.len())?, cnids.kind, cnids.context));
        for id in &cnids.ids {
            self.unit(*id);
        }
        Ok(())
    }

    fn file_meta(&mut self, nested: &[Value]) -> Result<(), TooLong> {
        let nested = if nested.is_empty() { Vec::new() } else { pack_in(self.order, nested)? };
        self.begin(complex::FILE_META, long(nested.len().checked_div(UNIT).unwrap_or(0))?)?;
        self.bytes(&nested, WHOLE_UNITS)
    }

    fn finish(self) -> Result<Vec<u8>, TooLong> {
        let Self { order, data, contents } = self;
        let data_end = long(data.len().checked_div(UNIT).unwrap_or(0).saturating_add(1))?;
        let entries = contents.len().saturating_add(1);
        let total = data_end.checked_add(long(entries)?).ok_or(TooLong)?;
        let mut bytes = match order {
            Order::Little => MAGIC_LITTLE.to_vec(),
            Order::Big => MAGIC_BIG.to_vec(),
        };
        put(&mut bytes, order, u64::from(data_end) << 32 | u64::from(total));
        bytes.extend_from_slice(&data);
        put(&mut bytes, order, tagged(short(entries)?, tag::CONTENTS, 0));
        for entry in contents {
            put(&mut bytes, order, entry);
        }
        Ok(bytes)
    }
}

/// Bytes of the last unit that a text of this length uses; 0 for an empty text.
fn in_last_unit(length: usize) -> u32 {
    let unused = length.next_multiple_of(UNIT).saturating_sub(length);
    let used = if length == 0 { 0 } else { UNIT.saturating_sub(unused) };
    u32::try_from(used).unwrap_or(WHOLE_UNITS)
}
