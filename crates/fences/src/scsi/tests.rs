//! The commands against a disk in memory that keeps reservations as SPC-4 5.12 says.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use super::*;

/// The state of a disk: registrations by machine, and the reservation's holder.
#[derive(Debug, Default)]
struct State {
    registered: BTreeMap<usize, u64>,
    holder: Option<(usize, u8)>,
    generation: u32,
    /// Refuses registrations that outlive a loss of power.
    forgets: bool,
    /// A key that another machine takes away after the next question.
    preempted: Option<u64>,
    /// Ends of the next commands, before any effect. None for one that is carried out.
    next: VecDeque<Option<ScsiEnd>>,
}

/// A path of a machine to the disk.
#[derive(Debug, Clone)]
struct Machine {
    number: usize,
    disk: Rc<RefCell<State>>,
}

fn end(status: u8, key: Option<u8>, length: usize) -> ScsiEnd {
    let sense = key.map_or_else(Vec::new, |key| vec![0x70, 0, key]);
    ScsiEnd { status, sense, length }
}

impl State {
    fn read(&self, action: u8) -> Vec<u8> {
        let keys: Vec<u8> = match (action, self.holder) {
            (0, _) => self.registered.values().flat_map(|key| key.to_be_bytes()).collect(),
            (1, Some((holder, kind))) => {
                let key = self.registered[&holder].to_be_bytes();
                [&key[..], &[0, 0, 0, 0, 0, kind, 0, 0]].concat()
            }
            _ => Vec::new(),
        };
        let length = u32::try_from(keys.len()).unwrap();
        [&self.generation.to_be_bytes()[..], &length.to_be_bytes(), &keys].concat()
    }

    fn change(&mut self, machine: usize, command: &[u8], list: &[u8]) -> ScsiEnd {
        let key = |at: usize| u64::from_be_bytes(list[at..at + 8].try_into().unwrap());
        let (own, other, kind) = (key(0), key(8), command[2]);
        let registered = self.registered.get(&machine).copied();
        assert_eq!((command[8], list.len()), (24, 24));
        let conflict = end(RESERVATION_CONFLICT, None, 0);
        match command[1] {
            0 | 6 if self.forgets && list[20] & 1 == 1 => {
                return end(CHECK_CONDITION, Some(ILLEGAL_REQUEST), 0);
            }
            // SPC-4 6.16.2: a path without a registration has the key zero.
            0 if registered.unwrap_or_default() != own => return conflict,
            0 if other == 0 => drop(self.registered.remove(&machine)),
            0 | 6 => drop(self.registered.insert(machine, other)),
            // SPC-4 5.12.1: all others need the own registration.
            _ if registered != Some(own) => return conflict,
            1 => {
                match self.holder {
                    Some((holder, held)) if holder != machine || held != kind => return conflict,
                    _ => self.holder = Some((machine, kind)),
                }
                // SPC-4 5.12.7: a reservation counts no generation.
                return end(GOOD, None, 24);
            }
            5 => {
                // SPC-4 5.12.11.2: the holder's reservation goes to the machine that preempts.
                if !self.registered.values().any(|key| *key == other) {
                    return conflict;
                }
                if self.holder.is_some_and(|(holder, _)| self.registered[&holder] == other) {
                    self.holder = Some((machine, kind));
                }
                self.registered.retain(|_, key| *key != other);
            }
            action => panic!("{action}"),
        }
        self.generation += 1;
        end(GOOD, None, 24)
    }

    fn may_write(&self, machine: usize) -> bool {
        self.holder.is_none() || self.registered.contains_key(&machine)
    }
}

impl Target for Machine {
    fn send(&self, command: &[u8], data: ScsiData<'_>) -> io::Result<ScsiEnd> {
        let mut disk = self.disk.borrow_mut();
        if let Some(end) = disk.next.pop_front().flatten() {
            return Ok(end);
        }
        match data {
            ScsiData::In(room) => {
                assert_eq!(command[0], 0x5E);
                let answer = disk.read(command[1]);
                if let Some(preempted) = disk.preempted.take() {
                    disk.registered.retain(|_, key| *key != preempted);
                    disk.generation += 1;
                }
                room[..answer.len()].copy_from_slice(&answer);
                Ok(end(GOOD, None, answer.len()))
            }
            ScsiData::Out(list) => {
                assert_eq!(command[0], 0x5F);
                Ok(disk.change(self.number, command, list))
            }
        }
    }
}

