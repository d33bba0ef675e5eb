use super::*;
use crate::{Ordering, PriorityClass, Root, SiteId, Target};
use alloc::collections::BTreeSet;

fn target(unc: &str) -> Target {
    Target::new(unc).unwrap()
}

fn served(links: Vec<Link>) -> Namespaces {
    let files = Namespace::new("Files", Root::Own).with_links(links).unwrap();
    [files, Namespace::new("other", Root::Share)].into_iter().collect()
}

const NOBODY_IS_NEAR: Asker<'_> = Asker { number: 7, is_near: &|_| false, is_failing: &|_| false };

fn targets(response: &ReferralResponse) -> Vec<&str> {
    response.referrals.iter().map(|one| &*one.target).collect()
}

/// MS-DFSC 3.2.5.5. Its example of PathConsumed counts 25 characters, for a path with `dir` in place of `dir1`.
#[test]
fn roots_and_links_are_referred_to() {
    let link = Link::new("dir1\\link1", vec![target("\\\\one\\data\\a")]).unwrap();
    let mydfs = Namespace::new("MyDfs", Root::Own).with_links(vec![link]).unwrap();
    let all: Namespaces = [mydfs].into_iter().collect();
    let found =
        all.referrals("\\MyDomain\\MYDFS\\dir1\\link1\\dir2\\file1", &NOBODY_IS_NEAR).unwrap();
    assert_eq!(found.path_consumed, 2 * 26, "\\MyDomain\\MyDfs\\dir1\\link1");
    assert_eq!(found.flags, Flags::STORAGE_SERVERS);
    let only = &found.referrals[0];
    assert_eq!((&*only.path, &*only.target), ("\\MyDomain\\MYDFS\\dir1\\link1", "\\one\\data\\a"));
    assert_eq!((only.is_root, only.time_to_live_s, only.begins_set), (false, 1_800, true));
    for path in [
        "\\srv\\mydfs",
        "\\srv\\mydfs\\",
        "\\\\srv\\mydfs",
        "\\srv\\mydfs\\dir1",
        "\\srv\\mydfs\\x\\link1",
    ] {
        let found = all.referrals(path, &NOBODY_IS_NEAR).unwrap();
        let extra = u16::from(path.starts_with("\\\\"));
        assert_eq!(found.path_consumed, 2 * (10 + extra), "{path}");
        assert_eq!(found.flags, Flags::STORAGE_SERVERS | Flags::REFERRAL_SERVERS);
        assert_eq!(targets(&found), ["\\srv\\MyDfs"]);
        assert_eq!((found.referrals[0].is_root, found.referrals[0].time_to_live_s), (true, 300));
    }
    // Units of UTF-16 are counted, not characters and not bytes.
    let link = Link::new("\u{1F4C1}é", vec![target("\\\\one\\data")]).unwrap();
    let found = served(vec![link]).referrals("\\s\\files\\\u{1F4C1}É\\x", &NOBODY_IS_NEAR).unwrap();
    assert_eq!(found.path_consumed, 2 * (8 + 1 + 3));
}

/// MS-DFSC 3.2.5.2 to 3.2.5.5
#[test]
fn what_is_not_here_is_refused() {
    let mut offline = Link::new("off", vec![target("\\\\one\\data")]).unwrap();
    offline.state = State::Offline;
    let mut without = Link::new("without", vec![target("\\\\one\\data")]).unwrap();
    without.targets_mut()[0].state = State::Offline;
    let mut all = served(vec![offline, without]);
    let mut closed = Namespace::new("closed", Root::Own);
    closed.state = State::Offline;
    all.insert(closed);
    for (path, status) in [
        ("", Status::INVALID_PARAMETER),
        ("\\", Status::INVALID_PARAMETER),
        ("\\example.com", Status::INVALID_PARAMETER),
        ("\\s\\\\files", Status::INVALID_PARAMETER),
        ("\\\\\\s\\files", Status::INVALID_PARAMETER),
        ("\\s\\files\\a\\\\b", Status::INVALID_PARAMETER),
        ("\\example.com\\SYSVOL", Status::NOT_FOUND),
        ("\\example.com\\netlogon\\x", Status::NOT_FOUND),
        ("\\s\\none", Status::NOT_FOUND),
        ("\\s\\closed", Status::DFS_UNAVAILABLE),
        ("\\s\\files\\off\\x", Status::DFS_UNAVAILABLE),
        ("\\s\\files\\without", Status::DFS_UNAVAILABLE),
    ] {
        assert_eq!(all.referrals(path, &NOBODY_IS_NEAR).map(drop), Err(status), "{path:?}");
    }
}

