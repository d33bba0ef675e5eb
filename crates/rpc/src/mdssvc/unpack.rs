//! Reads messages.
//!
//! A message is a header of two units, the data section, and the table of contents. The data section is a sequence
//! of values, each a tag and its bytes. A tag of an array, a dictionary, a text, numbers of files or a message in
//! the message points into the table of contents, which has the type and a count. The content follows the tag.

use super::value::{Cnids, MAGIC_BIG, MAGIC_LITTLE, Order, UNIT, Value, complex, tag};
use crate::limits::{MAX_SPOTLIGHT_DEPTH, MAX_SPOTLIGHT_VALUES};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use frevo_wire::codec::{Malformed, Parsed};

/// A tag, or an entry of the table of contents.
#[derive(Debug, Clone, Copy)]
struct Tag {
    /// Units, or an offset in units.
    size: u16,
    kind: u16,
    count: u32,
}

impl Tag {
    const fn of(unit: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = unit.to_le_bytes();
        Self {
            size: u16::from_le_bytes([a, b]),
            kind: u16::from_le_bytes([c, d]),
            count: u32::from_le_bytes([e, f, g, h]),
        }
    }
}

/// Returns the values of a message.
///
/// # Errors
/// Malformed for bytes that are no message, and for one that has too many values or nests too deep.
pub fn unpack(bytes: &[u8]) -> Parsed<Vec<Value>> {
    let mut budget = MAX_SPOTLIGHT_VALUES;
    message(bytes, 0, &mut budget)
}

/// Reads a message at this depth, which may still have `budget` values.
fn message(bytes: &[u8], depth: usize, budget: &mut usize) -> Parsed<Vec<Value>> {
    let mut reader = Unpacker::begin(bytes)?;
    let mut values = Vec::new();
    while !reader.is_at_end() {
        reader.value(usize::MAX, depth, budget, &mut values)?;
    }
    Ok(values)
}

/// A message that is being read.
struct Unpacker<'a> {
    order: Order,
    /// The data section.
    data: &'a [u8],
    /// The entries of the table of contents.
    contents: &'a [u8],
    /// Bytes of the data section that were read.
    at: usize,
}

fn length_of(units: usize) -> Parsed<usize> {
    units.checked_mul(UNIT).ok_or(Malformed::new("Spotlight length"))
}

fn index(number: u32) -> Parsed<usize> {
    usize::try_from(number).map_err(|_| Malformed::new("Spotlight number"))
}

fn unit_at(bytes: &[u8], at: usize, order: Order) -> Parsed<u64> {
    let unit = bytes.get(at..).and_then(|rest| rest.first_chunk::<UNIT>());
    let unit = *unit.ok_or(Malformed::new("Spotlight unit"))?;
    Ok(match order {
        Order::Little => u64::from_le_bytes(unit),
        Order::Big => u64::from_be_bytes(unit),
    })
}

impl<'a> Unpacker<'a> {
    /// Reads the header and finds the sections.
    fn begin(bytes: &'a [u8]) -> Parsed<Self> {
        let bad = Malformed::new("Spotlight header");
        let (magic, body) = bytes.split_first_chunk::<UNIT>().ok_or(bad)?;
        let order = match magic {
            MAGIC_LITTLE => Order::Little,
            MAGIC_BIG => Order::Big,
            _ => return Err(Malformed::new("Spotlight magic")),
        };
        // Both lengths count from the second unit of the header, which has them.
        let lengths = unit_at(body, 0, order)?;
        let total = index(u32::try_from(lengths & 0xFFFF_FFFF).unwrap_or(u32::MAX))?;
        let data_end = index(u32::try_from(lengths >> 32).unwrap_or(u32::MAX))?;
        let body = body.get(..length_of(total)?).ok_or(bad)?;
        let (data, table) = body.split_at_checked(length_of(data_end)?).ok_or(bad)?;
        let data = data.get(UNIT..).ok_or(bad)?;
        let head = Tag::of(unit_at(table, 0, order)?);
        let entries = table.get(UNIT..length_of(usize::from(head.size))?);
        let contents = entries.filter(|_| head.kind == tag::CONTENTS);
        let contents = contents.ok_or(Malformed::new("Spotlight table of contents"))?;
        Ok(Self { order, data, contents, at: 0 })
    }