fn machines() -> [Machine; 3] {
    let disk = Rc::<RefCell<State>>::default();
    [0, 1, 2].map(|number| Machine { number, disk: Rc::clone(&disk) })
}

fn life(folder: u64) -> Life {
    let boot = Boot("119afa99-d96f-4299-a6f5-3f50e2b0fb57".into());
    Life { boot, device: "8:17".parse().unwrap(), kind: "gfs2".into(), folder }
}

fn join(machine: &Machine, key: u64) -> Result<u64, FenceFault> {
    begin(std::slice::from_ref(machine), None, &life(1), key)
}

/// Registers these paths of a node whose registration of before is kept nowhere.
fn begin(
    paths: &[Machine],
    before: Option<&Registered>,
    life: &Life,
    key: u64,
) -> Result<u64, FenceFault> {
    register("disk", paths, &mut before.cloned(), life, &mut |_| Ok(()), || Ok(key))
}

fn registered(key: u64, folder: u64) -> Registered {
    Registered { key, life: life(folder), is_joining: false }
}

#[test]
fn the_disk_refuses_a_node_that_was_fenced() {
    let nodes = machines();
    for (node, key) in nodes.iter().zip([10, 11, 12]) {
        assert_eq!(join(node, key), Ok(key));
    }
    let disk = Rc::clone(&nodes[0].disk);
    let may_write = |node: usize| disk.borrow().may_write(node);
    assert!((0..3).all(may_write));
    // The holder of the reservation, and then another one.
    assert_eq!(preempt("disk", &nodes[1], 11, 10), Ok(()));
    assert!(!may_write(0) && may_write(1) && may_write(2));
    assert_eq!(preempt("disk", &nodes[1], 11, 10), Ok(()), "once more does no harm");
    assert_eq!(preempt("disk", &nodes[1], 11, 12), Ok(()));
    assert!(!may_write(2) && may_write(1));
    let fault = preempt("disk", &nodes[0], 10, 11).unwrap_err().to_string();
    assert_eq!(fault, "disk refuses this node: it is registered no longer");
    assert!(preempt("disk", &nodes[1], 11, 11).is_err(), "its own key");
    assert!(may_write(1));
}

#[test]
fn a_fenced_node_comes_back_with_a_new_mount_and_a_new_key() {
    let nodes = machines();
    join(&nodes[0], 10).unwrap();
    join(&nodes[1], 11).unwrap();
    let again = |folder| begin(&nodes[..1], Some(&registered(10, 1)), &life(folder), 20);
    assert_eq!(again(1), Ok(10), "it is registered");
    preempt("disk", &nodes[1], 11, 10).unwrap();
    let fault = again(1).unwrap_err().to_string();
    assert!(fault.contains("unmount the file system") && fault.contains("start frevo"), "{fault}");
    assert!(!nodes[0].disk.borrow().may_write(0));
    assert_eq!(again(2), Ok(20));
    assert!(nodes[0].disk.borrow().may_write(0));
}

/// Another process, on the same mount, has the file of the one before alone.
#[test]
fn a_fenced_node_that_is_started_again_has_its_old_mount() {
    let folder = tempfile::tempdir().unwrap();
    let file = KeysFile { path: folder.path().join("cluster.keys"), owner: "nas n1".into() };
    let nodes = machines();
    let begin = |life: Life, key| {
        let keys = Keys::open(Some(&file)).unwrap();
        let own = keys.of("disk");
        let mut keep = |registered: &Registered| keys.keep("disk", registered);
        register("disk", &nodes[..1], &mut own.lock(), &life, &mut keep, || Ok(key))
    };
    assert_eq!(begin(life(1), 10), Ok(10));
    assert_eq!(begin(life(1), 12), Ok(10), "a restart keeps the key");
    join(&nodes[1], 11).unwrap();
    preempt("disk", &nodes[1], 11, 10).unwrap();
    for _ in 0..2 {
        let fault = begin(life(1), 13).unwrap_err().to_string();
        assert!(fault.starts_with("disk refuses this node since another one took over"), "{fault}");
        assert!(!nodes[0].disk.borrow().may_write(0));
    }
    assert_eq!(begin(life(2), 14), Ok(14));
    // The machine was started anew, and gives the numbers of its folders again.
    preempt("disk", &nodes[1], 11, 14).unwrap();
    assert!(begin(life(2), 15).is_err());
    let boot = Boot("119afa99-d96f-4299-a6f5-000000000000".into());
    assert_eq!(begin(Life { boot, ..life(2) }, 16), Ok(16));
}

