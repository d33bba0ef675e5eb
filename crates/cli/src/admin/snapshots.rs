//! `frevo snapshots create`, `delete`, `prune` and `list`: the snapshots that this machine's server makes.

use frevo_admin::{ShareSnapshots, SnapshotAct};
use frevo_snapshots::Second;

use super::arguments::{ServerPlace, SnapshotsArguments, SnapshotsOfShare, SnapshotsVerb};
use super::socket::ask;
use crate::console::print;
use crate::exit::{Done, Exit, Failure};
use crate::printable::printable;
use crate::remote::{self, location::Url};
use crate::text_table::{Align, Table};

use Align::{Left, Right};

/// Does what concerns a share of another machine. None for what concerns this machine's server.
pub(super) fn of_another_machine(arguments: &SnapshotsArguments) -> Option<Done> {
    match (&arguments.verb, &arguments.url) {
        (None, Some(url)) => Some(remote::snapshots(&arguments.connection, url)),
        (Some(SnapshotsVerb::Create(of)), _) if !of.own.server => {
            let create = |url| remote::create_shadow_copy(&of.connection, &url);
            Some(url_of(&of.share).and_then(create))
        }
        (Some(SnapshotsVerb::Delete(of)), _) if !of.own.server => {
            let delete = |url| remote::delete_shadow_copy(&of.connection, &url, &of.set);
            Some(url_of(&of.share).and_then(delete))
        }
        _ => None,
    }
}

fn url_of(share: &str) -> Result<Url, Failure> {
    share.parse().map_err(|why| {
        let advice = "for a share of this machine's server, add --server";
        Failure::new(Exit::Usage, format!("{why}; {advice}"))
    })
}

/// Reads the name of a snapshot, `frevo-...` or `@GMT-...`.
fn second_of(name: &str) -> Result<Second, Failure> {
    let own = name.strip_prefix("@GMT-").map(|time| format!("frevo-{time}"));
    Second::of_name(own.as_deref().unwrap_or(name)).ok_or_else(|| {
        let text = format!("{name} is no snapshot's name, as `frevo snapshots list` shows them");
        Failure::new(Exit::Usage, text)
    })
}

pub(super) async fn run(arguments: &SnapshotsArguments) -> Done {
    let act = |of: &SnapshotsOfShare, act: fn(String) -> SnapshotAct| act(of.share.clone());
    match &arguments.verb {
        Some(SnapshotsVerb::Create(of)) => {
            let place = of.own.place(of.connection.json);
            tell(&place, &SnapshotAct::Create { share: of.share.clone() }, "made").await
        }
        Some(SnapshotsVerb::Delete(of)) => {
            let snapshot = second_of(&of.set)?.since_1970();
            let act = SnapshotAct::Remove { share: of.share.clone(), snapshot };
            tell(&of.own.place(of.connection.json), &act, "removed").await
        }
        Some(SnapshotsVerb::Prune(of)) => {
            let act = act(of, |share| SnapshotAct::Prune { share });
            tell(&of.place, &act, "removed").await
        }
        Some(SnapshotsVerb::List(of)) => {
            tell(&of.place, &act(of, |share| SnapshotAct::List { share }), "").await
        }
        None => {
            let text = "name a file or directory, or create, delete, prune or list";
            Err(Failure::new(Exit::Usage, text))
        }
    }
}

/// Has the server act, and prints the snapshots, the oldest first.
async fn tell(place: &ServerPlace, act: &SnapshotAct, done: &str) -> Done {
    let makes_no_sense = || Failure::failed("the server's answer makes no sense");
    let body = serde_json::to_string(act).map_err(makes_no_sense())?;
    if act.share().contains("://") {
        let text = "this is for shares of this machine's server, by their names; `frevo snapshots URL` lists \
                    the snapshots of another machine's";
        return Err(Failure::new(Exit::Usage, text));
    }
    // The interface answers 409 to an act that fails.
    let exit = |exit| if exit == Exit::Usage { Exit::Failed } else { exit };
    let answer = ask(place, "/snapshots", Some(&body)).await;
    let answer = answer.map_err(|failure| Failure { exit: exit(failure.exit), ..failure })?;
    if place.json {
        return print(&[&answer[..], b"\n"].concat());
    }
    let mut snapshots: Vec<u64> = serde_json::from_slice(&answer).map_err(makes_no_sense())?;
    snapshots.sort_unstable();
    let end = if done.is_empty() { String::new() } else { format!(": {done}") };
    let line = |taken: Second| format!("{}  {taken}{end}\n", taken.to_name());
    let lines: String = snapshots.into_iter().filter_map(Second::new).map(line).collect();
    print(lines.as_bytes())
}

/// The lines of `frevo status` about snapshots.
pub(super) fn shown(shares: &[ShareSnapshots]) -> String {
    let mut table = Table::new(&[
        ("SNAPSHOTS OF", Left),
        ("BY", Left),
        ("COUNT", Right),
        ("OLDEST", Left),
        ("NEWEST", Left),
        ("NEXT", Left),
    ]);
    let time = |time: Option<u64>| {
        time.and_then(Second::new).map(|time| time.to_string()).unwrap_or_default()
    };
    for share in shares {
        table.row(&[
            share.share.clone(),
            share.provider.clone().unwrap_or_default(),
            share.count.to_string(),
            time(share.oldest),
            time(share.newest),
            time(share.next),
        ]);
    }
    if table.is_empty() {
        return String::new();
    }
    let mut lines: String = table.lines().iter().map(|line| format!("{line}\n")).collect();
    for share in shares {
        if share.ahead > 0 {
            lines.push_str(&format!(
                "snapshots of {}: {} of a time to come; is the clock of this machine right?\n",
                printable(&share.share),
                share.ahead
            ));
        }
        for why in share.lacks.iter().chain(&share.last_error) {
            lines.push_str(&format!(
                "snapshots of {}: {}\n",
                printable(&share.share),
                printable(why)
            ));
        }
    }
    lines.push_str(&shadow_copies(shares));
    format!("\n{lines}")
}

/// The table of the shadow copies, with the sets without which they cannot be deleted.
fn shadow_copies(shares: &[ShareSnapshots]) -> String {
    let columns = [("SHADOW COPY", Left), ("TAKEN", Left), ("BY", Left), ("SET", Left)];
    let mut table = Table::new(&columns);
    for copy in shares.iter().flat_map(|share| &share.shadow_copies) {
        let taken = Second::new(copy.taken).map(|taken| taken.to_string()).unwrap_or_default();
        table.row(&[copy.share.clone(), taken, copy.owner.clone(), copy.set.clone()]);
    }
    if table.is_empty() {
        return String::new();
    }
    let lines: String = table.lines().iter().map(|line| format!("{line}\n")).collect();
    format!("\n{lines}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_snapshots_of_shares_are_shown() {
        assert_eq!(shown(&[]), "");
        let share = ShareSnapshots {
            share: "photos".into(),
            provider: Some("btrfs".into()),
            count: 3,
            oldest: Some(951_827_696),
            newest: Some(951_827_697),
            ahead: 2,
            lacks: Some("they lack b".into()),
            last_error: Some("no space".into()),
            ..ShareSnapshots::default()
        };
        let text = shown(&[share]);
        assert!(text.contains("photos        btrfs      3  2000-02-29 12:34:56 UTC"), "{text}");
        assert!(
            text.contains("\nsnapshots of photos: 2 of a time to come; is the clock"),
            "{text}"
        );
        assert!(
            text.ends_with("\nsnapshots of photos: they lack b\nsnapshots of photos: no space\n"),
            "{text}"
        );
    }
}
