//! The targets of a link, for people who look at a namespace.

use super::cache::Known;
use super::dfs_path::DfsPath;
use crate::error::{During, Result};
use crate::share::Share;

impl Share {
    /// Returns where `path`, a link of a DFS namespace, leads: the URLs of its targets, in the order in which
    /// they are tried. Empty if it is no link, and for links that are not followed
    /// ([`Options::referrals`](crate::Options::referrals)).
    ///
    /// # Errors
    /// Fails if the path is not valid, or its server cannot be asked.
    pub async fn link_targets(&self, path: &str) -> Result<Vec<String>> {
        const OPERATION: &str = "resolve";
        let url = self.url(path);
        let path = crate::path::wire_path(path).during(OPERATION, &url)?;
        let (folder, name) = path.rsplit_once('\\').unwrap_or(("", &path));
        if name.is_empty() {
            return Ok(Vec::new());
        }
        // The folder itself can be behind a link.
        let folder = self.located(folder.to_owned()).await?;
        let Some(way) = folder.share.way.clone() else { return Ok(Vec::new()) };
        let place = folder.share.place(folder.path).below(name);
        let known = match way.client.referrals.find(&place) {
            Some((known, rest)) if rest.is_empty() => Some(known),
            _ => way.link(folder.share.session(), &place).await?,
        };
        let known = known.filter(|known| !known.is_of_root());
        let scheme = folder.share.session().options().scheme();
        let urls = |known: Known| known.tried().map(|(_, to)| to.url(scheme)).collect();
        Ok(known.map_or_else(Vec::new, urls))
    }
}

impl super::Way {
    /// Asks the server of `session` for the referral of exactly this place.
    async fn link(&self, session: &crate::Session, place: &DfsPath) -> Result<Option<Known>> {
        let response = match self.ipc(session).await?.dfs_targets(&place.unc()).await {
            Err(error) if error.status().is_some() => return Ok(None),
            response => response?,
        };
        let allowed = |target: &DfsPath| self.may_go(session, &place.server, target);
        let understood = Known::understood(&response, place, allowed);
        let link = understood.filter(|(_, rest)| rest.is_empty());
        Ok(link.map(|(known, _)| self.client.referrals.keep(known)))
    }
}
