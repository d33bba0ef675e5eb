//! The options for servers that speak only SMB1.

use clap::Args;
use frevo_smb1_client::CodePage;

use crate::value_words::words;

/// The options for servers that speak only SMB1.
#[derive(Debug, Args)]
pub(crate) struct Smb1 {
    /// Connect by SMB1, as a URL smb1://HOST does: nothing is encrypted, and signatures are weak
    #[arg(long)]
    pub(super) smb1: bool,

    /// With SMB1: log on by NTLMv1, or in plain text where the server wants that; someone on the
    /// network can then find the password
    #[arg(long)]
    pub(super) weak_logon: bool,

    /// With --weak-logon: send the LM response, too, from which the password is found in minutes
    #[arg(long, requires = "weak_logon")]
    pub(super) lm_logon: bool,

    /// With SMB1: refuse a server that does not sign its messages
    #[arg(long, conflicts_with = "sign_when_asked")]
    pub(super) smb1_signed: bool,

    /// With SMB1: the code page of names on servers without Unicode
    #[arg(long, value_name = "PAGE", default_value = "cp850", value_parser = words::<PageName>(PageName::WORDS))]
    pub(super) code_page: PageName,
}

/// A code page by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageName(pub(super) CodePage);

impl PageName {
    const WORDS: &[&str] = &["cp437", "cp850", "cp852", "cp1252"];
}

impl std::str::FromStr for PageName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = CodePage::NAMES.into_iter().find(|(name, _)| *name == text);
        found.map(|(_, page)| Self(page)).ok_or_else(|| format!("{text} is no known code page"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_page_has_its_word() {
        let words: Vec<&str> = CodePage::NAMES.iter().map(|(name, _)| *name).collect();
        assert_eq!(PageName::WORDS, words);
        assert_eq!("cp437".parse(), Ok(PageName(CodePage::Cp437)));
    }
}