/// Two paths of a node: 0 and 2. The second one does not answer at first.
#[test]
fn a_path_that_comes_back_is_registered() {
    let nodes = machines();
    let disk = Rc::clone(&nodes[0].disk);
    let both = [nodes[0].clone(), nodes[2].clone()];
    join(&nodes[1], 11).unwrap();
    // The path has the key of an earlier mount, which nobody fences any more.
    disk.borrow_mut().registered.extend([(0, 9), (2, 9)]);
    assert_eq!(begin(&both[..1], Some(&registered(9, 1)), &life(2), 10), Ok(10));
    assert!(!disk.borrow().may_write(2), "the old key has gone");
    let own = registered(10, 2);
    let again = || begin(&both, Some(&own), &life(2), 20);
    assert_eq!(again(), Ok(10));
    assert_eq!(disk.borrow().registered, [(0, 10), (1, 11), (2, 10)].into());
    let generation = disk.borrow().generation;
    assert_eq!(again(), Ok(10));
    assert_eq!(disk.borrow().generation, generation, "once more changes nothing");
    // The node is fenced after the look, and the registration of the path comes later.
    disk.borrow_mut().registered.remove(&2);
    disk.borrow_mut().preempted = Some(10);
    let fault = again().unwrap_err().to_string();
    assert!(fault.contains("have changed meanwhile"), "{fault}");
    assert!(!disk.borrow().may_write(0) && !disk.borrow().may_write(2));
    assert!(again().unwrap_err().to_string().contains("refuses this node"));
}

/// A node with the paths 0 and 2, of which 2 joins. Another node holds the reservation, and fences this one when
/// the disk has told its keys. Ends of the commands after that question, and the paths that keep the key.
#[test]
fn a_fence_between_a_look_and_the_joining_leaves_no_key() {
    let attention = || Some(end(CHECK_CONDITION, Some(UNIT_ATTENTION), 0));
    let broken = || Some(end(CHECK_CONDITION, Some(4), 0));
    let busy = || Some(end(BUSY, None, 0));
    let cases = [
        ("the first join is told", vec![attention()], "have changed meanwhile"),
        ("the second join is told", vec![None, attention()], "have changed meanwhile"),
        ("the generation tells", vec![], "have changed meanwhile"),
        ("the keys cannot be read", vec![None, None, broken()], "sense key 0x4"),
        ("the second join fails", vec![None, broken()], "sense key 0x4"),
        ("a path is busy", [vec![None], vec![busy(); DISK_TRIES]].concat(), "come to rest"),
        ("a part is told first", vec![None, attention(), attention()], "have changed meanwhile"),
        ("a part fails", vec![None, attention(), broken()], "sense key 0x4"),
    ];
    for (name, ends, why) in cases {
        let nodes = machines();
        let disk = Rc::clone(&nodes[0].disk);
        let both = [nodes[0].clone(), nodes[2].clone()];
        join(&nodes[1], 11).unwrap();
        join(&nodes[0], 10).unwrap();
        disk.borrow_mut().preempted = Some(10);
        disk.borrow_mut().next = [vec![None], ends].concat().into();
        let mut own = Some(registered(10, 1));
        let mut kept = Vec::new();
        let mut look = |kept: &mut Vec<bool>| {
            let mut keep = |registered: &Registered| {
                // The next process knows of an attempt before it begins.
                assert!(registered.is_joining || !disk.borrow().registered.contains_key(&2));
                kept.push(registered.is_joining);
                Ok(())
            };
            register("disk", &both, &mut own, &life(1), &mut keep, || Ok(20))
        };
        let fault = look(&mut kept).unwrap_err().to_string();
        assert!(fault.contains(why), "{name}: {fault}");
        let fails = name == "a part fails";
        assert_eq!(kept, if fails { vec![true] } else { vec![true, false] }, "{name}");
        assert_eq!(disk.borrow().registered.contains_key(&0), fails, "{name}");
        let fault = look(&mut kept).unwrap_err().to_string();
        assert!(fault.contains("refuses this node"), "{name}: {fault}");
        assert_eq!(disk.borrow().registered, [(1, 11)].into(), "{name}");
        assert_eq!(disk.borrow().holder.map(|(holder, _)| holder), Some(1), "{name}");
    }
}