    const fn is_at_end(&self) -> bool {
        self.at >= self.data.len()
    }

    fn unit(&mut self) -> Parsed<u64> {
        let unit = unit_at(self.data, self.at, self.order)?;
        self.at = self.at.saturating_add(UNIT);
        Ok(unit)
    }

    fn tag(&mut self) -> Parsed<Tag> {
        self.unit().map(Tag::of)
    }

    /// Takes the bytes of a value whose tag says `size`: that many units with the tag.
    fn bytes(&mut self, size: u16) -> Parsed<&'a [u8]> {
        let bad = Malformed::new("Spotlight size");
        let units = usize::from(size).checked_sub(1).ok_or(bad)?;
        let end = self.at.checked_add(length_of(units)?).ok_or(bad)?;
        let bytes = self.data.get(self.at..end).ok_or(bad)?;
        self.at = end;
        Ok(bytes)
    }

    /// Reads a value, or a run of values of one type, of at most `room` values.
    fn value(
        &mut self,
        room: usize,
        depth: usize,
        budget: &mut usize,
        values: &mut Vec<Value>,
    ) -> Parsed<()> {
        let bad = Malformed::new("Spotlight run");
        let tag = self.tag()?;
        let is_run = !matches!(tag.kind, tag::BOOL | tag::COMPLEX);
        let count = if is_run { index(tag.count)? } else { 1 };
        if count == 0 || count > room {
            return Err(bad);
        }
        *budget = budget.checked_sub(count).ok_or(Malformed::new("too many Spotlight values"))?;
        let per_value = match tag.kind {
            tag::NIL | tag::BOOL | tag::COMPLEX => 0,
            tag::UUID => 2,
            tag::INTEGER | tag::FLOAT | tag::DATE => 1_usize,
            _ => return Err(Malformed::new("Spotlight type")),
        };
        let units = count.checked_mul(per_value).and_then(|units| units.checked_add(1));
        if units != Some(usize::from(tag.size)) {
            return Err(bad);
        }
        for _ in 0..count {
            values.push(match tag.kind {
                tag::NIL => Value::Nil,
                tag::BOOL => Value::Bool(tag.count != 0),
                tag::COMPLEX => self.complex(tag.count, depth, budget)?,
                tag::UUID => {
                    let uuid = self.bytes(3)?.first_chunk().copied();
                    Value::Uuid(uuid.ok_or(bad)?)
                }
                tag::INTEGER => Value::Integer(self.unit()?),
                tag::FLOAT => Value::Float(f64::from_bits(self.unit()?)),
                _ => Value::Date(f64::from_bits(self.unit()?)),
            });
        }
        Ok(())
    }

    /// Reads the value with this number, from 1 on, in the table of contents.
    fn complex(&mut self, number: u32, depth: usize, budget: &mut usize) -> Parsed<Value> {
        let bad = Malformed::new("Spotlight table of contents");
        let entry = index(number)?.checked_sub(1).ok_or(bad)?;
        let entry = Tag::of(unit_at(self.contents, length_of(entry)?, self.order)?);
        let data_end = self.data.len().checked_div(UNIT).unwrap_or(0).saturating_add(1);
        if usize::from(entry.size) > data_end {
            return Err(Malformed::new("Spotlight offset"));
        }
        if depth >= MAX_SPOTLIGHT_DEPTH {
            return Err(Malformed::new("Spotlight depth"));
        }
        let depth = depth.saturating_add(1);
        Ok(match entry.kind {
            complex::ARRAY => Value::Array(self.elements(entry.count, depth, budget)?),
            complex::DICTIONARY => {
                let entries = self.elements(entry.count, depth, budget)?;
                let mut pairs = entries.chunks(2);
                let is_pair =
                    |pair: &[Value]| matches!(pair, [Value::Text(_) | Value::WideText(_), _]);
                if !pairs.all(is_pair) {
                    return Err(Malformed::new("Spotlight dictionary"));
                }
                Value::Dictionary(entries)
            }
            complex::TEXT => {
                let text = core::str::from_utf8(self.content(entry)?);
                Value::Text(text.map_err(|_| Malformed::new("Spotlight UTF-8"))?.to_string())
            }
            complex::WIDE_TEXT => Value::WideText(wide(self.content(entry)?)?),
            complex::CNIDS => Value::Cnids(self.cnids()?),
            complex::FILE_META => {
                let tag = self.tag()?;
                let nested = self.bytes(tag.size)?;
                match nested {
                    _ if tag.kind != tag::DATA => return Err(bad),
                    [] => Value::FileMeta(Vec::new()),
                    nested => Value::FileMeta(message(nested, depth, budget)?),
                }
            }
            _ => return Err(bad),
        })
    }

    /// Reads the elements of an array, or the keys and values of a dictionary.
    fn elements(&mut self, count: u32, depth: usize, budget: &mut usize) -> Parsed<Vec<Value>> {
        let count = index(count)?;
        let mut elements = Vec::new();
        while elements.len() < count {
            let room = count.saturating_sub(elements.len());
            self.value(room, depth, budget, &mut elements)?;
        }
        Ok(elements)
    }

    /// Reads the bytes of a text: its entry in the table of contents says how many bytes of the last unit count.
    fn content(&mut self, entry: Tag) -> Parsed<&'a [u8]> {
        let bad = Malformed::new("Spotlight text");
        let tag = self.tag()?;
        let bytes = self.bytes(tag.size)?;
        if tag.kind != tag::DATA {
            return Err(bad);
        }
        if bytes.is_empty() {
            return Ok(bytes);
        }
        let in_last = index(entry.count)?;
        let unused = UNIT.checked_sub(in_last).filter(|unused| *unused < UNIT).ok_or(bad)?;
        bytes.get(..bytes.len().saturating_sub(unused)).ok_or(bad)
    }

    fn cnids(&mut self) -> Parsed<Cnids> {
        let bad = Malformed::new("Spotlight CNIDs");
        let tag = self.tag()?;
        if tag.kind != tag::CNIDS {
            return Err(bad);
        }
        let mut units = usize::from(tag.size).checked_sub(1).ok_or(bad)?;
        if units == 0 {
            return Ok(Cnids { kind: 0, context: 0, ids: Vec::new() });
        }
        let head = Tag::of(self.unit()?);
        units = units.saturating_sub(1);
        if usize::from(head.size) != units {
            return Err(bad);
        }
        let ids = (0..units).map(|_| self.unit()).collect::<Parsed<Vec<_>>>()?;
        Ok(Cnids { kind: head.kind, context: head.count, ids })
    }
}

/// Reads a text in UTF-16, little-endian unless its first character says otherwise.
fn wide(bytes: &[u8]) -> Parsed<String> {
    let bad = Malformed::new("Spotlight UTF-16");
    if !bytes.len().is_multiple_of(2) {
        return Err(bad);
    }
    let (bytes, is_big) = match bytes {
        [0xFE, 0xFF, rest @ ..] => (rest, true),
        [0xFF, 0xFE, rest @ ..] => (rest, false),
        bytes => (bytes, false),
    };
    let units = bytes.as_chunks::<2>().0.iter().map(|unit| match is_big {
        true => u16::from_be_bytes(*unit),
        false => u16::from_le_bytes(*unit),
    });
    char::decode_utf16(units).collect::<Result<_, _>>().map_err(|_| bad)
}
