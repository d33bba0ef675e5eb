//! The instance of an application that opens files: MS-SMB2 2.2.13.2.13 and 2.2.13.2.15.

use std::fmt;
use std::str::FromStr;

use frevo_wire::create_context::{AppInstanceVersion, CreateContext};
use frevo_wire::dtyp::Guid;

use super::parse_guid;

/// The instance of an application that fails over between machines, with its open files.
///
/// An application that begins on another machine has the same id there and a later version. Where it
/// opens a file, the server closes the handle of the earlier instance, which may have lost its network and
/// not yet noticed. An earlier instance cannot open a file that a later one has open
/// ([`Status::FILE_FORCED_CLOSED`](crate::Status::FILE_FORCED_CLOSED)), and its handles are not opened
/// again by name. Without a version the instance that opens a file last has it. The server compares
/// versions in SMB 3.1.1 alone.
///
/// ```
/// use frevo_client::AppInstance;
///
/// let instance: AppInstance = "2f1d5e0c-7a61-4f1e-9c55-3f2b7f6f1a10".parse()?;
/// let later = instance.version(0, 7);
/// assert_eq!(later.to_string(), "2f1d5e0c-7a61-4f1e-9c55-3f2b7f6f1a10 version 0.7");
/// # Ok::<(), frevo_client::ParseAppInstanceError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AppInstance {
    id: [u8; 16],
    version: Option<(u64, u64)>,
}

impl AppInstance {
    /// Returns the instance with this AppInstanceId, as its bytes are sent, and no version.
    pub const fn new(id: [u8; 16]) -> Self {
        Self { id, version: None }
    }

    /// Sets the version: AppInstanceVersionHigh and AppInstanceVersionLow, one number of two halves.
    #[must_use]
    pub const fn version(mut self, high: u64, low: u64) -> Self {
        self.version = Some((high, low));
        self
    }

    /// Returns the create contexts that a dialect has: MS-SMB2 3.2.4.3.11, 3.2.4.3.13.
    pub(crate) fn contexts<'a>(
        self,
        dialect: frevo_proto::Dialect,
    ) -> impl Iterator<Item = CreateContext<'a>> {
        let has_id = dialect.0 >= frevo_proto::Dialect::SMB_3_0.0;
        let id = has_id.then_some(CreateContext::AppInstanceId(Guid(self.id)));
        let has_version = dialect == frevo_proto::Dialect::SMB_3_1_1;
        let version = self.version.filter(|_| has_version);
        let version = version
            .map(|(high, low)| CreateContext::AppInstanceVersion(AppInstanceVersion { high, low }));
        id.into_iter().chain(version)
    }
}

impl fmt::Display for AppInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f_, g, h, rest @ ..] = self.id;
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-",
            u32::from_le_bytes([a, b, c, d]),
            u16::from_le_bytes([e, f_]),
            u16::from_le_bytes([g, h]),
        )?;
        for (at, byte) in rest.iter().enumerate() {
            let dash = if at == 2 { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        match self.version {
            Some((high, low)) => write!(f, " version {high}.{low}"),
            None => Ok(()),
        }
    }
}

/// A text that is no GUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParseAppInstanceError;

impl fmt::Display for ParseAppInstanceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("write a GUID, such as 2f1d5e0c-7a61-4f1e-9c55-3f2b7f6f1a10")
    }
}

impl std::error::Error for ParseAppInstanceError {}

impl FromStr for AppInstance {
    type Err = ParseAppInstanceError;

    /// Reads a GUID of 32 hexadecimal digits in five groups, with or without braces.
    fn from_str(text: &str) -> Result<Self, ParseAppInstanceError> {
        parse_guid(text).map(Self::new).ok_or(ParseAppInstanceError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frevo_proto::Dialect;

    const TEXT: &str = "00112233-4455-6677-8899-aabbccddeeff";

    #[test]
    fn a_guid_is_read_and_told() {
        let instance: AppInstance = TEXT.parse().unwrap();
        let bytes = [
            0x33, 0x22, 0x11, 0x00, 0x55, 0x44, 0x77, 0x66, 0x88, 0x99, 0xAA, 0xBB, 0xCC, 0xDD,
            0xEE, 0xFF,
        ];
        assert_eq!(instance, AppInstance::new(bytes));
        assert_eq!(instance.to_string(), TEXT);
        assert_eq!(format!("{{{}}}", TEXT.to_uppercase()).parse(), Ok(instance));
        let wrong = [
            "",
            "00112233445566778899aabbccddeeff",
            "00112233-4455-6677-8899-aabbccddeef",
            "00112233-4455-6677-8899-aabbccddeefff",
            "+0112233-4455-6677-8899-aabbccddeeff",
            "{00112233-4455-6677-8899-aabbccddeeff",
            "00112233-4455-6677-8899-aabbccddeeff-",
            "g0112233-4455-6677-8899-aabbccddeeff",
        ];
        for text in wrong {
            assert_eq!(text.parse::<AppInstance>(), Err(ParseAppInstanceError), "{text}");
        }
    }

    #[test]
    fn each_dialect_has_its_contexts() {
        let count = |instance: AppInstance, dialect| instance.contexts(dialect).count();
        let plain = AppInstance::new([7; 16]);
        let later = plain.version(1, 2);
        for (dialect, counts) in [
            (Dialect::SMB_2_1, [0, 0]),
            (Dialect::SMB_3_0, [1, 1]),
            (Dialect::SMB_3_0_2, [1, 1]),
            (Dialect::SMB_3_1_1, [1, 2]),
        ] {
            assert_eq!([count(plain, dialect), count(later, dialect)], counts, "{dialect:?}");
        }
        let contexts: Vec<_> = later.contexts(Dialect::SMB_3_1_1).collect();
        let version = CreateContext::AppInstanceVersion(AppInstanceVersion { high: 1, low: 2 });
        assert_eq!(contexts, [CreateContext::AppInstanceId(Guid([7; 16])), version]);
    }
}