/// A path that breaks while it joins costs the node that holds the reservation nothing.
#[test]
fn a_join_without_an_end_does_not_release_the_reservation() {
    let nodes = machines();
    let disk = Rc::clone(&nodes[0].disk);
    let both = [nodes[0].clone(), nodes[2].clone()];
    join(&nodes[0], 10).unwrap();
    disk.borrow_mut().next = [None, Some(end(CHECK_CONDITION, Some(4), 0))].into();
    let mut own = Some(registered(10, 1));
    let mut look = || register("disk", &both, &mut own, &life(1), &mut |_| Ok(()), || Ok(20));
    assert!(look().unwrap_err().to_string().contains("sense key 0x4"));
    assert_eq!(disk.borrow().registered, [(0, 10)].into());
    assert!(disk.borrow().holder.is_some());
    assert_eq!(look(), Ok(10));
    assert_eq!(disk.borrow().registered, [(0, 10), (2, 10)].into());
}

/// A process that was killed while paths joined may have brought back a key that was fenced.
#[test]
fn an_attempt_of_a_process_that_was_killed_proves_nothing() {
    let nodes = machines();
    let disk = Rc::clone(&nodes[0].disk);
    join(&nodes[1], 11).unwrap();
    join(&nodes[0], 10).unwrap();
    let own = Registered { is_joining: true, ..registered(10, 1) };
    let fault = begin(&nodes[..1], Some(&own), &life(1), 20).unwrap_err().to_string();
    assert!(fault.contains("refuses this node"), "{fault}");
    assert_eq!(disk.borrow().registered, [(1, 11)].into());
    assert_eq!(begin(&nodes[..1], Some(&own), &life(2), 20), Ok(20));
}

#[test]
fn a_life_that_is_not_known_is_none_of_another_mount() {
    let nodes = machines();
    join(&nodes[0], 10).unwrap();
    let mut own = Some(registered(10, 0));
    let mut look =
        |folder| register("disk", &nodes[..1], &mut own, &life(folder), &mut |_| Ok(()), || Ok(20));
    assert_eq!((look(0), look(7), look(0), look(7)), (Ok(10), Ok(10), Ok(10), Ok(10)));
    assert_eq!(look(8), Ok(20), "the life became known while the node was not fenced");
    join(&nodes[1], 11).unwrap();
    preempt("disk", &nodes[1], 11, 20).unwrap();
    assert!(look(0).is_err() && look(8).is_err());
    assert_eq!(nodes[0].disk.borrow().registered, [(1, 11)].into());
}

#[test]
fn a_disk_has_one_file_system_of_the_cluster() {
    let other = Life { device: "8:18".parse().unwrap(), ..life(1) };
    let before = registered(10, 1);
    let of = |life: &Life, goes_on| only_one("disk", &before, life, || goes_on);
    assert_eq!(of(&life(2), Ok(true)), Ok(()), "a new mount of the same one");
    assert_eq!(of(&other, Ok(false)), Ok(()), "the other one has ended");
    let fault = of(&other, Ok(true)).unwrap_err().to_string();
    assert!(fault.contains("devices 8:17 and 8:18; put all shares on one of them"), "{fault}");
    assert!(fault.contains("unmount the file system everywhere"), "{fault}");
    let unknown = FenceFault("no".into());
    assert_eq!(of(&other, Err(unknown.clone())), Err(unknown));
}

#[test]
fn disks_that_forget_report_changes_or_are_reserved_otherwise() {
    let nodes = machines();
    let disk = Rc::clone(&nodes[0].disk);
    disk.borrow_mut().forgets = true;
    // REGISTRATIONS PREEMPTED and the like come once before a command.
    disk.borrow_mut().next =
        [Some(end(CHECK_CONDITION, Some(UNIT_ATTENTION), 0)), Some(end(BUSY, None, 0))].into();
    assert_eq!(join(&nodes[0], 10), Ok(10));
    disk.borrow_mut().next = (0..DISK_TRIES).map(|_| Some(end(BUSY, None, 0))).collect();
    let fault = join(&nodes[1], 11).unwrap_err().to_string();
    assert_eq!(fault, "disk does not come to rest");
    disk.borrow_mut().next = [Some(end(CHECK_CONDITION, Some(4), 0))].into();
    let fault = join(&nodes[1], 11).unwrap_err().to_string();
    assert_eq!(fault, "disk answers with status 0x02, sense key 0x4");
    disk.borrow_mut().holder = Some((0, 3));
    let fault = join(&nodes[1], 11).unwrap_err().to_string();
    assert!(fault.contains("a persistent reservation of another kind"), "{fault}");
}

#[test]
fn keys_are_not_zero() {
    assert_ne!(random_key().unwrap(), 0);
    assert_ne!(random_key().unwrap(), random_key().unwrap());
}
