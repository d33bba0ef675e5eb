//! `get`: downloads files to this machine.

use std::path::{Path, PathBuf};

use frevo_mount::names::{Spelling, from_wire};

use super::arguments::Get;
use super::cat::cat;
use super::connection_options::{Connection, Copying};
use super::copy_plan::{CopyPlan, Selection};
use super::endpoint::Endpoint;
use super::failures::Failures;
use super::location::{Location, Url};
use super::name_collisions::Case;
use super::overlap::Ends;
use super::target::is_local_directory;
use super::transfer::CopyOptions;
use super::wildcards;
use crate::exit::{Done, Exit, Failure};

pub(crate) async fn get(get: &Get) -> Done {
    let (to, urls) = match get.places.split_last() {
        Some((Location::Local(to), urls)) => (Some(&**to), urls),
        _ => (None, &*get.places),
    };
    let url = |place: &Location| match place {
        Location::Remote(url) => Ok(url.clone()),
        Location::Local(path) => {
            let text = format!(
                "{} is not an smb:// URL; only the last argument may be a local path",
                path.display()
            );
            Err(Failure::new(Exit::Usage, text))
        }
    };
    let urls: Vec<Url> = urls.iter().map(url).collect::<Result<_, _>>()?;
    if urls.is_empty() {
        let text = "no file to download is named; write smb://USER@HOST/SHARE/PATH";
        return Err(Failure::new(Exit::Usage, text));
    }
    let urls = get.as_of.urls(&get.connection, &urls).await?;
    let selection = Selection {
        recursive: get.recursive,
        dry_run: get.dry_run,
        update: get.update,
        links: get.copying.links,
        filter: &get.filter,
    };
    download(&urls, to, selection, &get.connection, &get.copying).await
}

/// Downloads all of `urls` to the local path `to`: `-` is standard output, None the current
/// folder.
pub(crate) async fn download(
    urls: &[Url],
    to: Option<&Path>,
    selection: Selection<'_>,
    connection: &Connection,
    copying: &Copying,
) -> Done {
    if to == Some(Path::new("-")) && !selection.dry_run {
        return cat(connection, urls, copying.bwlimit).await;
    }
    let urls = wildcards::expand(connection, urls).await?;
    let into = match to {
        Some(to) => is_local_directory(to, urls.len(), selection.dry_run)?,
        None => true,
    };
    let to = to.unwrap_or(Path::new(""));
    let options = CopyOptions::new(Some(0), connection.json || selection.dry_run, copying);
    let mut plan = CopyPlan::new(selection, Case::Differs);
    let mut failures = Failures::default();
    let ends = async |url: &Url| {
        let (share, url) = connection.reach(url).await?;
        let to = if into { to.join(local_leaf(&url)) } else { to.to_owned() };
        Ok(Ends::new(Endpoint::Remote(share, url.into_path()), Endpoint::Local(to)))
    };
    plan.add_all(&urls, ends, &options, &mut failures).await?;
    plan.carry_out(connection, &options, failures).await
}

/// The last name of a URL, in the spelling of this machine. The library refuses names that are
/// not one component, so that none leads out of the target.
fn local_leaf(url: &Url) -> PathBuf {
    let name = frevo_client::path::split(&url.path).1;
    let name = if name.is_empty() { &url.share } else { name };
    PathBuf::from(from_wire(name, Spelling::Mapped))
}