/// MS-DFSC 3.1.5.4.5 and 3.2.5.5
#[test]
fn flags_tell_interlinks_and_failback() {
    let plain = |path: &str, to: &str| Link::new(path, vec![target(to)]).unwrap();
    let mut interlink = plain("inter", "\\\\far\\root");
    interlink.is_interlink = true;
    let mut back = plain("back", "\\\\one\\data");
    (back.failback, back.ttl_s) = (true, Some(60));
    let own = plain("own", "\\\\SRV\\Other\\deep");
    let alias = plain("alias", "\\\\elsewhere\\other");
    let mut all = served(vec![interlink, back, own, alias]);
    let flags = |all: &Namespaces, path| all.referrals(path, &NOBODY_IS_NEAR).unwrap().flags;
    assert_eq!(flags(&all, "\\srv\\files\\inter"), Flags::REFERRAL_SERVERS);
    assert_eq!(flags(&all, "\\srv\\files\\own\\x"), Flags::REFERRAL_SERVERS);
    assert_eq!(flags(&all, "\\srv\\files\\alias"), Flags::STORAGE_SERVERS);
    let failback = Flags::STORAGE_SERVERS | Flags::TARGET_FAILBACK;
    assert_eq!(flags(&all, "\\srv\\files\\back"), failback);
    let found = all.referrals("\\srv\\files\\back", &NOBODY_IS_NEAR).unwrap();
    assert_eq!(found.referrals[0].time_to_live_s, 60);
    let mut files = Namespace::clone(all.find("files").unwrap());
    files.failback = true;
    all.insert(files);
    assert_eq!(flags(&all, "\\srv\\files\\alias"), failback);
    assert_eq!(flags(&all, "\\srv\\files"), failback | Flags::REFERRAL_SERVERS);
}

/// MS-DFSC 3.2.5.5: groups by class, then site cost, class, rank; sets of equal ones.
#[test]
fn targets_have_their_order_and_sets() {
    let placed = |host: &str, class, rank| {
        let mut target = target(&format!("\\\\{host}\\s"));
        (target.class, target.rank) = (class, rank);
        target
    };
    let all = [
        placed("last", PriorityClass::GlobalLow, 0),
        placed("far-high", PriorityClass::SiteCostHigh, 0),
        placed("near-low", PriorityClass::SiteCostLow, 0),
        placed("near-2", PriorityClass::SiteCostNormal, 2),
        placed("near-0", PriorityClass::SiteCostNormal, 0),
        placed("first", PriorityClass::GlobalHigh, 31),
        placed("far", PriorityClass::SiteCostNormal, 0),
        placed("far-b", PriorityClass::SiteCostNormal, 0),
    ];
    let is_near = |target: &Target| target.server().starts_with("near");
    let order = |ordering, number| {
        let asker = Asker { number, is_near: &is_near, is_failing: &|_| false };
        let placed = ordered(&all, ordering, &asker);
        let shown = |one: &Placed<'_>| {
            let mark = if one.begins_set { "|" } else { "" };
            format!("{mark}{}", one.target.server())
        };
        placed.iter().map(shown).collect::<Vec<_>>()
    };
    let by_site = order(Ordering::Site, 0);
    let fixed = ["|first", "|near-0", "|near-2", "|near-low", "|far-high"];
    assert_eq!(by_site[..5], fixed);
    assert_eq!(by_site[7], "|last");
    let pairs: BTreeSet<_> = (0..64).map(|n| order(Ordering::Site, n)[5..7].to_vec()).collect();
    let both = [["|far", "far-b"], ["|far-b", "far"]];
    assert_eq!(pairs, both.iter().map(|pair| pair.map(String::from).to_vec()).collect());
    let by_class = order(Ordering::Priority, 1);
    assert_eq!(by_class[..2], ["|first", "|far-high"]);
    assert_eq!(by_class[5..], ["|near-2", "|near-low", "|last"]);
    let random: BTreeSet<_> = (0..64).map(|n| order(Ordering::Random, n)[0].clone()).collect();
    assert_eq!(random.len(), all.len(), "each one is first at times: {random:?}");
    let one_set = order(Ordering::Random, 3);
    assert_eq!(one_set.iter().filter(|one| one.starts_with('|')).count(), 1);
}

/// MS-DFSC 3.2.5.5 has no health: all targets are told, those that do not answer last.
#[test]
fn failing_targets_are_last_and_never_left_out() {
    let mut all = ["first", "down-high", "near", "down-near", "far"].map(|host| {
        let mut target = target(&format!("\\\\{host}\\s"));
        target.site = SiteId::of_index(usize::from(host.ends_with("near")));
        target
    });
    all[0].class = PriorityClass::GlobalHigh;
    all[1].class = PriorityClass::GlobalHigh;
    let client = SiteId::of_index(1);
    let order = |ordering, is_failing: &dyn Fn(&str) -> bool| {
        let asker = Asker { number: 5, is_near: &|target| target.site == client, is_failing };
        let placed = ordered(&all, ordering, &asker);
        placed.iter().map(|one| String::from(one.target.server())).collect::<Vec<_>>()
    };
    let is_down = |host: &str| host.starts_with("down");
    let by_site = order(Ordering::Site, &is_down);
    assert_eq!(by_site, ["first", "near", "far", "down-high", "down-near"]);
    assert_eq!(order(Ordering::Priority, &is_down)[3..], ["down-high", "down-near"]);
    let random: BTreeSet<_> = order(Ordering::Random, &is_down)[3..].iter().cloned().collect();
    assert_eq!(random, ["down-high", "down-near"].map(String::from).into());
    // If none answers, the order is as if all did.
    for ordering in [Ordering::Site, Ordering::Priority, Ordering::Random] {
        assert_eq!(order(ordering, &|_| true), order(ordering, &|_| false), "{ordering:?}");
    }
}
