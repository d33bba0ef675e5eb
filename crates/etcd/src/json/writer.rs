//! A writer of JSON objects.

use alloc::vec::Vec;

use super::base64;

/// An object that is being written. It is closed when it is dropped.
pub(super) struct Object<'a> {
    out: &'a mut Vec<u8>,
    is_empty: bool,
}

impl<'a> Object<'a> {
    /// Opens an object at the end of `out`.
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, is_empty: true }
    }

    /// Writes a field's name, which has no character to escape.
    fn name(&mut self, name: &str) -> &mut Vec<u8> {
        if !core::mem::take(&mut self.is_empty) {
            self.out.push(b',');
        }
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    /// Writes bytes as base64.
    pub(super) fn bytes(&mut self, name: &str, value: &[u8]) {
        let out = self.name(name);
        out.push(b'"');
        base64::encode(value, out);
        out.push(b'"');
    }

    /// Writes a number as a string.
    pub(super) fn number(&mut self, name: &str, value: impl core::fmt::Display) {
        let digits = alloc::format!("\"{value}\"");
        self.name(name).extend_from_slice(digits.as_bytes());
    }

    /// Writes a text.
    pub(super) fn text(&mut self, name: &str, value: &str) {
        let out = self.name(name);
        out.push(b'"');
        for byte in value.bytes() {
            match byte {
                b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
                0..b' ' => out.extend_from_slice(alloc::format!("\\u{byte:04x}").as_bytes()),
                _ => out.push(byte),
            }
        }
        out.push(b'"');
    }

    /// Writes true.
    pub(super) fn yes(&mut self, name: &str) {
        self.name(name).extend_from_slice(b"true");
    }

    /// Writes an object, whose fields `fill` writes.
    pub(super) fn object(&mut self, name: &str, fill: impl FnOnce(&mut Object<'_>)) {
        fill(&mut Object::new(self.name(name)));
    }

    /// Writes a list of objects.
    pub(super) fn list<T>(
        &mut self,
        name: &str,
        elements: &[T],
        mut fill: impl FnMut(&T, &mut Object<'_>),
    ) {
        let out = self.name(name);
        out.push(b'[');
        for (at, element) in elements.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            fill(element, &mut Object::new(out));
        }
        out.push(b']');
    }
}

impl Drop for Object<'_> {
    fn drop(&mut self) {
        self.out.push(b'}');
    }
}
