//! Links of a DFS namespace as what a command is given, not as what leads to it.

use super::connection_options::Connection;
use super::location::{Url, join};
use super::logon::failed;
use crate::exit::{Done, Exit, Failure};

/// Refuses to change `url` itself if it is a DFS link: `found`, where it leads, is a folder of another share and often of
/// other people.
pub(crate) async fn refuse(
    connection: &Connection,
    url: &Url,
    found: &Url,
    operation: &str,
) -> Done {
    if url.is_in_share_of(found) && url.path == found.path {
        return Ok(());
    }
    let (folder, name) = frevo_client::path::split(&url.path);
    if name.is_empty() {
        return Ok(());
    }
    let (share, place) = connection.reach(&url.at(folder)).await?;
    let targets = share.link_targets(&join(&place.path, name)).await.map_err(failed)?;
    if targets.is_empty() {
        return Ok(());
    }
    let text = format!(
        "{url} is a DFS link to {found}, which {operation} leaves alone; name {found} if you mean what is there. \
         `frevo namespace remove` removes links"
    );
    Err(Failure::new(Exit::Usage, text))
}
