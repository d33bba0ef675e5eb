use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;

/// A controller that answers as long as it is up, and counts questions.
#[derive(Debug, Default)]
struct Fake {
    is_down: Mutex<bool>,
    asked: Mutex<usize>,
    longest: Mutex<usize>,
}

fn domain() -> Sid {
    "S-1-5-21-1-2-3".parse().unwrap()
}

/// The RID in names such as `a\g1108`.
fn rid(name: &str) -> Option<u32> {
    name.rsplit('g').next()?.parse().ok()
}

impl Fake {
    fn answer<Q, T>(&self, questions: &[Q], find: impl Fn(&Q) -> Option<T>) -> Lookup<T> {
        *self.asked.lock() += 1;
        let mut longest = self.longest.lock();
        *longest = questions.len().max(*longest);
        let is_down = *self.is_down.lock();
        let found = questions.iter().map(|question| find(question).filter(|_| !is_down));
        Lookup { found: found.collect(), silent: is_down.then(|| String::from("down")) }
    }

    fn set_down(&self, is_down: bool) {
        *self.is_down.lock() = is_down;
    }
}

impl DomainDirectory for Fake {
    fn sids(&self, names: &[String]) -> Lookup<Sid> {
        self.answer(names, |name| match &**name {
            "a\\administrators" => Some(Sid::ADMINISTRATORS),
            name => domain().with_rid(rid(name)?),
        })
    }

    fn principals(&self, sids: &[Sid]) -> Lookup<Principal> {
        self.answer(sids, |sid| {
            let (of, rid) = sid.split_rid().filter(|(of, _)| *of == domain())?;
            let (domain, name) = (String::from("A"), format!("g{rid}"));
            debug_assert_eq!(of.with_rid(rid), Some(*sid));
            Some(Principal { sid: *sid, domain, name, kind: Use::Group })
        })
    }
}

/// A controller that is down, and the SIDs of an earlier run.
#[derive(Debug, Default)]
struct Restarted(Mutex<DomainSids>);

impl DomainDirectory for Restarted {
    fn sids(&self, names: &[String]) -> Lookup<Sid> {
        Lookup { found: vec![None; names.len()], silent: Some(String::from("down")) }
    }

    fn principals(&self, sids: &[Sid]) -> Lookup<Principal> {
        Lookup { found: vec![None; sids.len()], silent: Some(String::from("down")) }
    }

    fn joined(&self) -> Lookup<JoinedDomain> {
        Lookup { found: vec![None], silent: Some(String::from("down")) }
    }

    fn kept(&self) -> DomainSids {
        self.0.lock().clone()
    }

    fn keep(&self, sids: &DomainSids) {
        *self.0.lock() = sids.clone();
    }
}

/// SIDs of an earlier run count at once, and as long as no controller answers.
#[test]
fn kept_sids_count_after_a_restart() {
    let staff = domain().with_rid(1_108).unwrap();
    let known = [("a\\staff", staff), ("a\\administrators", Sid::ADMINISTRATORS)];
    let known: DomainSids = known.map(|(name, sid)| (name.to_owned(), sid)).into_iter().collect();
    let (name, dns_name) = (String::from("A"), String::from("a.test"));
    let joined = vec![JoinedDomain { name, dns_name, sid: domain() }];
    let kept = Restarted(Mutex::new(known.with_joined(joined.clone())));
    let names = DomainNames::default();
    names.want(wanted(&["a\\staff"]));
    names.start(Arc::new(kept)).unwrap();
    assert!(names.wait(Duration::ZERO).is_empty(), "nobody has to wait");
    names.want(wanted(&["a\\staff", "a\\gone"]));
    assert_eq!(names.wait(PATIENCE), ["a\\gone"]);
    assert_eq!((names.sids().find("a\\staff"), names.sids().joined()), (Some(&staff), &*joined));
    assert_eq!(names.sids().find("a\\administrators"), None, "a group of this machine");
}

