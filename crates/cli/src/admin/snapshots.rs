//! `frevo snapshots create`, `prune` and `list`: the snapshots that this machine's server makes.

use frevo_admin::{ShareSnapshots, SnapshotAct};
use frevo_snapshots::Second;

use super::arguments::{ServerPlace, SnapshotsArguments, SnapshotsOfShare, SnapshotsVerb};
use super::socket::ask;
use crate::console::print;
use crate::exit::{Done, Exit, Failure};
use crate::printable::printable;
use crate::remote;
use crate::text_table::{Align, Table};

use Align::{Left, Right};

/// Does what concerns a share of another machine. None for what concerns this machine's server.
pub(super) fn of_another_machine(arguments: &SnapshotsArguments) -> Option<Done> {
    match (&arguments.verb, &arguments.url) {
        (None, Some(url)) => Some(remote::snapshots(&arguments.connection, url)),
        (Some(SnapshotsVerb::Create(of)), _) if !of.server => Some(match of.share.parse() {
            Ok(url) => remote::create_shadow_copy(&of.connection, &url),
            Err(why) => {
                let advice = "for a share of this machine's server, add --server";
                Err(Failure::new(Exit::Usage, format!("{why}; {advice}")))
            }
        }),
        (Some(SnapshotsVerb::Delete(of)), _) => {
            Some(remote::delete_shadow_copy(&of.connection, &of.url, &of.set))
        }
        _ => None,
    }
}

pub(super) async fn run(arguments: &SnapshotsArguments) -> Done {
    let act = |of: &SnapshotsOfShare, act: fn(String) -> SnapshotAct| act(of.share.clone());
    match &arguments.verb {
        Some(SnapshotsVerb::Create(of)) => {
            let (socket, config) = (of.socket.clone(), of.config.clone());
            let place = ServerPlace { socket, config, json: of.connection.json };
            tell(&place, &SnapshotAct::Create { share: of.share.clone() }, "made").await
        }
        Some(SnapshotsVerb::Prune(of)) => {
            let act = act(of, |share| SnapshotAct::Prune { share });
            tell(&of.place, &act, "removed").await
        }
        Some(SnapshotsVerb::List(of)) => {
            tell(&of.place, &act(of, |share| SnapshotAct::List { share }), "").await
        }
        None | Some(SnapshotsVerb::Delete(_)) => {
            Err(Failure::new(Exit::Usage, "name a file or directory, or create, prune or list"))
        }
    }
}

/// Has the server act, and prints the snapshots, the oldest first.
async fn tell(place: &ServerPlace, act: &SnapshotAct, done: &str) -> Done {
    let makes_no_sense = || Failure::failed("the server's answer makes no sense");
    let body = serde_json::to_string(act).map_err(makes_no_sense())?;
    let answer = ask(place, "/snapshots", Some(&body)).await?;
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
