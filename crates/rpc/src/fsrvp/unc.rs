//! Names of shares in UNC format.

use crate::limits::MAX_SHADOW_COPY_NAME;

/// Returns the name of the share in `\\server\share`, which may end in a backslash. None for another text,
/// and for one that is too long.
pub fn share_of(unc: &str) -> Option<&str> {
    if unc.len() > MAX_SHADOW_COPY_NAME {
        return None;
    }
    let (server, share) = unc.strip_prefix(r"\\")?.split_once('\\')?;
    let share = share.strip_suffix('\\').unwrap_or(share);
    let is_name = |name: &str| !name.is_empty() && !name.contains(['\\', '/', '\0']);
    (is_name(server) && is_name(share)).then_some(share)
}