fn wanted(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

fn started(fake: &Arc<Fake>) -> DomainNames {
    let names = DomainNames::default();
    names.start(Arc::<Fake>::clone(fake)).unwrap();
    names
}

/// The thread as it would run, one step at a time.
fn asking(fake: &Arc<Fake>, names: &DomainNames) -> Asking {
    let shared = Arc::clone(&names.shared);
    let directory: Arc<dyn DomainDirectory> = Arc::<Fake>::clone(fake);
    Asking { directory, shared, silent: false, missing: BTreeSet::new() }
}

const PATIENCE: Duration = Duration::from_secs(20);

fn soon() -> Instant {
    Instant::now() + PATIENCE
}

#[test]
fn names_of_rules_are_resolved_before_they_are_needed() {
    let fake = Arc::new(Fake::default());
    let names = started(&fake);
    assert!(names.wait(PATIENCE).is_empty(), "no rule has names");
    names.want(wanted(&["a\\g1108", "a\\gone", "a\\administrators"]));
    assert_eq!(names.wait(PATIENCE), ["a\\administrators", "a\\gone"]);
    assert_eq!(names.sids().find("a\\g1108"), domain().with_rid(1_108).as_ref());
    // Built-in groups such as Administrators belong to this machine, so they are not looked up in
    // the domain.
    assert_eq!(names.sids().find("a\\administrators"), None);
    names.want(wanted(&["a\\g7"]));
    assert!(names.wait(PATIENCE).is_empty());
    assert_eq!(names.sids().find("a\\g1108"), None);
}

#[test]
fn rules_with_many_names_are_resolved() {
    let fake = Arc::new(Fake::default());
    let names = started(&fake);
    names.want((0..DOMAIN_NAMES_PER_QUESTION * 2 + 1).map(|rid| format!("a\\g{rid}")).collect());
    assert!(names.wait(PATIENCE).is_empty());
    assert_eq!(*fake.longest.lock(), DOMAIN_NAMES_PER_QUESTION);
}

#[test]
fn names_and_sids_of_clients_are_remembered() {
    let fake = Arc::new(Fake::default());
    let names = started(&fake);
    let sid = domain().with_rid(1_108).unwrap();
    let stranger: Sid = "S-1-5-21-9-9-9-1000".parse().unwrap();
    for _ in 0..3 {
        assert_eq!(names.find_sid(&sid, soon()).unwrap().name, "g1108");
        assert_eq!(names.find_sid(&stranger, soon()), None);
        assert_eq!(names.find_name("A\\G1108", soon()).unwrap().sid, sid);
        assert_eq!(names.find_name("g1108@a", soon()).unwrap().sid, sid);
        assert_eq!(names.find_name("a\\gone", soon()), None);
        assert_eq!(names.find_name("a\\administrators", soon()), None);
    }
    let asked = *fake.asked.lock();
    assert!(asked <= 6, "{asked} questions");
    for (name, sid) in
        [("g1108", Sid::ADMINISTRATORS), ("\\g1", Sid::EVERYONE), ("a\\", Sid::USERS)]
    {
        assert_eq!(
            (names.find_name(name, soon()), names.find_sid(&sid, soon())),
            (None, None),
            "{name}"
        );
    }
    assert_eq!(*fake.asked.lock(), asked, "they are of no domain");
}

/// A controller has vouched for who has logged on, so nobody is asked for the name. It does not say
/// who the groups of this machine are.
#[test]
fn users_who_log_on_are_known() {
    let names = DomainNames::default();
    let of = |sid| Principal { sid, domain: "A".into(), name: "ann".into(), kind: Use::User };
    let ann = domain().with_rid(1_105).unwrap();
    assert_eq!(names.known(&ann), None);
    for sid in [ann, Sid::ADMINISTRATORS] {
        names.learn(of(sid));
    }
    assert_eq!(names.known(&ann).unwrap().to_string(), "A\\ann");
    assert_eq!(names.find_sid(&ann, soon()), Some(of(ann)));
    assert_eq!(names.known(&Sid::ADMINISTRATORS), None);
}

#[test]
fn names_that_no_domain_has_are_not_asked_for() {
    let fake = Arc::new(Fake::default());
    let names = started(&fake);
    let long = format!("a\\{}", "g".repeat(DOMAIN_NAME_CHARS));
    for name in [&*long, "a\\g1\0", "a\\g1\u{85}", "a\\g1\n"] {
        assert_eq!(names.find_name(name, soon()), None, "{name:?}");
    }
    assert_eq!(*fake.asked.lock(), 0);
    let longest = &long[..DOMAIN_NAME_CHARS];
    assert_eq!(names.find_name(longest, soon()), None);
    assert_eq!(*fake.asked.lock(), 1, "it is asked for");
}

/// After its time a request gets what is known, and says nothing of the directory.
#[test]
fn one_request_waits_only_so_long() {
    let fake = Arc::new(Fake::default());
    let names = started(&fake);
    let [known, unknown] = [1, 2].map(|rid| domain().with_rid(rid).unwrap());
    assert!(names.find_sid(&known, soon()).is_some());
    let asked = *fake.asked.lock();
    let over = Instant::now();
    assert!(names.find_sid(&known, over).is_some());
    assert_eq!((names.find_sid(&unknown, over), names.find_name("a\\g2", over)), (None, None));
    assert_eq!(*fake.asked.lock(), asked);
    assert!(!names.shared.is_down());
    assert!(names.find_sid(&unknown, soon()).is_some());
}

/// While nobody answers, known SIDs count, and no client's question is passed on.
#[test]
fn a_directory_that_comes_back_is_asked_again() {
    let fake = Arc::new(Fake::default());
    let names = DomainNames::default();
    let mut asking = asking(&fake, &names);
    names.want(wanted(&["a\\g1"]));
    assert_eq!(asking.resolve_rules(), DOMAIN_NAMES_FRESH);
    fake.set_down(true);
    names.want(wanted(&["a\\g1", "a\\g2"]));
    assert_eq!(asking.resolve_rules(), DOMAIN_NAMES_AGAIN);
    let sids = names.sids();
    assert!(sids.find("a\\g1").is_some() && sids.find("a\\g2").is_none());
    let asked = *fake.asked.lock();
    assert_eq!(asking.by_sid(&domain().with_rid(3).unwrap()), Err(NoAnswer));
    assert_eq!(asking.by_name("a\\g3"), None);
    assert_eq!(*fake.asked.lock(), asked, "nobody is asked for a while");
    fake.set_down(false);
    assert_eq!(asking.resolve_rules(), DOMAIN_NAMES_FRESH);
    assert!(names.sids().find("a\\g2").is_some());
    assert_eq!(asking.by_name("a\\g3").unwrap().name, "g3");
    let until = Instant::now() + DOMAIN_NAMES_DOWN;
    *names.shared.down_until.lock() = Some(until);
    assert!(names.shared.is_down());
    *names.shared.down_until.lock() = Instant::now().checked_sub(Duration::from_millis(1));
    assert!(!names.shared.is_down());
}

/// Never answers.
#[derive(Debug)]
struct Hangs(Mutex<Receiver<()>>, Mutex<Sender<()>>);

impl DomainDirectory for Hangs {
    fn sids(&self, _: &[String]) -> Lookup<Sid> {
        let _ = self.1.lock().send(());
        let _ = self.0.lock().recv();
        Lookup { found: Vec::new(), silent: None }
    }

    fn principals(&self, _: &[Sid]) -> Lookup<Principal> {
        let Lookup { silent, .. } = self.sids(&[]);
        Lookup { found: Vec::new(), silent }
    }
}

#[test]
fn a_directory_that_hangs_holds_nobody_up() {
    let (release, hang) = channel();
    let (begun, begins) = channel();
    let names = DomainNames::default();
    names.want(wanted(&["a\\g1"]));
    names.start(Arc::new(Hangs(Mutex::new(hang), Mutex::new(begun)))).unwrap();
    begins.recv().unwrap();
    let began = Instant::now();
    assert_eq!(names.wait(Duration::from_millis(50)), ["a\\g1"]);
    for rid in 0..DOMAIN_NAMES_QUESTIONS as u32 * 2 {
        assert_eq!(names.find_sid(&domain().with_rid(rid).unwrap(), soon()), None);
    }
    assert!(began.elapsed() < DOMAIN_NAMES_TIMEOUT * 2, "only the first one waits");
    *names.shared.down_until.lock() = None;
    let questions = names.questions.get().unwrap();
    while questions.try_send(Question::Rules).is_ok() {}
    let began = Instant::now();
    assert_eq!(names.find_name("a\\g1", soon()), None);
    assert!(began.elapsed() < DOMAIN_NAMES_TIMEOUT, "the queue is full");
    drop(release);
}
