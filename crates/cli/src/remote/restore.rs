//! `restore`: brings files back to their places as they were in a snapshot.

use super::ancestry::BothEnds;
use super::arguments::Restore;
use super::as_of::url_last_at;
use super::copy_plan::{CopyPlan, Selection};
use super::failures::Failures;
use super::location::{Url, folder};
use super::logon::failed;
use super::name_collisions::Case;
use super::overlap::Ends;
use super::transfer::CopyOptions;
use super::wildcards;
use crate::exit::{Done, Exit, Failure};

pub(crate) async fn restore(restore: &Restore) -> Done {
    let connection = &restore.connection;
    let mut urls = Vec::with_capacity(restore.urls.len());
    for url in &restore.urls {
        urls.push(match (restore.as_of, url.snapshot()) {
            (Some(when), _) => url_last_at(connection, url, when).await?,
            (None, Some(_)) => url.clone(),
            (None, None) => {
                let text = format!(
                    "say which time to go back to by --as-of; `frevo snapshots {url}` lists the \
                     snapshots"
                );
                return Err(Failure::new(Exit::Usage, text));
            }
        });
    }
    let selection = Selection {
        recursive: true,
        dry_run: restore.dry_run,
        update: false,
        links: restore.copying.links,
        filter: &restore.filter,
    };
    let quiet = connection.json || restore.dry_run;
    let options = CopyOptions::new(Some(0), quiet, &restore.copying).forced(true).with_streams();
    let mut failures = Failures::default();
    let mut plan = CopyPlan::new(selection, Case::Same);
    let urls = wildcards::expand(connection, &urls).await?;
    let find = async |past: &Url| ends(restore, past).await;
    plan.add_all(&urls, find, &options, &mut failures).await?;
    plan.carry_out(connection, &options, failures).await
}

/// A file of a snapshot and its place in the present.
async fn ends(restore: &Restore, past: &Url) -> Result<Ends, Failure> {
    let ends = restore.connection.reach_both(past, &past.of_the_present()).await?;
    let BothEnds { from, to } = &ends;
    from.share.metadata(&from.url.path).await.map_err(failed)?;
    let above = folder(&to.url.path);
    // The folder can be gone as well.
    if !restore.dry_run && !above.is_empty() {
        to.share.create_dir_all(above).await.map_err(failed)?;
    }
    Ok(Ends::remote(ends).await)
}
