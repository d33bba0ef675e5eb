//! `[share.home]`: homes that the server makes.

use std::path::PathBuf;

use serde::Deserialize;

use super::values::Mode;

/// `[share.home]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HomeSection {
    /// The mode of a new home.
    pub mode: Option<Mode>,
    /// The folder whose files and folders a new home gets.
    pub skeleton: Option<PathBuf>,
}

impl HomeSection {
    /// The mode of a new home: its user alone may enter it, unless the section says otherwise.
    pub fn mode(&self) -> u32 {
        self.mode.map_or(0o700, |mode| mode.0)
    }
}

#[cfg(test)]
mod tests {
    use crate::Config;

    #[test]
    fn homes_are_made_at_the_end_of_a_path() {
        for (path, keys, is_right) in [
            ("/home/{user}", "home = {}", true),
            ("/home/{user}", "home = { mode = \"0750\", skeleton = \"/etc/skel\" }", true),
            ("/home/{user}", "home = { skeleton = \"skel\" }", false),
            ("/home/{user}", "home = { mode = \"0750\" }\nread_only = true", false),
            ("/home/{user}/mail", "home = {}", false),
            ("/home/x-{user}", "home = {}", false),
            ("/home", "home = {}", false),
        ] {
            let text = format!("[[share]]\nname = \"a\"\npath = {path:?}\n{keys}\n");
            assert_eq!(Config::parse(&text).is_ok(), is_right, "{path} {keys}");
        }
    }
}
