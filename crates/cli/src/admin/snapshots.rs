//! `frevo snapshots create`, `delete`, `prune` and `list`: the snapshots that this machine's server makes.

use frevo_admin::{KnownSnapshot, ShareSnapshots, SnapshotAct};
use frevo_snapshots::Second;
use serde_json::json;

use super::arguments::{ServerPlace, SnapshotOfShare, SnapshotsArguments, SnapshotsVerb};
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
        Some(SnapshotsVerb::Prune(pruning)) => {
            let (share, dry_run) = (pruning.of.share.clone(), pruning.dry_run);
            let done = if dry_run { "would be removed" } else { "removed" };
            tell(&pruning.of.place, &SnapshotAct::Prune { share, dry_run }, done).await
        }
        Some(SnapshotsVerb::List(of)) => {
            tell(&of.place, &SnapshotAct::List { share: of.share.clone() }, "").await
        }
        Some(SnapshotsVerb::Keep(of)) => {
            mark(of, |share, snapshot| SnapshotAct::Keep { share, snapshot }).await
        }
        Some(SnapshotsVerb::Release(of)) => {
            mark(of, |share, snapshot| SnapshotAct::Release { share, snapshot }).await
        }
        None => {
            let text = "name a file or directory, or create, delete, prune, list, keep or release";
            Err(Failure::new(Exit::Usage, text))
        }
    }
}

async fn mark(named: &SnapshotOfShare, act: fn(String, u64) -> SnapshotAct) -> Done {
    let act = act(named.of.share.clone(), second_of(&named.snapshot)?.since_1970());
    let is_kept = matches!(act, SnapshotAct::Keep { .. });
    tell(&named.of.place, &act, if is_kept { "" } else { "released" }).await
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
    let mut snapshots: Vec<KnownSnapshot> =
        serde_json::from_slice(&answer).map_err(makes_no_sense())?;
    snapshots.sort_unstable_by_key(|one| one.snapshot);
    let lines = snapshots.iter().filter_map(|one| {
        let taken = Second::new(one.snapshot)?;
        Some(if place.json { in_json(one, taken) } else { for_people(one, taken, done) })
    });
    print(lines.collect::<String>().as_bytes())
}

/// The line of a snapshot with what was done, or what it is.
fn for_people(one: &KnownSnapshot, taken: Second, done: &str) -> String {
    let is = match (done, one.kept, one.shadow_copy) {
        ("", true, _) => "kept",
        ("", _, true) => "shadow copy",
        (done, _, _) => done,
    };
    let end = if is.is_empty() { String::new() } else { format!(": {is}") };
    format!("{}  {taken}{end}\n", taken.to_name())
}

/// The same for scripts, with the token and the time as `frevo snapshots URL` has them.
fn in_json(one: &KnownSnapshot, taken: Second) -> String {
    let name = taken.to_name();
    let token = name.replacen("frevo-", "@GMT-", 1);
    let object = json!({
        "name": name, "token": token, "time": taken.to_rfc_3339(),
        "kept": one.kept, "shadow_copy": one.shadow_copy,
    });
    format!("{object}\n")
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
    fn a_snapshot_is_a_line() {
        let taken = Second::new(951_827_696).unwrap();
        let one = |kept, shadow_copy| KnownSnapshot {
            snapshot: 951_827_696,
            name: taken.to_name(),
            kept,
            shadow_copy,
        };
        let line = "frevo-2000.02.29-12.34.56  2000-02-29 12:34:56 UTC";
        assert_eq!(for_people(&one(false, false), taken, ""), format!("{line}\n"));
        assert_eq!(for_people(&one(true, false), taken, ""), format!("{line}: kept\n"));
        assert_eq!(for_people(&one(false, true), taken, ""), format!("{line}: shadow copy\n"));
        assert_eq!(for_people(&one(true, false), taken, "removed"), format!("{line}: removed\n"));
        let object: serde_json::Value =
            serde_json::from_str(&in_json(&one(true, false), taken)).unwrap();
        let wanted = json!({
            "name": "frevo-2000.02.29-12.34.56", "token": "@GMT-2000.02.29-12.34.56",
            "time": "2000-02-29T12:34:56Z", "kept": true, "shadow_copy": false,
        });
        assert_eq!(object, wanted);
    }

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
