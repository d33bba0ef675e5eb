//! The wire format of D-Bus: arguments of calls and of replies.

/// Writes the arguments of a D-Bus message.
#[derive(Debug, Default)]
pub struct Marshal {
    pub(super) bytes: Vec<u8>,
}

impl Marshal {
    /// Returns the bytes of the arguments.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Goes on at a multiple of `alignment`: 8 before a structure or an entry of a dictionary.
    pub fn align(&mut self, alignment: usize) -> &mut Self {
        self.bytes.resize(self.bytes.len().next_multiple_of(alignment), 0);
        self
    }

    /// BYTE
    pub fn byte(&mut self, value: u8) -> &mut Self {
        self.bytes.push(value);
        self
    }

    /// UINT32, or BOOLEAN as 0 and 1.
    pub fn uint32(&mut self, value: u32) -> &mut Self {
        self.align(4).bytes.extend(value.to_le_bytes());
        self
    }

    /// STRING or OBJECT_PATH.
    pub fn string(&mut self, value: &str) -> &mut Self {
        self.uint32(u32::try_from(value.len()).unwrap_or(u32::MAX));
        self.bytes.extend(value.as_bytes());
        self.bytes.push(0);
        self
    }

    /// Writes an array of bytes.
    pub fn byte_array(&mut self, value: &[u8]) -> &mut Self {
        self.uint32(u32::try_from(value.len()).unwrap_or(u32::MAX));
        self.bytes.extend(value);
        self
    }

    /// VARIANT of one type, whose value follows.
    pub fn variant(&mut self, signature: &str) -> &mut Self {
        self.bytes.push(u8::try_from(signature.len()).unwrap_or(u8::MAX));
        self.bytes.extend(signature.as_bytes());
        self.bytes.push(0);
        self
    }

    /// ARRAY of elements with this alignment.
    pub fn array(&mut self, alignment: usize, fill: impl FnOnce(&mut Self)) -> &mut Self {
        self.uint32(0);
        let length = self.bytes.len() - 4;
        // In D-Bus the length of an array does not include the padding before its first element.
        let start = self.align(alignment).bytes.len();
        fill(self);
        let bytes = u32::try_from(self.bytes.len() - start).unwrap_or(u32::MAX);
        if let Some(field) = self.bytes.get_mut(length..length + 4) {
            field.copy_from_slice(&bytes.to_le_bytes());
        }
        self
    }
}

/// Reads the arguments of a reply. None when they are not what is asked for.
#[derive(Debug)]
pub struct Unmarshal<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Unmarshal<'a> {
    /// Reads arguments from their first byte.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The bytes of an ARRAY of elements with this alignment.
    pub fn array(&mut self, alignment: usize) -> Option<&'a [u8]> {
        let bytes = self.uint32()?;
        self.align(alignment)?;
        self.take(usize::try_from(bytes).ok()?)
    }

    /// Goes on at a multiple of `alignment`.
    pub fn align(&mut self, alignment: usize) -> Option<()> {
        self.at = self.at.checked_next_multiple_of(alignment)?;
        Some(())
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(length)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    /// UINT32, or BOOLEAN as 0 and 1.
    pub fn uint32(&mut self) -> Option<u32> {
        self.align(4)?;
        self.take(4)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
    }

    /// STRING or OBJECT_PATH.
    pub fn string(&mut self) -> Option<&'a str> {
        let text = self.byte_array()?;
        self.take(1)?;
        core::str::from_utf8(text).ok()
    }

    /// Reads an array of bytes. None for another type.
    pub fn byte_array(&mut self) -> Option<&'a [u8]> {
        let length = self.uint32()?;
        self.take(usize::try_from(length).ok()?)
    }

    /// The type of a VARIANT, whose value follows.
    pub fn variant(&mut self) -> Option<&'a str> {
        let [length] = *self.take(1)?.first_chunk()?;
        let signature = self.take(usize::from(length))?;
        self.take(1)?;
        core::str::from_utf8(signature).ok()
    }

    /// ARRAY of STRING or OBJECT_PATH.
    pub fn strings(&mut self) -> Option<Vec<String>> {
        let bytes = usize::try_from(self.uint32()?).ok()?;
        let end = self.at.checked_add(bytes).filter(|end| *end <= self.bytes.len())?;
        let mut strings = Vec::new();
        while self.at < end {
            strings.push(self.string()?.to_owned());
        }
        Some(strings)
    }
}
