//! Dialects of SMB, for the fence of MS-SMB2 3.3.1.5: clients use shares of the cluster by a dialect of at most
//! MaxClusterDialect, so that each node can take their handles over.

use core::fmt;
use core::str::FromStr;

/// A dialect, by its number (MS-SMB2 2.2.4). A later version of Frevo may have larger ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClusterDialect(pub u16);

impl ClusterDialect {
    /// SMB 3.0.
    pub const SMB_3_0: Self = Self(0x0300);
    /// SMB 3.0.2.
    pub const SMB_3_0_2: Self = Self(0x0302);
    /// SMB 3.1.1.
    pub const SMB_3_1_1: Self = Self(0x0311);
    /// The largest one that this version of Frevo speaks.
    pub const LARGEST: Self = Self::SMB_3_1_1;
    /// The dialects that a cluster can have as its maximum. Those before 3.0 know no shares of clusters.
    pub const ALL: [Self; 3] = [Self::SMB_3_0, Self::SMB_3_0_2, Self::SMB_3_1_1];

    /// The usual name of a dialect that this version knows.
    const fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            0x0202 => "2.0.2",
            0x0210 => "2.1",
            0x0300 => "3.0",
            0x0302 => "3.0.2",
            0x0311 => "3.1.1",
            _ => return None,
        })
    }

    /// The number as it stands in values: `0x0311`.
    pub(crate) const fn number(self) -> Number {
        Number(self.0)
    }

    /// Reads what [`ClusterDialect::number`] shows.
    pub(crate) fn from_number(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("0x").filter(|digits| digits.len() == 4)?;
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if !digits.bytes().all(is_digit) {
            return None;
        }
        u16::from_str_radix(digits, 16).ok().map(Self)
    }
}

impl fmt::Display for ClusterDialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => self.number().fmt(f),
        }
    }
}

/// The number of a dialect as it stands in values.
pub(crate) struct Number(u16);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

/// A text that names no dialect which a cluster can have as its maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotADialect;

impl fmt::Display for NotADialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the dialect must be 3.0, 3.0.2 or 3.1.1")
    }
}

impl core::error::Error for NotADialect {}

impl FromStr for ClusterDialect {
    type Err = NotADialect;

    fn from_str(text: &str) -> Result<Self, NotADialect> {
        Self::ALL.into_iter().find(|dialect| dialect.name() == Some(text)).ok_or(NotADialect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn dialects_have_names_and_numbers() {
        for (dialect, name, number) in [
            (ClusterDialect::SMB_3_0, "3.0", "0x0300"),
            (ClusterDialect::SMB_3_0_2, "3.0.2", "0x0302"),
            (ClusterDialect::SMB_3_1_1, "3.1.1", "0x0311"),
        ] {
            assert_eq!(
                (dialect.to_string(), dialect.number().to_string()),
                (name.into(), number.into())
            );
            assert_eq!(
                (name.parse(), ClusterDialect::from_number(number)),
                (Ok(dialect), Some(dialect))
            );
        }
        assert!(ClusterDialect::ALL.is_sorted());
        // A later version has others.
        let later = ClusterDialect::from_number("0x0400").unwrap();
        assert!(later > ClusterDialect::LARGEST);
        assert_eq!(later.to_string(), "0x0400");
        for wrong in ["", "2.1", "3.1", "3.1.1 ", "0x0311"] {
            assert_eq!(wrong.parse::<ClusterDialect>(), Err(NotADialect), "{wrong}");
        }
        for wrong in ["", "0x", "0x311", "0x+311", "0x00311", "0X0311", "0311", "0x031G"] {
            assert_eq!(ClusterDialect::from_number(wrong), None, "{wrong}");
        }
    }
}
